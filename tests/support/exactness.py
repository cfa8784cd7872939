"""What "byte for byte" is measured on: every operation at every level and sign of every set, at many sizes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import torch
from torch import Tensor

from invaug import Draw, Op, TransformSet, sets

SQUARES = [(side, side) for side in (1, 2, 3, 7, 8, 28, 32, 33, 64, 224)]
OBLONGS = [(1, 9), (9, 1), (5, 40), (31, 17)]
MODES = {"L": 1, "RGB": 3}
TABLES = [make(n_levels) for make in (sets.standard, sets.wide, sets.mild) for n_levels in (30, 31)]
EVERY = TransformSet(sets.wide().ops + sets.EXTRA)
CHUNK_BYTES = 2**21  # images at a time: enough to mix operations, few enough for the indices to stay in the cache


def chunks(n: int, height: int, width: int, n_channels: int) -> Iterator[slice]:
    size = max(8, CHUNK_BYTES // (height * width * n_channels))
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


def levels_of(op: Op, n_levels: int) -> Tensor:
    """Return the magnitude of every level, and of its mirror image if it has a sign."""
    magnitudes = op.magnitude(torch.arange(n_levels), n_levels)
    return torch.cat([magnitudes, -magnitudes]) if op.signed else magnitudes


@cache
def magnitudes_of(name: str) -> Tensor:
    """Return every magnitude an operation takes at some level of some set, each once."""
    named = [(op, table.n_levels) for table in TABLES for op in (*table.ops, *sets.EXTRA) if op.name == name]
    return torch.cat([levels_of(op, n_levels) for op, n_levels in named]).unique()


def places_for(n: int) -> Tensor:
    """Return places that include the first and the last there are."""
    places = torch.rand(n, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(n))
    places[:2] = torch.tensor([[0.0, 1 - 2**-53], [1 - 2**-53, 0.0]], dtype=torch.float64)[:n]
    return places


def draw_of(names: list[str], magnitudes: Tensor, places: Tensor) -> Draw:
    op = torch.tensor([EVERY.names.index(name) for name in names], dtype=torch.int64)
    return Draw(op, torch.full_like(op, -1), magnitudes.double(), places)


def every_case() -> list[tuple[str, float]]:
    """Return every operation with every magnitude it takes."""
    return [(name, magnitude) for name in EVERY.names for magnitude in magnitudes_of(name).tolist()]
