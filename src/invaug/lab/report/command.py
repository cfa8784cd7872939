"""`invaug report`: the results of runs as one page that opens anywhere, made from their files, without torch."""

from collections.abc import Sequence
from pathlib import Path

from invaug.lab.errors import UserError
from invaug.lab.report import page, tables
from invaug.lab.report.assemble import document_of
from invaug.lab.report.document import Answer, Document
from invaug.lab.report.drawing import svg
from invaug.lab.report.read import RUN_FILES, read_runs
from invaug.lab.report.sections import insights
from invaug.lab.run import atomic
from invaug.lab.terminal import say

NAME = "report.html"


def report_runs(
    runs: Sequence[Path],
    output: Path | None = None,
    figures: Path | None = None,
    to_tables: Path | None = None,
    next_step: Answer | None = None,
) -> list[Path]:
    """Write the page of some runs, and its figures and tables as files if asked; return where everything is.

    Args:
        next_step: What the page says to do next, where the runs alone do not tell.
    """
    if not runs:
        raise UserError("no run to report: name the folder of at least one, for example runs/a")
    document = insights.insights_document(runs) or document_of(read_runs(runs), next_step)
    target = output or (runs[0] / NAME if len(runs) == 1 else Path(NAME))
    written = [write_page(document, target)]
    if figures is not None:
        written.append(write_figures(document, figures))
    if to_tables is not None:
        written.append(write_tables(document, to_tables))
    return written


def write_page(document: Document, target: Path) -> Path:
    """Write a document as a page, and return where."""
    _check_page(target)
    _make_folder(target.parent, "-o")
    atomic.write_text(target, page.html(document))
    return target


def write_figures(document: Document, folder: Path) -> Path:
    """Write every figure as SVG and as PNG; where resvg is missing, one line says so."""
    _make_folder(folder, "--figures")
    for figure in document.figures:
        picture = svg.picture(figure)
        atomic.write_text(folder / f"{figure.key}.svg", picture)
        if svg.can_draw_png():
            atomic.write_bytes(folder / f"{figure.key}.png", svg.to_png(picture))
    if not svg.can_draw_png():
        say(svg.NO_PNG)
    return folder


def write_tables(document: Document, folder: Path) -> Path:
    """Write every table, those behind the figures too, as CSV and Markdown; return the folder."""
    _make_folder(folder, "--tables")
    for table in document.tables:
        tables.write(table, folder, table.key)
    for figure in document.figures:
        tables.write(figure.table, folder, figure.key)
    return folder


def _check_page(target: Path) -> None:
    """Refuse a page that would replace a folder or a file of a run."""
    if target.is_dir():
        raise UserError(f"{target} is a folder: name a file for the page, for example {target / NAME}")
    if target.name in RUN_FILES:
        raise UserError(f"{target} is where a run keeps its own file: choose another -o")


def _make_folder(folder: Path, flag: str) -> None:
    """Create the folder; where that fails, one line says why."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"cannot write into {folder}: {reason}; choose another {flag}") from None
