"""Figures as SVG: axes, lines, bars, histograms, dots and heat maps, in classes that a style sheet colours.

Written here because the page may load nothing and stay small: plotly.js inline is over 4 MB of the 5 MB a report of
twenty runs may have, and a page whose policy allows only the scripts it was made with needs one that can be read.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import singledispatch
from html import escape
from itertools import groupby

from invaug.lab.report.drawing.figures import Bars, Figure, Lines, Series
from invaug.lab.report.drawing.scales import Scale, scale, tick_text, ticks, whole_ticks

WIDTH, HEIGHT = 480, 280
LEFT, RIGHT, BOTTOM = 68, 12, 40
LETTER = 8.2  # pixels, the width of a letter at the size labels have on a phone
ROW = 20  # height of a line of the legend
LABEL_WIDTH = 200.0  # most of a bar's name on one line
N_COLOURS, N_DASHES = 8, 4
MOST_NAMED = 16  # entries of a legend


def draw(figure: Figure, style: str = "") -> str:
    """Return a figure as one SVG element; a style sheet inside makes it a picture of its own."""
    body, height, attributes = content(figure.drawing)
    sheet = f"<style>{style}</style>" if style else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="figure" viewBox="0 0 {WIDTH} {height:g}" role="img" '
        f'aria-label="{escape(figure.title)}. {escape(figure.reading)}"{attributes}>{sheet}{body}</svg>'
    )


@singledispatch
def content(drawing: object) -> tuple[str, float, str]:
    """Return the elements of a drawing, its height, and further attributes."""
    raise TypeError(f"nothing draws a {type(drawing).__name__}")


@content.register
def _lines(drawing: Lines) -> tuple[str, float, str]:
    key, top = legend(_entries(drawing.series))
    height = HEIGHT + top
    points = [point for series in drawing.series for point in series.points if point[1] is not None]
    x = scale((p[0] for p in points), LEFT, WIDTH - RIGHT, pad=0.02)
    whole = all(p[0] == round(p[0]) for p in points)
    ends = [end for series in drawing.series for interval in series.intervals for end in interval or ()]
    y = scale([*(p[1] for p in points if p[1] is not None), *ends, *_near(drawing)], height - BOTTOM, top + 10)
    rules = [rule for rule in drawing.rules if y.low <= rule.at <= y.high]
    parts = [
        key,
        y_axis(y, drawing.y_label, top, height, drawing.percent),
        x_axis(x, drawing.x_label, height, (whole_ticks if whole else ticks)(x.low, x.high)),
        *(_rule(y(rule.at)) for rule in rules),
        *(_line(series, x, y) for series in drawing.series),
        *(label(WIDTH - RIGHT - 2, y(rule.at) - 4, rule.label, "end note") for rule in rules),
        f'<line class="cursor off" y1="{top + 10:g}" y2="{height - BOTTOM:g}"/>',
    ]
    span = f' data-x="{x.low:.6g},{x.high:.6g},{x.start:g},{x.stop:g}" tabindex="0"'
    return "".join(parts), height, span


def _near(drawing: Lines) -> list[float]:
    """Return the rules worth making room for: one far from every line would flatten them all."""
    values = [y for series in drawing.series for _, y in series.points if y is not None]
    low, high = min(values, default=0.0), max(values, default=1.0)
    reach = 1.5 * (high - low) or 1.0
    return [rule.at for rule in drawing.rules if low - reach <= rule.at <= high + reach]


def _line(series: Series, x: Scale, y: Scale) -> str:
    """Return the pieces of a line; it is broken where a number is missing, and a piece of one point is a dot."""
    style = f's{series.colour % N_COLOURS} d{series.dash % N_DASHES}"{_of_run(series.run)}'
    pieces = [list(piece) for there, piece in groupby(series.points, lambda p: p[1] is not None) if there]
    drawn = []
    for piece in pieces:
        places = [(x(px), y(py)) for px, py in piece if py is not None]
        if len(places) == 1:
            drawn.append(f'<circle class="dot f{style[1:]} cx="{places[0][0]:.1f}" cy="{places[0][1]:.1f}" r="3"/>')
        else:
            path = " ".join(f"{px:.1f},{py:.1f}" for px, py in places)
            drawn.append(f'<polyline class="line {style} points="{path}"/>')
    for (px, _), interval in zip(series.points, series.intervals, strict=False):
        if interval:
            ends = [y(end) for end in interval]
            bars = "".join(f"M{x(px) - 4:.1f} {end:.1f}h8" for end in ends)
            drawn.append(f'<path class="line {style} d="M{x(px):.1f} {ends[0]:.1f}V{ends[1]:.1f}{bars}"/>')
    return "".join(drawn)


def _of_run(run: int | None) -> str:
    return "" if run is None else f' data-run="{run}"'


def _entries(series: Iterable[Series]) -> list[tuple[str, str]]:
    """Return what the legend says: a colour a group, a dash a kind, where there is more than one."""
    lines = list(series)
    groups = dict.fromkeys((s.group, s.colour % N_COLOURS, 0 if s.kind else s.dash % N_DASHES) for s in lines)
    kinds = dict.fromkeys((s.kind, s.dash % N_DASHES) for s in lines)
    coloured = [(name, f"s{i} d{dash}") for name, i, dash in groups if name] if len(groups) > 1 else []
    plain = "ink" if len(groups) > 1 else f"s{lines[0].colour % N_COLOURS}" if lines else "ink"
    dashed = [(name, f"{plain} d{i}") for name, i in kinds if name] if len(kinds) > 1 else []
    return [*coloured, *dashed]


def legend(entries: list[tuple[str, str]], kind: str = "line") -> tuple[str, float]:
    """Return the legend above a figure and its height; too many entries end in how many more there are."""
    named = entries[:MOST_NAMED]
    if len(entries) > len(named):
        named = [*named, (f"and {len(entries) - len(named)} more", "none")]
    parts, left, top = [], 4.0, 0.0
    for name, style in named:
        text = name if len(name) <= 40 else f"{name[:39]}…"
        width = 30 + LETTER * len(text) + 12
        if left + width > WIDTH and left > 4:
            left, top = 4.0, top + ROW
        parts.append(_sample(kind, style, left, top) + label(left + 26, top + 14, text))
        left += width
    return "".join(parts), (top + ROW + 2 if parts else 0.0)


def _sample(kind: str, style: str, left: float, top: float) -> str:
    if style == "none":
        return ""
    if kind == "line":
        return f'<line class="line {style}" x1="{left:g}" x2="{left + 20:g}" y1="{top + 10:g}" y2="{top + 10:g}"/>'
    return f'<rect class="{style}" x="{left + 4:g}" y="{top + 4:g}" width="14" height="11"/>'


def label(x: float, y: float, text: str, style: str = "", extra: str = "") -> str:
    """Return a text; whatever it says is escaped."""
    kind = f' class="{style}"' if style else ""
    return f'<text{kind} x="{x:.1f}" y="{y:.1f}"{extra}>{escape(text)}</text>'


def y_axis(y: Scale, name: str, top: float, height: float, percent: bool) -> str:
    """Return grid lines, their numbers and the name of the axis, written upwards."""
    parts = []
    for tick in ticks(y.low, y.high, 6):
        at = y(tick)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(label(LEFT - 6, at + 4, tick_text(tick, percent), "end"))
    middle = (top + 10 + height - BOTTOM) / 2
    turned = f' transform="rotate(-90 12 {middle:.1f})"'
    return "".join([*parts, label(12, middle, name, "middle", turned)])


def x_axis(x: Scale, name: str, height: float, at: Iterable[float], percent: bool = False) -> str:
    """Return the axis line, its numbers and its name."""
    bottom = height - BOTTOM
    line = f'<line class="axis" x1="{x.start:g}" x2="{x.stop:g}" y1="{bottom:g}" y2="{bottom:g}"/>'
    numbers = [label(x(tick), bottom + 16, tick_text(tick, percent), "middle") for tick in at]
    return "".join([line, *numbers, label((x.start + x.stop) / 2, height - 6, name, "middle")])


def _rule(place: float) -> str:
    return f'<line class="rule" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{place:.1f}" y2="{place:.1f}"/>'


@content.register
def _bars(drawing: Bars) -> tuple[str, float, str]:
    columns = drawing.columns
    key, top = legend([(name, f"f{i}") for i, (name, _) in enumerate(columns)] if len(columns) > 1 else [], "bar")
    top += 14 if drawing.rule and not key else 0  # room for the word over the rule
    thick = 16.0 if len(columns) == 1 else 9.0
    left = min(LABEL_WIDTH, 14 + LETTER * max((len(name) for name in drawing.names), default=0))
    names = [_in_two(name, left - 10) for name in drawing.names]
    step = max(thick * len(columns) + 8, 17.0 * max(map(len, names), default=1) + 4)
    height = top + 10 + step * len(drawing.names) + BOTTOM
    values = [value for _, column in columns for value in column if value is not None]
    ends = [end for whisker in drawing.whiskers if whisker for end in whisker]
    x = scale([*values, *ends, *([drawing.rule.at] if drawing.rule else [])], left, WIDTH - RIGHT - 8, zero=True)
    parts = [key, _upright_grid(x, top, height), x_axis(x, drawing.x_label, height, ticks(x.low, x.high, 6),
                                                         drawing.percent)]  # fmt: skip
    for row, name in enumerate(drawing.names):
        y = top + 10 + row * step + (step - thick * len(columns)) / 2
        middle = y + thick * len(columns) / 2 + 12.5 - 8.5 * len(names[row])
        parts += [label(left - 6, middle + 17 * i, line, "end") for i, line in enumerate(names[row])]
        for i, (column, numbers) in enumerate(columns):
            fill = drawing.colours[row] % N_COLOURS if drawing.colours else i
            parts.append(_bar(x, numbers[row], y + i * thick, thick - 1, fill, f"{name}, {column}", drawing.percent))
        if row < len(drawing.whiskers) and (ends_of := drawing.whiskers[row]):
            parts.append(whisker(x(ends_of[0]), x(ends_of[1]), y + thick / 2))
    if drawing.rule:
        at = x(drawing.rule.at)
        parts.append(f'<line class="rule" x1="{at:.1f}" x2="{at:.1f}" y1="{top + 4:g}" y2="{height - BOTTOM:g}"/>')
        parts.append(label(at, top + 4, drawing.rule.label, "middle note") if not key else "")
    return "".join(parts), height, ""


def _upright_grid(x: Scale, top: float, height: float) -> str:
    return "".join(
        f'<line class="grid" x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="{top + 6:g}" y2="{height - BOTTOM:g}"/>'
        for tick in ticks(x.low, x.high, 6)
    )


def _bar(x: Scale, value: float | None, y: float, thick: float, i: int, name: str, percent: bool) -> str:
    if value is None:
        return ""
    low, high = sorted((x(0.0), x(value)))
    said = f"{100 * value:.2f} %" if percent else f"{value:.4g}"
    tip = f"<title>{escape(f'{name}: {said}')}</title>"
    size = f'width="{max(high - low, 0.5):.1f}" height="{thick:g}"'
    return f'<rect class="f{i}" x="{low:.1f}" y="{y:.1f}" {size}>{tip}</rect>'


def whisker(low: float, high: float, y: float) -> str:
    """Return a lying interval."""
    ends = "".join(f"M{at:.1f} {y - 4:.1f}v8" for at in (low, high))
    return f'<path class="whisker" d="M{low:.1f} {y:.1f}H{high:.1f}{ends}"/>'


def _in_two(name: str, width: float) -> list[str]:
    """Return a name on one line, or on two where it is too long for one."""
    most = max(int(width / LETTER), 4)
    if len(name) <= most:
        return [name]
    cut = max(name.rfind(" ", 0, most + 1), 0) or most
    return [name[:cut], _fitting(name[cut:].strip(), width)]


def _fitting(name: str, width: float) -> str:
    most = max(int(width / LETTER), 4)
    return name if len(name) <= most else f"{name[: most - 1]}…"
