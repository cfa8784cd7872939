"""What the chain of a run kept in its first and in its last epoch, as pictures: from the counts of the record."""

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

from invaug import Op, TransformSet
from invaug.lab.gallery.levels import Shot, Strip, draw_at, shots
from invaug.lab.report.values import Counts
from invaug.lab.train.tally import BINS

QUARTERS = (0.25, 0.5, 0.75)
READING = (
    "Each operation at the levels below which a quarter, half and three quarters of its kept draws were: left in the "
    "first epoch, right, in orange, in the last. The share is that of the operation among all kept: {:,} in the "
    "first epoch, {:,} in the last. Levels are recorded without their sign; shown is plus."
)


def kept_strips(transforms: TransformSet, image: Tensor, first: Counts, last: Counts) -> list[Strip]:
    """Return a strip per operation, those whose share rose most first."""
    rise = {op.name: _share(last, op.name) - _share(first, op.name) for op in transforms.ops}
    order = sorted(range(len(transforms.ops)), key=lambda i: -rise[transforms.ops[i].name])
    strips = [[*_of_epoch(transforms, i, image, first), *_of_epoch(transforms, i, image, last, True)] for i in order]
    return [strip for strip in strips if strip]


def _of_epoch(transforms: TransformSet, i: int, image: Tensor, kept: Counts, is_last: bool = False) -> Strip:
    """Return the image at the quarters of what an epoch kept of an operation; nothing if it kept none."""
    op, epoch = transforms.ops[i], "last" if is_last else "first"
    counts = kept.get(op.name, ())
    if not any(counts):
        return []
    sizes = [_size(op, column, transforms.n_levels) for column in quantiles(counts)]
    found = shots(transforms, image, draw_at(op, i, list(dict.fromkeys(sizes))))
    words = f"{epoch} epoch, {_share(kept, op.name):.1%}"
    return [Shot(shot.image, f"{shot.caption}: {words}", is_last) for shot in found]


def quantiles(counts: Sequence[int], shares: Sequence[float] = QUARTERS) -> list[int]:
    """Return the lowest columns at or below which these shares of all counts are.

    Example:
        >>> quantiles([0, 1, 1, 2])
        [1, 2, 3]
    """
    sums, total = list(accumulate(counts)), sum(counts)
    return [next(i for i, below in enumerate(sums) if below >= share * total) for share in shares]


def _size(op: Op, column: int, n_levels: int) -> float:
    """Return the magnitude of a column of the record: a level, or the middle of a bin of a continuous range."""
    if op.continuous:
        low = -op.stop if op.signed else op.start
        return low + (column + 0.5) / BINS * (op.stop - low)
    return float(op.magnitude(torch.tensor(min(column, n_levels - 1)), n_levels))


def reading(first: Counts, last: Counts) -> str:
    """Return how to read the strips, and on how many draws they rest."""
    return READING.format(_total(first), _total(last))


def _total(kept: Counts) -> int:
    return sum(map(sum, kept.values()))


def _share(kept: Counts, name: str) -> float:
    return sum(kept.get(name, ())) / max(_total(kept), 1)
