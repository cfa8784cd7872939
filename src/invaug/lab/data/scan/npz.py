"""An .npz checked before training: every wrong label, every spoilt or repeated image, by its number."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from invaug.lab.data import npz
from invaug.lab.data.decode import printable, with_progress
from invaug.lab.data.scan.command import Finding, Labelled, Report, same_as
from invaug.lab.errors import UserError

N_ROWS = 10  # image numbers named where many have the same fault
CHANNELS = {1: "L", 3: "RGB"}
Found = dict[str, NDArray[Any]]


def scan_npz(path: Path) -> Report:
    """Return what there is to say about an .npz."""
    report = Report(printable(str(path)))
    arrays = _read(path, report)
    report.bad += [finding for part in ("train", "test") for finding in _wrong_labels(arrays, part)]
    report.bad += [finding for part in ("train", "test") for finding in _no_numbers(arrays, part)]
    try:
        found = npz.assemble(arrays, path)
        names = npz.check_classes(found)
    except UserError as error:  # what training would say, unless it has been said in detail
        if not report.bad:
            report.bad.append(Finding(path.name, printable(str(error))))
        return report
    first: dict[bytes, tuple[str, Labelled]] = {}
    for part in ("train", "test"):
        images, labels = getattr(found, f"x_{part}"), getattr(found, f"y_{part}")
        counts = np.bincount(labels, minlength=len(names)).tolist()
        report.classes[part] = dict(zip(names, counts, strict=True))
        _, channels, height, width = images.shape
        report.files += len(images)
        report.sizes[f"{width} x {height}"] += len(images)
        report.modes[CHANNELS.get(channels, f"{channels} channels")] += len(images)
        report.notes += _odd_images(part, images, [names[label] for label in labels], first)
    return report


def _read(path: Path, report: Report) -> Found:
    """Return the arrays that can be read; those that cannot are bad."""
    arrays: Found = {}
    try:
        held = npz.names_in(path)
    except UserError as error:
        report.bad.append(Finding(path.name, printable(str(error))))
        return arrays
    for name in (*npz.WANTED, "classes"):
        try:
            arrays |= npz.read_arrays(path, (name,))
        except UserError as error:
            report.bad.append(Finding(name, printable(str(error))))
    report.bad += [Finding(name, "missing") for name in npz.WANTED if name not in held]
    extra = [name for name in held if name not in (*npz.WANTED, "classes")]
    report.notes += [Finding(printable(name), "not one of the arrays of a dataset: left out") for name in extra]
    return arrays


def _wrong_labels(arrays: Mapping[str, NDArray[Any]], part: str) -> Iterator[Finding]:
    name, labels = f"y_{part}", arrays.get(f"y_{part}")
    if labels is None or labels.dtype.kind not in "iuf" or not labels.ndim or labels.size != len(labels):
        return  # what is wrong with all of them, training says
    labels = labels.reshape(-1)
    if labels.dtype.kind == "f":
        yield Finding(name, f"{labels.dtype} labels: save them as integers")
        yield from _rows(name, np.isnan(labels), "no label (NaN)")
        yield from _rows(name, labels != np.trunc(np.nan_to_num(labels, nan=0.0)), "not whole", but=np.isnan(labels))
    n_classes = len(npz.class_names(arrays)) or _n_classes(arrays)
    yield from _rows(name, labels < 0, "below 0")
    yield from _rows(name, labels >= n_classes, f"above {n_classes - 1}, the last class")


def _n_classes(arrays: Mapping[str, NDArray[Any]]) -> int:
    """Return the number of classes that the training labels imply."""
    labels = arrays.get("y_train", np.zeros(0))
    known = labels[np.isfinite(labels)] if labels.dtype.kind in "iuf" else labels[:0]
    return int(known.max()) + 1 if known.size else 0


def _no_numbers(arrays: Mapping[str, NDArray[Any]], part: str) -> Iterator[Finding]:
    name, images = f"x_{part}", arrays.get(f"x_{part}")
    if images is not None and images.dtype.kind == "f" and images.size and images.ndim:
        yield from _rows(name, np.isnan(images).reshape(len(images), -1).any(1), "NaN pixels")


def _rows(name: str, wrong: NDArray[Any], what: str, but: NDArray[Any] | None = None) -> Iterator[Finding]:
    """Name the images of which something is true."""
    rows = np.flatnonzero(wrong if but is None else wrong & ~but)
    if len(rows):
        some = ", ".join(map(str, rows[:N_ROWS].tolist())) + (", …" if len(rows) > N_ROWS else "")
        yield Finding(name, f"{what}: {len(rows):,} of {len(wrong):,}, image {some}")


def _odd_images(
    part: str, images: NDArray[np.uint8], labels: list[str], first: dict[bytes, tuple[str, Labelled]]
) -> Iterator[Finding]:
    """Name images that are blank, or the same as one before."""
    for row, image in enumerate(with_progress(images, f"checking {part} images", len(images))):
        name = f"x_{part}[{row}]"
        content = image.tobytes()
        here = (name, Labelled(Path(name), part, labels[row]))
        if content == content[:1] * len(content):
            yield Finding(name, "blank: all pixels are the same")
        before = first.setdefault(hashlib.blake2b(content, digest_size=16).digest(), here)
        if before is not here:
            yield Finding(name, same_as(before[0], before[1], here[1]))
