"""An .npz checked before training: every wrong label, every damaged or repeated image, by its number."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from invaug.lab.data import npz
from invaug.lab.data.decode import printable
from invaug.lab.data.inspect_file import Inspection
from invaug.lab.data.scan.report import Finding, Report
from invaug.lab.errors import UserError
from invaug.lab.terminal import with_progress

N_ROWS = 10  # image numbers named where many have the same fault
CHANNELS = {1: "L", 3: "RGB"}
PARTS = ("train", "test")


def scan_npz(path: Path) -> Report:
    """Return what there is to say about an .npz."""
    report = Report(printable(str(path)))
    arrays = _read_arrays(path, report)
    report.bad += [finding for part in PARTS for finding in _find_bad_rows(arrays, part)]
    try:
        found = npz.as_dataset(arrays, path)
        classes = npz.check_classes(found)
    except UserError as error:  # training's message, unless the details are in the report already
        if not report.bad:
            report.bad.append(Finding(path.name, printable(str(error))))
        return report
    for part in PARTS:
        report.classes[part] = dict.fromkeys(classes, 0)
        images, labels = getattr(found, f"x_{part}"), getattr(found, f"y_{part}")
        for row, image in enumerate(with_progress(images, f"checking {part} images", len(images))):
            report.add(f"x_{part}[{row}]", part, classes[labels[row]], _inspect_image(image))
    return report


def _read_arrays(path: Path, report: Report) -> dict[str, NDArray[Any]]:
    """Return the arrays that can be read; those that cannot are bad."""
    arrays: dict[str, NDArray[Any]] = {}
    try:
        held = npz.names_in(path)
    except UserError as error:
        report.bad.append(Finding(path.name, printable(str(error))))
        return arrays
    for name in npz.NAMES:
        try:
            arrays |= npz.read_arrays(path, (name,))
        except UserError as error:
            report.bad.append(Finding(name, printable(str(error))))
    report.bad += [Finding(name, "missing") for name in npz.REQUIRED if name not in held]
    extra = [printable(name) for name in held if name not in npz.NAMES]
    report.notes += [Finding(name, "not one of the arrays of a dataset: left out") for name in extra]
    return arrays


def _find_bad_rows(arrays: Mapping[str, NDArray[Any]], part: str) -> Iterator[Finding]:
    """Yield what is wrong with single labels and images; npz.py checks arrays that are wrong as a whole."""
    labels, images, train = (arrays.get(name, np.zeros(0)) for name in (f"y_{part}", f"x_{part}", "y_train"))
    if labels.dtype.kind in "iu" and labels.ndim and labels.size == len(labels):
        known = train.max(initial=-1) + 1 if train.dtype.kind in "iu" else np.inf
        n_classes = len(npz.class_names(arrays)) or known
        yield from _name_rows(f"y_{part}", labels.reshape(-1) < 0, "below 0")
        too_large = labels.reshape(-1) >= n_classes
        yield from _name_rows(f"y_{part}", too_large, f"above {n_classes - 1}, the last class")
    if images.dtype.kind == "f" and images.size and images.ndim:
        yield from _name_rows(f"x_{part}", np.isnan(images).reshape(len(images), -1).any(1), "NaN pixels")


def _name_rows(name: str, wrong: NDArray[np.bool_], what: str) -> Iterator[Finding]:
    """Yield a finding that names the first of the wrong rows, if there are any."""
    rows = np.flatnonzero(wrong)
    if len(rows):
        some = ", ".join(map(str, rows[:N_ROWS].tolist())) + (", …" if len(rows) > N_ROWS else "")
        yield Finding(name, f"{what}: {len(rows):,} of {len(wrong):,}, image {some}")


def _inspect_image(image: NDArray[np.uint8]) -> Inspection:
    content, (channels, height, width) = image.tobytes(), image.shape
    blank = content == content[:1] * len(content)
    return Inspection(
        notes=("blank: all pixels are the same",) if blank else (),
        size=(width, height),
        mode=CHANNELS.get(channels, f"{channels} channels"),
        digest=hashlib.blake2b(content, digest_size=16).digest(),
    )
