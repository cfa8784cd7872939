"""`invaug report`: what runs say, as one page that opens anywhere; from their files alone, without torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from invaug.lab.errors import UserError
from invaug.lab.report import page, tables
from invaug.lab.report.assemble import document_of
from invaug.lab.report.document import Document
from invaug.lab.report.drawing import png, style, svg
from invaug.lab.report.read import read_runs
from invaug.lab.report.sections import insights
from invaug.lab.run import atomic, record
from invaug.lab.run.documents import CERTIFICATE, EVALUATION
from invaug.lab.terminal import say

NAME = "report.html"
RUN_FILES = ("config.toml", record.NAME, EVALUATION, CERTIFICATE)

__all__ = ["NAME", "report_runs", "write_figures", "write_tables"]


def report_runs(
    runs: Sequence[Path], output: Path | None = None, figures: Path | None = None, to_tables: Path | None = None
) -> list[Path]:
    """Write the page of some runs, and its figures and tables as files if asked; return where everything is."""
    if not runs:
        raise UserError("no run to report: name the folder of at least one, for example runs/a")
    found = insights.over(document_of(read_runs(runs)), runs)
    target = output or (runs[0] / NAME if len(runs) == 1 else Path(NAME))
    _check_page(target)
    _folder(target.parent, "-o")
    atomic.write_text(target, page.html(found))
    written = [target]
    if figures is not None:
        written.append(write_figures(found, figures))
    if to_tables is not None:
        written.append(write_tables(found, to_tables))
    return written


def write_figures(found: Document, folder: Path) -> Path:
    """Write every figure as an SVG of its own and as PNG, one line instead of these where resvg is missing."""
    _folder(folder, "--figures")
    for figure in found.figures:
        atomic.write_text(folder / f"{figure.key}.svg", svg.draw(figure, style.picture_style()))
        if png.is_available():
            atomic.write_bytes(folder / f"{figure.key}.png", png.to_png(figure))
    if not png.is_available():
        say(png.MISSING)
    return folder


def write_tables(found: Document, folder: Path) -> Path:
    """Write every table, those behind the figures too, as CSV, Markdown and LaTeX; return the folder."""
    _folder(folder, "--tables")
    named = [*((table.key, table) for table in found.tables), *((figure.key, figure.table) for figure in found.figures)]
    for key, table in named:
        tables.write(table, folder, key)
    return folder


def _check_page(target: Path) -> None:
    """Refuse a page that would be a folder, or take the place of what a run is made of."""
    if target.is_dir():
        raise UserError(f"{target} is a folder: name a file for the page, for example {target / NAME}")
    if target.name in RUN_FILES:
        raise UserError(f"{target} is where a run keeps its own file: choose another -o")


def _folder(folder: Path, flag: str) -> None:
    """Make the folder, or say in one line why it cannot be one."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"cannot write into {folder}: {reason}; choose another {flag}") from None
