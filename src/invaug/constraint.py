"""A constraint: a set of transformations, the loss allowed under them, and how they are sampled."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from invaug.checks import check_type, require
from invaug.levels import Level, as_level
from invaug.samplers import Sampler, metropolis_hastings
from invaug.transforms.set import TransformSet


@dataclass(frozen=True)
class Constraint:
    """A set of transformations and the loss they may cost: E[loss under the sampler's law] <= epsilon.

    Example:
        >>> from invaug import sets
        >>> Constraint(sets.wide(), epsilon=0.8).active
        True
        >>> Constraint(sets.wide(), epsilon=math.inf).active
        False
        >>> Constraint(sets.wide()).level
        Resilient(alpha=2.5, base='clean', cap=2.0, guess=None)
    """

    transforms: TransformSet
    epsilon: float | Literal["auto"] | Level = "auto"
    """The loss allowed: a number, "auto" for `Resilient()`, or a rule with other values."""
    sampler: Sampler = metropolis_hastings
    share: float | None = None
    """The part of each batch on which the constraint is evaluated, drawn anew each time; by default all of it. With one
    view per image, the smallest part on which it is measured; by default an eighth."""

    def __post_init__(self) -> None:
        check_type("transforms", self.transforms, TransformSet, "a TransformSet")
        as_level(self.epsilon)  # refuses an invalid epsilon
        require(self.share is None or 0 < self.share <= 1, f"share must be above 0 and at most 1, got {self.share}")

    @cached_property
    def level(self) -> Level:
        """The rule that says what the loss is compared with; a fixed epsilon is a rule that never gives way."""
        return as_level(self.epsilon)

    @property
    def active(self) -> bool:
        """Whether the constraint can bind: with an infinite epsilon it cannot, and costs nothing."""
        return self.level.base != math.inf
