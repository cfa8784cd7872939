"""Rows of results: damaged ones are named, old ones stay readable."""

from __future__ import annotations

import pytest

from invaug.lab.errors import UserError
from invaug.lab.reproduce import rows
from tests.support.experiments import NAMES, ROOT, plan_of, row


@pytest.mark.parametrize(
    "line", ["", "{", "[]", '{"cell": 1}', '{"cell":"a","seed":0,"status":"done","config":{},"numbers":{"x":"y"}}']
)
def test_damaged_results_are_named_by_line(tmp_path, line):
    path = tmp_path / "small.jsonl"
    path.write_text(f"{row('a').line()}\n{line or 'null'}\n")
    with pytest.raises(UserError, match=r"small.jsonl is damaged in line 2: not the row of a run"):
        rows.read(path)


def test_rows_of_earlier_versions_are_those_of_the_same_cells():
    results = ROOT / "results"
    for name in NAMES:
        known = {cell.label: rows.essentials(cell.settings) for cell in plan_of(name, "small").cells}
        there = rows.read(rows.path_of(results, name, "small"))
        assert there
        assert [rows.essentials(row.config) for row in there] == [known[row.cell] for row in there], name
