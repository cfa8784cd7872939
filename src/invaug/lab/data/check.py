"""All image files of a dataset, looked at before the first step: the bad ones stop the training or are left out."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any, Literal

import PIL

from invaug.lab.data.archives import zip_above
from invaug.lab.data.cache import recall, remember, state_of
from invaug.lab.data.decode import printable, quiet, with_progress
from invaug.lab.data.folder import Files, Listing
from invaug.lab.data.inspect_file import Look, look
from invaug.lab.errors import UserError
from invaug.lab.terminal import say

OnBad = Literal["stop", "skip"]
QUOTA = 0.01  # share of the files that may be left out
N_NAMED = 10  # bad files in an error message
MAX_THREADS = 8  # each may hold an image of the pixel cap
THREADED_BYTES = 30_000  # of the median file, from which several threads are faster than one
RULES = 1  # counts up when `look` judges otherwise


def usable(listing: Listing, on_bad: OnBad) -> Listing:
    """Return the listing without its bad files, which are named; raise if there are too many, or may be none."""
    files = [path for part in listing[1:] if part for path in part.paths]
    if zip_above(files[0]):  # an official archive: verified whole, and every member again when it is read
        return listing
    bad = find_bad(files)
    if not bad:
        return listing
    root = common_folder(files)
    named = [f"{printable(str(path.relative_to(root)))} ({reason})" for path, reason in bad.items()]
    count = f"{len(bad):,} of {len(files):,} image files in {printable(str(root))} cannot be used"
    if on_bad == "stop" or len(bad) > QUOTA * len(files):
        some = ", ".join([*named[:N_NAMED], *(["…"] if len(named) > N_NAMED else [])])
        most = f"for --on-bad skip leaves out {100 * QUOTA:g} % at most"
        skip = "or leave them out with --on-bad skip" if on_bad == "stop" else most
        way_out = f"see invaug scan {shlex.quote(printable(str(root)))}, mend or remove them, {skip}"
        raise UserError(f"{count}: {some}: {way_out}")
    for line in (f"{count} and are left out:", *(f"  {name}" for name in named)):
        say(line)
    classes, train, val, test = listing
    kept = [_without(part, bad, classes) if part else None for part in (val, test)]
    return Listing(classes, _without(train, bad, classes), *kept)


def _without(part: Files, bad: Mapping[Path, str], classes: Sequence[str]) -> Files:
    pairs = [(path, target) for path, target in zip(*part, strict=True) if path not in bad]
    kept = Files(tuple(path for path, _ in pairs), tuple(target for _, target in pairs))
    for target in sorted(set(part.targets) - set(kept.targets)):
        raise UserError(f"no file of class {classes[target]} can be used: mend them, or remove the class")
    return kept


def find_bad(files: Sequence[Path]) -> dict[Path, str]:
    """Return the files that cannot be used, each with its reason.

    Every file is decoded to its end, for nothing less shows that it is whole, but only once: what was found is
    remembered by folder, until anything changes in that folder. So a large folder costs this time before its first
    training, and a look at the times of its files before each further one.
    """
    folders = by_folder(files)
    before = recall(_topic(files))
    states = {folder: state_of(paths) for folder, paths in folders.items()}
    bad: dict[Path, str] = {}
    todo = []
    for folder, paths in folders.items():
        known = _known(before.get(str(folder.absolute())), states[folder])
        if known is None:
            todo.extend(paths)
        else:
            bad |= {folder / name: reason for name, reason in known.items()}
    looks = dict(zip(todo, look_at_all(todo), strict=True))
    keep(files, looks, states)
    bad |= {path: found.bad for path, found in looks.items() if found.bad}
    return {path: bad[path] for path in files if path in bad}


def look_at_all(files: Sequence[Path]) -> list[Look]:
    """Return what was found out about each file; several are decoded at a time."""
    blocks = [files[start : start + 64] for start in range(0, len(files), 64)]
    with quiet(), ThreadPoolExecutor(_n_threads(files)) as pool:
        found = pool.map(lambda block: [look(path) for path in block], blocks)
        return list(chain(*with_progress(found, "checking images", len(blocks))))


def _n_threads(files: Sequence[Path]) -> int:
    """Return how many threads pay: small images spend their time in Python, where threads wait for one another."""
    some = [path.lstat().st_size for path in files[:: max(1, len(files) // 64)]]
    return min(os.cpu_count() or 1, MAX_THREADS) if some and median(some) > THREADED_BYTES else 1


def by_folder(files: Sequence[Path]) -> dict[Path, list[Path]]:
    """Return the files of each folder."""
    folders: dict[Path, list[Path]] = {}
    for path in files:
        folders.setdefault(path.parent, []).append(path)
    return folders


def common_folder(files: Sequence[Path]) -> Path:
    """Return the innermost folder that holds all files."""
    return Path(os.path.commonpath({path.parent for path in files}))


def keep(files: Sequence[Path], looks: Mapping[Path, Look], states: Mapping[Path, str | None]) -> None:
    """Remember what was found of whole folders; `states` are those of before the look."""
    entries = {}
    for folder, paths in by_folder(files).items():
        found = [looks[path] for path in paths if path in looks]
        if states[folder] and len(found) == len(paths) and not any(one.passing for one in found):
            bad = {path.name: one.bad for path, one in zip(paths, found, strict=True) if one.bad}
            entries[str(folder.absolute())] = [states[folder], bad]
    if entries:
        remember(_topic(files), {**recall(_topic(files)), **entries})


def _topic(files: Sequence[Path]) -> str:
    """Return the name under which a folder is remembered: another Pillow may judge otherwise."""
    return f"{common_folder(files).absolute()} {RULES} {PIL.__version__}"


def _known(entry: Any, state: str | None) -> dict[str, str] | None:
    """Return the bad files of a folder that is as it was, None if it is not, or if the entry is no entry."""
    match entry:
        case [str(before), dict(bad)] if state and before == state and all(isinstance(r, str) for r in bad.values()):
            return bad
    return None
