"""The rows of a scored matrix on disk: files that are complete or absent, sealed with what they were scored with."""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from invaug.lab.errors import UserError
from invaug.lab.run import atomic
from invaug.lab.run.files import read_bytes
from invaug.lab.terminal import say

SCHEMA = 1
MANIFEST = "manifest.json"
ROWS = re.compile(r"rows-(\d{6,9})\.safetensors")
MAX_MANIFEST = 1 << 20
MAX_ROWS = 1 << 30  # bytes of one file, which holds seconds of work: some megabytes
Array = NDArray[Any]


class Cache:
    """Rows in files `rows-FIRST.safetensors`, in a folder with one writer."""

    def __init__(self, folder: Path, key: Mapping[str, str]) -> None:
        self.folder = folder
        self.key = dict(key)

    def open(self) -> None:
        """Prepare the folder; rows that were scored with something else are removed, with a message."""
        for path in (self.folder, self.folder.parent):
            check_no_link(path)
        with atomic.reporting(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            atomic.sweep(self.folder)
        found = _read_manifest(self.folder / MANIFEST)
        if found == self.key:
            return
        if found is not None or self._files():
            changed = [name for name in self.key if (found or {}).get(name) != self.key[name]]
            say(f"the scores in {self.folder} belong to other {' and '.join(changed)}: scoring again from the start")
        self._remove_from(0)
        atomic.write_text(self.folder / MANIFEST, json.dumps({"schema": SCHEMA, "key": self.key}))

    def read(self, losses: NDArray[np.float32], correct: NDArray[np.int8]) -> int:
        """Fill in the rows on disk and return how many; a damaged file, and all after it, are removed."""
        done, files = 0, self._files()
        while done in files:
            rows = self._load(files[done], done, losses.shape)
            if rows is None:
                say(f"{files[done]} is damaged: it and what follows it are scored again")
                break
            after = done + len(rows[0])
            losses[done:after], correct[done:after] = rows
            done = after
        self._remove_from(done)
        return done

    def append(self, first: int, losses: NDArray[np.float32], correct: NDArray[np.int8]) -> None:
        """Write rows that follow all rows on disk."""
        if not len(losses):
            return
        rows: dict[str, Array] = {"losses": np.ascontiguousarray(losses), "correct": np.ascontiguousarray(correct)}
        content = rows | {"seal": self._seal(first, losses, correct)}
        atomic.write_bytes(self.folder / f"rows-{first:06d}.safetensors", safetensors.numpy.save(content))

    def _load(self, path: Path, first: int, shape: tuple[int, ...]) -> tuple[Array, Array] | None:
        """Return losses and correctness from a file; None if it is not one that `append` wrote here."""
        try:
            content = safetensors.numpy.load(read_bytes(path, MAX_ROWS))
            losses, correct = content["losses"], content["correct"]
            is_sealed = np.array_equal(content["seal"], self._seal(first, losses, correct))
        except Exception:  # whatever a hostile file provokes
            return None
        fits = 0 < len(losses) <= shape[0] - first and losses.shape == correct.shape == (len(losses), shape[1])
        is_typed = losses.dtype == np.float32 and correct.dtype == np.int8
        return (losses, correct) if is_sealed and fits and is_typed else None

    def _seal(self, first: int, losses: Array, correct: Array) -> NDArray[np.uint8]:
        """Return the SHA-256 of rows, their place and what they were scored with."""
        shapes = [[list(array.shape), str(array.dtype)] for array in (losses, correct)]
        head = json.dumps([SCHEMA, self.key, first, shapes], sort_keys=True).encode()
        return np.frombuffer(hashlib.sha256(head + losses.tobytes() + correct.tobytes()).digest(), np.uint8)

    def _files(self) -> dict[int, Path]:
        """Return the files of rows by their first row."""
        matches = [(ROWS.fullmatch(path.name), path) for path in self.folder.iterdir()]
        return {int(match[1]): path for match, path in matches if match}

    def _remove_from(self, first: int) -> None:
        for row, path in self._files().items():
            if row >= first:
                path.unlink(missing_ok=True)


def check_no_link(path: Path) -> None:
    """Refuse a folder that is a link: in a run from elsewhere it could lead anywhere."""
    if path.is_symlink():
        raise UserError(f"{path} is a link, but a run keeps its certificate itself: remove the link")


def _read_manifest(path: Path) -> dict[str, str] | None:
    """Return what the rows were scored with; None if that is unknown."""
    try:
        content = json.loads(read_bytes(path, MAX_MANIFEST))
        return dict(content["key"]) if content["schema"] == SCHEMA else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
