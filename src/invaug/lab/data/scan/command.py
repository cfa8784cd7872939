"""`invaug scan`: a folder of images or an .npz checked before training, every bad or unusual file with its reason."""

import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from invaug.lab.data import npz
from invaug.lab.data.check import inspect_files
from invaug.lab.data.decode import choose_shape, printable
from invaug.lab.data.folder import is_image_name, list_folder
from invaug.lab.data.inspect_file import Inspection, name_notes
from invaug.lab.data.scan.report import WHOLE, Finding, Report
from invaug.lab.errors import UserError, names_beside, reading
from invaug.lab.terminal import with_progress

CHANNELS = {1: "L", 3: "RGB"}
SKIPPED = "._"  # first letters of folders that are not classes


def scan(path: Path) -> Report:
    """Return what there is to say about a folder of images or an .npz."""
    with reading(printable(str(path))):
        kind = stat.S_IFMT(path.stat().st_mode) if path.exists() else None
    if kind is None:
        raise UserError(f"{printable(str(path))} does not exist{names_beside(path)}")
    if kind == stat.S_IFDIR:
        return _scan_folder(path)
    if kind == stat.S_IFREG and path.suffix.lower() == ".npz":
        return _scan_npz(path)
    raise UserError(f"{printable(str(path))} is neither a folder of images nor an .npz file")


def _scan_folder(root: Path) -> Report:
    """Return what there is to say about a folder of images; training will remember which files are bad."""
    report = Report(printable(str(root)))
    files = _list_labelled(root, report)
    paths = [path for path, _, _ in files]
    inspections = inspect_files(paths)
    for path, part, label in files:
        report.add(_name(path, root), part, label, inspections[path])
    report.notes += _left_out(root, paths, report)
    report.finish()
    if usable := [path for path in paths if not inspections[path].bad]:
        report.shape = choose_shape(usable, None)
    return report


def _list_labelled(root: Path, report: Report) -> list[tuple[Path, str, str]]:
    """Return the files that training would take, each with its part and its class.

    Of a folder that training would refuse, these are all files that look like images.
    """
    try:
        classes, train, val, test = list_folder(root)
    except UserError as error:
        report.bad.append(Finding(".", printable(str(error))))
        found = [Path(place, name) for place, _, names in os.walk(root) for name in sorted(names)]
        return [(path, WHOLE, _name(path.parent, root)) for path in found if is_image_name(str(path))]
    parts = {"train": train, "val": val, "test": test} if val or test else {WHOLE: train}
    return [
        (path, part, classes[target])
        for part, files in parts.items()
        if files
        for path, target in zip(*files, strict=True)
    ]


def _left_out(root: Path, taken: Sequence[Path], report: Report) -> Iterator[Finding]:
    """Yield every file and folder below the root that training skips, and folders with odd names."""
    known = set(taken)
    followed = {parent for folder in {path.parent for path in taken} for parent in (folder, *folder.parents)}

    def refuse(error: OSError) -> None:
        report.bad.append(Finding(_name(Path(error.filename), root), f"cannot read folder: {error.strerror}"))

    for place, folders, names in os.walk(root, onerror=refuse):
        for folder in [Path(place, name) for name in sorted(folders)]:
            yield from (Finding(_name(folder, root), note) for note in _folder_notes(folder, followed))
        folders[:] = [name for name in folders if name[0] not in SKIPPED]
        for path in (Path(place, name) for name in sorted(names)):
            if path not in known:
                yield Finding(_name(path, root), _why_left_out(path))


def _folder_notes(folder: Path, followed: set[Path]) -> Iterator[str]:
    if folder.name[0] in SKIPPED:
        yield "a hidden folder: left out"
    elif folder.is_symlink():
        yield "a link to a folder" + ("" if folder in followed else ": not followed")
    yield from name_notes(folder.name)


def _why_left_out(path: Path) -> str:
    if path.name.startswith("."):
        return "a hidden file: left out"
    return "in no class folder: left out" if is_image_name(str(path)) else "not the name of an image: left out"


def _name(path: Path, root: Path) -> str:
    return printable(str(path.relative_to(root)))


def _scan_npz(path: Path) -> Report:
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
