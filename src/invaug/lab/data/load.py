"""Datasets: a known name, an .npz or a folder of images becomes training, validation and test images as bytes."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from invaug.lab.data import splits, synthetic
from invaug.lab.data.check import OnBad, drop_bad_files
from invaug.lab.data.decode import Shape, choose_shape, decode_all, resize_all
from invaug.lab.data.depth import Depth, Range, common_range
from invaug.lab.data.folder import Files, Listing, list_folder
from invaug.lab.data.known import SOURCES, Moments, Source, obtain_source
from invaug.lab.data.npz import check_classes, read_npz
from invaug.lab.data.readers import Arrays
from invaug.lab.data.splits import Split, hold_out
from invaug.lab.errors import UserError, names_beside, nearest

Subset = Literal["random", "first"]
Inputs = Literal["normalized", "unit"]
Parts = tuple[tuple[str, ...], Split, Split | None, Split | None]
"""The classes of a dataset, and its training, validation and test images."""
MAX_RESIDENT = 1_500_000_000  # bytes of pixels that live in memory and on the device: Tiny ImageNet (1.35e9) fits
TEST_FRACTION = 0.2  # of a dataset that has no test images of its own
N_MEASURED = 1024  # images whose mean and std represent a dataset too large for memory


@dataclass(frozen=True)
class Dataset:
    """Everything that training needs to know about the data."""

    name: str
    train: Split
    val: Split | None
    test: Split
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    image_shape: Shape
    grey_range: Range | None = None
    """What becomes black and white of images of more than 8 bits, if there are any."""


def load_dataset(
    data: str,
    *,
    data_dir: Path | None = None,
    fraction: float = 1.0,
    per_class: int | None = None,
    images: int | None = None,
    subset: Subset = "random",
    val_fraction: float = 0.0,
    val_fold: int = 0,
    image_size: int | None = None,
    inputs: Inputs = "normalized",
    seed: int = 0,
    download: bool = True,
    on_bad: OnBad = "stop",
    max_bad: float = 0.01,
    grey_range: Range | None = None,
    with_test: bool = True,
) -> Dataset:
    """Return a dataset by its known name, or from an .npz file or a folder of images.

    The ranges of the options are checked where users give them, in the config.

    Args:
        data_dir: Where known datasets are stored or downloaded to; else INVAUG_DATA, else the user's cache.
        fraction: Share of the training images of each class that is used.
        per_class: Number of training images of each class that is used.
        images: About how many training images are used, the same share of every class.
        subset: Which images these are: random ones, or the first, in a folder by name.
        val_fraction: Share of those that is held out for choices.
        val_fold: Which part of that size is held out, counted from 0: the folds of a cross-validation.
        image_size: Side the images are resized and cropped to; `decode.choose_shape` defines the default.
        inputs: Whether mean and std are those of the images, or 0 and 1, which leaves pixels in 0 to 1.
        on_bad: Whether image files that cannot be used stop the loading, or are left out if they are few.
        max_bad: Share of the image files that may be left out.
        grey_range: What becomes black and white of images of more than 8 bits; else the range of their values.
        with_test: False loads only one test image.
    """
    options = _Options(data_dir, image_size, download, on_bad, max_bad, grey_range)
    name, classes, train, val, test = _find_parts(data, options)
    test = test if with_test else test.take(np.arange(1))
    if images is not None and images > len(train):
        raise UserError(f"images must be at most {len(train)}, the number of training images of {data}, got {images}")
    fraction = images / len(train) if images else fraction
    train = splits.take_subset(train, classes, fraction, per_class, seed, first=subset == "first")
    if val_fraction and val is not None:
        raise UserError(f"{data} has validation images of its own: leave out val_fraction, got {val_fraction}")
    if val_fraction:
        train, val = hold_out(train, classes, val_fraction, "val_fraction", seed, splits.HOLD_OUT, part=val_fold)
    n_bytes = sum(len(split) * math.prod(split.shape or (0,)) for split in (train, val, test) if split)
    in_memory = n_bytes <= MAX_RESIDENT
    train, test = _prepare(train, image_size, in_memory), _prepare(test, image_size, in_memory)
    val = _prepare(val, image_size, in_memory) if val else None
    source = SOURCES.get(data, Source("", {}))  # a planted dataset has moments of its own
    channels = train.image_shape[0]
    mean, std = _moments(train, source) if inputs == "normalized" else ((0.0,) * channels, (1.0,) * channels)
    return Dataset(name, train, val, test, classes, mean, std, train.image_shape, train.grey_range)


def peek_dataset(data: str, *, data_dir: Path | None = None) -> tuple[int, Shape, bool]:
    """Return the number of training images, their shape, and whether there are validation images; decodes no file."""
    _, _, train, val, _ = _find_parts(data, _Options(data_dir))
    return len(train), train.image_shape, val is not None


class _Options(NamedTuple):
    """How the files of a dataset are found and read, as in `load_dataset`."""

    data_dir: Path | None = None
    image_size: int | None = None
    download: bool = True
    on_bad: OnBad = "stop"
    max_bad: float = 0.0
    grey_range: Range | None = None


def _find_parts(data: str, options: _Options) -> tuple[str, tuple[str, ...], Split, Split | None, Split]:
    """Return the name of a dataset, its classes, and its training, validation and test images."""
    depths: list[Depth] = []
    try:
        name, content = _open(data, options.data_dir, options.download)
        if isinstance(content, Listing):
            content, depths = drop_bad_files(content, options.on_bad, options.max_bad)
    except OSError as error:  # no permission, a name too long
        raise UserError(f"cannot read {error.filename or data}: {error.strerror or error}") from error
    if isinstance(content, Listing):
        source = SOURCES.get(data, Source("", {}))  # a folder of yours may be called mnist and still be yours
        grey_range = options.grey_range or common_range(depths)
        classes, train, val, test = _from_files(content, source.shape, options.image_size, grey_range)
    else:
        classes, train, val, test = _from_arrays(content)
    if test is None:  # the same test images whatever the seed
        train, test = hold_out(train, classes, TEST_FRACTION, "a test set", 0, splits.TEST, least=1)
    return name, classes, train, val, test


def _open(data: str, data_dir: Path | None, download: bool) -> tuple[str, Arrays | Listing]:
    """Return the name of a dataset and its contents; `mnist+r180` is MNIST with a symmetry planted in it."""
    known, _, kind = data.partition("+")
    if known in SOURCES and not (kind and Path(data).exists()):
        if kind:
            synthetic.find(kind)
        content = obtain_source(known, data_dir, download=download)
        return data, _plant_symmetry(content, kind, known) if kind else content
    path = Path(data).expanduser()
    if data and path.is_dir():
        return path.resolve().name, list_folder(path)
    if path.suffix.lower() == ".npz" and path.is_file():
        return path.stem, read_npz(path)
    if data and path.exists():
        raise UserError(f"{data} is neither a folder of images nor an .npz file")
    hint = names_beside(path)[2:] or nearest(data.lower(), SOURCES)
    raise UserError(f"{data or 'a dataset without a name'} does not exist, as a file, a folder or a dataset: {hint}")


def _plant_symmetry(content: Arrays | Listing, kind: str, known: str) -> Arrays:
    if isinstance(content, Listing):
        raise UserError(f"a symmetry can be planted in images in memory, not in the files of {known}")

    def plant(images: NDArray[Any], seed: int) -> NDArray[Any]:
        return synthetic.plant(torch.from_numpy(np.array(images)), kind, seed).numpy()

    x_test = None if content.x_test is None else plant(content.x_test, synthetic.TEST)
    return content._replace(x_train=plant(content.x_train, synthetic.TRAIN), x_test=x_test)


def _from_files(listing: Listing, known: Shape | None, image_size: int | None, grey_range: Range | None) -> Parts:
    parts = (listing.train, listing.val, listing.test)
    if known is None:
        shape = choose_shape([path for part in parts if part for path in part.paths], image_size)
    else:
        shape = (known[0], image_size or known[1], image_size or known[2])

    def split(part: Files) -> Split:
        return Split(torch.tensor(part.targets, dtype=torch.int64), None, part.paths, shape, grey_range)

    val, test = (split(part) if part else None for part in parts[1:])
    return listing.classes, split(listing.train), val, test


def _from_arrays(arrays: Arrays) -> Parts:
    def split(images: NDArray[Any], labels: NDArray[Any] | None) -> Split:
        owned = np.require(images, np.uint8, ("C", "W", "O"))  # torch wants memory it may write to
        return Split(torch.from_numpy(np.array(labels, np.int64)), torch.from_numpy(owned))

    test = None if arrays.x_test is None else split(arrays.x_test, arrays.y_test)
    return check_classes(arrays), split(arrays.x_train, arrays.y_train), None, test


def _prepare(split: Split, image_size: int | None, in_memory: bool) -> Split:
    """Return the split resized, and decoded if it fits in memory."""
    if split.images is None:
        if not in_memory:
            return split
        images = torch.from_numpy(decode_all(split.files or (), split.image_shape, split.grey_range))
        return Split(split.targets, images, grey_range=split.grey_range)
    if image_size is None or split.images.shape[2:] == (image_size, image_size):
        return split
    return Split(split.targets, torch.from_numpy(resize_all(split.images.numpy(), image_size)))


def _moments(train: Split, source: Source) -> Moments:
    """Return mean and std of each channel in [0, 1]: the published ones, or those of the training images."""
    if source.moments and len(source.moments[0]) == train.image_shape[0]:
        return source.moments
    images = train.images
    if images is None:
        sample = (train.files or ())[:: max(1, len(train) // N_MEASURED)]
        images = torch.from_numpy(decode_all(sample, train.image_shape, train.grey_range))
    return channel_moments(images)


def channel_moments(images: Tensor) -> Moments:
    """Return mean and std of each channel in [0, 1], exact to the last pixel; a constant channel has std 1."""
    sums = torch.zeros(2, images.shape[1], dtype=torch.int64)
    for block in images.split(4096):
        wide = block.to(torch.int32)
        sums += torch.stack([wide.sum((0, 2, 3)), wide.square().sum((0, 2, 3))])
    n_pixels = images.numel() // images.shape[1]
    means = [total / n_pixels for total in sums[0].tolist()]
    variances = [(n_pixels * square - total**2) / n_pixels**2 for total, square in zip(*sums.tolist(), strict=True)]
    return tuple(mean / 255 for mean in means), tuple(math.sqrt(v) / 255 or 1.0 for v in variances)
