"""`invaug report`: what runs say, as one page that opens anywhere; from their files alone, without torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from invaug.lab import atomic
from invaug.lab.errors import UserError
from invaug.lab.outlets import say
from invaug.lab.report import page, pictures, style, svg, tables
from invaug.lab.report.reading import read_runs

NAME = "report.html"

__all__ = ["NAME", "report_runs", "write_figures", "write_tables"]


def report_runs(
    runs: Sequence[Path], output: Path | None = None, figures: Path | None = None, to_tables: Path | None = None
) -> list[Path]:
    """Write the page of some runs, and its figures and tables as files if asked; return where everything is."""
    if not runs:
        raise UserError("no run to report: name the folder of at least one, for example runs/a")
    found = page.content(read_runs(runs))
    target = output or (runs[0] / NAME if len(runs) == 1 else Path(NAME))
    _folder(target.parent, "-o")
    atomic.write_text(target, page.html(found))
    written = [target]
    if figures is not None:
        written.append(write_figures(found, figures))
    if to_tables is not None:
        written.append(write_tables(found, to_tables))
    return written


def write_figures(found: page.Content, folder: Path) -> Path:
    """Write every figure as an SVG of its own, and as PNG where matplotlib is installed; return the folder."""
    _folder(folder, "--figures")
    for figure in found.figures:
        atomic.write_text(folder / f"{figure.key}.svg", svg.draw(figure, style.picture_style()))
        if pictures.available():
            atomic.write_bytes(folder / f"{figure.key}.png", pictures.png(figure))
    if not pictures.available():
        say(pictures.MISSING)
    return folder


def write_tables(found: page.Content, folder: Path) -> Path:
    """Write every table, those behind the figures too, as CSV, Markdown and LaTeX; return the folder."""
    _folder(folder, "--tables")
    named = [*found.tables, *((figure.key, figure.table) for figure in found.figures)]
    for key, table in named:
        tables.write(table, folder, key)
    return folder


def _folder(folder: Path, flag: str) -> None:
    """Make the folder, or say in one line why it cannot be one."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"cannot write into {folder}: {reason}; choose another {flag}") from None
