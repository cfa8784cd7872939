"""All byte operations in one pass over each image: the fast path on CPUs, when numba is installed.

Plain torch reads a batch once per kernel and pays for every call; here one compiled loop does whatever each image asks
for, on as many threads as torch uses. The torch kernels remain for GPUs, and as the reference this is tested against.
"""

from __future__ import annotations

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

from invaug.kernels import rules
from invaug.kernels.rules import Actions, Array

BYTES_PER_THREAD = 512 * 1024  # below this a second thread costs more than it brings


@cache
def available() -> bool:
    """Whether numba is installed."""
    return find_spec("numba") is not None


def usable(images: Tensor) -> bool:
    """Whether these images can go this way: on the CPU, with numba there, and not through torch.compile."""
    return images.device.type == "cpu" and not torch.compiler.is_compiling() and available()


def apply(images: Tensor, actions: Actions) -> Tensor:
    """Return a new uint8 CPU batch, each image under the operation its code names."""
    from invaug.kernels import by_numba  # here, because numba takes half a second to import

    target = torch.empty_like(images, memory_format=torch.contiguous_format)
    moved, known = (_between(actions.codes, codes) for codes in (rules.MOVES, rules.KNOWN))
    maps, tables = np.empty((len(images), 6), np.int64), np.empty((len(images), 256), np.uint8)
    maps[moved] = rules.fixed_point(rules.maps(actions.rows(moved), *images.shape[2:]))
    tables[known] = rules.tables(actions.rows(known))
    numbers = (actions.codes, actions.magnitudes, actions.places, maps, tables)
    share_out(
        by_numba.transform_all, [images.contiguous().numpy(), target.numpy(), *map(np.ascontiguousarray, numbers)]
    )
    return target


def _between(codes: Array, wanted: range) -> Array:
    return np.flatnonzero((codes >= wanted.start) & (codes < wanted.stop))


def share_out(function: Callable[..., None], arrays: list[Any]) -> None:
    """Call the function on slices of the arrays, two for each thread, so that a slow one is made up for."""
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
        pass


@cache
def _pool(_process: int, n_threads: int) -> ThreadPoolExecutor:
    """Return the threads of this process; a forked child has another id and so gets its own."""
    return ThreadPoolExecutor(n_threads, thread_name_prefix="invaug")
