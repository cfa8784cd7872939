"""Intervals against scipy."""

from __future__ import annotations

import pytest
from scipy.stats import binomtest
from scipy.stats import t as student_t

from invaug.lab.report.intervals import difference_of_shares, estimate, student, wilson


@pytest.mark.parametrize("n_free", [1, 2, 5, 20, 21, 40, 400])
def test_quantiles_are_those_of_student(n_free: int) -> None:
    assert student(n_free) == pytest.approx(student_t.ppf(0.975, n_free), abs=5e-5)


def test_interval_of_a_mean_is_that_of_scipy() -> None:
    values = [0.91, 0.93, 0.90, 0.94]
    found = estimate(values)
    low, high = student_t.interval(0.95, 3, found.mean, 0.018257418583505536 / 2)
    assert found.interval == pytest.approx((low, high), abs=1e-5)
    assert estimate([0.9]).interval is None


@pytest.mark.parametrize(("right", "n"), [(0, 10), (90, 100), (10, 10)])
def test_interval_of_a_share_is_that_of_wilson(right: int, n: int) -> None:
    known = binomtest(right, n).proportion_ci(method="wilson")
    assert wilson(right / n, n) == pytest.approx((known.low, known.high), abs=1e-9)


def test_the_interval_of_a_difference_of_shares_is_that_of_newcombe() -> None:
    # Newcombe (1998), Statistics in Medicine 17, 873-890, table II, method 10: 56/70 - 48/80 and 9/10 - 3/10
    for share, n, other, m, ends in (
        (56 / 70, 70, 48 / 80, 80, (0.0524, 0.3339)),
        (0.9, 10, 0.3, 10, (0.1705, 0.8090)),
    ):
        assert difference_of_shares(share, n, other, m) == pytest.approx(ends, abs=5e-5)
