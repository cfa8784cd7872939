"""The rows of a scored matrix on disk: files that are whole or not there, and sealed to what they were scored with."""

from __future__ import annotations

import hashlib
import json
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from invaug.lab.errors import UserError
from invaug.lab.run import atomic
from invaug.lab.terminal import say

SCHEMA = 1
MANIFEST = "manifest.json"
ROWS = re.compile(r"rows-(\d{6,9})\.safetensors")
MAX_MANIFEST = 1 << 20
MAX_ROWS = 1 << 30  # bytes of one file, which holds seconds of work: some megabytes


class Cache:
    """Rows in files `rows-FIRST.safetensors`, in a folder with one writer."""

    def __init__(self, folder: Path, key: Mapping[str, str]) -> None:
        self.folder = folder
        self.key = dict(key)
        self._sealed = json.dumps([SCHEMA, self.key], sort_keys=True).encode()

    def open(self) -> None:
        """Make the folder ready; rows that were scored with something else are removed, which is said."""
        for path in (self.folder, *self.folder.parents[:1]):
            if path.is_symlink():
                raise UserError(f"{path} is a link, and a run keeps its certificate itself: remove it")
        with atomic.reporting(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            atomic.sweep(self.folder)
        found = _read_manifest(self.folder / MANIFEST)
        if found == self.key:
            return
        if found is not None or self._files():
            changed = [name for name in self.key if (found or {}).get(name) != self.key[name]]
            say(f"the scores kept in {self.folder} are of other {' and '.join(changed)}: all are made again")
        self._remove_from(0)
        atomic.write_text(self.folder / MANIFEST, json.dumps({"schema": SCHEMA, "key": self.key}))

    def read(self, losses: NDArray[np.float32], correct: NDArray[np.int8]) -> int:
        """Fill in the rows that are there and whole; return how many. Damaged ones, and all after, are removed."""
        done = 0
        files = self._files()
        while done in files:
            rows = self._load(files[done], done, losses.shape)
            if rows is None:
                say(f"{files[done]} is damaged: it is made again, and what comes after it")
                break
            n = len(rows[0])
            losses[done : done + n], correct[done : done + n] = rows
            done += n
        self._remove_from(done)
        return done

    def append(self, first: int, losses: NDArray[np.float32], correct: NDArray[np.int8]) -> None:
        """Write rows that come after all that are there."""
        if not len(losses):
            return
        losses, correct = np.ascontiguousarray(losses), np.ascontiguousarray(correct)
        content: dict[str, NDArray[Any]] = {"losses": losses, "correct": correct}
        content["seal"] = self._seal(first, losses, correct)
        atomic.write_bytes(self.folder / f"rows-{first:06d}.safetensors", safetensors.numpy.save(content))

    def _load(self, path: Path, first: int, shape: tuple[int, ...]) -> tuple[Any, Any] | None:
        try:
            content = safetensors.numpy.load(_bytes(path, MAX_ROWS))
            losses, correct, seal = content["losses"], content["correct"], content["seal"]
            if not np.array_equal(seal, self._seal(first, losses, correct)):
                return None
        except Exception:  # whatever a hostile file provokes
            return None
        n_rows, n_images = losses.shape
        fits = 0 < n_rows <= shape[0] - first and n_images == shape[1] and losses.shape == correct.shape
        return (losses, correct) if fits and losses.dtype == np.float32 and correct.dtype == np.int8 else None

    def _seal(self, first: int, losses: NDArray[Any], correct: NDArray[Any]) -> NDArray[np.uint8]:
        head = f"{first} {losses.shape} {losses.dtype} {correct.shape} {correct.dtype} ".encode()
        total = hashlib.sha256(head + self._sealed)
        total.update(losses.tobytes())
        total.update(correct.tobytes())
        return np.frombuffer(total.digest(), np.uint8)

    def _files(self) -> dict[int, Path]:
        matches = [(ROWS.fullmatch(path.name), path) for path in self.folder.iterdir()]
        return {int(match[1]): path for match, path in matches if match}

    def _remove_from(self, first: int) -> None:
        for row, path in self._files().items():
            if row >= first:
                path.unlink(missing_ok=True)


def _read_manifest(path: Path) -> dict[str, str] | None:
    """Return what the rows were scored with; None where nobody knows."""
    try:
        content = json.loads(_bytes(path, MAX_MANIFEST))
        return dict(content["key"]) if content["schema"] == SCHEMA else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _bytes(path: Path, most: int) -> bytes:
    found = path.lstat()
    if not stat.S_ISREG(found.st_mode) or found.st_size > most:
        raise ValueError(f"{path.name} is not a regular file of at most {most:,} bytes")
    return path.read_bytes()
