"""Claims are judged by the interval of one effect per seed."""

from __future__ import annotations

import pytest
from scipy import stats

from invaug.lab.reproduce.cells import Claim
from invaug.lab.reproduce.claims import COLUMNS, EFFECTS, Verdict, judge, table_of
from invaug.lab.reproduce.experiments import all_experiments, find
from invaug.lab.reproduce.outcome import Outcome
from tests.support.experiments import row


def verdict_on(rule: str, *columns: tuple[float, ...], limit: float | None = None) -> Verdict:
    claim = Claim("a sentence", rule, tuple((f"cell {i}", "test_accuracy") for i in range(len(columns))), limit)
    return judge(claim, [dict(enumerate(column)) for column in columns])


def test_a_difference_is_shown_only_if_its_paired_interval_leaves_out_zero():
    ours, theirs = (0.52, 0.55, 0.50, 0.53, 0.54), (0.50, 0.51, 0.51, 0.50, 0.51)
    found = verdict_on("above", ours, theirs)
    ends = stats.ttest_rel(ours, theirs).confidence_interval(0.95)
    assert found.effect.interval == pytest.approx((ends.low, ends.high), rel=1e-4)
    assert ends.low < 0 < found.effect.mean
    assert found.conclusion == "not decided"
    clear = (*ours[:2], 0.54, *ours[3:])
    assert stats.ttest_rel(clear, theirs).confidence_interval(0.95).low > 0
    assert verdict_on("above", clear, theirs).conclusion == "shown"
    assert verdict_on("above", theirs, clear).conclusion == "the opposite is shown"


def test_two_of_three_seeds_decide_nothing():
    found = verdict_on("above", (0.52, 0.55, 0.50), (0.50, 0.51, 0.51))
    half = 100 * stats.sem([0.02, 0.04, -0.01]) * stats.t.ppf(0.975, 2)
    assert found.row() == ("a sentence", "+1.67 points", f"{half:.2f} points", 3, "not decided: 3 seeds")
    assert table_of([found]).columns == COLUMNS


def test_three_seeds_show_what_is_clear():
    assert verdict_on("above", (0.52, 0.55, 0.50), (0.401, 0.402, 0.403)).row()[3:] == (3, "shown")


def test_one_seed_decides_nothing_and_none_is_not_a_run():
    assert verdict_on("above", (0.9,), (0.1,)).row() == ("a sentence", "+80.00 points", None, 1, "not decided: 1 seed")
    assert verdict_on("above", (), (0.1,)).row() == ("a sentence", None, None, 0, "not run yet")


def test_only_seeds_that_every_cell_has_are_compared():
    claim = Claim("a sentence", "above", (("a", "test_accuracy"), ("b", "test_accuracy")))
    found = judge(claim, [{0: 0.5, 1: 0.6, 2: 0.7}, {2: 0.1, 1: 0.1, 7: 0.9}])
    assert (found.effect.n, found.effect.mean) == (2, pytest.approx(0.55))


def test_a_trend_is_the_last_minus_the_first_seed_by_seed():
    rising = verdict_on("rising", (1.0, 5.0), (9.0, 0.0), (2.0, 6.1))  # what is between does not count
    assert rising.effect.mean == pytest.approx(1.05)
    assert verdict_on("falling", (1.0, 5.0), (2.0, 6.1)).effect.mean == pytest.approx(-1.05)


def test_smallest_and_limits_are_differences_too():
    smallest = verdict_on("smallest", (0.1, 0.2), (0.3, 0.9), (0.5, 0.4))
    assert smallest.effect.mean == pytest.approx(0.2)
    assert verdict_on("below", (0.1, 0.2), limit=0.05).effect.mean == pytest.approx(-0.1)
    assert verdict_on("above", (0.1, 0.2), limit=0.05).effect.mean == pytest.approx(0.1)


def test_equal_runs_show_nothing():
    assert verdict_on("rising", (0.0,) * 5, (0.0,) * 5).conclusion == "not decided"


def test_every_claim_has_a_known_rule_and_cells_of_one_unit():
    for experiment in all_experiments().values():
        plans = [{cell.label for cell in plan.cells} for plan in experiment.plans.values()]
        for claim in experiment.claims:
            assert claim.rule in EFFECTS
            assert any({cell for cell, _ in claim.of} <= labels for labels in plans)
            assert len(claim.of) + (claim.limit is not None) > 1


def test_table_2_claims_what_the_paper_claims():
    claims, sizes = all_experiments()["table-2"].claims, ("0.01", "0.025", "0.05", "0.1")
    names = ["10", "20", "40", "80", *(f"{preset}-{size}" for preset in ("paper", "authors-code") for size in sizes)]
    assert [claim.of for claim in claims] == [
        ((f"{name}-constrained", "test_accuracy"), (f"{name}-trivial", "test_accuracy")) for name in names
    ]
    assert {claim.rule for claim in claims} == {"above"}


def test_claims_are_made_of_the_cells_of_their_scale():
    rows = [row("cifar10-wrn-40-2-wide-paper-constrained", 0, test_accuracy=0.97)]
    verdicts = Outcome(find("table-1"), "full", rows).verdicts()
    assert len(verdicts) == 18  # 20 entries by two presets, of which the authors' code lacks two
    assert all("-paper-" in each.claim.text or "-authors-code-" in each.claim.text for each in verdicts)
    assert len(Outcome(find("table-1"), "small", rows).verdicts()) == 10
