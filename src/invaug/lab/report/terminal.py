"""Documents on a terminal: sentences and tables without lines; a figure is shown as its sentence and its numbers."""

from dataclasses import replace

from rich import table as rich
from rich.console import Console
from rich.markup import escape

from invaug.lab.report.document import Document, Figure, Gallery, Part, Table
from invaug.lab.report.tables import cell_texts, is_numeric
from invaug.lab.terminal import plain

MOST_COLUMNS = 8  # of a table; wider ones keep their first column and evenly spaced others


def print_document(document: Document, console: Console) -> None:
    """Print a document, part by part."""
    print_line(console, document.title, "bold")
    if document.verdict:
        print_line(console, document.verdict)
    for answer in document.answers:
        print_line(console, " ".join(filter(None, (f"{answer.name}: {answer.text}", answer.command))))
    if document.tiles:
        print_table(console, Table("", ("", "", ""), tuple(tuple(tile) for tile in document.tiles)))
    for section in document.sections:
        console.print()
        print_line(console, section.title, "bold")
        for part in section.parts:
            _print_part(console, part)
    for note in document.notes:
        print_line(console, f"note: {note}")


def _print_part(console: Console, part: Part) -> None:
    """Print a part of a section; pictures are left to the page."""
    if isinstance(part, str):
        print_line(console, part)
    elif isinstance(part, Figure):
        console.print()
        print_table(console, part.table)
        print_line(console, part.reading)
    elif not isinstance(part, Gallery):
        console.print()
        print_table(console, part)


def print_line(console: Console, text: str, style: str = "") -> None:
    """Print text that a terminal shows as it is: names of classes and files may hold markup or control codes."""
    console.print(safe(text), style=style, soft_wrap=True)


def print_table(console: Console, table: Table) -> None:
    """Print a table: names on the left, numbers on the right."""
    shown = _narrowed(table)
    if shown.title:  # not the grid's own title, which would wrap at the width of the grid
        print_line(console, shown.title, "bold")
    grid = rich.Table(box=None, pad_edge=False, show_header=any(shown.columns))
    for i, name in enumerate(shown.columns):
        grid.add_column(safe(name), justify="right" if is_numeric(shown, i) else "left", overflow="fold")
    for row in cell_texts(shown):
        grid.add_row(*map(safe, row))
    console.print(grid)


def safe(text: str) -> str:
    """Return one line without markup and control codes."""
    return escape(plain(text))


def _narrowed(table: Table) -> Table:
    n = len(table.columns) - 1
    if n < MOST_COLUMNS:
        return table
    kept = [0, *(1 + round(i * (n - 1) / (MOST_COLUMNS - 2)) for i in range(MOST_COLUMNS - 1))]
    rows = tuple(tuple(row[i] for i in kept) for row in table.rows)
    return replace(table, columns=tuple(table.columns[i] for i in kept), rows=rows)
