"""Numbers of a finished run."""

from __future__ import annotations

import pytest

from invaug.lab.jobs import measures
from tests.support.configs import resolved


def test_uniform_draws_are_as_extreme_as_uniform_and_the_largest_alone_more():
    config = resolved(n_levels=31)
    kept = {"Identity": [9] * 31, "Rotate": [7] * 31, "Color": [5] * 31}
    ends = {"gamma": [0.0], "constraint_loss": [1.0], "entropy": [1.0], "seconds": 1.0, "passes": 12}
    tested = {"train_clean_accuracy": 0.9, "test_accuracy": 0.8, "train_clean_loss": 0.1, "test_loss": 0.2}
    rows = [{**ends, "kept": [kept]}, {**ends, **tested, "kept": [{**kept, "Rotate": [0] * 30 + [217]}]}]
    found = measures.numbers(config, rows)
    assert found["extreme_first"] == pytest.approx(1.0)
    assert found["extreme"] > 3
    assert found["geometric"] == pytest.approx(7 / 21, abs=1e-4)
    assert found["passes"] == 24
    assert (found["gap"], found["test_error"]) == pytest.approx((0.1, 0.2))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"method": "trivial"}, 3),
        ({"method": "uniform", "views": "both"}, 6),
        ({"views": "both"}, 8),
        ({"views": "both", "n_views": 2}, 13),
        ({"views": "both", "share": 0.5}, 5.5),
        ({"method": "sampled"}, 5),
        ({"epsilon": 0.8}, 4),
        ({"epsilon": 0.8, "n_steps": 3}, 5),
        ({}, 4.125),
        ({"method": "uniform"}, 3.25),
    ],
)
def test_passes_are_counted_as_a_step_makes_them_at_a_gamma_of_one(settings, expected):
    assert measures.passes(resolved(**settings)) == expected
