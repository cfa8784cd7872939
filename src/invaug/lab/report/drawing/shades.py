"""Values as colours: dots with intervals, and heat maps."""

from collections.abc import Sequence

from invaug.lab.report.drawing import axes
from invaug.lab.report.drawing.axes import BOTTOM, LEFT, RIGHT, WIDTH, Sketch
from invaug.lab.report.drawing.figures import Heat, Point, Scatter
from invaug.lab.report.drawing.scales import Scale, colour, scale, ticks

CELL = 18.0  # height of a cell of a heat map
STOPS = 24  # steps of a colour bar
BAR_WIDTH = 140


def draw_dots(drawing: Scatter) -> Sketch:
    """Return the dots with their intervals; their colour is a value, or says which group they belong to."""
    points = drawing.points
    values = [point.value for point in points if point.value is not None]
    key, top = _colour_bar(values, drawing.value_label)
    if drawing.legend:
        key, top = axes.legend([(name, f"f{i % axes.N_COLOURS}") for name, i in drawing.legend], "bar")
    height = axes.HEIGHT + top
    places = [*((point.x, point.y) for point in points), *drawing.joined]
    ends = [end for point in points for end in point.interval or ()]
    x = scale((px for px, _ in places), LEFT, WIDTH - RIGHT - 12, pad=0.08, floor=False)
    y = scale([*(py for _, py in places), *ends], height - BOTTOM, top + 14, pad=0.08)
    parts = [
        key,
        axes.y_axis(y, drawing.y_label, top, height, drawing.percent),
        axes.x_axis(x, drawing.x_label, height, ticks(x.low, x.high)),
        _join(drawing.joined, x, y),
        *(_dot(point, x, y, values) for point in points),
    ]
    return Sketch("".join(parts), height)


def _join(places: Sequence[tuple[float, float]], x: Scale, y: Scale) -> str:
    path = " ".join(f"{x(px):.1f},{y(py):.1f}" for px, py in places)
    return f'<polyline class="join" points="{path}"/>' if len(places) > 1 else ""


def _dot(point: Point, x: Scale, y: Scale, values: Sequence[float]) -> str:
    px, py = x(point.x), y(point.y)
    whisker = axes.upright_whisker(px, y(point.interval[0]), y(point.interval[1])) if point.interval else ""
    fill = f' class="mark f{point.colour % axes.N_COLOURS}"'
    if point.value is not None:
        fill = f' class="mark" fill="{colour(_share(point.value, values))}"'
    return f'{whisker}<circle{fill} cx="{px:.1f}" cy="{py:.1f}" r="6" tabindex="0">{axes.tip(point.label)}</circle>'


def _share(value: float, values: Sequence[float]) -> float:
    low, high = min(values), max(values)
    return 0.5 if high == low else (value - low) / (high - low)


def _colour_bar(values: Sequence[float], name: str) -> tuple[str, float]:
    """Return the key of the colours and its height; none where there are no values."""
    if not values:
        return "", 0.0
    low, high = f"{min(values):.3g}", f"{max(values):.3g}"
    start, step = WIDTH - RIGHT - BAR_WIDTH - 10 - axes.LETTER * len(high), BAR_WIDTH / STOPS
    cells = "".join(_cell(start + k * step, 4, step, k / (STOPS - 1), "", 10) for k in range(STOPS))
    return cells + axes.label(start - 6, 13, f"{name}  {low}", "end") + axes.label(
        start + BAR_WIDTH + 6, 13, high
    ), 20.0


def draw_heat(drawing: Heat) -> Sketch:
    """Return a map of shares, one row per name."""
    left = min(160.0, 14 + axes.LETTER * max((len(name) for name in drawing.names), default=0))
    key, top = _colour_bar([0.0, 1.0], drawing.value_label)
    wide = (WIDTH - RIGHT - left) / max(len(drawing.columns), 1)
    bottom = top + 8 + CELL * len(drawing.names)
    parts = [key]
    for row, (name, cells) in enumerate(zip(drawing.names, drawing.cells, strict=True)):
        y = top + 8 + row * CELL
        parts.append(axes.label(left - 6, y + 14, axes.cut(name, 18), "end"))
        parts += [
            _cell(left + i * wide, y, wide, value, f"{name}, {drawing.x_label} {drawing.columns[i]}: {value:.1%}")
            for i, value in enumerate(cells)
            if value is not None
        ]
    every = max(len(drawing.columns) // 6, 1)
    named = list(enumerate(drawing.columns))[::every]
    parts += [axes.label(left + (i + 0.5) * wide, bottom + 16, column, "middle") for i, column in named]
    parts.append(axes.label((left + WIDTH - RIGHT) / 2, bottom + BOTTOM - 6, drawing.x_label, "middle"))
    return Sketch("".join(parts), bottom + BOTTOM)


def _cell(x: float, y: float, wide: float, value: float, name: str, tall: float = CELL - 1) -> str:
    size = f'width="{wide + 0.3:.1f}" height="{tall:g}"'
    return f'<rect fill="{colour(value)}" x="{x:.1f}" y="{y:.1f}" {size}>{axes.tip(name) if name else ""}</rect>'
