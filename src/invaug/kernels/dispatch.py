"""Which back end transforms a batch of bytes: compiled loops on CPUs with numba, torch everywhere else.

Plain torch reads a batch once per kernel and pays for every call. The compiled loop makes one pass over each image,
whatever its operation, on as many threads as torch uses. The torch kernels serve GPUs, and are the reference that the
loops are tested against.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from invaug.kernels import by_torch, rules
from invaug.kernels.rules import Actions, Array

BYTES_PER_THREAD = 512 * 1024  # with less work than this, starting a second thread costs more than it saves


@cache
def has_numba() -> bool:
    """Return whether numba is installed.

    Example:
        >>> has_numba() == (find_spec("numba") is not None)
        True
    """
    return find_spec("numba") is not None


def can_run_compiled(images: Tensor) -> bool:
    """Return whether the compiled loops can take these images: CPU tensors, numba installed, outside torch.compile.

    Example:
        >>> can_run_compiled(torch.zeros(2, 3, 8, 8, device="meta"))
        False
    """
    return images.device.type == "cpu" and not torch.compiler.is_compiling() and has_numba()


def transform(images: Tensor, actions: Actions) -> Tensor:
    """Return a new uint8 batch, each image under the operation its code names; both back ends give the same bytes.

    Args:
        images: uint8, shape (batch, channels, height, width).
        actions: One code, magnitude and place per image.

    Example:
        >>> images = torch.tensor([[[[0, 100]]]], dtype=torch.uint8)
        >>> invert = Actions(np.array([rules.INVERT]), np.zeros(1), np.zeros((1, 2)), (rules.INVERT,))
        >>> transform(images, invert).tolist()
        [[[[255, 155]]]]
    """
    return transform_compiled(images, actions) if can_run_compiled(images) else by_torch.transform(images, actions)


def transform_compiled(images: Tensor, actions: Actions) -> Tensor:
    """Return what `transform` returns, by the compiled loops; needs numba and CPU tensors.

    Example:
        >>> images = torch.tensor([[[[0, 100]]]], dtype=torch.uint8)
        >>> flip = Actions(np.array([rules.FLIP_X]), np.zeros(1), np.zeros((1, 2)), (rules.FLIP_X,))
        >>> transform_compiled(images, flip).tolist() if has_numba() else [[[[100, 0]]]]
        [[[[100, 0]]]]
    """
    from invaug.kernels import by_numba  # here, because numba takes half a second to import

    target = torch.empty_like(images, memory_format=torch.contiguous_format)
    moved, known = (_rows_with(actions.codes, codes) for codes in (rules.MOVES, rules.KNOWN))
    maps, tables = np.empty((len(images), 6), np.int64), np.empty((len(images), 256), np.uint8)
    maps[moved] = rules.fixed_point(rules.maps(actions.rows(moved), *images.shape[2:]))
    tables[known] = rules.tables(actions.rows(known))
    numbers = map(np.ascontiguousarray, (actions.codes, actions.magnitudes, actions.places, maps, tables))
    run_in_threads(by_numba.transform_all, [images.contiguous().numpy(), target.numpy(), *numbers])
    return target


def _rows_with(codes: Array, wanted: range) -> Array:
    return np.flatnonzero((codes >= wanted.start) & (codes < wanted.stop))


def run_in_threads(function: Callable[..., None], arrays: list[Any]) -> None:
    """Call the function on slices of the arrays along their first dimension, in threads where there is enough work.

    There are two slices per thread, so that a slow slice does not keep the other threads idle.

    Example:
        >>> source, target = np.arange(4), np.zeros(4, int)
        >>> run_in_threads(lambda read, written: np.copyto(written, read), [source, target])
        >>> target
        array([0, 1, 2, 3])
    """
    # Threads of our own, not numba's: those spin, which costs ten times the work on a busy machine, and die in forks.
    n_rows = len(arrays[0])
    n_threads = min(torch.get_num_threads(), n_rows, arrays[0].nbytes // BYTES_PER_THREAD)
    if n_threads < 2:
        function(*arrays)
        return
    n_parts = 2 * n_threads
    cuts = [n_rows * i // n_parts for i in range(n_parts + 1)]
    parts = [[array[a:b] for array in arrays] for a, b in pairwise(cuts)]
    for _ in _pool(os.getpid(), n_threads).map(lambda part: function(*part), parts):
        pass  # reading the results raises what a thread raised


@cache
def _pool(_process: int, n_threads: int) -> ThreadPoolExecutor:
    """Return the threads of this process; a forked child has another id and so gets its own."""
    return ThreadPoolExecutor(n_threads, thread_name_prefix="invaug")
