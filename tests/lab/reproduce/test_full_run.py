"""The command for a GPU, at full scale, in a process of its own: everything but the size is as published."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from invaug.lab.reproduce import page, rows
from tests.support.experiments import ROOT
from tests.support.runs import write_digits

pytestmark = pytest.mark.long
SCRIPT = """
import sys
from dataclasses import replace
from invaug.lab.reproduce import cells, experiments

TINY = {"data": sys.argv[1], "model": "wrn-10-1", "epochs": 1, "batch_size": 32, "workers": 0, "threads": 1}
published = experiments.find("table-1")
mine = [cell for cell in published.plans["full"].cells if cell.label.startswith("cifar10-wrn-40-2-wide")]
small = [replace(cell, settings={**cell.settings, **TINY}) for cell in mine]
plans = {**published.plans, "full": cells.ScalePlan(small, 1)}
experiments.all_experiments = lambda: {"table-1": replace(published, plans=plans)}
experiments._homes.cache_clear()
sys.argv = ["invaug", "reproduce", "table-1", "--scale", "full", *sys.argv[2:]]
from invaug.lab.cli.main import main
main()
"""
CELLS = [
    f"cifar10-wrn-40-2-wide-{preset}-{method}"
    for preset, method in product(("paper", "authors-code"), ("trivial", "constrained"))
]


@pytest.fixture(scope="module")
def ran(tmp_path_factory) -> tuple[Path, list[str]]:
    """A folder in which the command ran to its end, and the lines that it printed; then it ran again."""
    folder = tmp_path_factory.mktemp("full")
    data = write_digits(folder, n_train=96)
    words = [sys.executable, "-c", SCRIPT, str(data), "--only", "*wide*"]
    where = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "INVAUG_DATA": str(folder)}
    printed = []
    for _ in range(2):
        done = subprocess.run(words, cwd=folder, env=where, capture_output=True, text=True, check=False)  # noqa: S603
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout)
    return folder, printed


def test_the_cost_is_said_before_anything_is_trained(ran):
    first, again = ran[1]
    left_out, cost, *trained = [line for line in first.splitlines() if "loading" not in line]
    assert left_out.startswith("left out: DeepAA without a policy file (1): put DATASET-SET.npz into")
    assert cost.startswith("4 runs, 0 of them done: about ")
    assert cost.endswith(" on one RTX 3090")
    assert trained[0].startswith("1 of 4: cifar10-wrn-40-2-wide-paper-trivial seed 0: test accuracy")
    assert "4 runs, 4 of them done: nothing is left to train" in again
    for printed in (first, again):
        assert f"{CELLS[3]} is above {CELLS[2]}" in printed
        assert "not decided: 1 seed" in printed


def test_rows_of_the_full_scale_have_the_format_of_the_small_one(ran):
    lines = (ran[0] / "results" / "table-1" / "full.jsonl").read_text(encoding="utf-8").splitlines()
    found = {row["cell"]: row for row in map(json.loads, lines)}
    assert list(found) == CELLS
    small = json.loads((ROOT / "results" / "table-1" / "small.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    for label, row in found.items():
        assert set(row) >= {"cell", "seed", "status", "config", "numbers", "versions"}
        if label.endswith("constrained"):
            assert set(row["numbers"]) >= set(small["numbers"])
        assert str(ran[0]) not in json.dumps(row)


def test_both_presets_ran_as_they_are_defined(ran):
    found = {row.cell: row for row in rows.read(ran[0] / "results" / "table-1" / "full.jsonl")}
    paper, code = found[CELLS[1]], found[CELLS[3]]
    assert (paper.config["preset"], code.config["preset"]) == ("paper", "authors-code")
    assert paper.numbers["passes"] > code.numbers["passes"] > found[CELLS[0]].numbers["passes"]  # 9, 8 and 3 per image


def test_the_rows_make_a_table_with_verdicts_on_the_page(ran):
    text = page.write_page(ran[0] / "results")
    section = text[text.index("## table-1: ") : text.index("## table-2: ")]
    assert "Full scale, `invaug reproduce table-1 --scale full`:" in section
    assert f"| {CELLS[1]} is above {CELLS[0]} |" in section
    assert "not decided: 1 seed" in section
