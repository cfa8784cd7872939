"""Which images are used for what: subsets, held-out images, orders.

Every random choice here is a pure function of the seed, the same for every method, and takes the same share of every
class.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from invaug.lab.data.decode import Shape
from invaug.lab.data.depth import Range
from invaug.lab.errors import UserError

SUBSET, HOLD_OUT, TEST, ORDER = range(4)  # purposes, each with random numbers of its own
Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Split:
    """Images and their classes: either bytes in memory, or files that are decoded on demand to a shape."""

    targets: Tensor
    """int64, shape (n,)."""
    images: Tensor | None = None
    """uint8, shape (n, channels, height, width)."""
    files: tuple[Path, ...] | None = None
    shape: Shape | None = None
    """What the files are decoded to."""
    grey_range: Range | None = None
    """What becomes black and white of files of 16 bits."""
    on_device: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict, repr=False)
    """Copies of images and targets that `batches` made, by device."""

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def image_shape(self) -> Shape:
        """Channels, height and width of an image."""
        if self.images is None:
            return self.shape or (0, 0, 0)
        _, channels, height, width = self.images.shape
        return channels, height, width

    def take(self, rows: Rows) -> Split:
        """Return some of the images, in the order of `rows`."""
        index = torch.from_numpy(rows)
        images = None if self.images is None else self.images.index_select(0, index)
        files = None if self.files is None else tuple(self.files[row] for row in rows)
        return Split(self.targets[index], images, files, self.shape, self.grey_range)


def random_order(n: int, *key: int) -> Rows:
    """Return a random order of n things: a pure function of the key, in every version of every library.

    NumPy guarantees the bits of Philox for good, but not what its generators make of them.
    """
    bits = np.random.Philox(np.random.SeedSequence(key[0], spawn_key=key[1:])).random_raw(n)
    return np.argsort(bits, kind="stable")


def first_of_each_class(targets: Tensor, n_wanted: Sequence[int], order: Rows, part: int = 0) -> NDArray[np.bool_]:
    """Return a mask of `n_wanted` images of each class: the first in the order, so fewer are a subset of more.

    Part 1 is the next as many, and so on: parts have no image in common.
    """
    labels = targets.numpy()
    by_class = order[np.argsort(labels[order], kind="stable")]
    ends = np.cumsum(np.bincount(labels, minlength=len(n_wanted)))
    mask = np.zeros(len(labels), bool)
    for n, rows in zip(n_wanted, np.split(by_class, ends[:-1]), strict=True):
        mask[rows[part * n : (part + 1) * n]] = True
    return mask


def take_subset(
    train: Split, classes: Sequence[str], fraction: float, per_class: int | None, seed: int, *, first: bool = False
) -> Split:
    """Return the same share, or the same number, of the images of each class: random ones, or the first."""
    if per_class is None and fraction == 1:
        return train
    counts = _count_classes(train, classes)
    least = min(counts)
    smallest = classes[counts.index(least)]
    if per_class is not None and per_class > least:
        limit = f"at most {least}, the number of training images of class {smallest}"
        raise UserError(f"per_class must be {limit}, got {per_class}")
    n_wanted = [_share(fraction, count) if per_class is None else per_class for count in counts]
    if not all(n_wanted):
        way_out = f"which has {least}: take at least {1 / least:.2g}"
        raise UserError(f"fraction {fraction} leaves no training image of class {smallest}, {way_out}")
    order = np.arange(len(train)) if first else random_order(len(train), seed, SUBSET)
    return train.take(np.flatnonzero(first_of_each_class(train.targets, n_wanted, order)))


def hold_out(
    split: Split, classes: Sequence[str], fraction: float, what: str, *key: int, part: int = 0, least: int = 0
) -> tuple[Split, Split]:
    """Return what is left, and the share of each class that is held out: the first, or a later part of that size."""
    counts = _count_classes(split, classes)
    n_wanted = [max(_share(fraction, count), least) for count in counts]
    for name, count, n in zip(classes, counts, n_wanted, strict=True):
        if not 0 < n < count:
            way_out = "take a larger share" if n == 0 and count > 1 else "it needs more"
            problem = f"{what} of {fraction:g} leaves a part of class {name} empty"
            raise UserError(f"{problem}, it has {count} images: {way_out}")
        if part * n >= count:
            raise UserError(f"part {part} of {fraction:g}, counted from 0, is empty: class {name} has {count} images")
    held_out = first_of_each_class(split.targets, n_wanted, random_order(len(split), *key), part)
    return split.take(np.flatnonzero(~held_out)), split.take(np.flatnonzero(held_out))


def _count_classes(split: Split, classes: Sequence[str]) -> list[int]:
    counts: list[int] = torch.bincount(split.targets, minlength=len(classes)).tolist()
    return counts


def _share(fraction: float, count: int) -> int:
    return math.floor(fraction * count + 0.5)
