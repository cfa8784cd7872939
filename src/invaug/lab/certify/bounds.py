"""Confidence bounds as pure functions of counts and numbers, each by a theorem its docstring names.

All hold for every sample size, not only for large ones. `confidence` is the probability, before the sample is drawn,
that both ends are right.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv, betaln

Array = NDArray[np.float64]
PRIOR = 0.5  # of the beta mixture, Jeffreys': close to the best for shares near 0 and 1 alike
MOST = 0.9  # of its capital a gambler can lose on one value
HALVINGS = 40  # of an interval of length 1: twelve digits


def check_confidence(confidence: float) -> None:
    """Raise unless the confidence is a probability strictly between 0 and 1."""
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie strictly between 0 and 1, got {confidence}: for example 0.95")


def clopper_pearson(n_successes: ArrayLike, n_trials: ArrayLike, confidence: float = 0.95) -> tuple[Array, Array]:
    """Return the interval of a share from successes in independent trials; 0 to 1 without a trial.

    Clopper and Pearson (1934), "The use of confidence or fiducial limits illustrated in the case of the binomial":
    the shares that neither one-sided exact binomial test at (1 - confidence) / 2 rejects.
    """
    check_confidence(confidence)
    k, n = np.broadcast_arrays(np.asarray(n_successes, np.float64), np.asarray(n_trials, np.float64))
    if (k < 0).any() or (k > n).any():
        raise ValueError("n_successes must lie in 0 to n_trials")
    alpha = (1 - confidence) / 2
    low = np.where(k > 0, betaincinv(np.maximum(k, 1), n - k + 1, alpha), 0.0)
    high = np.where(k < n, betaincinv(k + 1, np.maximum(n - k, 1), 1 - alpha), 1.0)
    return low, high


def log_evidence(n_successes: ArrayLike, n_trials: ArrayLike, share: ArrayLike) -> Array:
    """Return the log of the evidence so far against a share: a martingale of mean 1 if it is the true one.

    The likelihood of the beta-binomial mixture over that of the share (Robbins 1970, "Statistical methods related to
    the law of the iterated logarithm"). By Ville's inequality (1939) it ever reaches log(1 / α) with probability at
    most α, so one may look after every trial and stop when one likes.
    """
    k, n, p = np.asarray(n_successes, np.float64), np.asarray(n_trials, np.float64), np.asarray(share, np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        explained = np.where(k > 0, k * np.log(p), 0.0) + np.where(n > k, (n - k) * np.log1p(-p), 0.0)
    found: Array = betaln(k + PRIOR, n - k + PRIOR) - betaln(PRIOR, PRIOR) - explained
    return found


def confidence_sequence(n_successes: ArrayLike, n_trials: ArrayLike, confidence: float = 0.95) -> tuple[Array, Array]:
    """Return the interval of a share that holds after every number of trials at once, so at any moment of stopping.

    The shares whose `log_evidence` is below log(1 / (1 - confidence)): Robbins' beta-binomial mixture, Ville's
    inequality.
    """
    check_confidence(confidence)
    k, n = np.broadcast_arrays(np.asarray(n_successes, np.float64), np.asarray(n_trials, np.float64))
    centre = np.where(n > 0, k / np.maximum(n, 1), 0.5)
    limit = -math.log1p(-confidence)

    def kept(share: Array) -> NDArray[np.bool_]:
        return log_evidence(k, n, share) < limit

    return _edge(kept, centre, np.zeros_like(centre)), _edge(kept, centre, np.ones_like(centre))


def mean_interval(values: ArrayLike, confidence: float = 0.95, most: float = 1.0) -> tuple[Array, Array]:
    """Return the interval of a mean from independent values in 0 to `most`, along the first dimension.

    Waudby-Smith and Ramdas (2024), "Estimating means of bounded random variables by betting", hedged capital: a gambler
    who bets that values lie above a candidate, at fair odds if it is the mean, multiplies the capital by
    2 / (1 - confidence) at any time with probability at most (1 - confidence) / 2 (Ville's inequality), and so does
    one who bets below. The means neither has refuted are kept.
    """
    check_confidence(confidence)
    x = np.asarray(values, np.float64) / most
    if not len(x) or not ((x >= 0) & (x <= 1)).all():
        raise ValueError(f"values must be at least one number in 0 to {most:g}")
    limit = math.log(2 / (1 - confidence))
    bets, zero = _bets(x, limit), np.zeros_like(x[0])
    low = _edge(lambda mean: _log_capital(x, bets, mean) < limit, zero + 1, zero)
    high = _edge(lambda mean: _log_capital(1 - x, bets, 1 - mean) < limit, zero, zero + 1)
    # values in an order of two minds may refute every mean, with probability 1 - confidence at most
    return np.minimum(low, high) * most, np.maximum(low, high) * most


def _bets(x: Array, limit: float) -> Array:
    """Return the stake before each value, from the values before it: sqrt(2 limit / (n variance))."""
    after = np.arange(2, len(x) + 2, dtype=np.float64).reshape(-1, *[1] * (x.ndim - 1))
    means = (0.5 + x.cumsum(axis=0)) / after
    variances = (0.25 + ((x - means) ** 2).cumsum(axis=0)) / after
    before = np.concatenate([np.full_like(x[:1], 0.25), variances[:-1]])
    stakes: Array = np.sqrt(2 * limit / (len(x) * before))
    return stakes


def _log_capital(x: Array, bets: Array, mean: Array) -> Array:
    """Return the log of the largest capital ever held by who bets on values above the mean; falls with the mean."""
    stakes = np.minimum(bets, MOST / np.maximum(mean, 1e-300))
    grown: Array = np.log1p(stakes * (x - mean)).cumsum(axis=0).max(axis=0)
    return grown


def _edge(kept: Callable[[Array], NDArray[np.bool_]], inside: Array, outside: Array) -> Array:
    """Return where `kept` ends, from a point that is kept to one that may be; a hair too wide, never too narrow."""
    for _ in range(HALVINGS):
        middle = (inside + outside) / 2
        stays = kept(middle)
        inside, outside = np.where(stays, middle, inside), np.where(stays, outside, middle)
    return outside


def screened_share(
    n_yes: ArrayLike, n_no: ArrayLike, n_images: ArrayLike, mistake: float, confidence: float = 0.95
) -> tuple[Array, Array]:
    """Return the interval of the share of images that have a property, from tests that may err or not decide.

    Args:
        n_yes: Images a test said yes of; one without the property gets a yes with probability at most `mistake`.
        n_no: Images it said no of; one with the property gets a no with probability at most `mistake`.

    By the law of total probability P(yes) <= share + mistake (1 - share), and likewise for no; P(yes) and P(no) are
    bounded by Clopper and Pearson (1934), since images and their tests are independent.
    """
    yes = np.maximum((clopper_pearson(n_yes, n_images, confidence)[0] - mistake) / (1 - mistake), 0.0)
    no = np.maximum((clopper_pearson(n_no, n_images, confidence)[0] - mistake) / (1 - mistake), 0.0)
    return yes, 1 - no


def interval(pair: tuple[Any, Any]) -> list[float]:
    """Return two ends as plain numbers."""
    return [float(pair[0]), float(pair[1])]
