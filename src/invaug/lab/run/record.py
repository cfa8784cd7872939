"""record.jsonl: one line per epoch, in plain names and units; everything a report knows about training."""

import csv
import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from invaug.lab.errors import UserError
from invaug.lab.run import atomic, files
from invaug.lab.run.row import Row, check_complete, check_row

NAME = "record.jsonl"
MAX_BYTES = 64 << 20  # of a record; a row of sixteen operations has about 3 kB
MAX_ROWS = 100_000
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""First characters that make a spreadsheet evaluate a cell, also in full width."""


def resume(folder: Path, last_epoch: int, n_constraints: int | None = None) -> None:
    """Drop the epochs after `last_epoch` and a half-written line; only for the single writer of the folder.

    Args:
        n_constraints: If given, every row must have all that training reads of it, for so many constraints.
    """
    path = folder / NAME
    if _exists(path):
        kept = [(line, row) for line, row in _lines(path) if row["epoch"] <= last_epoch]
        for number, (_, row) in enumerate(kept if n_constraints is not None else (), 1):
            if problem := check_complete(row, n_constraints or 0):
                raise _damaged(path, number, problem)
        atomic.sweep(folder)
        atomic.write_bytes(path, b"".join(line for line, _ in kept))


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
    try:
        *lines, cut = files.read_bytes(path, MAX_BYTES).split(b"\n")
    except files.UnsafeFileError as error:
        raise UserError(f"cannot read {path}: {error}: move it elsewhere to continue without it") from None
    if len(lines) > MAX_ROWS:
        raise UserError(f"{path} has {len(lines):,} lines, over the limit of {MAX_ROWS:,}: move it elsewhere")
    for number, line in enumerate(lines, 1):
        row, problem = _parse(line)
        if row is not None:
            yield line + b"\n", row
        elif number < len(lines) or cut or problem:
            raise _damaged(path, number, problem or f"{line[:40]!r} is not the record of an epoch")


def _damaged(path: Path, number: int, problem: str) -> UserError:
    return UserError(f"{path} is damaged in line {number}: {problem}: remove the file to start a new record")


def _parse(line: bytes) -> tuple[Row | None, str]:
    """Return the row of a line, or what is wrong with one that is the record of an epoch."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None, ""
    if not isinstance(row, dict) or not isinstance(row.get("epoch"), int):
        return None, ""
    problem = check_row(row)
    return (None, problem) if problem else (row, "")


def _flatten(row: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in row.items():
        if isinstance(value, list | tuple):
            value = {str(i): item for i, item in enumerate(value)}
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
