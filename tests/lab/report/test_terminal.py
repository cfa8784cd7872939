"""A document on a terminal: its sentences and tables, names that cannot do anything to it."""

from __future__ import annotations

import io

from rich.console import Console

from invaug.lab.report.document import Document, Gallery, Section, Table, Tile
from invaug.lab.report.terminal import MOST_COLUMNS, print_document


def printed(document: Document) -> str:
    file = io.StringIO()
    print_document(document, Console(file=file, width=100, highlight=False, emoji=False))
    return file.getvalue()


def test_a_document_is_printed_part_by_part() -> None:
    table = Table(
        "Laws", ("under", "accuracy", "loss"), (("clean", 0.9, 0.25), ("worst", None, 12.0)), "laws", ("accuracy",)
    )
    section = Section("Measured", ("One sentence.", table, Gallery(())))
    text = printed(Document("a run", "It went well.", ("a note",), (Tile("accuracy", "90 %", "of 100"),), (section,)))
    lines = [line.split() for line in text.splitlines()]
    assert lines[:3] == [["a", "run"], ["It", "went", "well."], ["accuracy", "90", "%", "of", "100"]]
    assert ["clean", "90.00%", "0.25"] in lines
    assert ["worst", "–", "12"] in lines
    assert text.endswith("note: a note\n")


def test_names_are_shown_as_they_are() -> None:
    name = "[red]x[/red]\x1b[31m"
    text = printed(Document(name, sections=(Section(name, (name, Table(name, (name,), ((name,),)))),)))
    assert text.count("[red]x[/red]?[31m") == 6
    assert "\x1b" not in text


def test_a_wide_table_keeps_its_first_column_and_evenly_spaced_others() -> None:
    columns = tuple(f"level{i}" for i in range(31))
    table = Table("", ("operation", *columns), (("Rotate", *range(31)),))
    head, row = [line.split() for line in printed(Document("", sections=(Section("", (table,)),))).splitlines()[-2:]]
    assert len(head) == MOST_COLUMNS
    assert head[:2] == ["operation", "level0"]
    assert head[-1] == "level30"
    assert row == ["Rotate", *(name.removeprefix("level") for name in head[1:])]
