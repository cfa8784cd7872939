"""All image files of a dataset are inspected before the first step: the bad ones stop the training or are left out."""

import math
import os
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

import PIL
from pydantic import TypeAdapter, ValidationError

from invaug.lab.data.archives import zip_above
from invaug.lab.data.cache import fingerprint, recall, remember
from invaug.lab.data.decode import map_in_threads, printable
from invaug.lab.data.depth import Depth
from invaug.lab.data.folder import Files, Listing
from invaug.lab.data.inspect_file import Inspection, inspect_file
from invaug.lab.errors import UserError
from invaug.lab.terminal import say

OnBad = Literal["stop", "skip"]
N_NAMED = 10  # bad files in an error message
RULES = 2  # increases when `inspect_file` judges differently
ENTRY = TypeAdapter(tuple[str, dict[str, str], list[Depth]])
"""What is remembered of a folder: its fingerprint, its bad files and the values of its deep ones."""


class Checked(NamedTuple):
    """What was found out about the files of a dataset."""

    bad: dict[Path, str]
    """Those that cannot be used, each with its reason."""
    depths: list[Depth]
    """The values of those that have more than 8 bits."""


def drop_bad_files(listing: Listing, on_bad: OnBad, max_bad: float) -> tuple[Listing, list[Depth]]:
    """Return the listing without its bad files, and the values of its deep ones.

    The bad files are named; raise if none is allowed, or if they are more than the share `max_bad`.
    """
    files = [path for part in listing[1:] if part for path in part.paths]
    if zip_above(files[0]):  # an official archive: verified whole, and every member again when it is read
        return listing, []
    bad, depths = check_files(files)
    if not bad:
        return listing, depths
    root = _common_folder(files)
    named = [f"{printable(str(path.relative_to(root)))} ({reason})" for path, reason in bad.items()]
    count = f"{len(bad):,} of {len(files):,} image files in {printable(str(root))} cannot be used"
    if on_bad == "stop" or len(bad) > max_bad * len(files):
        some = ", ".join([*named[:N_NAMED], *(["…"] if len(named) > N_NAMED else [])])
        way_out = f"see invaug scan {shlex.quote(printable(str(root)))}, then fix or remove them"
        skip = skipping_flags(len(bad), len(files), max_bad)
        raise UserError(f"{count}: {some}: {way_out} ({skip} leaves them out)")
    for line in (f"{count} and are left out:", *(f"  {name}" for name in named)):
        say(line)
    val, test = (part and _without(part, bad, listing.classes) for part in (listing.val, listing.test))
    return Listing(listing.classes, _without(listing.train, bad, listing.classes), val, test), depths


def skipping_flags(n_bad: int, n_files: int, max_bad: float) -> str:
    """Return the flags that leave out so many bad files."""
    share = math.ceil(100 * n_bad / n_files) / 100
    return "--on-bad skip" + (f" --max-bad {share:g}" if n_bad > max_bad * n_files else "")


def _without(part: Files, bad: Mapping[Path, str], classes: Sequence[str]) -> Files:
    pairs = [(path, target) for path, target in zip(*part, strict=True) if path not in bad]
    kept = Files(tuple(path for path, _ in pairs), tuple(target for _, target in pairs))
    for target in sorted(set(part.targets) - set(kept.targets)):
        raise UserError(f"no file of class {classes[target]} can be used: fix them, or remove the class")
    return kept


def check_files(files: Sequence[Path]) -> Checked:
    """Return the files that cannot be used, and the values of those of more than 8 bits.

    Every file is decoded to its end, because nothing less shows that it is whole, but only once: the result is
    remembered by folder, until anything changes in that folder. So a large folder costs this time before its first
    training, and reading the times of its files before each further one.
    """
    known = recall(_topic(files))
    bad: dict[Path, str] = {}
    depths: list[Depth] = []
    todo: list[Path] = []
    for folder, paths in _by_folder(files).items():
        entry = _read_entry(known.get(str(folder.absolute())), fingerprint(paths))
        if entry is None:
            todo.extend(paths)
        else:
            bad |= {folder / name: reason for name, reason in entry[0].items()}
            depths += entry[1]
    inspected = inspect_files(todo, _topic(files))
    bad |= {path: found.bad for path, found in inspected.items() if found.bad}
    depths += [found.depth for found in inspected.values() if found.depth]
    return Checked({path: bad[path] for path in files if path in bad}, depths)


def inspect_files(files: Sequence[Path], topic: str = "") -> dict[Path, Inspection]:
    """Inspect whole folders, several files at a time, and remember for later which files are bad or deep."""
    if not files:
        return {}
    folders = _by_folder(files)
    before = {folder: fingerprint(paths) for folder, paths in folders.items()}
    found = dict(zip(files, map_in_threads(inspect_file, files, "checking images"), strict=True))
    entries = {
        str(folder.absolute()): [
            before[folder],
            {path.name: found[path].bad for path in paths if found[path].bad},
            [found[path].depth for path in paths if found[path].depth],
        ]
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


def _read_entry(entry: Any, state: str | None) -> tuple[dict[str, str], list[Depth]] | None:
    """Return the bad files of a folder that is unchanged and the values of its deep ones.

    None if the folder has changed, or if the entry is damaged.
    """
    with suppress(ValidationError):
        before, bad, depths = ENTRY.validate_python(entry)
        return (bad, depths) if state and before == state else None
    return None
