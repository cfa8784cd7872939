"""Drawings with two axes: numbers over epochs as lines, experiments as dots."""

from collections.abc import Sequence
from itertools import groupby

from invaug.lab.report.document import Lines, Point, Rule, Scatter, Series
from invaug.lab.report.drawing import axes
from invaug.lab.report.drawing.axes import BOTTOM, LEFT, N_COLOURS, N_DASHES, RIGHT, WIDTH, Scale, Sketch, scale, ticks


def draw_lines(drawing: Lines) -> Sketch:
    """Return the lines, the rules between them, and a cursor that the page's script moves."""
    key, top = axes.legend(_entries(drawing.series))
    height = axes.HEIGHT + top
    x, y = _scales(drawing, top, height)
    whole = all(point[0] == round(point[0]) for series in drawing.series for point in series.points)
    rules = [rule for rule in drawing.rules if y.low <= rule.at <= y.high]
    parts = [
        key,
        axes.y_axis(y, drawing.y_label, top, height, drawing.percent),
        axes.x_axis(x, drawing.x_label, height, (axes.whole_ticks if whole else ticks)(x.low, x.high)),
        *(axes.horizontal("rule", y(rule.at)) for rule in rules),
        *(_line(series, x, y) for series in drawing.series),
        *(axes.label(WIDTH - RIGHT - 2, y(rule.at) - 4, rule.label, "end note") for rule in rules),
        f'<line class="cursor off" y1="{top + 10:g}" y2="{height - BOTTOM:g}"/>',
    ]
    span = f' data-x="{x.low:.6g},{x.high:.6g},{x.start:g},{x.stop:g}" tabindex="0"'
    return Sketch("".join(parts), height, span)


def _scales(drawing: Lines, top: float, height: float) -> tuple[Scale, Scale]:
    known = [(x, y) for series in drawing.series for x, y in series.points if y is not None]
    ends = [end for series in drawing.series for interval in series.intervals for end in interval or ()]
    values = [y for _, y in known]
    x = scale((x for x, _ in known), LEFT, WIDTH - RIGHT, pad=0.02)
    y = scale([*values, *ends, *_near(drawing.rules, values)], height - BOTTOM, top + 10)
    return x, y


def _near(rules: Sequence[Rule], values: Sequence[float]) -> list[float]:
    """Return the rules worth making room for: one far from every line would flatten them all."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    reach = 1.5 * (high - low) or 1.0
    return [rule.at for rule in rules if low - reach <= rule.at <= high + reach]


def _line(series: Series, x: Scale, y: Scale) -> str:
    """Return the pieces of a line; it is broken where a number is missing, and a piece of one point is a dot."""
    pieces = [list(piece) for known, piece in groupby(series.points, lambda point: point[1] is not None) if known]
    drawn = [_piece(series, [(x(px), y(py)) for px, py in piece if py is not None]) for piece in pieces]
    style = f"line s{series.colour % N_COLOURS}"
    whiskers = zip(series.points, series.intervals, strict=False)
    drawn += [axes.upright_whisker(x(px), y(ends[0]), y(ends[1]), style) for (px, _), ends in whiskers if ends]
    return "".join(drawn)


def _piece(series: Series, places: Sequence[tuple[float, float]]) -> str:
    colour, run = series.colour % N_COLOURS, "" if series.run is None else f' data-run="{series.run}"'
    if len(places) == 1:
        ((px, py),) = places
        return f'<circle class="dot f{colour}"{run} cx="{px:.1f}" cy="{py:.1f}" r="3"/>'
    path = " ".join(f"{px:.1f},{py:.1f}" for px, py in places)
    return f'<polyline class="line s{colour} d{series.dash % N_DASHES}"{run} points="{path}"/>'


def _entries(series: Sequence[Series]) -> list[tuple[str, str]]:
    """Return what the legend says: a colour for each group, a dash for each kind, where there is more than one."""
    groups = dict.fromkeys((s.group, s.colour % N_COLOURS, 0 if s.kind else s.dash % N_DASHES) for s in series)
    kinds = dict.fromkeys((s.kind, s.dash % N_DASHES) for s in series)
    coloured = [(name, f"s{i} d{dash}") for name, i, dash in groups if name] if len(groups) > 1 else []
    plain = "ink" if len(groups) > 1 else f"s{series[0].colour % N_COLOURS}" if series else "ink"
    dashed = [(name, f"{plain} d{i}") for name, i in kinds if name] if len(kinds) > 1 else []
    return [*coloured, *dashed]


def draw_dots(drawing: Scatter) -> Sketch:
    """Return the dots with their intervals; their colour is a value, or says which group they belong to."""
    points = drawing.points
    values = [point.value for point in points if point.value is not None]
    key, top = axes.colour_bar(values, drawing.value_label)
    if drawing.legend:
        key, top = axes.legend([(name, f"f{i % N_COLOURS}") for name, i in drawing.legend], "bar")
    height = axes.HEIGHT + top
    places = [*((point.x, point.y) for point in points), *drawing.joined]
    ends = [end for point in points for end in point.interval or ()]
    x = scale((px for px, _ in places), LEFT, WIDTH - RIGHT - 12, pad=0.08, floor=False)
    y = scale([*(py for _, py in places), *ends], height - BOTTOM, top + 14, pad=0.08)
    join = " ".join(f"{x(px):.1f},{y(py):.1f}" for px, py in drawing.joined)
    parts = [
        key,
        axes.y_axis(y, drawing.y_label, top, height, percent=True),
        axes.x_axis(x, drawing.x_label, height, ticks(x.low, x.high)),
        f'<polyline class="join" points="{join}"/>' if len(drawing.joined) > 1 else "",
        *(_dot(point, x, y, values) for point in points),
    ]
    return Sketch("".join(parts), height)


def _dot(point: Point, x: Scale, y: Scale, values: Sequence[float]) -> str:
    px, py = x(point.x), y(point.y)
    whisker = axes.upright_whisker(px, y(point.interval[0]), y(point.interval[1])) if point.interval else ""
    fill = f' class="mark f{point.colour % N_COLOURS}"'
    if point.value is not None:
        low, high = min(values), max(values)
        share = 0.5 if high == low else (point.value - low) / (high - low)
        fill = f' class="mark" fill="{axes.colour(share)}"'
    return f'{whisker}<circle{fill} cx="{px:.1f}" cy="{py:.1f}" r="6" tabindex="0">{axes.tip(point.label)}</circle>'
