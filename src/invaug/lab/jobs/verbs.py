"""What the commands that train many jobs share: the words that resume them, and their report."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from invaug.lab.report import tables
from invaug.lab.report.command import report_runs
from invaug.lab.report.document import Answer, Table
from invaug.lab.terminal import say


def resume_command(verb: str, name: str, flags: Mapping[str, Any], defaults: Mapping[str, Any]) -> str:
    """Return the command line of a verb; flags at their default, None or empty are left out."""
    words = ["invaug", verb, name]
    for key, value in flags.items():
        flag = key.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        elif value is not None and value != defaults.get(key):
            parts = value if isinstance(value, list | tuple) else [value]
            words += [word for part in parts for word in (f"--{flag}", str(part))]
    return shlex.join(words)


def write_report(table: Table, runs: Sequence[Path], folder: Path, next_step: Answer | None = None) -> str | None:
    """Write table and page into the folder and return the path of the page; what has finished never fails by it."""
    if not runs:
        return None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tables.write(table, folder, "table")
        return str(report_runs(runs, folder / "report.html", next_step=next_step)[0])
    except Exception as error:
        say(f"the report could not be written: {error}")
        return None
