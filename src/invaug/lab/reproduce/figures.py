"""The figures of the page: what the rows of an experiment show, as drawings of the report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from invaug.lab.report.drawing.figures import Bars, Drawing, Figure, Heat, Lines, Series
from invaug.lab.reproduce import small
from invaug.lab.reproduce.outcome import DONE, MEASURES, Outcome, Row

Places = Mapping[str, float]
"""Cells and where they lie on the x axis."""
LEVELS: Places = {f"constrained-{level:g}": level for level in small.LEVELS}
UNIFORM: Places = {f"uniform-{level:g}": level for level in small.UNIFORM_LEVELS}
CHAINS: Places = {f"{n}-transitions": n + 1 for n in small.STEPS}
SIZES: Mapping[str, Places] = {
    method: {f"{size}-{method}": size for size in small.SIZES} for method in ("constrained", "trivial")
}
PER_CENT = 100.0


def figures(found: Outcome) -> list[Figure]:
    """Return the figures of an experiment at the small scale that have something to show."""
    draw = DRAWN.get(found.experiment.name)
    if draw is None or found.scale != "small":
        return []
    return [
        Figure(f"{found.experiment.name}-{key}", title, drawing, "", found.table())
        for key, title, drawing in draw(found)
        if _shows(drawing)
    ]


Drawn = Iterator[tuple[str, str, Drawing]]


def _shows(drawing: Drawing) -> bool:
    if isinstance(drawing, Lines):
        return any(series.points for series in drawing.series)
    if isinstance(drawing, Bars):
        return any(value is not None for _, values in drawing.columns for value in values)
    return bool(getattr(drawing, "cells", ()))


def _course(found: Outcome, number: str, places: Places, name: str, i: int) -> Series:
    """Return means and intervals over seeds, along the x axis."""
    factor = MEASURES[number].factor
    ends = [(x, found.estimate(cell, number)) for cell, x in places.items()]
    there = [(x, estimate) for x, estimate in ends if estimate]
    points = tuple((float(x), factor * estimate.mean) for x, estimate in there)
    intervals = tuple(
        (factor * estimate.interval[0], factor * estimate.interval[1]) if estimate.interval else None
        for _, estimate in there
    )
    return Series(name, points, i, 0, name, intervals=intervals)


def _lines(found: Outcome, y: str, x: str, courses: Sequence[tuple[str, Places, str]]) -> Lines:
    series = [_course(found, number, places, name, i) for i, (number, places, name) in enumerate(courses)]
    return Lines(y, tuple(line for line in series if line.points), x_label=x)


def _bars(found: Outcome, number: str, named: Mapping[str, str], title: str) -> Bars:
    """Return means and intervals over seeds of some cells, by the names they get."""
    factor = MEASURES[number].factor
    estimates = [found.estimate(cell, number) for cell in named.values()]
    whiskers = [
        (factor * estimate.interval[0], factor * estimate.interval[1]) if estimate and estimate.interval else None
        for estimate in estimates
    ]
    values = tuple(factor * estimate.mean if estimate else None for estimate in estimates)
    return Bars(title, tuple(named), ((title, values),), whiskers=tuple(whiskers))


def _table_1(found: Outcome) -> Drawn:
    for data in small.SHAPES:
        cells = {method: f"{data}-{method}" for method in small.METHODS}
        yield data, f"Test accuracy, {data}", _bars(found, "test_accuracy", cells, "test accuracy (%)")


def _table_2(found: Outcome) -> Drawn:
    courses = [("test_accuracy", places, method) for method, places in SIZES.items()]
    yield "sizes", "Test accuracy by images a class", _lines(found, "test accuracy (%)", "images a class", courses)


def _epsilon(found: Outcome) -> Drawn:
    names = {"train_error": "training error", "test_error": "test error", "gap": "gap"}
    courses = [(number, LEVELS, name) for number, name in names.items()]
    yield "errors", "Errors and gap against ε", _lines(found, "%", "ε", courses)
    yield "gamma", "γ at the end against ε", _lines(found, "γ", "ε", [("gamma", LEVELS, "γ")])


def _uniform(found: Outcome) -> Drawn:
    both = {"λ_c": {cell: x for cell, x in LEVELS.items() if x in small.UNIFORM_LEVELS}, "uniform": UNIFORM}
    for number, y in (("test_error", "test error (%)"), ("gamma", "γ at the end")):
        yield (
            number.replace("_", "-"),
            f"{y}: λ_c and uniform draws",
            _lines(found, y, "ε", [(number, places, name) for name, places in both.items()]),
        )


def _steps(found: Outcome) -> Drawn:
    losses = [("train_loss", CHAINS, "training loss"), ("test_loss", CHAINS, "test loss")]
    yield "losses", "Losses by proposals a chain", _lines(found, "loss", "proposals", losses)
    yield "entropy", "Entropy of the kept operations", _lines(found, "nats", "proposals", [("entropy", CHAINS, "")])
    yield "gamma", "γ at the end", _lines(found, "γ", "proposals", [("gamma", CHAINS, "γ")])


def _curves(found: Outcome) -> Drawn:
    """γ over epochs, the mean over seeds, a line a cell."""
    lines = []
    for i, cell in enumerate(found.cells):
        curves = [row.more["curve"] for row in _rows(found, cell) if "curve" in row.more]
        if curves:
            means = [fmean(values) for values in zip(*([g[0] for g in c["gamma"]] for c in curves), strict=True)]
            points = tuple(zip(map(float, curves[0]["epoch"]), means, strict=True))
            lines.append(Series(cell, points, i, 0, cell))
    yield "gamma", "γ over epochs, mean over seeds", Lines("γ", tuple(lines))


def _rows(found: Outcome, cell: str) -> list[Row]:
    return [row for row in found.rows if row.cell == cell and row.status == DONE]


def _mean_of(rows: Sequence[Row], read: Callable[[Row], Mapping[str, Any]]) -> dict[str, float]:
    """Return the mean over seeds of each entry of a mapping of numbers."""
    each = [read(row) for row in rows]
    return {name: fmean(found[name] for found in each) for name in each[0]} if each else {}


def _frequencies(found: Outcome) -> Drawn:
    for cell in (found.cells[1], found.cells[-1]):
        rows = [row for row in _rows(found, cell) if "kept" in row.more]
        ends = {end: _mean_of(rows, lambda row, end=end: row.more["kept"][end]) for end in ("first", "last")}  # type: ignore[misc]
        names = sorted(ends["last"], key=lambda name: -ends["last"][name])
        columns = tuple(
            (f"{end} epoch", tuple(PER_CENT * values[name] for name in names)) for end, values in ends.items()
        )
        yield cell, f"Share of each operation (%), {cell}", Bars("kept (%)", tuple(names), columns)


def _levels(found: Outcome) -> Drawn:
    for cell in found.cells:
        rows = [row for row in _rows(found, cell) if "levels" in row.more]
        if not rows:
            continue
        ops = list(rows[0].more["levels"]["last"])
        means = {
            op: [fmean(v) for v in zip(*(row.more["levels"]["last"][op] for row in rows), strict=True)] for op in ops
        }
        n_bins = len(means[ops[0]])
        columns = tuple(f"{i + 1}/{n_bins}" for i in range(n_bins))
        cells = tuple(tuple(means[op]) for op in ops)
        drawing = Heat("part of the levels, the last the largest", tuple(ops), columns, cells, "share of the operation")
        yield cell, f"Where the kept levels lie, last epoch, {cell}", drawing


DRAWN: Mapping[str, Callable[[Outcome], Drawn]] = {
    "table-1": _table_1, "table-2": _table_2, "figure-epsilon": _epsilon, "figure-uniform": _uniform,
    "figure-steps": _steps, "figure-steps-dual": _curves, "figure-dual": _curves, "figure-frequency": _frequencies,
    "figure-levels": _levels,
}  # fmt: skip
