"""The small scale is what its protocol says."""

from __future__ import annotations

import pytest

from invaug.lab.reproduce import cells, full, rows
from invaug.lab.reproduce.experiments import find
from invaug.lab.reproduce.outcome import Outcome
from invaug.lab.reproduce.request import Request
from tests.support.experiments import NAMES, ROOT, plan_of


def test_small_scale_compares_six_methods_with_three_seeds_and_one_budget():
    plan = plan_of("table-1", "small")
    methods = {"none", "trivial", "trivial-no-identity", "randaugment", "uniform", "constrained"}
    assert {cell.label for cell in plan.cells} == {f"{d}-{m}" for d in ("cifar10", "cifar100") for m in methods}
    assert plan.seeds >= 3
    keys = ("data", "model", "per_class", "epochs", "batch_size", "lr")
    budgets = {tuple(cell.settings[key] for key in keys) for cell in plan.cells}
    assert {data for data, *_ in budgets} == {"cifar10", "cifar100"}
    assert len(budgets) == 2  # one for each dataset, the same for every method


@pytest.mark.parametrize("name", NAMES)
def test_a_small_experiment_is_estimated_to_take_less_than_45_minutes(name):
    # the longer cells of table-synthetic belong to the protocol, which takes days
    without = ("*-epochs-*",) if name == "table-synthetic" else ()
    assert Request(find(name), "small", without=without).seconds(shared=False) < 45 * 60


def outcome_of(name: str) -> Outcome:
    return Outcome(find(name), "small", rows.read(rows.path_of(ROOT / "results", name, "small")))


@pytest.mark.parametrize("data", ["cifar10", "cifar100"])
def test_the_levels_of_the_small_scale_are_the_best_of_the_pilot(data):
    found = outcome_of("pilot")
    tried = [cell for cell in found.cells if cell.startswith(f"{data}-constrained-")]
    assert len(tried) == 3
    best = max(tried, key=lambda cell: found.mean(cell, "held_out_accuracy"))
    used = {cell.label: cell.settings.get("epsilon") for cell in plan_of("table-1", "small").cells}
    assert used[f"{data}-constrained"] == used[f"{data}-uniform"] == float(best.rpartition("-")[2])


def test_the_levels_of_the_small_rule_are_those_the_small_gammas_ask_for():
    found = outcome_of("table-synthetic")
    for data, model, plant in full.RULED:
        gammas = {name: found.mean(f"{data}-{model}-{plant}", f"gamma.{name}") for name in full.families(1.0)}
        assert min(gammas, key=gammas.get) == full.TRUTHS[plant]


def test_the_longer_planted_cells_move_gamma_as_far_as_published():
    published = full.planted_cell("mnist", "mlp", "r180", "paper").settings
    long = {c.label: c for c in plan_of("table-synthetic", "small").cells if "-epochs-" in c.label}
    names = {f"60-epochs-{data}-mlp-{plant}" for data in ("mnist", "fashion-mnist") for plant in full.TRUTHS}
    assert set(long) == {*names, "400-epochs-mnist-mlp-r180"}
    for label, cell in long.items():
        assert cell.seeds == (3 if label == "60-epochs-mnist-mlp-r180" else 1)
        reach, wanted = (each["dual_lr"] * each["epochs"] / each["batch_size"] for each in (cell.settings, published))
        assert reach == pytest.approx(wanted, rel=1e-4)
    ours = long["400-epochs-mnist-mlp-r180"].settings
    differing = {key for key in ours.keys() | published.keys() if ours.get(key) != published.get(key)}
    assert differing <= {"families", "workers", "threads", *cells.USUAL}
