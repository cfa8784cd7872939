"""Figures as data: what is drawn, with a sentence that reads it and the table behind it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from invaug.lab.report.tables import Table

MOST_POINTS, FEWEST_POINTS = 400, 50  # of a line: more than a screen shows, and enough for its shape
MOST_IN_ALL = 8000  # points of a figure, so that a page of twenty runs stays under five megabytes

Points = tuple[tuple[float, float | None], ...]


@dataclass(frozen=True)
class Series:
    """A line: its colour says which group, its dash which kind; `run` lets the reader switch it off."""

    label: str
    points: Points
    colour: int = 0
    dash: int = 0
    group: str = ""
    kind: str = ""
    run: int | None = None
    intervals: tuple[tuple[float, float] | None, ...] = ()
    """Of the points, drawn as whiskers."""


@dataclass(frozen=True)
class Rule:
    """A horizontal line that means something: epsilon, zero, the most there can be."""

    at: float
    label: str


@dataclass(frozen=True)
class Lines:
    """Numbers over epochs."""

    y_label: str
    series: Sequence[Series]
    rules: tuple[Rule, ...] = ()
    percent: bool = False
    x_label: str = "epoch"


@dataclass(frozen=True)
class Bars:
    """Horizontal bars, one or two per name; the legend names the columns, whiskers are intervals."""

    x_label: str
    names: tuple[str, ...]
    columns: tuple[tuple[str, tuple[float | None, ...]], ...]
    rule: Rule | None = None
    percent: bool = False
    whiskers: tuple[tuple[float, float] | None, ...] = ()
    colours: tuple[int, ...] = ()


@dataclass(frozen=True)
class Histograms:
    """One small histogram per name; the dashed line is what uniform draws would give."""

    panels: tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True)
class Point:
    """A dot: its place, its label, the value that colours it, the interval of its height."""

    x: float
    y: float
    label: str
    value: float | None = None
    interval: tuple[float, float] | None = None
    colour: int = 0


@dataclass(frozen=True)
class Scatter:
    """Dots, joined from left to right if asked."""

    x_label: str
    y_label: str
    points: tuple[Point, ...]
    value_label: str = ""
    joined: tuple[tuple[float, float], ...] = ()
    legend: tuple[tuple[str, int], ...] = ()
    percent: bool = True


@dataclass(frozen=True)
class Heat:
    """A map of shares between 0 and 1: one row per name, one cell per column; None stays empty."""

    x_label: str
    names: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[tuple[float | None, ...], ...]
    value_label: str


Drawing = Lines | Bars | Histograms | Scatter | Heat


@dataclass(frozen=True)
class Figure:
    """A figure of the page: a key that names its files, a title, what to draw, how to read it, its numbers."""

    key: str
    title: str
    drawing: Drawing
    reading: str
    table: Table


def thin_lines(lines: Sequence[Series]) -> tuple[tuple[Series, ...], int]:
    """Return the lines with every n-th point and the last one, and n."""
    most = max(min(MOST_POINTS, MOST_IN_ALL // max(len(lines), 1)), FEWEST_POINTS)
    longest = max((len(line.points) for line in lines), default=0)
    stride = max(-(-longest // most), 1)
    return tuple(replace(line, points=_every(line.points, stride)) for line in lines), stride


def _every(points: Points, stride: int) -> Points:
    return points if stride == 1 else (*points[: len(points) - 1 : stride], points[-1])


def table_of(lines: Lines, title: str) -> Table:
    """Return the numbers of a line figure: one row per epoch, one column per line."""
    rows: dict[float, list[float | None]] = {}
    for i, series in enumerate(lines.series):
        for x, y in series.points:
            rows.setdefault(x, [None] * len(lines.series))[i] = y
    columns = (lines.x_label, *(series.label for series in lines.series))
    return Table(title, columns, tuple((int(x), *rows[x]) for x in sorted(rows)))
