"""record.jsonl: one line per epoch, in plain names and units; what training leaves for whoever reads it."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from invaug.lab.errors import UserError
from invaug.lab.run import atomic

NAME = "record.jsonl"
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""What makes a spreadsheet evaluate a cell, also in its full-width forms."""

Row = dict[str, Any]


class Record:
    """The record of the run in a folder, for its one writer."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME

    @classmethod
    def resume(cls, folder: Path, last_epoch: int) -> Record:
        """Return the record without the epochs after the last one that counts, nor a half-written line."""
        record = cls(folder)
        if _is_there(record.path):
            atomic.sweep(folder)
            kept = [line for line, row in _lines(record.path) if row["epoch"] <= last_epoch]
            atomic.write_bytes(record.path, b"".join(kept))
        return record

    def append(self, row: Mapping[str, Any]) -> None:
        """Add one epoch and wait until it is on the disk; a failed append leaves the record as it was."""
        if not isinstance(row.get("epoch"), int):
            raise ValueError(f"a row must have a whole number as its epoch, got {row.get('epoch')!r}")
        line = json.dumps(dict(row)).encode() + b"\n"
        with atomic.reporting(self.path):
            _append(self.path, line)


def read(folder: Path) -> list[Row]:
    """Return the epochs of a run, an empty list if it has none yet; a half-written last line is not one."""
    path = folder / NAME
    return [row for _, row in _lines(path)] if _is_there(path) else []


def _is_there(path: Path) -> bool:
    """Whether there is a record; a link, which could lead to any file of the user's, or a pipe is none."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise UserError(f"{path} is not a regular file: remove it, and the record starts anew")
    return path.exists()


def to_csv(rows: Iterable[Mapping[str, Any]], path: Path) -> None:
    """Write rows as a table that a spreadsheet can open: nested values in columns of their own (gamma.0, gamma.1)."""
    flat = [dict(_flat(row)) for row in rows]
    names = list(dict.fromkeys(name for row in flat for name in row))
    text = io.StringIO()
    # quoted, because some spreadsheets split at semicolons
    writer = csv.writer(text, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    writer.writerow(map(harmless, names))
    writer.writerows([harmless(row.get(name)) for name in names] for row in flat)
    atomic.write_bytes(path, text.getvalue().encode("utf-8", "replace"))  # half a letter has no UTF-8


def harmless(cell: Any) -> Any:
    """Return the cell; a text that a spreadsheet would take for a formula gets an apostrophe in front."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA) else cell


def _append(path: Path, line: bytes) -> None:
    is_new = not _is_there(path)
    with path.open("ab", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        try:
            atomic.write_all(file.fileno(), line)
        except BaseException:
            file.truncate(size)
            raise
    if is_new:
        atomic.sync_folder(path.parent)


def _lines(path: Path) -> Iterator[tuple[bytes, Row]]:
    """Yield each line and its row; the last may be cut (kill -9, power loss), any other must be whole."""
    *lines, cut = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, 1):
        row = _parsed(line)
        if row is not None:
            yield line + b"\n", row
        elif number < len(lines) or cut:
            raise UserError(f"{path} is damaged in line {number}: {line[:40]!r} is not the record of an epoch")


def _parsed(line: bytes) -> Row | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) and isinstance(row.get("epoch"), int) else None


def _flat(row: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in row.items():
        if isinstance(value, list | tuple):
            value = {str(i): item for i, item in enumerate(value)}
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
