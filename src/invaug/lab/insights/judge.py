"""The verdict on a symmetry, from images that were not trained on; gamma alone never decides."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from invaug.lab.insights.thresholds import (
    ERRORS,
    FEWEST_EPOCHS,
    FULLY,
    LEARNED,
    MOSTLY,
    MOSTLY_LEARNED,
    MOVING,
    NEAR_CHANCE,
    NOT,
    STILL,
    STILL_SHARE,
    SURELY,
    TOO_FEW,
    UNDECIDED,
)
from invaug.lab.report.intervals import wilson


@dataclass(frozen=True)
class HeldOut:
    """The images that were held out, and how a network trained without any family does on them."""

    images: int
    """In each training."""
    majority: float
    """The share of the most frequent class: what a guess gets right."""
    accuracies: list[float]
    """Of the network trained without any family, one per seed."""
    n_sets: int = 1
    """How many different sets of images that is: one per seed, or one alone if the data brings its own."""

    @property
    def skill(self) -> float:
        """The accuracy above that of a guess."""
        return fmean(self.accuracies) - self.majority

    @property
    def is_near_chance(self) -> bool:
        """Whether the accuracy is not clearly above that of a guess, by Wilson's bound."""
        return wilson(fmean(self.accuracies), self.images)[0] <= self.majority


def judge(clean: Sequence[float], under: Sequence[float], held_out: HeldOut, settled: bool) -> tuple[str, str]:
    """Return the verdict on a family, and why there is none if there is none.

    Args:
        clean: Held-out accuracy of the network trained with the family, one per seed.
        under: The same network on the same images under the family.
        settled: Whether gamma has settled in every training.

    Example:
        >>> held_out = HeldOut(images=400, majority=0.1, accuracies=[0.9, 0.91])
        >>> judge([0.9, 0.91], [0.89, 0.9], held_out, settled=True)
        ('learned', '')
        >>> judge([0.9, 0.91], [0.5, 0.6], held_out, settled=True)
        ('not learned', '')
        >>> judge([0.9, 0.91], [0.5, 0.6], held_out, settled=False)
        ('undecided', 'gamma has not settled')
    """
    if held_out.is_near_chance:
        return UNDECIDED, NEAR_CHANCE
    if not settled:
        return UNDECIDED, MOVING
    losses = [_loss(clean, under, held_out), _loss(held_out.accuracies, under, held_out)]
    most = max(mean for mean, _ in losses)
    if most <= MOSTLY and max(mean + margin for mean, margin in losses) <= SURELY:
        return (LEARNED if most <= FULLY else MOSTLY_LEARNED), ""
    if most > MOSTLY and max(mean - margin for mean, margin in losses) > FULLY:
        return NOT, ""
    return UNDECIDED, TOO_FEW


def _loss(before: Sequence[float], after: Sequence[float], held_out: HeldOut) -> tuple[float, float]:
    """Return the accuracy that is lost as a share of the skill, and its margin: over images or seeds, the wider.

    The margin over images is that of independent images; the same ones are used before and after, which is narrower.
    """
    n = held_out.images * held_out.n_sets
    over_images = math.sqrt(sum(_variance(fmean(each), n) for each in (before, after)))
    differences = [a - b for a, b in zip(before, after, strict=True)]
    over_seeds = stdev(differences) / math.sqrt(len(differences)) if len(differences) > 1 else 0.0
    return fmean(differences) / held_out.skill, ERRORS * max(over_images, over_seeds) / held_out.skill


def _variance(share: float, n: int) -> float:
    """Return the variance of a share of n images, after Agresti and Coull: two more of either kind."""
    likely = (share * n + 2) / (n + 4)
    return likely * (1 - likely) / (n + 4)


def has_settled(gammas: Sequence[float]) -> bool:
    """Whether gamma, given after each epoch, has stopped moving: its last quarter is like the quarter before.

    Example:
        >>> has_settled([0.1, 0.3, 0.4, 0.42]), has_settled([0.1, 0.2, 0.3, 0.6]), has_settled([0.0])
        (True, False, False)
    """
    if len(gammas) < FEWEST_EPOCHS:
        return False
    quarter = len(gammas) // 4
    last, before = fmean(gammas[-quarter:]), fmean(gammas[-2 * quarter : -quarter])
    return abs(last - before) <= max(STILL, STILL_SHARE * last)
