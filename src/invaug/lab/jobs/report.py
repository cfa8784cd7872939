"""The report of many finished runs: one table in all formats, and one page."""

from collections.abc import Sequence
from pathlib import Path

from invaug.lab.report import tables
from invaug.lab.report.command import report_runs
from invaug.lab.report.document import Table
from invaug.lab.terminal import say


def write_report(table: Table, runs: Sequence[Path], folder: Path) -> str | None:
    """Write table and page into the folder and return the path of the page; what has finished never fails by it."""
    if not runs:
        return None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tables.write(table, folder, "table")
        return str(report_runs(runs, folder / "report.html")[0])
    except Exception as error:
        say(f"the report could not be written: {error}")
        return None
