"""Datasets: a known name, an .npz or a folder of images becomes training, validation and test images as bytes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from invaug.lab.data import splits, synthetic
from invaug.lab.data.check import OnBad, usable
from invaug.lab.data.decode import Shape, choose_shape, decode_all, resize_all
from invaug.lab.data.folder import Files, Listing, list_folder
from invaug.lab.data.known import SOURCES, Source, obtain
from invaug.lab.data.npz import check_classes, read_npz
from invaug.lab.data.readers import Arrays
from invaug.lab.data.splits import HOLD_OUT, TEST, Split, divide
from invaug.lab.errors import UserError, nearest
from invaug.transforms.images import MAX_SIDE

Subset = Literal["random", "first"]
MAX_RESIDENT = 1_500_000_000  # bytes of pixels that live in memory and on the device: Tiny ImageNet (1.35e9) fits
TEST_FRACTION = 0.2  # of a dataset that has no test images of its own
N_MEASURED = 1024  # images whose mean and std stand for a dataset too large for memory


@dataclass(frozen=True)
class Dataset:
    """Everything training needs to know of the data."""

    name: str
    train: Split
    val: Split | None
    test: Split
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    image_shape: Shape


def load_dataset(
    data: str,
    *,
    data_dir: Path | None = None,
    fraction: float = 1.0,
    per_class: int | None = None,
    subset: Subset = "random",
    val_fraction: float = 0.0,
    val_fold: int = 0,
    image_size: int | None = None,
    seed: int = 0,
    download: bool = True,
    on_bad: OnBad = "stop",
    with_test: bool = True,
) -> Dataset:
    """Return a dataset by its known name, or from an .npz file or a folder of images.

    Args:
        data_dir: Where known datasets lie or are downloaded to; else INVAUG_DATA, else the user's cache.
        fraction: Share of the training images of each class that is used.
        per_class: Number of training images of each class that is used.
        subset: Which these are: random ones, or the first, in a folder by name.
        val_fraction: Share of those that is held out for choices.
        val_fold: Which part of that size is held out, counted from 0: folds of a cross-validation.
        image_size: Side the images are resized and cropped to; `decoding.choose_shape` says what happens without.
        on_bad: Whether image files that cannot be used stop the loading, or are left out if they are few.
        with_test: False leaves all test images but one where they are.
    """
    _check_options(fraction, per_class, val_fraction, image_size, seed, on_bad)
    name, (train, val, test, classes) = _found(data, data_dir, image_size, download, on_bad)
    test = test if with_test else test.take(np.arange(1))
    train = splits.subset(train, classes, fraction, per_class, seed, first=subset == "first")
    if val_fraction and val is not None:
        raise UserError(f"{data} has validation images of its own: leave out val_fraction, got {val_fraction}")
    if val_fraction:
        train, val = divide(train, classes, val_fraction, "val_fraction", seed, HOLD_OUT, val_fold)
    fits = sum(_n_bytes(split) for split in (train, val, test)) <= MAX_RESIDENT
    train, test = _prepared(train, image_size, fits), _prepared(test, image_size, fits)
    mean, std = _moments(train, SOURCES.get(data, Source("")))  # a planted dataset has moments of its own
    return Dataset(
        name, train, _prepared(val, image_size, fits) if val else None, test, classes, mean, std, _shape_of(train)
    )


def peek_dataset(data: str, *, data_dir: Path | None = None) -> tuple[int, Shape, bool]:
    """Return how many training images a dataset has, their shape, and if it has validation images; decodes no file."""
    _, parts = _found(data, data_dir, None, True, "stop")
    return len(parts.train), _shape_of(parts.train), parts.val is not None


def _found(data: str, data_dir: Path | None, image_size: int | None, download: bool, on_bad: OnBad) -> tuple[str, _All]:
    """Return the name of a dataset and its parts, files not yet decoded."""
    try:
        name, content = _open(data, data_dir, download)
        if isinstance(content, Listing):
            content = usable(content, on_bad)
    except OSError as error:  # no permission, a name too long
        raise UserError(f"cannot read {error.filename or data}: {error.strerror or error}") from error
    source = SOURCES.get(data, Source(""))  # a folder of yours may be called mnist and still be yours
    found = _from_files(content, source.shape, image_size) if isinstance(content, Listing) else _from_arrays(content)
    train, val, test, classes = _plant(found, data)
    if test is None:  # the same test images whatever the seed
        train, test = divide(train, classes, TEST_FRACTION, "a test set", 0, TEST)
    return name, _All(train, val, test, classes)


def _check_options(
    fraction: float, per_class: int | None, val_fraction: float, image_size: int | None, seed: int, on_bad: str
) -> None:
    rules = (
        (0 < fraction <= 1, f"fraction must be above 0 and at most 1, got {fraction}"),
        (per_class is None or per_class >= 1, f"per_class must be at least 1, got {per_class}"),
        (per_class is None or fraction == 1, f"give fraction or per_class, not both: got {fraction} and {per_class}"),
        (0 <= val_fraction < 1, f"val_fraction must be at least 0 and below 1, got {val_fraction}"),
        (image_size is None or 1 <= image_size <= MAX_SIDE, f"image_size must be 1 to {MAX_SIDE}, got {image_size}"),
        (seed >= 0, f"seed must be at least 0, got {seed}"),
        (on_bad in get_args(OnBad), f"on_bad must be stop or skip, got {on_bad}"),
    )
    for kept, message in rules:
        if not kept:
            raise UserError(message)


def _open(data: str, data_dir: Path | None, download: bool) -> tuple[str, Arrays | Listing]:
    """Return the name of a dataset and what was found under it."""
    known, _, kind = data.partition("+")
    if known in SOURCES and (known == data or not Path(data).exists()):
        if kind:
            synthetic.find(kind)
        found = obtain(known, data_dir, download=download)
        return data, read_npz(found) if isinstance(found, Path) else found
    path = Path(data).expanduser()
    if data and path.is_dir():
        return path.resolve().name, list_folder(path)
    if path.suffix.lower() == ".npz" and path.is_file():
        return path.stem, read_npz(path)
    if data and path.exists():
        raise UserError(f"{data} is neither a folder of images nor an .npz file")
    if (path.name != data or path.suffix) and not get_close_matches(data.lower(), SOURCES, 1, 0.75):
        raise UserError(f"{data or 'the empty path'} does not exist: give a folder of images, an .npz or a known name")
    raise UserError(f"unknown dataset {data}, nor is it a file or folder: {nearest(data.lower(), SOURCES)}")


class _All(NamedTuple):
    train: Split
    val: Split | None
    test: Split
    classes: tuple[str, ...]


class _Found(NamedTuple):
    train: Split
    val: Split | None
    test: Split | None
    classes: tuple[str, ...]


def _from_files(listing: Listing, known: Shape | None, image_size: int | None) -> _Found:
    parts = (listing.train, listing.val, listing.test)
    if known is None:
        shape = choose_shape([path for part in parts if part for path in part.paths], image_size)
    else:
        shape = (known[0], image_size or known[1], image_size or known[2])

    def split(part: Files) -> Split:
        return Split(torch.tensor(part.targets, dtype=torch.int64), None, part.paths, shape)

    val, test = (split(part) if part else None for part in parts[1:])
    return _Found(split(listing.train), val, test, listing.classes)


def _from_arrays(arrays: Arrays) -> _Found:
    classes = check_classes(arrays)
    test = None if arrays.x_test is None else _split(arrays.x_test, arrays.y_test)
    return _Found(_split(arrays.x_train, arrays.y_train), None, test, classes)


def _plant(found: _Found, data: str) -> _Found:
    """Return what was found, with the symmetry that the name asks for planted in it."""
    known, _, kind = data.partition("+")
    if known not in SOURCES or not kind or Path(data).exists():
        return found
    if found.train.images is None:
        raise UserError(f"a symmetry can be planted in images in memory, not in the files of {known}")
    pairs = ((found.train, synthetic.TRAIN), (found.test, synthetic.TEST))
    train, test = (
        Split(s.targets, synthetic.plant(s.images, kind, seed)) if s and s.images is not None else s
        for s, seed in pairs
    )
    return found._replace(train=train or found.train, test=test)


def _split(images: NDArray[Any], labels: NDArray[Any] | None) -> Split:
    owned = np.require(images, np.uint8, ("C", "W", "O"))  # torch wants memory it may write to
    return Split(torch.from_numpy(np.array(labels, np.int64)), torch.from_numpy(owned))


def _n_bytes(split: Split | None) -> int:
    return len(split) * math.prod(split.shape) if split and split.shape else 0


def _prepared(split: Split, image_size: int | None, fits: bool) -> Split:
    """Return the split resized, and decoded if it fits in memory."""
    if split.images is None:
        if not fits or split.files is None or split.shape is None:
            return split
        return Split(split.targets, torch.from_numpy(decode_all(split.files, split.shape)))
    if image_size is None or split.images.shape[2:] == (image_size, image_size):
        return split
    return Split(split.targets, torch.from_numpy(resize_all(split.images.numpy(), image_size)))


def _shape_of(split: Split) -> Shape:
    if split.shape is not None:
        return split.shape
    _, channels, height, width = split.images.shape  # type: ignore[union-attr]  # a split has one or the other
    return channels, height, width


def _moments(train: Split, source: Source) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and std of each channel in [0, 1]: the published ones, or those of the training images."""
    if source.mean and source.std and len(source.mean) == _shape_of(train)[0]:
        return source.mean, source.std
    images = train.images
    if images is None:
        sample = (train.files or ())[:: max(1, len(train) // N_MEASURED)]
        images = torch.from_numpy(decode_all(sample, _shape_of(train)))
    return channel_moments(images)


def channel_moments(images: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and std of each channel in [0, 1], exact to the last pixel; a channel of one value has std 1."""
    sums = torch.zeros(2, images.shape[1], dtype=torch.int64)
    for block in images.split(4096):
        wide = block.to(torch.int32)
        sums += torch.stack([wide.sum((0, 2, 3)), wide.square().sum((0, 2, 3))])
    n_pixels = images.numel() // images.shape[1]
    means = [total / n_pixels for total in sums[0].tolist()]
    variances = [(n_pixels * square - total**2) / n_pixels**2 for total, square in zip(*sums.tolist(), strict=True)]
    return tuple(mean / 255 for mean in means), tuple(math.sqrt(v) / 255 or 1.0 for v in variances)
