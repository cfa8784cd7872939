"""95 % intervals: Student's for means over seeds, Wilson's for a share of images, Newcombe's for their difference."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, stdev

Z = NormalDist().inv_cdf(0.975)


@dataclass(frozen=True)
class Estimate:
    """A mean and the half width of its interval; None where a single number tells nothing about the spread."""

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
    """Return Student's quantile of 0.975."""
    from scipy.special import stdtrit  # here, because a page of single runs need not wait for scipy

    return float(stdtrit(n_free, 0.975))


def estimate(values: Sequence[float]) -> Estimate:
    """Return the mean of some numbers, at least one, and its 95 % interval."""
    n = len(values)
    half = student(n - 1) * stdev(values) / math.sqrt(n) if n > 1 else None
    return Estimate(fmean(values), half, n)


def wilson(share: float, n: int) -> tuple[float, float]:
    """Return the 95 % interval of a share that was measured on n images.

    Written here because scipy has it only in scipy.stats, whose import takes longer than a whole page.
    """
    middle = (share + Z**2 / (2 * n)) / (1 + Z**2 / n)
    half = Z * math.sqrt(share * (1 - share) / n + Z**2 / (4 * n**2)) / (1 + Z**2 / n)
    return max(middle - half, 0.0), min(middle + half, 1.0)


def difference_of_shares(share: float, n: int, other: float, other_n: int) -> tuple[float, float]:
    """Return the 95 % interval of the difference of two shares of images (Newcombe 1998, method 10).

    It takes the shares as independent: of the same images, on which two models mostly agree, it is rather too wide.
    """
    (low, high), (other_low, other_high) = wilson(share, n), wilson(other, other_n)
    gain = share - other
    return gain - math.hypot(share - low, other_high - other), gain + math.hypot(high - share, other - other_low)
