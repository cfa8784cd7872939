"""The course of gamma: whether it left zero, and whether it settled, still rises, or turned down."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from invaug.lab.train.alarm import PATIENCE

ZERO = 0.01  # a gamma below it weighs nothing
FEWEST = 5  # epochs from which on a course can be judged
STEADY = 0.05  # share of the highest gamma that two fifths of a training may differ by and count as level
TURNED = 0.1  # share below the highest gamma from which on it has turned down
MOVING = 0.02  # share by which gamma may change within the last epochs and count as settled
AT_CAP = 0.98  # share of its cap from which on gamma is at it

Shape = Literal["zero", "short", "rising", "turned", "settled"]


@dataclass(frozen=True)
class Course:
    """What gamma did during training."""

    shape: Shape
    last: float
    highest: float
    highest_at: int
    """The epoch of the highest gamma, counted from 1."""
    left_zero_at: int | None
    """The first epoch that ended with a gamma above zero."""

    @property
    def words(self) -> str:
        """The course as the end of a sentence that begins with γ."""
        return {
            "zero": f"stayed at zero (below {ZERO:g})",
            "short": f"is {self.last:.3g} after too few epochs to judge where it goes",
            "rising": f"left zero in epoch {self.left_zero_at} and is still rising: {self.last:.3g} at the end",
            "turned": f"left zero in epoch {self.left_zero_at}, reached {self.highest:.3g} in epoch {self.highest_at} "
            f"and turned down to {self.last:.3g}",
            "settled": f"left zero in epoch {self.left_zero_at} and settled at {self.last:.3g}",
        }[self.shape]


def course_of(values: Sequence[float]) -> Course | None:
    """Return what a gamma did, from its value after each epoch; None where there is none.

    The mean of the last fifth of the epochs is compared with the mean of the fifth before and with the highest value.

    Example:
        >>> course_of([0.2, 0.6, 0.9, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]).words
        'left zero in epoch 1 and settled at 1'
    """
    if not values:
        return None
    highest = max(values)
    left = next((i for i, value in enumerate(values, 1) if value >= ZERO), None)
    return Course(_shape(values, highest), values[-1], highest, values.index(highest) + 1, left)


def is_moving(values: Sequence[float]) -> bool:
    """Whether gamma changed by more than a little within the last epochs."""
    last = values[-PATIENCE:]
    return len(last) > 1 and abs(last[-1] - last[0]) > MOVING * max(abs(last[-1]), 1e-12)


def _shape(values: Sequence[float], highest: float) -> Shape:
    if highest < ZERO:
        return "zero"
    if len(values) < FEWEST:
        return "short"
    fifth = len(values) // FEWEST
    last, before = fmean(values[-fifth:]), fmean(values[-2 * fifth : -fifth])
    if last - before > STEADY * highest:
        return "rising"
    return "turned" if last < (1 - TURNED) * highest else "settled"
