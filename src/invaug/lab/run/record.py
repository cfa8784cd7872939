"""record.jsonl: one line per epoch, in plain names and units; everything a report knows about training."""

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
"""First characters that make a spreadsheet evaluate a cell, also in full width."""

Row = dict[str, Any]


def resume(folder: Path, last_epoch: int) -> None:
    """Drop the epochs after `last_epoch` and a half-written line; only for the single writer of the folder."""
    path = folder / NAME
    if _exists(path):
        atomic.sweep(folder)
        kept = [line for line, row in _lines(path) if row["epoch"] <= last_epoch]
        atomic.write_bytes(path, b"".join(kept))


def append(folder: Path, row: Mapping[str, Any]) -> None:
    """Add one epoch and wait until it is on disk; a failed append leaves the record unchanged."""
    if not isinstance(row.get("epoch"), int):
        raise ValueError(f"the epoch of a row must be an integer, got {row.get('epoch')!r}")
    path, line = folder / NAME, json.dumps(dict(row)).encode() + b"\n"
    with atomic.reporting(path):
        is_new = not _exists(path)
        with path.open("ab", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            try:
                atomic.write_all(file.fileno(), line)
            except BaseException:
                file.truncate(size)
                raise
        if is_new:
            atomic.sync_folder(path.parent)


def read(folder: Path) -> list[Row]:
    """Return the epochs of a run, an empty list if there are none yet; a half-written last line is ignored."""
    path = folder / NAME
    return [row for _, row in _lines(path)] if _exists(path) else []


def _exists(path: Path) -> bool:
    """Whether there is a record; refuse a link, which could lead to any file of the user's, and a pipe."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise UserError(f"{path} is not a regular file: remove it to start a new record")
    return path.exists()


def to_csv(rows: Iterable[Mapping[str, Any]], path: Path) -> None:
    """Write rows as a table for spreadsheets, with a column for each nested value (gamma.0, gamma.1)."""
    flat = [dict(_flatten(row)) for row in rows]
    names = list(dict.fromkeys(name for row in flat for name in row))
    text = io.StringIO()
    # quoted, because some spreadsheets split at semicolons
    writer = csv.writer(text, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    writer.writerow(map(harmless, names))
    writer.writerows([harmless(row.get(name)) for name in names] for row in flat)
    atomic.write_bytes(path, text.getvalue().encode("utf-8", "replace"))  # a lone surrogate has no UTF-8


def harmless(cell: Any) -> Any:
    """Return the cell, with an apostrophe in front of text that a spreadsheet would evaluate as a formula."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA) else cell


def _lines(path: Path) -> Iterator[tuple[bytes, Row]]:
    """Yield each line and its row; the last may be cut off (kill -9, power loss), all others must be complete."""
    *lines, cut = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, 1):
        row = _parse(line)
        if row is not None:
            yield line + b"\n", row
        elif number < len(lines) or cut:
            raise UserError(f"{path} is damaged in line {number}: {line[:40]!r} is not the record of an epoch")


def _parse(line: bytes) -> Row | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) and isinstance(row.get("epoch"), int) else None


def _flatten(row: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in row.items():
        if isinstance(value, list | tuple):
            value = {str(i): item for i, item in enumerate(value)}
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
