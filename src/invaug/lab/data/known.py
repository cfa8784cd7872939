"""The known datasets: what `known.toml` says about them, where they are looked for, and how they are obtained.

To add a dataset, add a table to `known.toml`; if its files have a new format, add a reader to `readers.py`.
"""

import os
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from pydantic import TypeAdapter

from invaug.lab.data import readers
from invaug.lab.data.cache import cache_folder
from invaug.lab.data.decode import Shape
from invaug.lab.data.download import fetch, verify
from invaug.lab.data.folder import Listing
from invaug.lab.data.npz import read_npz
from invaug.lab.data.readers import Arrays
from invaug.lab.errors import UserError

Moments = tuple[tuple[float, ...], tuple[float, ...]]


class Source(NamedTuple):
    """A known dataset."""

    about: str
    """One line for `invaug ls`."""
    files: dict[str, str]
    """The published files, each with its MD5."""
    read: str = ""
    """The function of `readers.py` that reads them; empty if it cannot be downloaded."""
    addresses: tuple[str, ...] = ()
    """Where they are served, under their names."""
    folders: tuple[str, ...] = ("",)
    """Folders that may hold the files, all in one of them; downloads go to the first."""
    image_folders: tuple[str, ...] = ()
    """Folders that may hold it as train/<class>/ and val/<class>/."""
    shape: Shape | None = None
    """The size its images are decoded to, if they are image files."""
    moments: Moments | None = None
    """Mean and std of each channel as published; otherwise they are measured."""
    mirrored: bool = False
    """Whether a mirror image keeps its label, so that flips are on unless the user turns them off."""


SOURCES = TypeAdapter(dict[str, Source]).validate_python(
    tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
)


def data_folders(data_dir: Path | None) -> tuple[Path, ...]:
    """Return the folders that are searched for datasets; downloads go to the first."""
    given = os.environ.get("INVAUG_DATA")
    return tuple(path.expanduser() for path in (data_dir, Path(given) if given else None, cache_folder()) if path)


def is_stored(name: str, data_dir: Path) -> bool:
    """Whether a folder holds a known dataset, so that nothing is downloaded into it."""
    return _find_in(data_dir.expanduser(), name) is not None


def obtain_source(name: str, data_dir: Path | None, *, download: bool) -> Arrays | Listing:
    """Return a known dataset from its .npz, its official files or its folder of images."""
    source, places = SOURCES[name], data_folders(data_dir)
    for root in places:
        if read := _find_in(root, name):
            return read()
    if not source.read:
        where = places[0] / source.image_folders[0]
        way_out = f"put its images in {where}/train/<class>/ and {where}/val/<class>/ (links work too)"
        raise UserError(f"{name} cannot be downloaded without an account: {way_out}")
    if not download:
        way_out = f"put {', '.join(source.files)} in one of them, or allow the download"
        raise UserError(f"{name} is not in {' or '.join(map(str, places))}: {way_out}")
    target = places[0] / source.folders[0]
    for file, md5 in source.files.items():
        fetch([address + file for address in source.addresses], target / file, md5)
    return _read_verified(source, tuple(target / file for file in source.files))


def _find_in(root: Path, name: str) -> Callable[[], Arrays | Listing] | None:
    """Return what reads a known dataset from a folder, None if it is not there."""
    source = SOURCES[name]
    if (root / f"{name}.npz").is_file():
        return partial(read_npz, root / f"{name}.npz")
    for folder in source.folders:
        paths = tuple(root / folder / file for file in source.files)
        if source.read and all(path.is_file() for path in paths):
            return partial(_read_verified, source, paths)
    for folder in source.image_folders:
        if (root / folder / "train").is_dir():
            return partial(readers.read_image_folder, root / folder)
    return None


def _read_verified(source: Source, paths: tuple[Path, ...]) -> Arrays | Listing:
    """Read files that are byte for byte the published ones; every load checks, which takes half a second at most."""
    for path, md5 in zip(paths, source.files.values(), strict=True):
        verify(path, md5)
    content: Arrays | Listing = getattr(readers, source.read)(paths)
    return content
