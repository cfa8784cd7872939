"""Folders of images: which files they hold, and which of them are training, validation and test images."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from invaug.lab.data.decode import FORMATS, printable
from invaug.lab.errors import UserError, nearest

PARTS = {"train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}


class Files(NamedTuple):
    """Image files and their classes."""

    paths: tuple[Path, ...]
    targets: tuple[int, ...]


class Listing(NamedTuple):
    """The image files of a dataset; `test` is None if it has to be split off."""

    classes: tuple[str, ...]
    train: Files
    val: Files | None = None
    test: Files | None = None


def list_folder(root: Path) -> Listing:
    """Return the files of `root`: train/<class>/* beside val/ or test/<class>/*, or just <class>/*.

    With both val/ and test/ each is what its name says; with one of them, that one is the test set.
    """
    parts = _find_parts(root)
    if "train" not in parts:
        if parts:
            way_out = "name the training folder train, or give a folder of class folders"
            raise UserError(f"{root} has {', '.join(p.name for p in parts.values())} but no train folder: {way_out}")
        return Listing(*_list_classes(root))
    classes, train = _list_classes(parts.pop("train"))
    found = {part: files for part, folder in parts.items() if (files := _list_known_classes(folder, classes))}
    if parts and not found:
        folder = next(iter(parts.values()))
        raise UserError(f"{folder} holds none of the classes of train: expected {folder / classes[0]} and so on")
    test = found.pop("test", None) or found.pop("val", None)
    return Listing(classes, train, found.get("val"), test)


def _find_parts(root: Path) -> dict[str, Path]:
    """Return the folders that are a split, by the name of the split."""
    folders = _subfolders(root)
    named = [folder for folder in folders if folder.name.lower() in PARTS]
    if len(named) < len(folders) and not any(_subfolders(folder) for folder in named):
        return {}  # beside car and bus, train is a class
    parts: dict[str, Path] = {}
    for folder in named:
        part = PARTS[folder.name.lower()]
        if part in parts:
            raise UserError(f"{root} has both {parts[part].name} and {folder.name}: keep one of them")
        parts[part] = folder
    return parts


def _subfolders(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir() and path.name[0] not in "._")
    except OSError as error:
        raise UserError(f"cannot read folder {folder}: {error.strerror or error}") from error


def _list_classes(folder: Path) -> tuple[tuple[str, ...], Files]:
    """Return the classes of a training folder and their files: at least two classes, none of them empty."""
    folders = _subfolders(folder)
    if not folders:
        raise UserError(f"{folder} has no class folders: put the images in {folder}/<class>/")
    if len(folders) == 1:
        raise UserError(f"{folder} has one class, {printable(folders[0].name)}: there must be at least two")
    files = _list_images(enumerate(folders))
    for target in sorted(set(range(len(folders))) - set(files.targets)):
        raise UserError(f"class folder {folders[target]} holds no image ({' '.join(sorted(FORMATS))})")
    return tuple(printable(path.name) for path in folders), files


def _list_known_classes(folder: Path, classes: tuple[str, ...]) -> Files | None:
    """Return the files of a test folder; None if it has no class of the training folder, because it is unlabelled."""
    folders = {printable(path.name): path for path in _subfolders(folder)}
    if not folders.keys() & set(classes):
        return None
    for name in folders.keys() - set(classes):
        raise UserError(f"{folders[name]} is a class that train does not have: {nearest(name, classes)}")
    files = _list_images((classes.index(name), path) for name, path in folders.items())
    return files if files.paths else None


def _list_images(folders: Iterable[tuple[int, Path]]) -> Files:
    """Return the image files below each class folder, sorted; links to further folders are not followed."""

    def refuse(error: OSError) -> None:
        raise UserError(f"cannot read folder {error.filename}: {error.strerror}")

    pairs: list[tuple[Path, int]] = []
    for target, folder in folders:
        # strings, because Path is slow for a million names
        found = [os.path.join(place, name) for place, _, names in os.walk(folder, onerror=refuse) for name in names]  # noqa: PTH118
        pairs += [(Path(name), target) for name in sorted(found) if is_image_name(name)]
    return Files(tuple(path for path, _ in pairs), tuple(target for _, target in pairs))


def is_image_name(name: str) -> bool:
    """Whether a file is taken for an image: by its suffix, and not hidden."""
    stem, suffix = os.path.splitext(os.path.basename(name))  # noqa: PTH119, PTH122 - the same
    return suffix.lower() in FORMATS and not stem.startswith(".")
