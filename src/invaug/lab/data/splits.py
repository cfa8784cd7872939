"""Which images are used for what: subsets, held-out images, orders.

Whatever is chosen at random here is a pure function of the seed, the same for every method, and takes the same share
of every class.
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
from invaug.lab.errors import UserError

SUBSET, HOLD_OUT, TEST, ORDER = range(4)  # purposes, each with random numbers of its own


@dataclass(frozen=True, eq=False)
class Split:
    """Images and their classes: bytes in memory, or files that are decoded on demand."""

    targets: Tensor
    """int64, shape (n,)."""
    images: Tensor | None = None
    """uint8, shape (n, channels, height, width)."""
    files: tuple[Path, ...] | None = None
    shape: Shape | None = None
    """What the files are decoded to."""
    on_device: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict, repr=False)
    """Copies of images and targets that `batches` made, by device."""

    def __post_init__(self) -> None:
        if (self.images is None) == (self.files is None) or (self.files is None) != (self.shape is None):
            raise ValueError("a split has either images, or files and their shape")
        n_images = len(self.images if self.files is None else self.files)  # type: ignore[arg-type]
        if n_images != len(self.targets):
            raise ValueError(f"a split has one target per image, got {len(self.targets)} for {n_images} images")

    def __len__(self) -> int:
        return len(self.targets)

    def take(self, rows: NDArray[np.int64]) -> Split:
        """Return some of the images, in the order of `rows`."""
        index = torch.from_numpy(rows)
        images = None if self.images is None else self.images.index_select(0, index)
        files = None if self.files is None else tuple(self.files[row] for row in rows)
        return Split(self.targets[index], images, files, self.shape)


def random_order(n: int, *key: int) -> NDArray[np.int64]:
    """Return a random order of n things: a pure function of the key, in every version of every library.

    NumPy promises the bits of Philox for good, but not what its generators make of them.
    """
    bits = np.random.Philox(np.random.SeedSequence(key[0], spawn_key=key[1:])).random_raw(n)
    return np.argsort(bits, kind="stable")


def stratified(targets: Tensor, n_wanted: NDArray[np.int64], *key: int, part: int = 0) -> NDArray[np.bool_]:
    """Return a mask of `n_wanted` images of each class: the first after a shuffle, so fewer are a subset of more.

    Part 1 is the next as many, and so on: parts have no image in common.
    """
    return _of_each_class(targets, n_wanted, random_order(len(targets), *key), part)


def _of_each_class(
    targets: Tensor, n_wanted: NDArray[np.int64], order: NDArray[np.int64], part: int = 0
) -> NDArray[np.bool_]:
    """Return a mask of `n_wanted` images of each class, as they come in an order."""
    labels = targets.numpy()
    by_class = order[np.argsort(labels[order], kind="stable")]
    counts = np.bincount(labels, minlength=len(n_wanted))
    rank = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
    mask = np.zeros(len(labels), bool)
    mask[by_class] = rank // np.maximum(np.repeat(n_wanted, counts), 1) == part
    mask[by_class] &= np.repeat(n_wanted > 0, counts)
    return mask


def subset(
    train: Split, classes: Sequence[str], fraction: float, per_class: int | None, seed: int, *, first: bool = False
) -> Split:
    """Return the same share, or the same number, of the images of each class: at random, or the first."""
    if per_class is None and fraction == 1:
        return train
    counts = np.bincount(train.targets, minlength=len(classes))
    least = int(counts.argmin())
    if per_class is not None and per_class > counts[least]:
        limit = f"at most {counts[least]}, the number of training images of class {classes[least]}"
        raise UserError(f"per_class must be {limit}, got {per_class}")
    n_wanted = _share(fraction, counts) if per_class is None else np.full_like(counts, per_class)
    if not n_wanted.all():
        way_out = f"which has {counts[least]}: take at least {1 / counts[least]:.2g}"
        raise UserError(f"fraction {fraction} leaves no training image of class {classes[least]}, {way_out}")
    order = np.arange(len(train)) if first else random_order(len(train), seed, SUBSET)
    return train.take(np.flatnonzero(_of_each_class(train.targets, n_wanted, order)))


def _share(fraction: float, counts: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.array([math.floor(fraction * count + 0.5) for count in counts.tolist()], np.int64)


def divide(
    split: Split, classes: Sequence[str], fraction: float, what: str, seed: int, purpose: int, part: int = 0
) -> tuple[Split, Split]:
    """Return what is left, and the share of each class that is held out: the first, or a later part of that size."""
    counts = np.bincount(split.targets, minlength=len(classes))
    n_wanted = _share(fraction, counts)
    for name, count, n in zip(classes, counts, n_wanted, strict=True):
        if not 0 < n < count:
            least = "take a larger share" if n == 0 and count > 1 else "it needs more"
            raise UserError(
                f"{what} of {fraction:g} leaves a part of class {name} empty, it has {count} images: {least}"
            )
        if part * n >= count:
            raise UserError(f"part {part} of {fraction:g}, counted from 0, is empty: class {name} has {count} images")
    held_out = stratified(split.targets, n_wanted, seed, purpose, part=part)
    return split.take(np.flatnonzero(~held_out)), split.take(np.flatnonzero(held_out))
