"""Batches: every image once, in an order that nothing but seed and epoch decides."""

from __future__ import annotations

import gc
import itertools
import multiprocessing
import os
import re
import signal
import sys
import time
from collections.abc import Iterable
from multiprocessing import connection
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from invaug.lab.data import batches as module
from invaug.lab.data.batches import Batch, batches, n_batches
from invaug.lab.data.splits import Split, random_order
from invaug.lab.errors import RunError, UserError


def in_memory(n: int) -> Split:
    """A split whose images say which one they are."""
    rows = torch.arange(n)
    pixels = torch.stack([rows % 256, rows // 256], dim=1).to(torch.uint8)
    return Split(rows % 10, pixels[:, :, None, None].repeat(1, 1, 2, 3))


@pytest.fixture(scope="module")
def on_disk(tmp_path_factory: pytest.TempPathFactory) -> Split:
    folder = tmp_path_factory.mktemp("images")
    files = [folder / f"{i}.png" for i in range(30)]
    for i, file in enumerate(files):
        Image.fromarray(np.full((6, 5), i, np.uint8)).save(file)
    return Split(torch.arange(30) % 3, None, tuple(files), (1, 6, 5))


def epoch_of(split: Split, batch_size: int = 8, **options: Any) -> list[Batch]:
    return list(batches(split, batch_size, **{"epoch": 0, "seed": 0, "shuffle": True, **options}))


def rows(found: list[Batch]) -> list[list[int]]:
    return [batch.indices.tolist() for batch in found]


def flat(lists: Iterable[list[int]]) -> list[int]:
    return list(itertools.chain(*lists))


def same(one: list[Batch], other: list[Batch]) -> bool:
    pairs = zip(itertools.chain(*one), itertools.chain(*other), strict=True)
    return all(torch.equal(a, b) and a.dtype == b.dtype for a, b in pairs)


def test_batches_hold_the_images_they_name() -> None:
    for batch in epoch_of(in_memory(700), 64):
        assert (batch.images.dtype, batch.targets.dtype, batch.indices.dtype) == (torch.uint8, torch.int64, torch.int64)
        assert batch.images.shape[1:] == (2, 2, 3)
        named = batch.images[:, 0, 0, 0].long() + 256 * batch.images[:, 1, 0, 0].long()
        assert torch.equal(named, batch.indices)
        assert torch.equal(batch.targets, batch.indices % 10)


def test_without_shuffling_the_order_is_that_of_the_split() -> None:
    assert rows(epoch_of(in_memory(10), 4, shuffle=False)) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_the_order_is_a_function_of_seed_and_epoch_alone() -> None:
    split = in_memory(50)
    torch.manual_seed(1)
    first = rows(epoch_of(split))
    torch.manual_seed(2)
    torch.rand(3)
    np.random.default_rng(3)
    assert rows(epoch_of(split)) == first
    assert flat(first) == random_order(50, 0, 3, 0).tolist()
    others = [rows(epoch_of(split, epoch=epoch, seed=seed)) for epoch, seed in ((1, 0), (0, 1), (1, 1))]
    assert len({str(order) for order in [first, *others]}) == 4


def test_batches_leave_the_global_generators_alone(on_disk: Split) -> None:
    for split, workers in ((in_memory(20), 0), (on_disk, 0), (on_disk, 1)):
        before = torch.get_rng_state(), np.random.get_state()[1].copy()
        epoch_of(split, workers=workers)
        assert torch.equal(torch.get_rng_state(), before[0])
        assert (np.random.get_state()[1] == before[1]).all()


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 60), st.integers(1, 9), st.integers(1, 4), st.booleans(), st.integers(0, 3))
def test_the_ranks_together_make_the_batches_of_one(
    n: int, batch_size: int, world_size: int, drop_last: bool, epoch: int
) -> None:
    split = in_memory(n)
    options: dict[str, Any] = {"epoch": epoch, "drop_last": drop_last}
    if n < (batch_size * world_size if drop_last else world_size):
        with pytest.raises(UserError, match=f"{n} images are too few for a batch of"):
            n_batches(split, batch_size, drop_last, world_size)
        return
    found = [rows(epoch_of(split, batch_size, rank=r, world_size=world_size, **options)) for r in range(world_size)]
    length = n_batches(split, batch_size, drop_last, world_size)
    assert [len(each) for each in found] == [length] * world_size
    assert all(batch for each in found for batch in each)
    together = [flat(parts) for parts in zip(*found, strict=True)]
    order = random_order(n, 0, 3, epoch).tolist()
    whole = batch_size * world_size
    assert flat(together) == (order[: n // whole * whole] if drop_last else order)
    assert all(len(batch) == whole for batch in together[:-1])
    alone = rows(epoch_of(split, whole, **options)) if n >= whole or not drop_last else []
    assert together[:-1] == alone[: len(together) - 1]  # the last may have taken in what was too little for all ranks


def test_an_uneven_last_batch_leaves_no_rank_without_an_image() -> None:
    def sizes(n: int) -> list[list[int]]:
        return [[len(b) for b in rows(epoch_of(in_memory(n), 2, rank=r, world_size=3))] for r in range(3)]

    assert sizes(10) == [[2, 2], [2, 1], [2, 1]]
    assert sizes(8) == [[3], [3], [2]]
    assert sizes(12) == [[2, 2], [2, 2], [2, 2]]


@pytest.mark.parametrize("start", [0, 1, 3, 4, 9])
def test_starting_late_gives_the_rest(on_disk: Split, start: int) -> None:
    for split in (in_memory(30), on_disk):
        assert same(epoch_of(split, start=start), epoch_of(split)[start:])


def test_skipped_batches_are_not_decoded(on_disk: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[Path] = []
    real = module.decode
    monkeypatch.setattr(module, "decode", lambda path, shape, grey_range: (decoded.append(path), real(path, shape))[1])
    found = epoch_of(on_disk, start=3)
    assert len(decoded) == sum(len(batch.indices) for batch in found) == 6


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_workers_do_not_change_the_batches(on_disk: Split, workers: int) -> None:
    assert same(epoch_of(on_disk, workers=workers), epoch_of(on_disk))


def test_files_and_memory_give_the_same_batches(on_disk: Split) -> None:
    pixels = torch.arange(30, dtype=torch.uint8)[:, None, None, None].expand(30, 1, 6, 5).contiguous()
    assert same(epoch_of(on_disk, epoch=4), epoch_of(Split(on_disk.targets, pixels), epoch=4))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_bad_file_is_named_in_one_line_whoever_decodes_it(on_disk: Split, tmp_path: Path, workers: int) -> None:
    bad = tmp_path / "bad.png"
    bad.write_bytes(b"no image")
    files = (*(on_disk.files or ())[:-1], bad)
    split = Split(on_disk.targets, None, files, on_disk.shape)
    with pytest.raises(UserError, match=r"^cannot read image .*bad\.png: not an image of a known kind$"):
        epoch_of(split, workers=workers)


def test_ctrl_c_leaves_the_workers_working(on_disk: Split) -> None:
    stream = batches(on_disk, 1, epoch=0, seed=0, shuffle=True, workers=1)
    next(stream)
    (worker,) = torch.multiprocessing.active_children()
    os.kill(worker.pid or 0, signal.SIGINT)
    assert len(list(stream)) == 29


def test_a_killed_worker_is_one_line_and_only_where_its_batch_is_missing(on_disk: Split) -> None:
    before = signal.getsignal(signal.SIGCHLD)
    stream = batches(on_disk, 1, epoch=0, seed=0, shuffle=True, workers=2)
    next(stream)
    assert signal.getsignal(signal.SIGCHLD) is before  # or torch would raise from here on, wherever we are
    worker = torch.multiprocessing.active_children()[0]
    os.kill(worker.pid or 0, signal.SIGKILL)
    worker.join()
    with pytest.raises(RunError, match=r"^a process that decodes images died \(SIGKILL, perhaps out of memory: .*\)"):
        list(stream)


@pytest.mark.parametrize(
    ("codes", "wanted"),
    [([-7], r"died \(SIGBUS, out of shared memory"), ([3], r"died \(exit code 3\)"), ([], "failed: no more files")],
)
def test_the_death_of_a_worker_is_told_by_its_exit_code(codes: list[int], wanted: str) -> None:
    assert re.search(wanted, module._cause(codes, OSError(24, "no more files")))


def _die_slowly() -> None:
    os.closerange(3, 1000)  # as the kernel does it: the pipes close first, the exit code comes later
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_whose_pipes_closed_is_waited_for_until_it_has_an_exit_code() -> None:
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_die_slowly), context.Process(target=time.sleep, args=(60,))]
    for worker in workers:
        worker.start()
    try:
        connection.wait([workers[0].sentinel])
        assert module._exit_codes(workers) == [-signal.SIGKILL]
    finally:
        workers[1].kill()
        workers[1].join()


def _wait_as_a_worker(ready: Connection) -> None:
    module._start_worker(0, bound=False)
    ready.send("ready")
    signal.pause()


def test_sigterm_ends_a_worker_though_the_main_process_handles_it() -> None:
    before = signal.signal(signal.SIGTERM, lambda *_: None)  # workers inherit it
    try:
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe()
        worker = context.Process(target=_wait_as_a_worker, args=(theirs,))
        worker.start()
        assert ours.recv() == "ready"
        worker.terminate()
        worker.join()
        assert worker.exitcode == -signal.SIGTERM
    finally:
        signal.signal(signal.SIGTERM, before)


def _hang_as_a_worker(ready: Connection) -> None:
    module._start_worker(0, bound=True)
    ready.send("ready")
    time.sleep(600)  # where torch's look at the parent never comes


def _start_one_that_hangs(ready: Connection) -> None:
    multiprocessing.get_context("fork").Process(target=_hang_as_a_worker, args=(ready,)).start()
    signal.pause()


@pytest.mark.skipif(sys.platform != "linux", reason="other kernels do not end a process with its parent")
def test_a_worker_that_hangs_ends_with_a_killed_parent() -> None:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    parent = context.Process(target=_start_one_that_hangs, args=(theirs,))
    parent.start()
    theirs.close()
    assert ours.recv() == "ready"
    parent.kill()
    parent.join()
    assert connection.wait([ours], timeout=60)  # the worker held the other end
    with pytest.raises(EOFError):
        ours.recv()


def test_leaving_an_epoch_early_leaves_no_worker_behind(on_disk: Split) -> None:
    stream = batches(on_disk, 2, epoch=0, seed=0, shuffle=True, workers=2)
    next(stream)
    children = torch.multiprocessing.active_children()
    assert len(children) == 2
    del stream
    gc.collect()
    assert not torch.multiprocessing.active_children()


def test_images_are_moved_to_the_device_once() -> None:
    split, meta = in_memory(20), torch.device("meta")
    images, targets = module._move_once(split, split.images, meta)
    assert (images.device, targets.device, images.shape) == (meta, meta, (20, 2, 2, 3))
    assert module._move_once(split, split.images, meta)[0] is images
    assert module._move_once(split, split.images, torch.device("cpu"))[0] is split.images


def test_images_too_many_for_the_device_stay_and_are_moved_batch_by_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_RESIDENT", 10)
    split = in_memory(20)
    assert module._move_once(split, split.images, torch.device("meta"))[0] is split.images
    assert {batch.images.device.type for batch in epoch_of(split, device="meta")} == {"meta"}
    assert not split.on_device


def test_too_few_images_for_a_batch_are_refused_before_the_first() -> None:
    with pytest.raises(UserError, match="20 images are too few for a batch of 1 x 21 with drop_last"):
        batches(in_memory(20), 21, epoch=0, seed=0, shuffle=True, drop_last=True)
