"""Batches: the images of a split in an order that is a pure function of seed and epoch."""

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils import data

from invaug.lab.data.decode import decode, quiet
from invaug.lab.data.load import MAX_RESIDENT
from invaug.lab.data.splits import ORDER, Rows, Split, random_order
from invaug.lab.errors import RunError, UserError, reason_of

PR_SET_PDEATHSIG = 1  # of prctl(2)
PREFETCH = 4  # batches each worker is ahead
DYING = 2.0  # seconds that a worker may take to end after its pipes have closed
DEATHS = {
    "SIGKILL": ", perhaps out of memory: lower --workers or --batch-size",
    "SIGBUS": ", out of shared memory: lower --workers or --batch-size, or enlarge /dev/shm",
}


class Batch(NamedTuple):
    """Some images of a split."""

    images: Tensor
    """uint8, shape (batch, channels, height, width)."""
    targets: Tensor
    """int64, shape (batch,)."""
    indices: Tensor
    """Which images of the split they are, int64, shape (batch,)."""


def n_batches(split: Split, batch_size: int, drop_last: bool = False, world_size: int = 1) -> int:
    """Return the number of batches of an epoch, the same on every rank."""
    return len(_bounds(len(split), batch_size, drop_last, world_size)) - 1


def batches(
    split: Split,
    batch_size: int,
    *,
    epoch: int,
    seed: int,
    shuffle: bool,
    drop_last: bool = False,
    device: torch.device | str = "cpu",
    workers: int = 0,
    rank: int = 0,
    world_size: int = 1,
    start: int = 0,
) -> Iterator[Batch]:
    """Return the batches of one epoch on a device.

    Args:
        batch_size: Images per batch and rank; the batches of all ranks together are one batch of a single rank.
        drop_last: Whether to leave out a smaller last batch; otherwise fewer images than ranks join the batch before.
        workers: Processes that decode files; they change how fast batches arrive, not what is in them.
        start: Number of batches to skip, without decoding them.
    """
    bounds = _bounds(len(split), batch_size, drop_last, world_size)
    order = random_order(len(split), seed, ORDER, epoch) if shuffle else np.arange(len(split))
    rows = [
        np.array_split(order[first:last], world_size)[rank]
        for first, last in zip(bounds[start:-1], bounds[start + 1 :], strict=True)
    ]
    if split.images is None:
        return _from_files(split, rows, torch.device(device), workers)
    return _from_memory(split, split.images, rows, torch.device(device))


def _bounds(n: int, batch_size: int, drop_last: bool, world_size: int) -> list[int]:
    """Return where each batch of all ranks together starts, and where the last one ends."""
    whole = batch_size * world_size
    if n < (whole if drop_last else world_size):
        reason = f"{world_size} x {batch_size} with drop_last" if drop_last else f"{world_size} ranks"
        raise UserError(f"{n} images are too few for a batch of {reason}: lower batch_size or leave out drop_last")
    bounds = list(range(0, n + 1, whole))
    rest = n - bounds[-1]
    if rest and not drop_last:
        # a rank without an image could not take its step, so fewer images than ranks join the batch before
        bounds = [*bounds, n] if rest >= world_size else [*bounds[:-1], n]
    return bounds


def _from_memory(split: Split, images: Tensor, rows: list[Rows], device: torch.device) -> Iterator[Batch]:
    images, targets = _move_once(split, images, device)
    for row in rows:
        indices = torch.from_numpy(row)
        chosen = indices.to(images.device)
        picked = images.index_select(0, chosen)  # thirty times as fast as images[chosen]
        yield Batch(picked.to(device), targets[chosen].to(device), indices.to(device))


def _move_once(split: Split, images: Tensor, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return all images and targets on the device; too many stay where they are."""
    if images.device == device or images.nbytes > MAX_RESIDENT:
        return images, split.targets
    if str(device) not in split.on_device:
        split.on_device[str(device)] = images.to(device), split.targets.to(device)
    return split.on_device[str(device)]


class _Decoder(data.Dataset[Tensor | str]):
    """Decodes a whole batch, in whatever process: a bad image comes back as a message, not as a foreign traceback."""

    def __init__(self, split: Split) -> None:
        self.split = split

    def __getitem__(self, rows: Rows) -> Tensor | str:
        files, shape, grey_range = self.split.files or (), self.split.image_shape, self.split.grey_range
        try:
            with quiet():
                return torch.from_numpy(np.stack([decode(files[row], shape, grey_range) for row in rows]))
        except UserError as error:
            return str(error)


def _make_loader(split: Split, rows: list[Rows], device: torch.device, workers: int) -> data.DataLoader[Any]:
    with quiet():  # torch warns of more workers than cores, which the user asked for
        return data.DataLoader(
            _Decoder(split),
            batch_size=None,  # an item is a batch already
            sampler=rows,
            num_workers=workers,
            prefetch_factor=PREFETCH if workers else None,
            pin_memory=device.type == "cuda",
            worker_init_fn=partial(_start_worker, bound=threading.current_thread() is threading.main_thread()),
            generator=torch.Generator(),  # or it would draw from torch's own, and a resumed run would differ
        )


def _start_worker(_: int, *, bound: bool) -> None:
    """Drop the signal handlers that a worker inherits: SIGTERM must end a worker, the others are for the main process.

    Args:
        bound: Whether the worker ends with the thread that started it.
    """
    for name in ("SIGINT", "SIGHUP", "SIGUSR1"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if bound and sys.platform == "linux":
        # the kernel ends it: torch's own check, every five seconds, fails if a thread of the worker hangs
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
        parent = multiprocessing.parent_process()
        if parent is not None and os.getppid() != parent.pid:  # it was killed before this
            os._exit(1)


def _from_files(split: Split, rows: list[Rows], device: torch.device, workers: int) -> Iterator[Batch]:
    loader = _make_loader(split, rows, device, min(workers, len(rows)))
    for row, images in zip(rows, _receive_decoded(loader), strict=True):
        if isinstance(images, str):
            raise UserError(images)
        indices = torch.from_numpy(row)
        targets = split.targets[indices]
        yield Batch(images.to(device, non_blocking=True), targets.to(device), indices.to(device))


def _receive_decoded(loader: data.DataLoader[Any]) -> Iterator[Tensor | str]:
    """Yield what the loader sends; a worker that died gives one clear line, and only here.

    torch would raise from a signal handler, in the middle of whatever the main process does at that moment. Without
    that handler the death is noticed when a batch is missing, within five seconds.
    """
    before = signal.getsignal(signal.SIGCHLD) if hasattr(signal, "SIGCHLD") else None
    with quiet():
        stream = iter(loader)
    if before is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGCHLD, before)
    try:
        yield from stream
    except (RuntimeError, OSError, EOFError) as error:
        if not loader.num_workers:
            raise
        codes = _exit_codes(getattr(stream, "_workers", ()))
        raise RunError(f"{_cause(codes, error)}; continue the training with --resume") from error


def _exit_codes(workers: Sequence[BaseProcess]) -> list[int]:
    """Return the exit codes of the workers that failed; one that is dying closes its pipes before it has a code."""
    ended = connection.wait([worker.sentinel for worker in workers], timeout=DYING)
    for worker in workers:
        if worker.sentinel in ended:
            worker.join()
    return [worker.exitcode for worker in workers if worker.exitcode]


def _cause(codes: list[int], error: Exception) -> str:
    """Return why a worker stopped, as far as its exit code tells."""
    if not codes:
        return f"the processes that decode images failed: {reason_of(error)}"
    name = {-one.value: one.name for one in signal.Signals}.get(codes[0], f"exit code {codes[0]}")
    return f"a process that decodes images died ({name}{DEATHS.get(name, '')})"
