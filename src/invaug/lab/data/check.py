"""All image files of a dataset are inspected before the first step: the bad ones stop the training or are left out."""

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import PIL

from invaug.lab.data.archives import zip_above
from invaug.lab.data.cache import fingerprint, recall, remember
from invaug.lab.data.decode import map_in_threads, printable
from invaug.lab.data.folder import Files, Listing
from invaug.lab.data.inspect_file import Inspection, inspect_file
from invaug.lab.errors import UserError
from invaug.lab.terminal import say

OnBad = Literal["stop", "skip"]
QUOTA = 0.01  # share of the files that may be left out
N_NAMED = 10  # bad files in an error message
RULES = 1  # increases when `inspect_file` judges differently


def drop_bad_files(listing: Listing, on_bad: OnBad) -> Listing:
    """Return the listing without its bad files, which are named; raise if there are too many, or none is allowed."""
    files = [path for part in listing[1:] if part for path in part.paths]
    if zip_above(files[0]):  # an official archive: verified whole, and every member again when it is read
        return listing
    bad = find_bad_files(files)
    if not bad:
        return listing
    root = _common_folder(files)
    named = [f"{printable(str(path.relative_to(root)))} ({reason})" for path, reason in bad.items()]
    count = f"{len(bad):,} of {len(files):,} image files in {printable(str(root))} cannot be used"
    if on_bad == "stop" or len(bad) > QUOTA * len(files):
        some = ", ".join([*named[:N_NAMED], *(["…"] if len(named) > N_NAMED else [])])
        way_out = f"see invaug scan {shlex.quote(printable(str(root)))}, then fix or remove them"
        raise UserError(f"{count}: {some}: {way_out} (--on-bad skip leaves out at most {100 * QUOTA:g} %)")
    for line in (f"{count} and are left out:", *(f"  {name}" for name in named)):
        say(line)
    val, test = (part and _without(part, bad, listing.classes) for part in (listing.val, listing.test))
    return Listing(listing.classes, _without(listing.train, bad, listing.classes), val, test)


def _without(part: Files, bad: Mapping[Path, str], classes: Sequence[str]) -> Files:
    pairs = [(path, target) for path, target in zip(*part, strict=True) if path not in bad]
    kept = Files(tuple(path for path, _ in pairs), tuple(target for _, target in pairs))
    for target in sorted(set(part.targets) - set(kept.targets)):
        raise UserError(f"no file of class {classes[target]} can be used: fix them, or remove the class")
    return kept


def find_bad_files(files: Sequence[Path]) -> dict[Path, str]:
    """Return the files that cannot be used, each with its reason.

    Every file is decoded to its end, because nothing less shows that it is whole, but only once: the result is
    remembered by folder, until anything changes in that folder. So a large folder costs this time before its first
    training, and reading the times of its files before each further one.
    """
    known = recall(_topic(files))
    bad: dict[Path, str] = {}
    todo: list[Path] = []
    for folder, paths in _by_folder(files).items():
        reasons = _read_entry(known.get(str(folder.absolute())), fingerprint(paths))
        todo.extend(paths if reasons is None else ())
        bad |= {folder / name: reason for name, reason in (reasons or {}).items()}
    bad |= {path: found.bad for path, found in inspect_files(todo, _topic(files)).items() if found.bad}
    return {path: bad[path] for path in files if path in bad}


def inspect_files(files: Sequence[Path], topic: str = "") -> dict[Path, Inspection]:
    """Inspect whole folders, several files at a time, and remember for later which files are bad."""
    if not files:
        return {}
    folders = _by_folder(files)
    before = {folder: fingerprint(paths) for folder, paths in folders.items()}
    found = dict(zip(files, map_in_threads(inspect_file, files, "checking images"), strict=True))
    entries = {
        str(folder.absolute()): [before[folder], {path.name: found[path].bad for path in paths if found[path].bad}]
        for folder, paths in folders.items()
        if before[folder] and not any(found[path].transient for path in paths)
    }
    if entries:
        remember(topic or _topic(files), entries)
    return found


def _by_folder(files: Sequence[Path]) -> dict[Path, list[Path]]:
    folders: dict[Path, list[Path]] = {}
    for path in files:
        folders.setdefault(path.parent, []).append(path)
    return folders


def _common_folder(files: Sequence[Path]) -> Path:
    return Path(os.path.commonpath({path.parent for path in files}))


def _topic(files: Sequence[Path]) -> str:
    """Return the name under which a folder is remembered: another version of Pillow may judge differently."""
    return f"{_common_folder(files).absolute()} {RULES} {PIL.__version__}"


def _read_entry(entry: Any, state: str | None) -> dict[str, str] | None:
    """Return the bad files of a folder that is unchanged; None if it has changed, or if the entry is damaged."""
    match entry:
        case [str(before), dict(bad)] if state and before == state and all(isinstance(r, str) for r in bad.values()):
            return bad
    return None
