"""A folder of images checked before training: every file it holds, and every file that training would skip."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from invaug.lab.data.check import inspect_files
from invaug.lab.data.decode import printable
from invaug.lab.data.folder import is_image_name, list_folder
from invaug.lab.data.inspect_file import name_notes
from invaug.lab.data.scan.report import WHOLE, Finding, Report
from invaug.lab.errors import UserError

SKIPPED = "._"  # first letters of folders that are not classes
Labelled = tuple[Path, str, str]
"""A file, the part it belongs to, and its class."""


def scan_folder(root: Path) -> Report:
    """Return what there is to say about a folder of images; training will remember which files are bad."""
    report = Report(printable(str(root)))
    files = _list_labelled(root, report)
    paths = [path for path, _, _ in files]
    inspections = inspect_files(paths)
    for path, part, label in files:
        report.add(_name(path, root), part, label, inspections[path])
    report.notes += _left_out(root, paths, report)
    return report


def _list_labelled(root: Path, report: Report) -> list[Labelled]:
    """Return the files that training would take; of a folder it would refuse, all that look like images."""
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
