"""`invaug scan`: a folder of images or an .npz checked before training, every odd file with its reason."""

from __future__ import annotations

import json
import os
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from invaug.lab.data.cache import state_of
from invaug.lab.data.check import by_folder, keep, look_at_all
from invaug.lab.data.decode import printable
from invaug.lab.data.folder import Listing, is_image_name, list_folder
from invaug.lab.data.inspect_file import Look, odd_name
from invaug.lab.errors import UserError, reading

PASSED_OVER = "._"  # how the names of folders start that hold no class
WHOLE = "images"  # the part of a folder that training will split itself


class Finding(NamedTuple):
    """What is wrong or odd, and where."""

    file: str
    reason: str


@dataclass
class Report:
    """What a scan found."""

    path: str
    files: int = 0
    bad: list[Finding] = field(default_factory=list)
    """What training would fail on, or be wrong by."""
    notes: list[Finding] = field(default_factory=list)
    """What is converted, left out or suspicious."""
    classes: dict[str, dict[str, int]] = field(default_factory=dict)
    """Images of each class in each part."""
    sizes: Counter[str] = field(default_factory=Counter)
    modes: Counter[str] = field(default_factory=Counter)

    def as_json(self) -> str:
        """Return all of it as one JSON document."""
        lists = {name: [found._asdict() for found in getattr(self, name)] for name in ("bad", "notes")}
        counts = {"classes": self.classes, "sizes": dict(self.sizes), "modes": dict(self.modes)}
        return json.dumps({"path": self.path, "files": self.files, "usable": not self.bad, **lists, **counts})


class Labelled(NamedTuple):
    """A file, the part it belongs to and its class."""

    path: Path
    part: str
    label: str


def scan(path: Path) -> Report:
    """Return what there is to say about a folder or an .npz."""
    with reading(printable(str(path))):
        kind = stat.S_IFMT(path.stat().st_mode)
    if kind == stat.S_IFDIR:
        return scan_folder(path)
    if kind == stat.S_IFREG and path.suffix.lower() == ".npz":
        from invaug.lab.data.scan.npz import scan_npz

        return scan_npz(path)
    raise UserError(f"{printable(str(path))} is neither a folder of images nor an .npz file")


def scan_folder(root: Path) -> Report:
    """Return what there is to say about a folder of images, and remember for training which are bad."""
    report = Report(printable(str(root)))
    files = _labelled(root, report)
    paths = [file.path for file in files]
    states = {folder: state_of(found) for folder, found in by_folder(paths).items()}
    looks = look_at_all(paths)
    if paths:
        keep(paths, dict(zip(paths, looks, strict=True)), states)
    report.files = len(files)
    for file, found in zip(files, looks, strict=True):
        _add(report, file, found, root)
    report.notes += _duplicates(files, looks, root)
    report.notes += _left_out(root, paths, report)
    return report


def _labelled(root: Path, report: Report) -> list[Labelled]:
    """Return the files that training would take; of a folder it would refuse, all that look like images."""
    try:
        listing = list_folder(root)
    except UserError as error:
        report.bad.append(Finding(".", printable(str(error))))
        found = [Path(place, name) for place, _, names in os.walk(root) for name in sorted(names)]
        return [Labelled(path, WHOLE, _name(path.parent, root)) for path in found if is_image_name(str(path))]
    return [file for part, label_all in _parts(listing) for file in label_all]


def _parts(listing: Listing) -> Iterator[tuple[str, list[Labelled]]]:
    alone = listing.val is None and listing.test is None
    for name in ("train", "val", "test"):
        files = getattr(listing, name)
        part = WHOLE if alone else name
        if files:
            pairs = zip(files.paths, files.targets, strict=True)
            yield part, [Labelled(path, part, listing.classes[target]) for path, target in pairs]


def _add(report: Report, file: Labelled, found: Look, root: Path) -> None:
    name = _name(file.path, root)
    counts = report.classes.setdefault(file.part, {})
    counts[file.label] = counts.get(file.label, 0) + (not found.bad)
    if found.bad:
        report.bad.append(Finding(name, found.bad))
    report.notes += [Finding(name, note) for note in found.notes]
    if found.size:
        report.sizes["{} x {}".format(*found.size)] += 1
        report.modes[found.mode] += 1


def _duplicates(files: Sequence[Labelled], looks: Sequence[Look], root: Path) -> Iterator[Finding]:
    """Name every file whose bytes were there before, and what that spoils."""
    first: dict[bytes, Labelled] = {}
    for file, found in zip(files, looks, strict=True):
        if not found.digest or first.setdefault(found.digest, file) is file:
            continue
        yield Finding(_name(file.path, root), same_as(_name(first[found.digest].path, root), first[found.digest], file))


def same_as(name: str, one: Labelled, other: Labelled) -> str:
    """Say that two images are the same, and what that spoils."""
    spoilt = []
    if one.part != other.part:
        spoilt.append(f"one image in {one.part} and in {other.part}, a leak")
    if one.label != other.label:
        spoilt.append(f"one image in two classes, {one.label} and {other.label}")
    if not spoilt and one.part == WHOLE:
        spoilt.append("training and test may get one each")
    return f"same bytes as {name}" + (f": {'; '.join(spoilt)}" if spoilt else "")


def _left_out(root: Path, taken: Sequence[Path], report: Report) -> Iterator[Finding]:
    """Name every file and folder below the root that training passes over, and folders of odd names."""
    known = set(taken)
    followed = {parent for folder in {path.parent for path in taken} for parent in (folder, *folder.parents)}

    def refuse(error: OSError) -> None:
        report.bad.append(Finding(_name(Path(error.filename), root), f"cannot read folder: {error.strerror}"))

    for place, folders, names in os.walk(root, onerror=refuse):
        for folder in [Path(place, name) for name in sorted(folders)]:
            yield from _odd_folder(folder, followed, root)
        folders[:] = [name for name in folders if name[0] not in PASSED_OVER]
        for path in (Path(place, name) for name in sorted(names)):
            if path not in known:
                yield Finding(_name(path, root), _why_left_out(path))


def _odd_folder(folder: Path, followed: set[Path], root: Path) -> Iterator[Finding]:
    name = _name(folder, root)
    if folder.name[0] in PASSED_OVER:
        yield Finding(name, "a hidden folder: left out")
    elif folder.is_symlink():
        yield Finding(name, "a link to a folder" + ("" if folder in followed else ": not followed"))
    yield from (Finding(name, reason) for reason in odd_name(folder.name))


def _why_left_out(path: Path) -> str:
    if path.name.startswith("."):
        return "a hidden file: left out"
    return "in no class folder: left out" if is_image_name(str(path)) else "not the name of an image: left out"


def _name(path: Path, root: Path) -> str:
    return printable(str(path.relative_to(root)))
