"""95 % intervals: Student's for means over seeds, Wilson's for a share of images. No scipy, which is slow to load."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

Z = 1.959963984540054  # the normal quantile of 0.975
STUDENT = (
    12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281,
    2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860,
)  # fmt: skip
"""Student's quantile of 0.975 for 1 to 20 degrees of freedom."""


@dataclass(frozen=True)
class Estimate:
    """A mean and its interval; None where one number alone says nothing of the spread."""

    mean: float
    half: float | None
    n: int

    @property
    def interval(self) -> tuple[float, float] | None:
        """The two ends."""
        return None if self.half is None else (self.mean - self.half, self.mean + self.half)

    def text(self, form: str = ".2f", factor: float = 1.0) -> str:
        """Return mean ± half width."""
        mean = format(factor * self.mean, form)
        return mean if self.half is None else f"{mean} ± {format(abs(factor) * self.half, form.lstrip('+'))}"


def student(n_free: int) -> float:
    """Return Student's quantile of 0.975; past the table by its expansion in 1/n, to four digits."""
    if n_free <= len(STUDENT):
        return STUDENT[n_free - 1]
    terms = ((Z**3 + Z) / 4, (5 * Z**5 + 16 * Z**3 + 3 * Z) / 96, (3 * Z**7 + 19 * Z**5 + 17 * Z**3 - 15 * Z) / 384)
    return Z + sum(term / math.pow(n_free, power) for power, term in enumerate(terms, 1))


def estimate(values: Sequence[float]) -> Estimate:
    """Return the mean of some numbers, at least one, and its 95 % interval."""
    n = len(values)
    half = student(n - 1) * stdev(values) / math.sqrt(n) if n > 1 else None
    return Estimate(fmean(values), half, n)


def wilson(share: float, n: int) -> tuple[float, float]:
    """Return the 95 % interval of a share that was measured on n images."""
    middle = (share + Z**2 / (2 * n)) / (1 + Z**2 / n)
    half = Z * math.sqrt(share * (1 - share) / n + Z**2 / (4 * n**2)) / (1 + Z**2 / n)
    return max(middle - half, 0.0), min(middle + half, 1.0)
