"""The compiled loops give the bytes of the torch kernels: forked, threaded, on any number of threads, or not at all."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from invaug import Draw, TransformSet, sets
from invaug.kernels import dispatch

EVERY = TransformSet(sets.wide().ops + sets.EXTRA)
N_LARGE = 96  # images of 64 × 64 in colour: enough bytes for several threads
numba = pytest.importorskip("numba", reason="NOT TESTED: the compiled loops need numba (extra `fast`)")


@pytest.fixture(scope="module")
def large(make_images) -> Tensor:
    images = make_images(N_LARGE, 64, 64, 3)
    assert images.numel() >= 2 * dispatch.BYTES_PER_THREAD
    return images


@pytest.fixture(scope="module")
def draw() -> Draw:
    return EVERY.draw(N_LARGE, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def thread_counts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that fills with the number of threads of each call that shares the work."""
    counts: list[int] = []
    pool = dispatch._pool

    def note(process: int, n_threads: int):
        counts.append(n_threads)
        return pool(process, n_threads)

    monkeypatch.setattr(dispatch, "_pool", note)
    return counts


@pytest.mark.parametrize("n_channels", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (16, 16), (9, 40)])
def test_compiled_and_torch_back_ends_give_the_same_bytes(make_bytes, apply_by_torch, n_channels: int, shape) -> None:
    every = EVERY.every()
    images = make_bytes(len(every), n_channels, *shape)
    assert torch.equal(EVERY.apply(images, every), apply_by_torch(EVERY, images, every))


def test_number_of_threads_does_not_change_a_byte(large, draw, apply_by_torch, two_threads, thread_counts) -> None:
    shared = EVERY.apply(large, draw)
    assert thread_counts == [2]
    torch.set_num_threads(1)
    alone = EVERY.apply(large, draw)
    assert thread_counts == [2]
    assert torch.equal(shared, alone)
    assert torch.equal(shared, apply_by_torch(EVERY, large, draw))


def test_small_batches_stay_on_one_thread(large, draw, two_threads, thread_counts) -> None:
    EVERY.apply(large[:2], draw[:2])
    EVERY.apply(large[:1].repeat(1, 1, 8, 8), draw[:1])
    assert thread_counts == []


def test_calls_from_several_python_threads_do_not_disturb_each_other(large, two_threads, thread_counts) -> None:
    draws = [EVERY.draw(N_LARGE, generator=torch.Generator().manual_seed(seed)) for seed in range(24)]
    expected = [EVERY.apply(large, draw) for draw in draws]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda draw: EVERY.apply(large, draw), draws))
    assert all(torch.equal(result, one) for result, one in zip(results, expected, strict=True))
    assert len(thread_counts) > len(draws)


def test_error_in_the_loops_reaches_the_caller(large, draw, two_threads, monkeypatch, apply_by_torch) -> None:
    from invaug.kernels import by_numba

    def fail(*_) -> None:
        raise MemoryError("no room")

    with monkeypatch.context() as patched:
        patched.setattr(by_numba, "transform_all", fail)
        with pytest.raises(MemoryError, match="no room"):
            EVERY.apply(large, draw)
    assert torch.equal(EVERY.apply(large, draw), apply_by_torch(EVERY, large, draw))


def apply_into(target: Tensor, images: Tensor, draw: Draw) -> None:
    torch.set_num_threads(2)
    changed = EVERY.apply(images, draw)
    torch.set_num_threads(1)  # torch's own threads do not survive a fork: a large copy would hang
    target.copy_(changed)


# Python 3.12 warns of every fork of a process with threads, which is the very thing tried here
forks = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@forks
def test_forked_child_gives_the_same_bytes_after_the_parent_used_its_threads(large, draw, two_threads) -> None:
    expected = EVERY.apply(large, draw)
    target = torch.zeros_like(large).share_memory_()
    child = multiprocessing.get_context("fork").Process(target=apply_into, args=(target, large, draw))
    child.start()
    child.join(120)
    if child.is_alive():
        child.kill()
    assert child.exitcode == 0, "the child hangs or crashed"
    assert torch.equal(target, expected)


class Batches(Dataset):
    """Two batches, transformed where they are loaded."""

    def __init__(self, images: Tensor, draw: Draw) -> None:
        self.images, self.draw = images, draw

    def __len__(self) -> int:
        return 2

    def __getitem__(self, i: int) -> Tensor:
        if i >= 2:
            raise IndexError(i)
        return EVERY.apply(self.images[i::2], self.draw[slice(i, None, 2)])


@forks
def test_worker_of_a_data_loader_gives_the_same_bytes(large, draw, two_threads) -> None:
    expected = EVERY.apply(large, draw)
    loader = DataLoader(
        Batches(large, draw), batch_size=None, num_workers=1, multiprocessing_context="fork", timeout=120
    )
    for i, batch in enumerate(loader):
        assert torch.equal(batch, expected[i::2])


def refuse(*_) -> Tensor:
    raise AssertionError("the compiled path was taken")


def test_torch_path_is_taken_without_numba_and_gives_the_same_bytes(large, draw, monkeypatch) -> None:
    expected = EVERY.apply(large, draw)
    monkeypatch.setattr(dispatch, "has_numba", lambda: False)
    monkeypatch.setattr(dispatch, "transform_compiled", refuse)
    assert torch.equal(EVERY.apply(large, draw), expected)


def test_single_operations_take_the_torch_path_without_numba(large, monkeypatch) -> None:
    magnitudes = torch.full((N_LARGE,), 20.0)
    expected = {op.name: op(large, magnitudes) for op in EVERY.ops}
    monkeypatch.setattr(dispatch, "has_numba", lambda: False)
    monkeypatch.setattr(dispatch, "transform_compiled", refuse)
    for op in EVERY.ops:
        assert torch.equal(op(large, magnitudes), expected[op.name]), op.name


def test_compiled_path_is_taken_on_the_cpu(large, draw, monkeypatch) -> None:
    monkeypatch.setattr(dispatch, "transform_compiled", refuse)
    with pytest.raises(AssertionError, match="the compiled path was taken"):
        EVERY.apply(large, draw)


def test_every_operation_has_a_code_of_its_own() -> None:
    assert sorted(op.function.code for op in EVERY.ops) == list(range(len(EVERY.ops)))
