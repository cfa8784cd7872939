"""Several runs: experiments, paired differences, and the figures that the runs support."""

from __future__ import annotations

from pathlib import Path

import pytest

from invaug.lab.report.assemble import document_of
from invaug.lab.report.groups import group_runs
from invaug.lab.report.read import read_runs
from invaug.lab.report.sections import compare
from tests.support.pages import (
    html_of,
    keys_of,
    sweep,
    with_families,
    write_run,
)


def test_seeds_of_one_experiment_belong_together_under_what_differs(tmp_path: Path) -> None:
    groups = group_runs(read_runs(sweep(tmp_path)))
    assert [group.label for group in groups] == [
        "TrivialAugment",
        "invaug, epsilon 0.6, n_steps 1",
        "invaug, epsilon 1, n_steps 1",
        "invaug, epsilon 1.6, n_steps 1",
        "uniform, epsilon 1",
        "invaug, epsilon 1, n_steps 4",
    ]
    assert {len(group.runs) for group in groups} == {3}


def test_constraints_of_several_runs_have_their_columns(tmp_path: Path) -> None:
    names = ("turn", "shift", "light")
    runs = [with_families(write_run(tmp_path / str(i), n_constraints=3, seed=i), *names) for i in range(2)]
    found = document_of(read_runs(runs))
    tables = {table.key: table for table in found.tables}
    assert tables["experiments"].columns[3:6] == tuple(f"γ, {name}" for name in names)


def test_differences_are_paired_by_seed_against_the_plainest_method(tmp_path: Path) -> None:
    (table,) = compare.differences(group_runs(read_runs(sweep(tmp_path))))
    assert "minus that of TrivialAugment" in table.title
    assert table.rows[1] == ("invaug, epsilon 1, n_steps 1", 3, "+6.00", "+6.00 to +6.00")


def test_one_common_seed_has_a_difference_and_no_interval(tmp_path: Path) -> None:
    runs = read_runs([write_run(tmp_path / "a", method="trivial"), write_run(tmp_path / "b", accuracy=0.95)])
    assert compare.differences(group_runs(runs))[0].rows == (("invaug", 1, "+5.00", "one seed: no interval"),)


def test_runs_that_vary_everything_have_every_comparison(tmp_path: Path) -> None:
    runs = sweep(tmp_path)
    found = {figure.key: figure for figure in document_of(read_runs(runs)).figures}
    assert {"error", "error-epsilon", "error-n-steps", "pareto"} <= found.keys()
    assert [row[0] for row in found["error-epsilon"].table.rows] == [0.6, 1.0, 1.6]
    assert [row[4] for row in found["error-epsilon"].table.rows] == pytest.approx([0.3, 0.2, 0.1])
    assert [row[0] for row in found["error-n-steps"].table.rows] == [0, 1, 4]
    assert [row[3] for row in found["pareto"].table.rows] == ["yes", "no", "yes", "no", "yes", "no"]


def test_a_comparison_the_runs_do_not_support_is_left_out(tmp_path: Path) -> None:
    keys = keys_of(write_run(tmp_path / "a", method="none"), write_run(tmp_path / "b", method="trivial"))
    assert "error" in keys
    assert not {"gamma", "error-epsilon", "error-n-steps", "operations"} & set(keys)


def test_runs_of_different_datasets_are_shown_and_not_compared(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / "a"), write_run(tmp_path / "b", data="cifar10")]
    assert "runs of different datasets (cifar10, digits)" in html_of(*runs)
    assert not {"error", "pareto"} & set(keys_of(*runs))
    assert "differences" not in [table.key for table in document_of(read_runs(runs)).tables]
