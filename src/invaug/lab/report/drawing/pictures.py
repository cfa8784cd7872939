"""Figures as PNG for papers and slides, drawn by matplotlib from the same data; the page itself needs none of it."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from functools import singledispatch
from importlib.util import find_spec
from typing import Any

from invaug.lab.report.drawing.figures import Bars, Figure, Heat, Histograms, Lines, Scatter
from invaug.lab.report.drawing.style import LIGHT
from invaug.lab.report.drawing.svg import MOST_NAMED

DASHES = ("-", "--", ":", "-.")
INCHES, DPI = (6.4, 4.0), 200
MISSING = "PNG left out: matplotlib is not installed (pip install 'invaug[lab]'); every figure is there as SVG"


def available() -> bool:
    """Whether there is something to draw PNGs with."""
    return find_spec("matplotlib") is not None


def png(figure: Figure) -> bytes:
    """Return a figure as PNG; no window, no state that outlives the call."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    drawing = figure.drawing
    rows = -(-len(drawing.panels) // 3) if isinstance(drawing, Histograms) else 1
    names = len(drawing.names) if isinstance(drawing, Bars | Heat) else 0
    canvas = Canvas(figsize=(INCHES[0], max(INCHES[1], 1.1 * rows, 0.32 * names + 1)), dpi=DPI, layout="constrained")
    FigureCanvasAgg(canvas)
    canvas.suptitle(_literal(figure.title), fontsize=11)
    _draw(drawing, canvas)
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a letter no font here has is drawn as a box
        canvas.savefig(file, format="png")
    return file.getvalue()


def _literal(text: str) -> str:
    return text.replace("$", r"\$")  # a name between two dollars would be typeset, or fail to be


def _hue(i: int) -> str:
    return LIGHT[f"c{i % 8}"]


@singledispatch
def _draw(drawing: object, canvas: Any) -> None:
    raise TypeError(f"nothing draws a {type(drawing).__name__}")


@_draw.register
def _lines(drawing: Lines, canvas: Any) -> None:
    axes = canvas.add_subplot()
    named: set[str] = set()
    for series in drawing.series:
        name = ", ".join(filter(None, [series.group, series.kind])) or series.label
        label = "" if name in named or len(named) >= MOST_NAMED else _literal(name)
        named.add(name)
        if len(named) == MOST_NAMED + 1 and not label:
            label = "and more"
        x, y = zip(*((x, float("nan") if y is None else y) for x, y in series.points), strict=True)
        marker = "o" if len(x) == 1 else ""
        axes.plot(x, y, DASHES[series.dash % 4], color=_hue(series.colour), label=label or None, marker=marker)
    for rule in drawing.rules:
        axes.axhline(rule.at, color=LIGHT["soft"], ls="--", lw=0.8)
        axes.annotate(_literal(rule.label), (1, rule.at), xycoords=("axes fraction", "data"), ha="right", va="bottom")
    _finish(axes, drawing.x_label, drawing.y_label, len(named) > 1, percent=axes.yaxis if drawing.percent else None)


@_draw.register
def _bars(drawing: Bars, canvas: Any) -> None:
    axes, n = canvas.add_subplot(), len(drawing.columns)
    for i, (name, values) in enumerate(drawing.columns):
        places = [row + (i - (n - 1) / 2) * 0.8 / n for row in range(len(values))]
        fills = [_hue(c) for c in drawing.colours] or _hue(i)
        axes.barh(places, [value or 0.0 for value in values], 0.8 / n, color=fills, label=_literal(name))
    for row, ends in enumerate(drawing.whiskers):
        if ends:
            axes.plot(ends, (row, row), "|-", color=LIGHT["ink"], lw=1)
    if drawing.rule:
        axes.axvline(drawing.rule.at, color=LIGHT["soft"], ls="--", lw=0.8)
    axes.set_yticks(range(len(drawing.names)), [_literal(name) for name in drawing.names])
    axes.invert_yaxis()
    _finish(axes, drawing.x_label, "", n > 1, percent=axes.xaxis if drawing.percent else None)


@_draw.register
def _histograms(drawing: Histograms, canvas: Any) -> None:
    rows = -(-len(drawing.panels) // 3)
    for i, (name, counts) in enumerate(drawing.panels, 1):
        axes = canvas.add_subplot(rows, 3, i)
        axes.bar(range(len(counts)), counts, color=_hue(0))
        axes.axhline(sum(counts) / max(len(counts), 1), color=LIGHT["soft"], ls="--", lw=0.8)
        axes.set_title(_literal(name), fontsize=8)
        axes.tick_params(labelsize=6)


@_draw.register
def _scatter(drawing: Scatter, canvas: Any) -> None:
    axes = canvas.add_subplot()
    for point in drawing.points:
        if point.interval:
            axes.plot((point.x, point.x), point.interval, "_-", color=LIGHT["ink"], lw=1, zorder=1)
    if drawing.joined:
        axes.plot(*zip(*drawing.joined, strict=True), color=LIGHT["soft"], lw=0.8, zorder=1)
    shaded = all(point.value is not None for point in drawing.points) and not drawing.legend
    shades: Any = [point.value for point in drawing.points] if shaded else [_hue(p.colour) for p in drawing.points]
    dots = axes.scatter([p.x for p in drawing.points], [p.y for p in drawing.points], c=shades, s=40, zorder=2)
    for name, i in drawing.legend:
        axes.scatter([], [], color=_hue(i), label=_literal(name))
    if shaded:
        canvas.colorbar(dots, label=_literal(drawing.value_label))
    _finish(axes, drawing.x_label, drawing.y_label, bool(drawing.legend), axes.yaxis if drawing.percent else None)


@_draw.register
def _heat(drawing: Heat, canvas: Any) -> None:
    axes = canvas.add_subplot()
    cells = [[float("nan") if value is None else value for value in row] for row in drawing.cells]
    shown = axes.imshow(cells, aspect="auto", vmin=0, vmax=1)
    axes.set_yticks(range(len(drawing.names)), [_literal(name) for name in drawing.names])
    canvas.colorbar(shown, label=_literal(drawing.value_label))
    _finish(axes, drawing.x_label, "", False, None)


def _finish(axes: Any, x_label: str, y_label: str, legend: bool, percent: Any) -> None:
    axes.set_xlabel(_literal(x_label))
    axes.set_ylabel(_literal(y_label))
    if legend:  # below the axes, where no line can be
        handles, labels = axes.get_legend_handles_labels()
        columns = max(min(len(labels), int(90 / (max(map(len, labels)) + 8))), 1)
        axes.figure.legend(handles, labels, fontsize=7, loc="outside lower center", ncols=columns, frameon=False)
    if percent is not None:
        said: Callable[[float, int], str] = lambda value, _: f"{100 * value:g} %"  # noqa: E731
        percent.set_major_formatter(said)
