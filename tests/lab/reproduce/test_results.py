"""Rows that are committed, or come with a pull request, are of the planned runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from invaug.lab.reproduce import rows
from invaug.lab.reproduce.cells import SCALES
from invaug.lab.reproduce.experiments import find
from invaug.lab.reproduce.rows import DONE
from tests.support.experiments import NAMES, ROOT

FILES = [(name, scale) for name in NAMES for scale in SCALES if (ROOT / "results" / name / f"{scale}.jsonl").is_file()]
PLACES = ("/home", "/root", "/tmp", "/work", "/mnt", "/Users", "C:\\")  # noqa: S108


def complaints(results: Path, name: str, scale: str) -> list[str]:
    """Return what is wrong with the rows of an experiment."""
    path = rows.path_of(results, name, scale)
    plan = find(name).plans[scale]
    known = {cell.label: rows.essentials(cell.settings) for cell in plan.cells}
    found, seen = [], set()
    for row in rows.read(path):
        run = f"{row.cell} seed {row.seed}"
        if row.cell not in known:
            found.append(f"{run}: no such cell")
        elif rows.essentials(row.config) != known[row.cell]:
            found.append(f"{run}: another config than its cell's")
        if (row.cell, row.seed) in seen:
            found.append(f"{run}: twice")
        if row.status == DONE and not {"seconds", "passes"} <= set(row.numbers):
            found.append(f"{run}: numbers are missing")
        if any(place in row.line() for place in PLACES):
            found.append(f"{run}: names a folder of a machine")
        seen.add((row.cell, row.seed))
    return found


@pytest.mark.parametrize(("name", "scale"), FILES)
def test_committed_rows_are_those_of_the_plan(name, scale):
    assert complaints(ROOT / "results", name, scale) == []


def test_every_experiment_of_the_small_scale_has_rows():
    assert {name for name, scale in FILES if scale == "small"} == set(NAMES)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, None),
        ({"cell": "cifar10-wrn-40-2-wide-paper-unknown"}, "no such cell"),
        ({"config": {"epochs": 20}}, "another config than its cell's"),
        ({"numbers": {"test_accuracy": 0.99}}, "numbers are missing"),
        ({"reason": "out of memory in /home/me/runs"}, "names a folder of a machine"),
    ],
)
def test_rows_of_a_pull_request_are_refused_if_they_are_of_another_run(tmp_path, change, said):
    cell = find("table-1").plans["full"].cells[0]
    row = {"cell": cell.label, "seed": 0, "status": DONE, "config": rows.essentials(cell.settings)}
    row |= {"numbers": {"test_accuracy": 0.96, "seconds": 2500.0, "passes": 3.0}, **change}
    path = rows.path_of(tmp_path, "table-1", "full")
    path.parent.mkdir()
    path.write_text(json.dumps(row) + "\n", encoding="utf-8")
    assert [text.rpartition(": ")[2] for text in complaints(tmp_path, "table-1", "full")] == ([said] if said else [])
    path.write_text(2 * (json.dumps(row) + "\n"), encoding="utf-8")
    assert any(text.endswith(": twice") for text in complaints(tmp_path, "table-1", "full"))
