"""Evaluations and certificates as documents: what is averaged, filled in, sorted, and left out."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from invaug.lab.report.document import Figure, Table
from invaug.lab.report.sections import certificate, evaluation
from invaug.lab.report.terminal import print_document
from invaug.lab.report.values import cells_in, ends_of


def levels(*pairs: tuple[int, float]) -> dict[str, Any]:
    return {"levels": {"Rotate": [{"level": level, "accuracy": accuracy} for level, accuracy in pairs]}}


def map_of(found: dict[str, Any]) -> Figure:
    figure = evaluation.level_map(found, "key", "title")
    assert figure is not None
    return figure


def test_both_signs_of_a_level_are_averaged() -> None:
    assert map_of(levels((0, 1.0), (1, 0.5), (1, 0.7))).table.rows == (("Rotate", 1.0, pytest.approx(0.6)),)


def test_an_absent_level_does_the_same_as_the_one_before() -> None:
    assert map_of(levels((1, 0.5), (3, 0.2))).table.rows == (("Rotate", None, 0.5, 0.5, 0.2),)


def test_the_reading_names_the_lowest_accuracy() -> None:
    assert map_of(levels((0, 1.0), (4, 0.25))).reading == "Lowest: Rotate at level 4, accuracy 25.0%."


def test_classes_are_sorted_and_those_without_a_number_left_out() -> None:
    found = {"classes": {"a": {"accuracy": 0.5, "images": 2}, "b": {"accuracy": None}, "c": {"accuracy": 0.1}}}
    (table,) = evaluation.parts(found)
    assert isinstance(table, Table)
    assert [row[0] for row in table.rows] == ["c", "a"]
    assert table.title == "Classes, worst first (2 of 3)"


def test_an_interval_takes_two_cells_and_a_count_stays_whole() -> None:
    row = {"share": 1, "interval": [0.25, None], "images": 20_000, "loss": "x"}
    assert cells_in(row, "images", "interval", "loss") == [20_000, 0.25, None, None]
    assert ends_of([1, 2, 3]) == ends_of("ab") == (None, None)


@pytest.mark.parametrize("found", [{}, {"clean": 3, "levels": [], "classes": "x", "calibration": {}}, {"run": None}])
def test_whatever_a_document_says_it_can_be_printed(found: dict[str, Any]) -> None:
    console = Console(width=80)
    with console.capture() as captured:
        print_document(evaluation.document(found), console)
        print_document(certificate.document(found, "a run"), console)
    assert "a run" in captured.get()
