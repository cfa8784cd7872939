"""The level of a constraint: a fixed number, or a rule that sets it during training."""

import math
from dataclasses import dataclass
from typing import Literal

from invaug.checks import require


@dataclass(frozen=True)
class Resilient:
    """A level that gives way: epsilon = base + u, where the relaxation u ≥ 0 costs h(u) = alpha u² / (2 guess).

    Resilient constrained learning (Hounie, Ribeiro, Chamon; NeurIPS 2023) relaxes a constraint until the price of
    relaxing it further equals its multiplier, h'(u) = gamma. With this h the optimal relaxation is u = gamma guess /
    alpha, so no level is out of reach, and gamma settles at alpha (ℓ_c - base) / guess: `alpha` times the loss that
    remains above the base, as a share of the loss of a guess. Beyond `cap` the cost is linear (Huber's), so that gamma
    stops there. An infinite alpha never gives way: the level is the base, as in the paper.

    Example:
        >>> Resilient(alpha=4.0, base=0.5, guess=1.0).epsilon(gamma=2.0)
        1.0
    """

    alpha: float = 2.5
    base: float | Literal["clean"] = "clean"
    """The level before it gives way; "clean" is the loss of the clean images, measured as the constraint's is."""
    cap: float = 2.0
    guess: float | None = None
    """The loss that alpha is relative to; None takes the log of the number of outputs, so that alpha means the same
    for 2 classes and for 1,000."""

    def __post_init__(self) -> None:
        require(self.alpha > 0, f"alpha must be above 0, got {self.alpha}")
        require(self.cap > 0, f"cap must be above 0, got {self.cap}")
        known = self.guess is None or 0 < self.guess < math.inf
        require(known, f"guess must be above 0 and not infinite, got {self.guess}")
        fits = self.base == "clean" or (not isinstance(self.base, str) and self.base >= 0)
        require(fits, f'base must be "clean" or a number, at least 0, got {self.base!r}')

    @property
    def adapts(self) -> bool:
        """Whether epsilon changes during training."""
        return self.alpha < math.inf or self.base == "clean"

    def epsilon(self, gamma: float, clean: float = math.nan, guess: float | None = None) -> float:
        """Return base + u, with the relaxation u that is optimal for this gamma.

        Args:
            clean: The mean loss of the clean images.
            guess: The loss of a guess, used where the rule itself does not state one.

        Example:
            >>> Resilient(alpha=5.0).epsilon(gamma=1.0, clean=0.25, guess=2.5)
            0.75
        """
        base, unit = clean if self.base == "clean" else float(self.base), self.guess or guess
        if self.alpha == math.inf:
            return base
        if unit is None:
            raise ValueError("no outputs tell the number of classes: give Resilient(guess=...), the loss of a guess")
        return base + gamma * unit / self.alpha


Level = Resilient  # a further rule joins this alias and `as_level`; it needs base, cap, adapts and epsilon()


def as_level(epsilon: float | str | Level) -> Level:
    """Return the rule for a given epsilon: a number stays fixed, "auto" is `Resilient()`.

    Example:
        >>> as_level("auto") == Resilient()
        True
        >>> as_level(0.8).epsilon(gamma=3.0)
        0.8
    """
    if isinstance(epsilon, Resilient):
        return epsilon
    if isinstance(epsilon, str) and epsilon == "auto":
        return Resilient()
    if isinstance(epsilon, bool | str) or not isinstance(epsilon, int | float):
        raise TypeError(f'epsilon must be a number, "auto" or a Resilient, got {epsilon!r}')
    ways = "0 makes a pure penalty, inf switches the constraint off"
    require(epsilon >= 0, f"epsilon must be positive, got {epsilon} ({ways})")
    return Resilient(math.inf, float(epsilon), math.inf)
