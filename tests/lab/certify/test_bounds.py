"""Bounds against populations whose truth is known, and against scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from invaug.lab.certify import bounds

REPETITIONS = 10_000


def covers(pair: tuple[np.ndarray, np.ndarray], truth: float | np.ndarray) -> float:
    return float(((pair[0] <= truth) & (truth <= pair[1])).mean())


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.999])
@pytest.mark.parametrize("n", [1, 2, 17, 512])
def test_clopper_pearson_is_that_of_scipy(n: int, confidence: float) -> None:
    low, high = bounds.clopper_pearson(np.arange(n + 1), n, confidence)
    for k in {0, 1, n // 3, n - 1, n} & set(range(n + 1)):
        peer = stats.binomtest(k, n).proportion_ci(confidence, method="exact")
        assert (low[k], high[k]) == pytest.approx((peer.low, peer.high), abs=1e-9)


@pytest.mark.parametrize("share", [0.003, 0.2, 0.5, 0.97])
@pytest.mark.parametrize("n", [10, 128, 512])
def test_clopper_pearson_covers_at_least_as_often_as_it_says(n: int, share: float) -> None:
    counts = np.random.default_rng(n).binomial(n, share, REPETITIONS)
    assert covers(bounds.clopper_pearson(counts, n), share) >= 0.94


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5])
def test_clopper_pearson_covers_95_percent_of_large_samples_and_not_more(share: float) -> None:
    counts = np.random.default_rng(1).binomial(100_000, share, REPETITIONS)
    assert covers(bounds.clopper_pearson(counts, 100_000), share) == pytest.approx(0.95, abs=0.01)


def test_nothing_is_known_of_a_share_without_a_trial() -> None:
    assert bounds.interval(bounds.clopper_pearson(0, 0)) == [0, 1]


def wrong_at_some_time(share: float, n: int, alpha: float, seed: int) -> float:
    """The share of sequences that exclude the truth after any of 1 to n trials: whoever stops then is wrong."""
    generator = np.random.default_rng(seed)
    successes, wrong = np.zeros(REPETITIONS, int), np.zeros(REPETITIONS, bool)
    for t in range(1, n + 1):
        successes += generator.random(REPETITIONS) < share
        excluded = bounds.log_evidence(np.arange(t + 1), t, share) >= math.log(1 / alpha)  # by successes so far
        wrong |= excluded[successes]
    return float(wrong.mean())


@pytest.mark.parametrize("share", [0.01, 0.05, 0.3, 0.5, 0.9])
def test_the_evidence_holds_at_the_worst_moment_of_stopping(share: float) -> None:
    assert wrong_at_some_time(share, 512, alpha=0.05, seed=2) <= 0.06


def test_clopper_pearson_does_not_hold_at_the_worst_moment_of_stopping() -> None:
    """Which is why adaptive sampling must not use it."""
    successes = (np.random.default_rng(3).random((300, 1000)) < 0.3).cumsum(0)
    held = np.ones(1000, bool)
    for t in range(1, 301):
        low, high = bounds.clopper_pearson(np.arange(t + 1), t)
        held &= ((low <= 0.3) & (high >= 0.3))[successes[t - 1]]
    assert held.mean() < 0.85


def test_the_evidence_is_a_martingale_of_mean_one() -> None:
    n, share = 40, 0.2
    k = np.arange(n + 1)
    law = stats.binom.pmf(k, n, share)
    assert (law * np.exp(bounds.log_evidence(k, n, share))).sum() == pytest.approx(1)


def exponential(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return np.minimum(generator.exponential(0.1, shape), 1.0)


def rare(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return (generator.random(shape) < 0.02).astype(float)


def even(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return generator.random(shape)


def coins(generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return (generator.random(shape) < 0.5).astype(float)


TRUTHS = {exponential: 0.1 * (1 - math.exp(-10)), rare: 0.02, even: 0.5, coins: 0.5}


@pytest.mark.parametrize("n", [20, 64])
@pytest.mark.parametrize("law", list(TRUTHS), ids=lambda law: law.__name__)
def test_the_interval_of_a_mean_covers_at_least_as_often_as_it_says(law, n: int) -> None:
    values = law(np.random.default_rng(4), (n, REPETITIONS))
    parts = [bounds.mean_interval(part) for part in np.split(values, 20, axis=1)]  # small enough for the cache
    low, high = np.concatenate(parts, axis=1)
    assert covers((low, high), TRUTHS[law]) >= 0.94


def maurer_pontil(values: np.ndarray, confidence: float) -> float:
    """The half width of the two-sided empirical Bernstein bound (Maurer and Pontil 2009, Theorem 4)."""
    n, log = len(values), math.log(4 / (1 - confidence))
    return math.sqrt(2 * values.var(ddof=1) * log / n) + 7 * log / (3 * (n - 1))


@pytest.mark.parametrize("n", [64, 512])
def test_the_interval_of_a_mean_is_narrower_than_an_empirical_bernstein_bound(n: int) -> None:
    for seed in range(20):
        values = exponential(np.random.default_rng(seed), (n, 1))[:, 0]
        low, high = bounds.mean_interval(values)
        assert low < values.mean() < high
        assert high - low < 2 * maurer_pontil(values, 0.95)


def test_the_interval_of_a_mean_scales_with_the_largest_value() -> None:
    values = exponential(np.random.default_rng(5), (100, 1))[:, 0]
    one, ten = bounds.mean_interval(values), bounds.mean_interval(10 * values, most=10)
    assert 10 * np.array(one) == pytest.approx(np.array(ten))


def test_columns_are_bounded_one_by_one() -> None:
    values = even(np.random.default_rng(6), (50, 3))
    together = bounds.mean_interval(values)
    for i in range(3):
        assert bounds.interval(bounds.mean_interval(values[:, i])) == [together[0][i], together[1][i]]


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_a_constant_at_the_end_of_the_range_leaves_one_end_open(value: float) -> None:
    low, high = bounds.mean_interval(np.full(200, value))
    assert min(low, 1 - high) == 0
    assert 0 < high - low < 0.1


def test_the_mean_of_a_single_value_is_hardly_known() -> None:
    low, high = bounds.mean_interval(np.array([0.4]))
    assert low <= 0.1
    assert high >= 0.9


def screened(generator: np.random.Generator, share: float, mistake: float, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Say yes and no of n images, each wrongly with the largest probability allowed."""
    has, error = generator.random((n, REPETITIONS)) < share, generator.random((n, REPETITIONS)) < mistake
    said = has ^ error
    return said.sum(0), (~said).sum(0)


@pytest.mark.parametrize("share", [0.02, 0.5, 0.99])
def test_a_screened_share_covers_though_tests_err(share: float) -> None:
    yes, no = screened(np.random.default_rng(7), share, 0.05, 200)
    assert covers(bounds.screened_share(yes, no, 200, 0.05), share) >= 0.94


def test_images_that_are_not_decided_count_for_neither_side() -> None:
    low, high = bounds.screened_share(40, 30, 100, 0.0)
    assert low == bounds.clopper_pearson(40, 100)[0]
    assert high == pytest.approx(1 - bounds.clopper_pearson(30, 100)[0])


@pytest.mark.parametrize("confidence", [0.0, 1.0, -1.0, 95.0, math.nan])
@pytest.mark.parametrize(
    "bound",
    [
        lambda c: bounds.clopper_pearson(1, 2, c),
        lambda c: bounds.mean_interval([0.5], c),
        lambda c: bounds.screened_share(1, 1, 2, 0.01, c),
    ],
)
def test_a_confidence_that_is_none_is_refused(bound, confidence: float) -> None:
    with pytest.raises(ValueError, match=f"confidence must lie strictly between 0 and 1, got {confidence}"):
        bound(confidence)


@pytest.mark.parametrize("values", [[], [1.5], [-0.1], [math.nan], [math.inf]])
def test_values_outside_the_range_are_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match="values must be at least one number in 0 to 1"):
        bounds.mean_interval(values)


@pytest.mark.parametrize(("k", "n"), [(3, 2), (-1, 2)])
def test_more_successes_than_trials_are_refused(k: int, n: int) -> None:
    with pytest.raises(ValueError, match="n_successes must lie in 0 to n_trials"):
        bounds.clopper_pearson(k, n)
