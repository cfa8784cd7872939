"""What all drawings share: their size, texts, axes, whiskers and the legend."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

from invaug.lab.report.drawing.scales import Scale, tick_text, ticks

WIDTH, HEIGHT = 480, 280
LEFT, RIGHT, BOTTOM = 68, 12, 40
LETTER = 8.2  # pixels, the width of a letter at the size labels have on a phone
LEGEND_ROW = 20
MOST_NAMED = 16  # entries of a legend
N_COLOURS, N_DASHES = 8, 4


class Sketch(NamedTuple):
    """A drawing as SVG elements, its height, and further attributes of the element around it."""

    body: str
    height: float
    attributes: str = ""


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
