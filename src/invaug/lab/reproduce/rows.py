"""The results: one row per run in `results/NAME/SCALE.jsonl`."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from invaug.lab.errors import UserError
from invaug.lab.reproduce.cells import USUAL, Scale
from invaug.lab.run import atomic
from invaug.lab.terminal import plain

DONE, FAILED = "done", "failed"
LARGEST = 16 << 20  # bytes of a results file


@dataclass(frozen=True)
class Row:
    """One run; of the machine it ran on it names only the processor."""

    cell: str
    seed: int
    status: str
    config: Mapping[str, Any]
    numbers: Mapping[str, float]
    more: Mapping[str, Any]
    """The reason for a failure, the resolved config, commit, versions, processor, and what the experiment keeps."""

    def line(self) -> str:
        """Return the row as JSON."""
        known = {key: value for key, value in vars(self).items() if key != "more"}
        return json.dumps({**known, **self.more})


def essentials(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a run without where its files are, and without those that most runs have."""
    found = {key: value for key, value in config.items() if key not in ("data_dir", "workers", "seed")}
    if found.get("method") == "uniform":
        found.pop("n_steps", None)  # rows of earlier versions have one, which did nothing
    if "preset" not in found:
        found = {key: value for key, value in found.items() if USUAL.get(key) != value}
    return {key: Path(value).name if key in ("data", "policy") else value for key, value in found.items()}


def path_of(results: Path, name: str, scale: Scale) -> Path:
    """Return the file of an experiment's rows."""
    return results / name / f"{scale}.jsonl"


def write(path: Path, rows: Iterable[Row]) -> None:
    """Replace the file by one with these rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic.write_text(path, "".join(f"{row.line()}\n" for row in rows))


def read(path: Path) -> list[Row]:
    """Return the rows of a file, none if it does not exist."""
    if not path.is_file():
        return []
    if path.is_symlink() or path.stat().st_size > LARGEST:
        raise UserError(f"{path} is not a file of results: it is a link, or over {LARGEST:,} bytes")
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return [_parse(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]


def _parse(path: Path, number: int, line: str) -> Row:
    try:
        content = json.loads(line)
        known = {key: content.pop(key) for key in ("cell", "seed", "status", "config", "numbers")}
        # rows may come from elsewhere: a line break in a name would end the row of a table
        known["cell"] = plain(known["cell"])
        row = Row(**known, more={key: plain(v) if isinstance(v, str) else v for key, v in content.items()})
        if _is_valid(row):
            return row
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        pass
    raise UserError(f"{path} is damaged in line {number}: not the row of a run; run the experiment again")


def _is_valid(row: Row) -> bool:
    names = isinstance(row.cell, str) and type(row.seed) is int and row.status in (DONE, FAILED)
    numbers = all(type(value) in (int, float) and math.isfinite(value) for value in row.numbers.values())
    return names and numbers and isinstance(row.config, dict)
