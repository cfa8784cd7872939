"""An .npz checked before training: what training would refuse, and every blank or repeated image by its number."""

import hashlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from invaug.lab.data import npz
from invaug.lab.data.decode import printable
from invaug.lab.data.inspect_file import Inspection
from invaug.lab.data.scan.report import Finding, Report
from invaug.lab.errors import UserError
from invaug.lab.terminal import with_progress

CHANNELS = {1: "L", 3: "RGB"}


def scan_npz(path: Path) -> Report:
    """Return what there is to say about an .npz."""
    report = Report(printable(str(path)))
    try:
        arrays = npz.read_npz(path)
        classes = npz.check_classes(arrays)
    except UserError as error:
        report.bad.append(Finding(path.name, printable(str(error))))
        return report
    extra = [printable(name) for name in npz.names_in(path) if name not in npz.NAMES]
    report.notes += [Finding(name, "not one of the arrays of a dataset: left out") for name in extra]
    for part in ("train", "test"):
        report.classes[part] = dict.fromkeys(classes, 0)
        images, labels = getattr(arrays, f"x_{part}"), getattr(arrays, f"y_{part}")
        for row, image in enumerate(with_progress(images, f"checking {part} images", len(images))):
            report.add(f"x_{part}[{row}]", part, classes[labels[row]], _inspect_image(image))
    return report


def _inspect_image(image: NDArray[np.uint8]) -> Inspection:
    content, (channels, height, width) = image.tobytes(), image.shape
    blank = content == content[:1] * len(content)
    return Inspection(
        notes=("blank: all pixels are the same",) if blank else (),
        size=(width, height),
        mode=CHANNELS.get(channels, f"{channels} channels"),
        digest=hashlib.blake2b(content, digest_size=16).digest(),
    )
