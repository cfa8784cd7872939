"""What all drawings share: scales, round ticks, colours of values, texts, axes, whiskers and the legend."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import NamedTuple

WIDTH, HEIGHT = 480, 280
LEFT, RIGHT, BOTTOM = 68, 12, 40
LETTER = 8.2  # pixels, the width of a letter at the size labels have on a phone
LEGEND_ROW = 20
BAR_WIDTH, STOPS = 140, 24  # of the bar that explains colours, in pixels and in steps
MOST_NAMED = 16  # entries of a legend
N_COLOURS, N_DASHES = 8, 4
MOST_TICKS = 6
STEPS = (1.0, 2.0, 2.5, 5.0, 10.0, 20.0)
RAMP = ((68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37))
"""Five stops of the colour map viridis, which also reads in grey and by colour-blind eyes."""


class Sketch(NamedTuple):
    """A drawing as SVG elements, its height, and further attributes of the element around it."""

    body: str
    height: float
    attributes: str = ""


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


def ticks(low: float, high: float) -> list[float]:
    """Return a few round numbers between two."""
    power = 10.0 ** math.floor(math.log10((high - low) / MOST_TICKS))
    for step in (power * step for step in STEPS):
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if last - first < MOST_TICKS:
            break
    return [round(i * step, 12) for i in range(first, last + 1)]


def whole_ticks(low: float, high: float) -> list[float]:
    """Return round whole numbers, as epochs are."""
    return list(dict.fromkeys(float(round(tick)) for tick in ticks(low, high) if low <= round(tick) <= high))


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


def label(x: float, y: float, text: str, style: str = "", extra: str = "") -> str:
    """Return a text; whatever it says is escaped."""
    kind = f' class="{style}"' if style else ""
    return f'<text{kind} x="{x:.1f}" y="{y:.1f}"{extra}>{escape(text)}</text>'


def tip(text: str) -> str:
    """Return what a browser shows when a reader points at the element around it."""
    return f"<title>{escape(text)}</title>"


def cut(text: str, most: int) -> str:
    """Return a text of at most so many letters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def horizontal(kind: str, y: float, start: float = LEFT, stop: float = WIDTH - RIGHT) -> str:
    """Return a horizontal line."""
    return f'<line class="{kind}" x1="{start:g}" x2="{stop:g}" y1="{y:.1f}" y2="{y:.1f}"/>'


def vertical(kind: str, x: float, top: float, bottom: float) -> str:
    """Return a vertical line."""
    return f'<line class="{kind}" x1="{x:.1f}" x2="{x:.1f}" y1="{top:g}" y2="{bottom:g}"/>'


def upright_whisker(x: float, low: float, high: float, kind: str = "whisker") -> str:
    """Return an interval of heights."""
    ends = "".join(f"M{x - 4:.1f} {end:.1f}h8" for end in (low, high))
    return f'<path class="{kind}" d="M{x:.1f} {low:.1f}V{high:.1f}{ends}"/>'


def y_axis(y: Scale, name: str, top: float, height: float, percent: bool) -> str:
    """Return grid lines, their numbers and the name of the axis, written upwards."""
    at = ticks(y.low, y.high)
    numbers = [label(LEFT - 6, y(tick) + 4, tick_text(tick, percent), "end") for tick in at]
    middle = (top + 10 + height - BOTTOM) / 2
    turned = f' transform="rotate(-90 12 {middle:.1f})"'
    return "".join([*(horizontal("grid", y(tick)) for tick in at), *numbers, label(12, middle, name, "middle", turned)])


def x_axis(x: Scale, name: str, height: float, at: Iterable[float], percent: bool = False) -> str:
    """Return the axis line, its numbers and its name."""
    bottom = height - BOTTOM
    numbers = [label(x(tick), bottom + 16, tick_text(tick, percent), "middle") for tick in at]
    title = label((x.start + x.stop) / 2, height - 6, name, "middle")
    return "".join([horizontal("axis", bottom, x.start, x.stop), *numbers, title])


def legend(entries: Sequence[tuple[str, str]], kind: str = "line") -> tuple[str, float]:
    """Return the legend above a figure and its height; too many entries end in how many more there are."""
    named = list(entries[:MOST_NAMED])
    if len(entries) > MOST_NAMED:
        named.append((f"and {len(entries) - MOST_NAMED} more", ""))
    parts, left, top = [], 4.0, 0.0
    for name, style in named:
        text = cut(name, 40)
        width = 30 + LETTER * len(text) + 12
        if left + width > WIDTH and left > 4:
            left, top = 4.0, top + LEGEND_ROW
        parts.append(_sample(kind, style, left, top) + label(left + 26, top + 14, text))
        left += width
    return "".join(parts), (top + LEGEND_ROW + 2 if parts else 0.0)


def _sample(kind: str, style: str, left: float, top: float) -> str:
    if not style:
        return ""
    if kind == "line":
        return horizontal(f"line {style}", top + 10, left, left + 20)
    return f'<rect class="{style}" x="{left + 4:g}" y="{top + 4:g}" width="14" height="11"/>'


def colour_bar(values: Sequence[float], name: str) -> tuple[str, float]:
    """Return the key of the colours and its height; none where there are no values."""
    if not values:
        return "", 0.0
    low, high = f"{min(values):.3g}", f"{max(values):.3g}"
    start, step = WIDTH - RIGHT - BAR_WIDTH - 10 - LETTER * len(high), BAR_WIDTH / STOPS
    cells = "".join(cell(start + k * step, 4, step, k / (STOPS - 1), "", 10) for k in range(STOPS))
    ends = label(start - 6, 13, f"{name}  {low}", "end") + label(start + BAR_WIDTH + 6, 13, high)
    return cells + ends, 20.0


def cell(x: float, y: float, wide: float, share: float, name: str, tall: float) -> str:
    """Return a rectangle in the colour of a share; its name is shown to a reader who points at it."""
    size = f'width="{wide + 0.3:.1f}" height="{tall:g}"'
    return f'<rect fill="{colour(share)}" x="{x:.1f}" y="{y:.1f}" {size}>{tip(name) if name else ""}</rect>'
