"""Where a number lies on the page: scales, round ticks, colours of values."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

STEPS = (1.0, 2.0, 2.5, 5.0, 10.0, 20.0)
RAMP = ((68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37))
"""Five stops of the colour map viridis, which also reads in grey and by colour-blind eyes."""


@dataclass(frozen=True)
class Scale:
    """A straight map from numbers to pixels."""

    low: float
    high: float
    start: float
    stop: float

    def __call__(self, value: float) -> float:
        """Return the pixel of a value."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.stop - self.start)


def scale(
    values: Iterable[float], start: float, stop: float, *, pad: float = 0.05, zero: bool = False, floor: bool = True
) -> Scale:
    """Return a scale that holds all values with some room; one value alone gets room on both sides.

    Args:
        zero: Whether zero must be on it, as for bars.
        floor: Whether it ends at zero if no value is negative.
    """
    found = [*values, *([0.0] if zero else [])] or [0.0, 1.0]
    low, high = min(found), max(found)
    if high - low < 1e-9 * max(abs(low), abs(high)):
        low = high  # closer than a float can divide
    room = pad * (high - low) or max(abs(high) * 0.1, 0.5 if zero else 1e-3)
    bottom = low if zero and low >= 0 else low - room
    if low >= 0 and floor:
        bottom = max(bottom, 0.0)
    return Scale(bottom, high + room, start, stop)


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Return at most so many round numbers between two."""
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    for step in (power * step for step in STEPS):
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if last - first < most:
            break
    return [round(i * step, 12) for i in range(first, last + 1)]


def whole_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Return round whole numbers, as epochs are."""
    return list(dict.fromkeys(float(round(tick)) for tick in ticks(low, high, most) if low <= round(tick) <= high))


def tick_text(value: float, percent: bool = False) -> str:
    """Return a tick as short as it can be."""
    if percent:
        return f"{round(100 * value, 6):g} %"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def colour(share: float) -> str:
    """Return the colour of a share between 0 and 1."""
    at = min(max(share, 0.0), 1.0) * (len(RAMP) - 1)
    i = min(int(at), len(RAMP) - 2)
    mixed = (round(a + (at - i) * (b - a)) for a, b in zip(RAMP[i], RAMP[i + 1], strict=True))
    return "#" + "".join(f"{part:02x}" for part in mixed)
