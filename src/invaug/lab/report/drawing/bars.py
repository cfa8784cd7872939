"""Drawings with names on the left: bars and heat maps; and small histograms side by side."""

from invaug.lab.report.document import Bars, Heat, Histograms
from invaug.lab.report.drawing import axes
from invaug.lab.report.drawing.axes import BOTTOM, RIGHT, WIDTH, Scale, Sketch, scale, ticks

NAME_WIDTH = 200.0  # most that names take of the width; longer ones take two lines
NAME_LINE = 17.0
ACROSS = 3  # small histograms side by side
PANEL_WIDTH, PANEL_HEIGHT = 150, 70
CELL = 18.0  # height of a cell of a heat map


def draw_bars(drawing: Bars) -> Sketch:
    """Return one or several bars per name, with whiskers and a rule where there are some."""
    n = len(drawing.columns)
    key, top = axes.legend([(name, f"f{i}") for i, (name, _) in enumerate(drawing.columns)] if n > 1 else [], "bar")
    top += 14 if drawing.rule and not key else 0  # room for the word over the rule
    left = min(NAME_WIDTH, 14 + axes.LETTER * max((len(name) for name in drawing.names), default=0))
    most_lines = max((len(_in_two(name, left)) for name in drawing.names), default=1)
    thick = 16.0 if n == 1 else 9.0
    step = max(thick * n + 8, NAME_LINE * most_lines + 4)
    bottom = top + 10 + step * len(drawing.names)
    x = _scale(drawing, left)
    at = ticks(x.low, x.high)
    parts = [key, *(axes.vertical("grid", x(tick), top + 6, bottom) for tick in at)]
    parts.append(axes.x_axis(x, drawing.x_label, bottom + BOTTOM, at, drawing.percent))
    parts += [_row(drawing, i, x, top + 10 + (i + 0.5) * step, thick) for i in range(len(drawing.names))]
    if drawing.rule:
        parts.append(axes.vertical("rule", x(drawing.rule.at), top + 4, bottom))
        parts.append(axes.label(x(drawing.rule.at), top + 4, drawing.rule.label, "middle note") if not key else "")
    return Sketch("".join(parts), bottom + BOTTOM)


def _scale(drawing: Bars, left: float) -> Scale:
    values = [value for _, column in drawing.columns for value in column if value is not None]
    ends = [end for whisker in drawing.whiskers if whisker for end in whisker]
    return scale([*values, *ends, *([drawing.rule.at] if drawing.rule else [])], left, WIDTH - RIGHT - 8, zero=True)


def _row(drawing: Bars, row: int, x: Scale, middle: float, thick: float) -> str:
    """Return a name, its bars and its whisker around a height."""
    name, top = drawing.names[row], middle - thick * len(drawing.columns) / 2
    lines = _in_two(name, x.start)
    first = middle + 12.5 - NAME_LINE / 2 * len(lines)
    parts = [axes.label(x.start - 6, first + NAME_LINE * i, line, "end") for i, line in enumerate(lines)]
    for i, (column, values) in enumerate(drawing.columns):
        fill = drawing.colours[row] % axes.N_COLOURS if drawing.colours else i
        parts.append(_bar(x, values[row], top + i * thick, thick - 1, fill, f"{name}, {column}", drawing.percent))
    if row < len(drawing.whiskers) and (ends := drawing.whiskers[row]):
        parts.append(_whisker(x(ends[0]), x(ends[1]), top + thick / 2))
    return "".join(parts)


def _bar(x: Scale, value: float | None, y: float, thick: float, fill: int, name: str, percent: bool) -> str:
    if value is None:
        return ""
    low, high = sorted((x(0.0), x(value)))
    text = f"{100 * value:.2f} %" if percent else f"{value:.4g}"
    size = f'width="{max(high - low, 0.5):.1f}" height="{thick:g}"'
    return f'<rect class="f{fill}" x="{low:.1f}" y="{y:.1f}" {size}>{axes.tip(f"{name}: {text}")}</rect>'


def _whisker(low: float, high: float, y: float) -> str:
    ends = "".join(f"M{end:.1f} {y - 4:.1f}v8" for end in (low, high))
    return f'<path class="whisker" d="M{low:.1f} {y:.1f}H{high:.1f}{ends}"/>'


def _in_two(name: str, left: float) -> list[str]:
    """Return a name on one line, or on two where it is too long for one."""
    most = max(int((left - 10) / axes.LETTER), 4)
    if len(name) <= most:
        return [name]
    end = max(name.rfind(" ", 0, most + 1), 0) or most
    return [name[:end], axes.cut(name[end:].strip(), most)]


def draw_histograms(drawing: Histograms) -> Sketch:
    """Return the panels, three in a row."""
    rows = -(-len(drawing.panels) // ACROSS)
    panels = [_panel(i, name, counts) for i, (name, counts) in enumerate(drawing.panels)]
    return Sketch("".join(panels), max(rows * (PANEL_HEIGHT + 8), 40))


def _panel(place: int, name: str, counts: tuple[int, ...]) -> str:
    left, top = 6 + place % ACROSS * (PANEL_WIDTH + 8), place // ACROSS * (PANEL_HEIGHT + 8)
    total, most, n = sum(counts), max(counts, default=0), max(len(counts), 1)
    bottom, tall, wide = top + PANEL_HEIGHT - 2, PANEL_HEIGHT - 22, PANEL_WIDTH / n
    # half of the height is what uniform draws would give, so that panels compare
    unit = tall / max(2.0 * total / n, most, 1)
    bars = "".join(
        f"M{left + k * wide:.1f} {bottom:g}v{-count * unit:.1f}h{0.86 * wide:.1f}V{bottom:g}z"
        for k, count in enumerate(counts)
        if count
    )
    parts = [
        axes.label(left, top + 14, name, "small"),
        f'<path class="f0" d="{bars}">{axes.tip(f"{name}: kept {total:,} times")}</path>',
        axes.horizontal("axis", bottom, left, left + PANEL_WIDTH),
        axes.horizontal("rule", bottom - total / n * unit, left, left + PANEL_WIDTH),
    ]
    return "".join(parts)


def draw_heat(drawing: Heat) -> Sketch:
    """Return a map of shares, one row per name."""
    left = min(160.0, 14 + axes.LETTER * max((len(name) for name in drawing.names), default=0))
    key, top = axes.colour_bar([0.0, 1.0], drawing.value_label)
    wide = (WIDTH - RIGHT - left) / max(len(drawing.columns), 1)
    bottom = top + 8 + CELL * len(drawing.names)
    parts = [key]
    for row, (name, cells) in enumerate(zip(drawing.names, drawing.cells, strict=True)):
        y = top + 8 + row * CELL
        parts.append(axes.label(left - 6, y + 14, axes.cut(name, 18), "end"))
        parts += [
            axes.cell(left + i * wide, y, wide, value, f"{name}, {drawing.x_label} {column}: {value:.1%}", CELL - 1)
            for i, (column, value) in enumerate(zip(drawing.columns, cells, strict=True))
            if value is not None
        ]
    every = max(len(drawing.columns) // 6, 1)
    named = list(enumerate(drawing.columns))[::every]
    parts += [axes.label(left + (i + 0.5) * wide, bottom + 16, column, "middle") for i, column in named]
    parts.append(axes.label((left + WIDTH - RIGHT) / 2, bottom + BOTTOM - 6, drawing.x_label, "middle"))
    return Sketch("".join(parts), bottom + BOTTOM)
