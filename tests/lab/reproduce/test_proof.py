"""The protocol's experiments: valid configs, equal conditions, choices by held-out images, numbers of the page."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pytest
from scipy import stats

from invaug.lab.config.build import build
from invaug.lab.config.schema import Config
from invaug.lab.reproduce import proof, proof_page
from invaug.lab.reproduce.cells import Cell
from invaug.lab.reproduce.experiments import find
from invaug.lab.reproduce.findings import accuracy, choose, difference, regrets
from invaug.lab.reproduce.outcome import Outcome
from tests.support.experiments import ROOT, row

RESULTS = ROOT / "results"
OWN = {"lr", "epochs"}
"""The settings outside the table [method] in which arms may differ: chosen for each, or fewer for equal passes."""


def cells_of(name: str) -> list[Cell]:
    return list(find(name).plans["small"].cells)


def rows_of(name: str) -> list[dict]:
    path = RESULTS / name / "small.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


@pytest.mark.parametrize("name", proof.NAMES)
def test_every_cell_is_a_valid_config_with_a_label_of_its_own(name):
    labels = [cell.label for cell in cells_of(name)]
    assert len(set(labels)) == len(labels)
    assert all(isinstance(build(cell.settings), Config) for cell in cells_of(name))


@pytest.mark.parametrize("name", proof.NAMES)
def test_arms_of_a_task_differ_in_nothing_but_the_method(name):
    for task in proof.TABLE[name]["tasks"]:
        configs = [build(c.settings) for c in cells_of(name) if c.settings["data"] == task]
        shared = [
            {**c.data.model_dump(), **c.model.model_dump(), **c.train.model_dump(exclude=OWN), **c.run.model_dump()}
            for c in configs
        ]
        assert all(each == shared[0] for each in shared)
        assert {c.train.cutout for c in configs} == {0}


@pytest.mark.parametrize("name", [name for name in proof.NAMES if not name.endswith("-rates")])
def test_arms_have_equal_epochs_except_where_passes_are_equal(name):
    for task in proof.TABLE[name]["tasks"]:
        cells = [cell for cell in cells_of(name) if cell.settings["data"] == task]
        assert len({cell.settings["epochs"] for cell in cells if not cell.label.endswith(proof.EQUAL_PASSES)}) == 1


def test_a_comparison_has_about_240_000_visits():
    images = {"cifar100": 10_000, "tiny-imagenet": 10_000}
    for cell in (*cells_of("compare"), *cells_of("compare-frozen")):
        if not cell.label.endswith(proof.EQUAL_PASSES):
            assert images.get(cell.settings["data"], 4_000) * cell.settings["epochs"] == 240_000


def test_levels_are_shares_of_the_loss_of_a_guess():
    (cell,) = [c for c in cells_of("auto") if c.label == "cifar10-wide-fixed-level-0.5"]
    assert cell.settings["epsilon"] == pytest.approx(0.5 * math.log(10), abs=1e-4)


def test_a_set_called_all_has_every_operation_of_the_others():
    table = proof.TABLE["sets"]
    others = [name for name in table if name != "all" and "families" in table[name]]
    named = {op for name in others for family in table[name]["families"].values() for op in family}
    assert named <= {*table["all"]["families"]["all"]}


@pytest.mark.parametrize("name", ["compare-rates", "safety-rates"])
def test_what_was_chosen_is_the_best_on_held_out_images(name):
    found, chosen = proof_page.outcomes(RESULTS)[name], proof.TABLE["chosen"][name]
    done = {each["cell"] for each in rows_of(name)}
    for arm in proof.TABLE[name]["arms"]:
        wanted = {c.label for c in cells_of(name) if re.search(rf"(^|-){arm}-(lr|magnitude|level)-", c.label)}
        assert wanted
        if wanted <= done:
            best = choose(found, arm)
            assert {key: chosen[arm].get(key) for key in best} == best, arm


@pytest.mark.parametrize("name", ["compare", "safety", "auto", "lambda-c", "compare-frozen"])
def test_nothing_is_measured_before_its_settings_are_chosen(name):
    by = proof.TABLE[name]["chosen_by"]
    if rows_of(name):
        assert {each["cell"] for each in rows_of(by)} == {cell.label for cell in cells_of(by)}


@pytest.mark.parametrize("name", proof.NAMES)
def test_every_row_has_what_the_protocol_asks_for(name):
    for each in rows_of(name):
        assert {"resolved", "commit", "cpu", "versions"} <= set(each)
        assert "auto" not in each["resolved"].values()
        assert not each["commit"].endswith("changed")
        new = "held_out" if each["config"].get("val_fraction") else "test"
        needed = {"passes", "seconds", "train_loss", "train_accuracy", f"{new}_loss", f"{new}_accuracy"}
        assert needed <= set(each["numbers"])


def made_up(name: str, accuracies: dict[str, list[float]]) -> Outcome:
    rows = [
        row(cell, seed, test_accuracy=value) for cell, values in accuracies.items() for seed, value in enumerate(values)
    ]
    return Outcome(find(name), "small", rows)


def test_a_difference_is_that_of_scipys_paired_test():
    rng = np.random.default_rng(0)
    ours, theirs = rng.normal(0.7, 0.01, 5), rng.normal(0.68, 0.01, 5)
    found = difference(dict(enumerate(ours)), dict(enumerate(theirs)), 5)
    interval = stats.ttest_rel(100 * ours, 100 * theirs).confidence_interval()
    assert found.of.interval == pytest.approx((interval.low, interval.high))
    assert found.verdict == ("shown to be above" if interval.low > 0 else "not decided")
    assert difference(dict(enumerate(theirs)), dict(enumerate(ours)), 5).verdict == found.verdict.replace(
        "above", "below"
    )


def test_four_seeds_decide_nothing_however_far_apart():
    found = difference(dict(enumerate([0.9] * 4)), dict(enumerate([0.1, 0.11, 0.1, 0.11])), 5)
    assert found.verdict == "not decided yet: 4 of 5 seeds"


def test_regret_is_the_distance_to_the_better_of_none_and_plain():
    found = made_up(
        "safety",
        {
            "mnist-basic": [0.9, 0.8],
            "mnist-mild-plain": [0.95, 0.97],
            "mnist-mild-invaug": [0.94, 0.94],
            "mnist-flips-plain": [0.5, 0.5],
            "mnist-flips-invaug": [0.89, 0.83],
        },
    )
    mild, flips = regrets(found, "invaug")
    assert (mild.set_name, mild.mean) == ("mild", pytest.approx(2.0))
    assert (flips.set_name, flips.mean) == ("flips", pytest.approx(-1.0))
    assert accuracy(found, "mnist", "mild", "plain") == {0: 0.95, 1: 0.97}


def numbers_in(text: str) -> list[float]:
    return [float(each.replace(",", "")) for each in re.findall(r"[-+]?\d+\.\d+", text)]


def table_after(page: str, heading: str) -> list[list[str]]:
    """Return the first table of a section of the page."""
    lines = page[page.index(f"\n## {heading}\n") :].splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("|"))
    rows = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return [rows[0], *rows[2:]]


def test_the_page_is_what_the_rows_say():
    page = (ROOT / "docs" / "compare.md").read_text(encoding="utf-8")
    assert page == proof_page.write_page(RESULTS)
    figures = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "compare").glob("*.svg")}
    assert figures == proof_page.draw_figures(RESULTS)


def test_the_accuracies_of_the_page_are_recomputed_from_the_rows_by_numpy_and_scipy():
    page = (ROOT / "docs" / "compare.md").read_text(encoding="utf-8")
    rows = rows_of("compare")
    if not rows:
        assert "*compare*: not run yet" in page
        return
    columns, *lines = table_after(page, "compare")
    for line in lines:
        for task, text in zip(columns[1:-2], line[1:-2], strict=True):
            values = [100 * r["numbers"]["test_accuracy"] for r in rows if r["cell"] == f"{task}-{line[0]}"]
            if len(values) > 1:
                half = stats.t.ppf(0.975, len(values) - 1) * stats.sem(values)
                assert numbers_in(text) == pytest.approx([np.mean(values), half], abs=0.0051)
            elif values:
                assert numbers_in(text) == pytest.approx(values, abs=0.0051)
            else:
                assert text == "–"
