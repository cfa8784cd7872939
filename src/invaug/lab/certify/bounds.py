"""Confidence bounds as pure functions of counts and numbers; each docstring names its theorem.

All hold for every sample size, not only for large ones. `confidence` is the probability, before the sample is drawn,
that both ends are right. scipy has the beta function and its inverse; its intervals take one sample at a time, and
neither the bets nor the evidence are in it.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv, betaln

from invaug.lab.errors import UserError

Array = NDArray[np.float64]
PRIOR = 0.5  # of the beta mixture, Jeffreys': close to optimal for shares near 0 and near 1
MAX_STAKE = 0.9  # largest share of the capital that one value can cost
MARGIN = 2.0  # times the values whose interval would just end at a level: then it decides about four times in five
MOST_GROWTH = 17  # factors of √2 by which a sample is thought to grow at most: 360-fold
HALVINGS = 40  # of an interval of length 1: twelve digits


def check_confidence(confidence: float) -> None:
    """Raise unless the confidence is a probability strictly between 0 and 1."""
    if not 0 < confidence < 1:
        raise UserError(f"confidence must lie strictly between 0 and 1, got {confidence}: for example 0.95")


def clopper_pearson(n_successes: ArrayLike, n_trials: ArrayLike, confidence: float = 0.95) -> tuple[Array, Array]:
    """Return the interval of a share from successes in independent trials; 0 to 1 if there was no trial.

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
    """Return the log of the evidence so far against a share; the evidence is a martingale of mean 1 if it is true.

    The likelihood of the beta-binomial mixture over that of the share (Robbins 1970, "Statistical methods related to
    the law of the iterated logarithm"). By Ville's inequality (1939) it reaches log(1 / α) at any time with probability
    at most α, so one may check after every trial and stop at will.
    """
    k, n, p = np.asarray(n_successes, np.float64), np.asarray(n_trials, np.float64), np.asarray(share, np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        explained = np.where(k > 0, k * np.log(p), 0.0) + np.where(n > k, (n - k) * np.log1p(-p), 0.0)
    log_ratio: Array = betaln(k + PRIOR, n - k + PRIOR) - betaln(PRIOR, PRIOR) - explained
    return log_ratio


def mean_interval(values: ArrayLike, confidence: float = 0.95, most: float = 1.0) -> tuple[Array, Array]:
    """Return the interval of a mean from independent values in 0 to `most`, along the first dimension.

    Waudby-Smith and Ramdas (2024), "Estimating means of bounded random variables by betting", hedged capital: a gambler
    who bets that values lie above a candidate mean, at odds that are fair if it is the true one, multiplies the capital
    by 2 / (1 - confidence) at any time with probability at most (1 - confidence) / 2 (Ville's inequality); so does one
    who bets below. The interval holds the means that neither gambler has refuted.
    """
    check_confidence(confidence)
    x = np.asarray(values, np.float64) / most
    if not len(x) or not ((x >= 0) & (x <= 1)).all():
        raise ValueError(f"values must be at least one number in 0 to {most:g}")
    limit = math.log(2 / (1 - confidence))
    bets, zero = _bets(x, limit), np.zeros_like(x[0])
    low = _edge(lambda mean: _log_capital(x, bets, mean) < limit, zero + 1, zero)
    high = _edge(lambda mean: _log_capital(1 - x, bets, 1 - mean) < limit, zero, zero + 1)
    # the two gamblers together may refute every mean, with probability at most 1 - confidence
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
    """Return the log of the largest capital reached by betting on values above the mean; it falls with the mean."""
    stakes = np.minimum(bets, MAX_STAKE / np.maximum(mean, 1e-300))
    largest: Array = np.log1p(stakes * (x - mean)).cumsum(axis=0).max(axis=0)
    return largest


def _edge(holds: Callable[[Array], NDArray[np.bool_]], inside: Array, outside: Array) -> Array:
    """Return where `holds` ends between a point where it holds and one where it may not, by bisection.

    The result is at most a hair too far out, never too far in, which a general root finder does not promise.
    """
    for _ in range(HALVINGS):
        middle = (inside + outside) / 2
        stays = holds(middle)
        inside, outside = np.where(stays, middle, inside), np.where(stays, outside, middle)
    return outside


def n_to_decide(values: Array, level: float, confidence: float, most: float) -> int | None:
    """Return about how many values would show on which side of a level their mean is; None if far too many.

    Taken from the interval that more values like those at hand would give; rounded up to two digits.
    """
    for growth in range(1, MOST_GROWTH + 1):
        n = math.ceil(len(values) * 2 ** (growth / 2))
        low, high = interval(mean_interval(np.resize(values, n), confidence, most))
        if high <= level or low > level:
            wanted = math.ceil(MARGIN * n)
            unit: int = 10 ** max(len(str(wanted)) - 2, 0)
            return -(-wanted // unit) * unit
    return None


def screened_share(
    n_yes: ArrayLike, n_no: ArrayLike, n_images: ArrayLike, mistake: float, confidence: float = 0.95
) -> tuple[Array, Array]:
    """Return the interval of the share of images that have a property, from tests that may err or stay undecided.

    Args:
        n_yes: Images that passed a test; one without the property passes with probability at most `mistake`.
        n_no: Images that failed it; one with the property fails with probability at most `mistake`.

    By the law of total probability P(yes) <= share + mistake (1 - share), and likewise for no; P(yes) and P(no) are
    bounded by Clopper and Pearson (1934), since images and their tests are independent.
    """
    yes, no = (
        np.maximum((clopper_pearson(n, n_images, confidence)[0] - mistake) / (1 - mistake), 0.0) for n in (n_yes, n_no)
    )
    return yes, 1 - no


def interval(pair: tuple[Any, Any]) -> list[float]:
    """Return two ends as plain numbers."""
    return [float(pair[0]), float(pair[1])]
