"""Tables as HTML, CSV, Markdown and plain text."""

import re
from collections.abc import Iterator, Sequence
from html import escape
from itertools import zip_longest
from pathlib import Path

from invaug.lab.report.document import Cell, Table
from invaug.lab.run import atomic, record

MARKDOWN = re.compile(r"[\\`*_{}\[\]<>#|!]")


def cell_text(cell: Cell, percent: bool = False) -> str:
    """Return a cell as a reader wants it: four digits, a dash for nothing."""
    if isinstance(cell, float):
        return f"{cell:.2%}" if percent else f"{cell:.4g}"
    return "–" if cell is None else str(cell)


def cell_texts(table: Table) -> list[list[str]]:
    """Return the rows as texts for people."""
    percent = [name in table.percent for name in table.columns]
    return [[cell_text(cell, as_share) for cell, as_share in zip(row, percent, strict=True)] for row in table.rows]


def is_numeric(table: Table, column: int) -> bool:
    """Whether a column holds no text."""
    return not any(isinstance(row[column], str) for row in table.rows)


def to_html(table: Table, runs: Sequence[int | None] = ()) -> str:
    """Return an HTML table; every text in it is escaped.

    Args:
        runs: To which run each column belongs, None for a column of no run.
    """
    kinds = [" class=n" if is_numeric(table, i) else "" for i in range(len(table.columns))]
    owners = ["" if run is None else f' data-of="{run}"' for run in runs]
    heads = zip_longest(kinds, owners[: len(kinds)], table.columns, fillvalue="")
    head = "".join(f'<th scope="col"{kind}{owner}>{escape(name)}</th>' for kind, owner, name in heads)
    rows = (zip(kinds, row, strict=True) for row in cell_texts(table))
    body = "".join(f"<tr>{''.join(f'<td{kind}>{escape(text)}</td>' for kind, text in row)}</tr>" for row in rows)
    caption = f"<caption>{escape(table.title)}</caption>"
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def to_csv(table: Table, path: Path) -> None:
    """Write the whole numbers, and texts that no spreadsheet takes for a formula."""
    # columns may share a name, keys may not; those of the record's writer are told apart by trailing blanks
    names = [f"{name}{' ' * table.columns[:i].count(name)}" for i, name in enumerate(table.columns)]
    record.to_csv([dict(zip(names, row, strict=True)) for row in table.rows], path)


def to_markdown(table: Table) -> str:
    """Return a pipe table; letters that Markdown or HTML would act on are escaped."""
    lines = [table.columns, ["---"] * len(table.columns), *cell_texts(table)]
    texts = [[cell if cell == "---" else MARKDOWN.sub(r"\\\g<0>", cell) for cell in line] for line in lines]
    return "".join(f"| {' | '.join(line)} |\n" for line in texts)


def in_columns(table: Table) -> Iterator[str]:
    """Return the title and the rows, in columns of one width."""
    texts = [table.columns, *cell_texts(table)]
    widths = [max(len(row[i]) for row in texts) for i in range(len(table.columns))]
    yield table.title
    for row in texts:
        cells = [text.rjust(width) for text, width in zip(row, widths, strict=True)]
        yield "  ".join([row[0].ljust(widths[0]), *cells[1:]]).rstrip()


def write(table: Table, folder: Path, key: str) -> None:
    """Write a table in all file formats."""
    to_csv(table, folder / f"{key}.csv")
    atomic.write_text(folder / f"{key}.md", to_markdown(table))
