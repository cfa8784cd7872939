"""Tables next to the paper and verdicts on claims, from rows alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from invaug.lab.report.tables import to_markdown
from invaug.lab.reproduce.experiments import find
from invaug.lab.reproduce.outcome import Outcome
from tests.support.experiments import row


def test_the_table_puts_the_papers_number_beside_ours():
    rows = [row("cifar10-constrained", seed, test_accuracy=0.5 + seed / 100) for seed in range(3)]
    table = Outcome(find("table-1"), "small", rows).table()
    found = {line[0]: dict(zip(table.columns, line, strict=True)) for line in table.rows}
    ours = found["cifar10-constrained"]
    assert (ours["test accuracy (%)"], ours["paper"], ours["runs"]) == ("51.00 ± 2.48", "97.05 ± 0.18", 3)
    assert (found["cifar10-none"]["paper"], found["cifar10-none"]["left out"]) == (None, 3)
    assert "| cifar10-constrained | 51.00 ± 2.48 | 97.05 ± 0.18 | 3 | 0 | 0 |" in to_markdown(table)


def test_a_claim_says_by_how_much_and_in_how_many_seeds_it_holds():
    ours, theirs = (0.52, 0.55, 0.50), (0.50, 0.51, 0.51)
    rows = [row("cifar10-constrained", seed, test_accuracy=value) for seed, value in enumerate(ours)]
    rows += [row("cifar10-none", seed, test_accuracy=value) for seed, value in enumerate(theirs)]
    found = {verdict.claim: verdict for verdict in Outcome(find("table-1"), "small", rows).verdicts()}
    ahead = found["cifar10-constrained is above cifar10-none"]
    differences = np.subtract(ours, theirs)
    low, high = stats.t.interval(0.95, 2, differences.mean(), stats.sem(differences))
    assert ahead.difference.interval == pytest.approx((low, high), rel=1e-4)
    half = 100 * (high - low) / 2
    assert ahead.conclusion + ahead.evidence == (
        f"inconclusive: higher on average, within the noise (by +1.67 ± {half:.2f} points, in 2 of 3 seeds)"
    )
    assert found["cifar10-constrained is above cifar10-trivial"].conclusion == "not run yet"
    clear = [replace(each, numbers={"test_accuracy": 0.4 + each.seed / 1000}) for each in rows[3:]]
    (first, *_) = Outcome(find("table-1"), "small", [*rows[:3], *clear]).verdicts()
    assert first.conclusion == "shown"


def test_what_holds_for_the_means_but_hardly_a_seed_is_not_shown():
    gaps = ((0.10, 0.30, 0.20), (0.21, 0.22, 0.20), (0.22, 0.21, 0.22), (0.23, 0.22, 0.21), (0.24, 0.20, 0.24))
    levels = [f"constrained-{level:g}" for level in (0.4, 0.8, 1.2, 1.6, 2)]
    rows = [
        row(cell, seed, gap=value)
        for cell, values in zip(levels, gaps, strict=True)
        for seed, value in enumerate(values)
    ]
    found = {verdict.claim: verdict for verdict in Outcome(find("figure-epsilon"), "small", rows).verdicts()}
    verdict = found["the gap grows with epsilon"]
    assert (verdict.holds, verdict.in_seeds, verdict.of_seeds) == (True, 1, 3)
    assert verdict.conclusion == "inconclusive: true of the means, but of fewer than half of the seeds"
    assert verdict.evidence == " (in 1 of 3 seeds)"


def test_seconds_are_compared_within_a_seed():
    times = {"trivial": (1.0, 2.0), "2-steps": (3.0, 5.0)}
    rows = [
        row(cell, seed, seconds_per_epoch=seconds, passes=3 if cell == "trivial" else 8, test_accuracy=0.1)
        for cell, both in times.items()
        for seed, seconds in enumerate(both)
    ]
    found = Outcome(find("table-runtime"), "small", rows)
    assert list(found.by_seed("2-steps", "time_ratio").values()) == [3.0, 2.5]
    assert found.mean("2-steps", "pass_ratio") == pytest.approx(8 / 3)
