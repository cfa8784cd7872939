"""The figures of the page: what the rows of an experiment show, as drawings of the report."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean

from invaug.lab.report.document import Bars, Drawing, Figure, Heat, Lines, Series
from invaug.lab.reproduce.cells import BarChart, Cell, LineChart, expand
from invaug.lab.reproduce.outcome import MEASURES, Outcome

X_LABELS = {"epsilon": "ε", "per_class": "images per class"}
Drawn = Iterator[tuple[str, str, Drawing]]
"""Keys, titles and drawings."""
Interval = tuple[float, float] | None


def figures(found: Outcome) -> list[Figure]:
    """Return the figures of an experiment at the small scale that have something to show."""
    if found.scale != "small" or not found.rows:
        return []
    name, experiment = found.experiment.name, found.experiment
    drawn: list[tuple[str, str, Drawing]] = [(c.key, c.title, _lines(found, c)) for c in experiment.lines]
    drawn += [(c.key, c.title, _bars(found, c)) for c in experiment.bars]
    drawn += [each for kept in experiment.keeps for each in KEPT[kept](found)]
    return [Figure(f"{name}-{key}", title, drawing, "", found.table()) for key, title, drawing in drawn]


def _position(cell: Cell, setting: str) -> float:
    """Return where a cell lies on the x axis."""
    return float(cell.settings.get("n_steps", 0) + 1 if setting == "proposals" else cell.settings[setting])


def _point(found: Outcome, cell: str, measure: str) -> tuple[float | None, Interval]:
    """Return the mean of a cell and its interval, as they are shown."""
    estimate, factor = found.estimate(cell, measure), MEASURES[measure].factor
    if estimate is None:
        return None, None
    ends = estimate.interval
    return factor * estimate.mean, (factor * ends[0], factor * ends[1]) if ends else None


def _lines(found: Outcome, chart: LineChart) -> Lines:
    """Return means and intervals over seeds, along a setting."""
    cells = {cell.label: cell for cell in found.plan.cells}
    lines = []
    for i, (name, pattern) in enumerate(chart.series):
        points = [
            (_position(cells[label], chart.x), *_point(found, label, measure))
            for label, measure in expand(pattern, list(cells))
        ]
        there = [(x, mean, interval) for x, mean, interval in points if mean is not None]
        course = tuple((x, mean) for x, mean, _ in there)
        lines.append(Series(name, course, i, 0, name, intervals=tuple(interval for *_, interval in there)))
    return Lines(chart.y, tuple(line for line in lines if line.points), x_label=X_LABELS.get(chart.x, chart.x))


def _bars(found: Outcome, chart: BarChart) -> Bars:
    """Return means and intervals over seeds of some cells, named by what the pattern leaves open."""
    keys = expand(chart.of, found.cells)
    names = tuple(cell.removeprefix(chart.of.partition("*")[0]) for cell, _ in keys)
    means, intervals = zip(*(_point(found, *key) for key in keys), strict=True)
    return Bars(chart.x, names, ((chart.x, means),), whiskers=intervals)


def _curves(found: Outcome) -> Drawn:
    """γ over epochs, the mean over seeds, a line per cell."""
    lines = []
    for i, cell in enumerate(found.cells):
        curves = [row.more["curve"] for row in found.rows_of(cell) if "curve" in row.more]
        if curves:
            means = _means([[gammas[0] for gammas in curve["gamma"]] for curve in curves])
            points = tuple(zip(map(float, curves[0]["epoch"]), means, strict=True))
            lines.append(Series(cell, points, i, 0, cell))
    yield "gamma", "γ over epochs, mean over seeds", Lines("γ", tuple(lines))


def _means(rows: Sequence[Sequence[float]]) -> list[float]:
    """Return the mean over seeds of each number in a row."""
    return [fmean(values) for values in zip(*rows, strict=True)]


def _frequencies(found: Outcome) -> Drawn:
    """Bars of each operation's share in the first and the last epoch, for the shortest and the longest chain."""
    for cell in (found.cells[1], found.cells[-1]):
        kept = [row.more["kept"] for row in found.rows_of(cell) if "kept" in row.more]
        if not kept:
            continue
        shares = {end: {op: fmean(each[end][op] for each in kept) for op in kept[0][end]} for end in ("first", "last")}
        ops = sorted(shares["last"], key=lambda op: -shares["last"][op])
        columns = tuple((f"{end} epoch", tuple(100 * values[op] for op in ops)) for end, values in shares.items())
        yield cell, f"Share of each operation (%), {cell}", Bars("kept (%)", tuple(ops), columns)


def _levels(found: Outcome) -> Drawn:
    """A map of how often each part of the levels was kept in the last epoch."""
    for cell in found.cells:
        kept = [row.more["levels"]["last"] for row in found.rows_of(cell) if "levels" in row.more]
        if not kept:
            continue
        means = {op: tuple(_means([levels[op] for levels in kept])) for op in kept[0]}
        n_bins = len(next(iter(means.values())))
        columns = tuple(f"{i + 1}/{n_bins}" for i in range(n_bins))
        x = "part of the levels, the largest last"
        drawing = Heat(x, tuple(means), columns, tuple(means.values()), "share of the operation")
        yield cell, f"Where the kept levels lie, last epoch, {cell}", drawing


KEPT: Mapping[str, Callable[[Outcome], Drawn]] = {"curve": _curves, "kept": _frequencies, "levels": _levels}
"""What is drawn of the parts of the results that are no numbers."""
