"""Detecting, from the record of a few epochs, an epsilon that cannot be reached."""

from collections.abc import Mapping, Sequence
from typing import Any

PATIENCE = 4  # epochs that are considered
PROGRESS = 0.05  # share of the slack that must disappear within them


def out_of_reach(rows: Sequence[Mapping[str, Any]]) -> list[bool]:
    """Return for each constraint whether it was violated in all of the last epochs and hardly improved.

    gamma grows by dual_lr times the slack in every step, for ever, if no model satisfies the constraint. A slack that
    shrinks is left alone: early in a training every constraint is violated.
    """
    last = rows[-PATIENCE:]
    if not rows:
        return []
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
