"""What the record says of the constraints: what gamma did, and which epsilon cannot be reached."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

PATIENCE = 4  # epochs that are considered
PROGRESS = 0.05  # share of the slack that must disappear within them
ZERO = 0.01  # a gamma below it weighs nothing
FEWEST = 5  # epochs from which on a course can be judged
STEADY = 0.05  # share of the highest gamma that two fifths of a training may differ by and count as level
TURNED = 0.1  # share below the highest gamma from which on it has turned down
MOVING = 0.02  # share by which gamma may change within the last epochs and count as settled
AT_CAP = 0.98  # share of its cap from which on gamma is at it

Shape = Literal["zero", "short", "rising", "moving", "turned", "settled"]


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
    def is_settled(self) -> bool:
        """Whether gamma, and an epsilon that follows it, can be read as a result of the training."""
        return self.shape in ("zero", "turned", "settled")

    @property
    def words(self) -> str:
        """The course as the end of a sentence that begins with γ."""
        left = "" if self.left_zero_at is None else f"left zero in epoch {self.left_zero_at} and "
        return {
            "zero": f"stayed at zero (below {ZERO:g})",
            "short": f"is {self.last:.3g} after too few epochs to judge where it goes",
            "rising": f"{left}is still rising: {self.last:.3g} at the end",
            "moving": f"{left}is still moving: {self.last:.3g} at the end",
            "turned": f"left zero in epoch {self.left_zero_at}, reached {self.highest:.3g} in epoch {self.highest_at} "
            f"and turned down to {self.last:.3g}",
            "settled": f"{left}settled at {self.last:.3g}",
        }[self.shape]


def course_of(values: Sequence[float]) -> Course | None:
    """Return what a gamma did, from its value after each epoch; None where there is none.

    The mean of the last fifth of the epochs is compared with the mean of the fifth before and with the highest value,
    and the last two epochs with the two before: a gamma that still changes has not settled.

    Example:
        >>> course_of([0.2, 0.6, 0.9, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]).words
        'left zero in epoch 1 and settled at 1'
    """
    if not values:
        return None
    highest = max(values)
    left = next((i for i, value in enumerate(values, 1) if value >= ZERO), None)
    return Course(_shape(values, highest), values[-1], highest, values.index(highest) + 1, left)


def all_settled(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the gamma of every constraint has settled, by the rows of a record."""
    columns = zip(*(row["gamma"] for row in rows), strict=True)
    courses = (course_of([gamma for gamma in column if gamma is not None]) for column in columns)
    return all(course is not None and course.is_settled for course in courses)


def is_moving(values: Sequence[float]) -> bool:
    """Whether gamma changed by more than a little within the last epochs."""
    last = values[-PATIENCE:]
    return len(last) > 1 and abs(last[-1] - last[0]) > MOVING * max(abs(last[-1]), 1e-12)


def _shape(values: Sequence[float], highest: float) -> Shape:
    if len(values) < FEWEST:
        return "short"
    scale, fifth = max(highest, ZERO), len(values) // FEWEST
    over_fifths, lately = _drift(values, fifth) / scale, _drift(values, PATIENCE // 2) / scale
    if over_fifths > STEADY:
        return "rising"
    if abs(lately) > STEADY or (over_fifths < -STEADY and lately < -MOVING):
        return "moving"
    if highest < ZERO:
        return "zero"
    return "turned" if fmean(values[-fifth:]) < (1 - TURNED) * highest else "settled"


def _drift(values: Sequence[float], n: int) -> float:
    """Return by how much the mean of the last n values differs from the mean of the n before."""
    return fmean(values[-n:]) - fmean(values[-2 * n : -n])


def out_of_reach(rows: Sequence[Mapping[str, Any]]) -> list[bool]:
    """Return for each constraint whether it was violated in all of the last epochs and hardly improved.

    gamma grows by dual_lr times the slack in every step, for ever, if no model satisfies the constraint. A slack that
    shrinks is left alone: early in a training every constraint is violated.
    """
    last = rows[-PATIENCE:]
    slacks = [[row["slack"][k] for row in last] for k in range(len(rows[-1]["slack"]))]
    return [len(last) == PATIENCE and _stuck(slack) for slack in slacks]


def _stuck(slacks: Sequence[float | None]) -> bool:
    numbers = [slack for slack in slacks if slack is not None and slack > 0]
    return len(numbers) == len(slacks) and min(numbers[1:]) > (1 - PROGRESS) * numbers[0]


def advice(row: Mapping[str, Any], k: int) -> str:
    """Return what to tell the user about a constraint that is out of reach."""
    slack, loss = row["slack"][k], row["constraint_loss"][k]
    return (
        f"epsilon {loss - slack:.2f} looks out of reach: the loss on transformed images stays at {loss:.2f} and gamma "
        f"grows (now {row['gamma'][k]:.2f}); raise epsilon, for example to {1.1 * loss:.2f}, or use a larger model"
    )
