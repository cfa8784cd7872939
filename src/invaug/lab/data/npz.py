"""Datasets as one .npz: x_train, y_train, x_test, y_test and perhaps classes; nothing in it is unpickled."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from invaug.lab.data.npy import names_in, read_arrays
from invaug.lab.data.readers import Arrays
from invaug.lab.errors import UserError

__all__ = ["check_classes", "names_in", "read_arrays", "read_npz"]
REQUIRED = ("x_train", "y_train", "x_test", "y_test")
NAMES = (*REQUIRED, "classes")
MAX_CLASSES = 100_000  # more than any dataset has; their names fit into a config
MAX_NAME = 255  # characters, as many as the name of a class folder may have
FLOATS = ("f2", "f4", "f8")


def read_npz(path: Path) -> Arrays:
    """Return the dataset of an .npz, its images as bytes and its labels as integers."""
    arrays = read_arrays(path, NAMES)
    if missing := [name for name in REQUIRED if name not in arrays]:
        raise UserError(f"{path} has no {missing[0]}: it holds {', '.join(names_in(path)) or 'no named arrays'}")
    x_train, x_test = (_as_pixels(arrays[name], f"{name} of {path}") for name in ("x_train", "x_test"))
    y_train, y_test = (_as_labels(arrays[name], f"{name} of {path}") for name in ("y_train", "y_test"))
    classes = _as_names(arrays["classes"], f"classes of {path}", len(y_train)) if "classes" in arrays else ()
    return Arrays(x_train, y_train, x_test, y_test, classes)


def check_classes(arrays: Arrays) -> tuple[str, ...]:
    """Return the names of the classes; raise unless there are at least two and every label is one of them."""
    n_classes = len(arrays.classes) or _count_classes(arrays.y_train)
    classes = arrays.classes or tuple(str(label) for label in range(n_classes))
    _check_labels("train", arrays.x_train, arrays.y_train, n_classes)
    counts = np.bincount(arrays.y_train, minlength=n_classes)
    if np.count_nonzero(counts) < 2:
        raise UserError(f"there must be at least two classes, every label of y_train is {arrays.y_train[0]}")
    if not counts.all():
        raise UserError(f"class {classes[counts.argmin()]} has no training image: y_train is never {counts.argmin()}")
    if arrays.x_test is not None and arrays.y_test is not None:
        if arrays.x_train.shape[1:] != arrays.x_test.shape[1:]:
            shapes = f"{arrays.x_train.shape[1:]} and {arrays.x_test.shape[1:]}"
            raise UserError(f"x_train and x_test must have the same channels, height and width, got {shapes}")
        _check_labels("test", arrays.x_test, arrays.y_test, n_classes)
    return classes


def _count_classes(labels: NDArray[Any]) -> int:
    """Return the number of classes without names; one label must not decide how much memory they take."""
    most = min(len(labels), MAX_CLASSES)
    row = int(labels.argmax())
    if labels[row] >= most:
        rule = f"below {most:,}: every class needs a training image"
        rule += f", and there are {most:,}" if most == len(labels) else f", and at most {most:,} classes are supported"
        raise UserError(f"y_train must be {rule}, got {labels[row]} at image {row}: number the classes from 0")
    return int(labels[row]) + 1


def _check_labels(name: str, images: NDArray[Any], labels: NDArray[Any], n_classes: int) -> None:
    if len(images) != len(labels):
        lengths = f"{len(images)} images and {len(labels)} labels"
        raise UserError(f"x_{name} and y_{name} must have the same length, got {lengths}")
    wrong = (labels < 0) | (labels >= n_classes)
    if wrong.any():
        row = int(wrong.argmax())
        found = f"got {labels[row]} at image {row} and {wrong.sum() - 1} more"
        raise UserError(f"y_{name} must be from 0 to {max(n_classes - 1, 1)}, {found}")


def _as_pixels(array: NDArray[Any], name: str) -> NDArray[np.uint8]:
    """Return images as bytes of shape (n, channels, height, width)."""
    if array.ndim not in (3, 4) or 0 in array.shape:
        raise UserError(f"{name} must be images of shape (n, height, width[, channels]), got shape {array.shape}")
    array = array[..., None] if array.ndim == 3 else array
    _, second, _, last = array.shape
    if last in (1, 3, 4) or second >= last:  # channels are last, unless only the second axis is short enough
        array = array.transpose(0, 3, 1, 2)
    return array if array.dtype == np.uint8 else _as_bytes(array, name)


def _as_bytes(array: NDArray[Any], name: str) -> NDArray[np.uint8]:
    if array.dtype.kind not in "iu" and array.dtype.str[1:] not in FLOATS:
        raise UserError(f"{name} must be uint8, or float in [0, 1], got {_kind(array)}")
    bad = np.isnan(array).reshape(len(array), -1).any(1)
    if bad.any():
        raise UserError(f"{name} has NaN pixels in {bad.sum()} images, the first is image {bad.argmax()}")
    low, high, most = array.min(), array.max(), 1 if array.dtype.kind == "f" else 255
    if low < 0 or high > most:
        raise UserError(f"{name} ({array.dtype}) must lie in 0 to {most}, got {low:g} to {high:g}: save it as uint8")
    return (np.rint(array * 255.0) if most == 1 else array).astype(np.uint8)


def _as_labels(array: NDArray[Any], name: str) -> NDArray[np.int64]:
    """Return one integer per image."""
    array = array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array
    if array.ndim != 1 or not len(array):
        raise UserError(f"{name} must have one label per image, got shape {array.shape}")
    if array.dtype.kind not in "iu":
        raise UserError(f"{name} must be integers from 0, got {_kind(array)}, for example {str(array[0])[:MAX_NAME]}")
    if array.dtype.kind == "u" and (largest := int(array.max())) > np.iinfo(np.int64).max:
        raise UserError(f"{name} must be integers from 0, one per class, got {largest}: number the classes from 0")
    return array.astype(np.int64)


def _kind(array: NDArray[Any]) -> str:
    name = str(array.dtype)
    return name if len(name) <= MAX_NAME else f"{name[:MAX_NAME]}…"


def _as_names(array: NDArray[Any], name: str, n_images: int) -> tuple[str, ...]:
    """Return the names of the classes: text or whole numbers, each its own."""
    if array.ndim != 1 or array.dtype.kind not in "Uiu":
        raise UserError(f"{name} must be a list of text, got {_kind(array)} of shape {array.shape}")
    most = min(n_images, MAX_CLASSES)
    if not 0 < len(array) <= most:
        raise UserError(f"{name} must be 1 to {most:,} names, one per class that has images, got {len(array):,}")
    names = [str(found) for found in array]
    for row, found in enumerate(names):
        if not found.strip() or len(found) > MAX_NAME or "\0" in found:
            rule = f"1 to {MAX_NAME} characters, none of them NUL"
            raise UserError(f"name {row} in {name} must have {rule}, got {found[:20]!a}: rename the class")
    if len(set(names)) < len(names):
        twice = Counter(names).most_common(1)[0][0]
        raise UserError(f"{name} has {twice!a} twice: give each class its own name")
    return tuple(names)
