"""The remaining drawings of svg.py: small histograms, dots with intervals, heat maps."""

from __future__ import annotations

from html import escape

from invaug.lab.report.drawing import svg
from invaug.lab.report.drawing.figures import Heat, Histograms, Point, Scatter
from invaug.lab.report.drawing.scales import Scale, colour, scale, ticks
from invaug.lab.report.drawing.svg import BOTTOM, HEIGHT, LEFT, LETTER, RIGHT, WIDTH, label

ACROSS = 3  # small histograms side by side
PANEL_WIDTH, PANEL_HEIGHT = 150, 70
CELL = 18.0  # height of a cell of a heat map
STOPS = 24  # steps of a colour bar


@svg.content.register
def _histograms(drawing: Histograms) -> tuple[str, float, str]:
    parts = []
    for i, (name, counts) in enumerate(drawing.panels):
        row, column = divmod(i, ACROSS)
        parts.append(_panel(name, counts, 6 + column * (PANEL_WIDTH + 8), row * (PANEL_HEIGHT + 8)))
    rows = -(-len(drawing.panels) // ACROSS)
    return "".join(parts), max(rows * (PANEL_HEIGHT + 8), 40), ""


def _panel(name: str, counts: tuple[int, ...], left: float, top: float) -> str:
    total, most, n = sum(counts), max(counts, default=0), max(len(counts), 1)
    bottom, tall, wide = top + PANEL_HEIGHT - 2, PANEL_HEIGHT - 22, PANEL_WIDTH / n
    # half of the height is what uniform draws would give, so that panels compare
    unit = tall / max(2.0 * total / n, most, 1)
    bars = "".join(
        f"M{left + k * wide:.1f} {bottom:g}v{-count * unit:.1f}h{0.86 * wide:.1f}V{bottom:g}z"
        for k, count in enumerate(counts)
        if count
    )
    even = bottom - total / n * unit
    tip = f"<title>{escape(f'{name}: kept {total:,} times')}</title>"
    return (
        f'{label(left, top + 14, name, "small")}<path class="f0" d="{bars}">{tip}</path>'
        f'<line class="axis" x1="{left:g}" x2="{left + PANEL_WIDTH:g}" y1="{bottom:g}" y2="{bottom:g}"/>'
        f'<line class="rule" x1="{left:g}" x2="{left + PANEL_WIDTH:g}" y1="{even:.1f}" y2="{even:.1f}"/>'
    )


@svg.content.register
def _scatter(drawing: Scatter) -> tuple[str, float, str]:
    points = drawing.points
    heights = [end for point in points for end in (point.y, *(point.interval or ()))]
    values = [point.value for point in points if point.value is not None]
    bar, top = _colour_bar(values, drawing.value_label)
    if drawing.legend:
        bar, top = svg.legend([(name, f"f{i % svg.N_COLOURS}") for name, i in drawing.legend], "bar")
    height = HEIGHT + top
    x = scale(
        [*(point.x for point in points), *(px for px, _ in drawing.joined)],
        LEFT,
        WIDTH - RIGHT - 12,
        pad=0.08,
        floor=False,
    )
    y = scale([*heights, *(py for _, py in drawing.joined)], height - BOTTOM, top + 14, pad=0.08)
    parts = [
        bar,
        svg.y_axis(y, drawing.y_label, top, height, drawing.percent),
        svg.x_axis(x, drawing.x_label, height, ticks(x.low, x.high, 6)),
        _join(drawing.joined, x, y),
        *(_dot(point, x, y, values) for point in points),
    ]
    return "".join(parts), height, ""


def _join(places: tuple[tuple[float, float], ...], x: Scale, y: Scale) -> str:
    path = " ".join(f"{x(px):.1f},{y(py):.1f}" for px, py in places)
    return f'<polyline class="join" points="{path}"/>' if len(places) > 1 else ""


def _dot(point: Point, x: Scale, y: Scale, values: list[float]) -> str:
    px, py = x(point.x), y(point.y)
    upright = ""
    if point.interval:
        low, high = (y(end) for end in point.interval)
        ends = "".join(f"M{px - 4:.1f} {end:.1f}h8" for end in (low, high))
        upright = f'<path class="whisker" d="M{px:.1f} {low:.1f}V{high:.1f}{ends}"/>'
    plain = f' class="mark f{point.colour % svg.N_COLOURS}"'
    shade = plain if point.value is None else f' class="mark" fill="{colour(_share(point.value, values))}"'
    tip = f"<title>{escape(point.label)}</title>"
    return f'{upright}<circle{shade} cx="{px:.1f}" cy="{py:.1f}" r="6" tabindex="0">{tip}</circle>'


def _share(value: float | None, values: list[float]) -> float:
    low, high = min(values), max(values)
    return 0.5 if value is None or high == low else (value - low) / (high - low)


def _colour_bar(values: list[float], name: str) -> tuple[str, float]:
    """Return the key of the colours and its height; none where one colour says nothing."""
    if not values:
        return "", 0.0
    low, high = f"{min(values):.3g}", f"{max(values):.3g}"
    start = WIDTH - RIGHT - 150 - LETTER * len(high)
    cells = "".join(
        f'<rect x="{start + k * 140 / STOPS:.1f}" y="4" width="{140 / STOPS + 0.4:.1f}" height="10" '
        f'fill="{colour(k / (STOPS - 1))}"/>'
        for k in range(STOPS)
    )
    said = label(start - 6, 13, f"{name}  {low}", "end") + label(start + 146, 13, high)
    return cells + said, 20.0


@svg.content.register
def _heat(drawing: Heat) -> tuple[str, float, str]:
    left = min(160.0, 14 + LETTER * max((len(name) for name in drawing.names), default=0))
    bar, top = _colour_bar([0.0, 1.0], drawing.value_label)
    height = top + 8 + CELL * len(drawing.names) + BOTTOM
    wide = (WIDTH - RIGHT - left) / max(len(drawing.columns), 1)
    parts = [bar]
    for row, (name, cells) in enumerate(zip(drawing.names, drawing.cells, strict=True)):
        y = top + 8 + row * CELL
        parts.append(label(left - 6, y + 14, name if len(name) < 19 else f"{name[:17]}…", "end"))
        parts += [
            _cell(left + i * wide, y, wide, value, f"{name}, {drawing.x_label} {drawing.columns[i]}")
            for i, value in enumerate(cells)
            if value is not None
        ]
    every = max(len(drawing.columns) // 6, 1)
    parts += [
        label(left + (i + 0.5) * wide, height - BOTTOM + 16, column, "middle")
        for i, column in enumerate(drawing.columns)
        if i % every == 0
    ]
    parts.append(label((left + WIDTH - RIGHT) / 2, height - 6, drawing.x_label, "middle"))
    return "".join(parts), height, ""


def _cell(x: float, y: float, wide: float, value: float, name: str) -> str:
    tip = f"<title>{escape(name)}: {value:.1%}</title>"
    size = f'width="{wide + 0.3:.1f}" height="{CELL - 1:g}"'
    return f'<rect fill="{colour(value)}" x="{x:.1f}" y="{y:.1f}" {size}>{tip}</rect>'
