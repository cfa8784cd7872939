"""docs/reproduce.md: every table and figure next to the paper's, from the rows in `results/` alone."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from invaug.lab.report.document import Bars, Drawing, Figure, Heat, Lines, Series
from invaug.lab.report.drawing import svg
from invaug.lab.report.tables import MARKDOWN, to_markdown
from invaug.lab.reproduce import claims, rows
from invaug.lab.reproduce.cells import SCALES, Cell, Chart, Experiment, Scale, expand
from invaug.lab.reproduce.experiments import paper_experiments
from invaug.lab.reproduce.outcome import MEASURES, Outcome

HEAD = Path(__file__).with_name("head.md").read_text(encoding="utf-8")
X_LABELS = {"epsilon": "ε", "per_class": "images per class"}
Drawn = Iterator[tuple[str, str, Drawing]]
"""Keys, titles and drawings."""


def escaped(text: str) -> str:
    """Return a text that Markdown shows as it is, on one line."""
    return MARKDOWN.sub(r"\\\g<0>", " ".join(text.split()))


def draw_figures(results: Path) -> dict[str, str]:
    """Return the figures of the page, as SVG by the names of their files."""
    outcomes = [_outcome(experiment, "small", results) for experiment in paper_experiments().values()]
    drawn = [figure for found in outcomes for figure in figures(found)]
    return {f"{figure.key}.svg": svg.picture(figure) + "\n" for figure in drawn}


def write_page(results: Path) -> str:
    """Return the whole page."""
    return "\n".join([HEAD, *("\n".join(_section(each, results)) for each in paper_experiments().values())])


def _outcome(experiment: Experiment, scale: Scale, results: Path) -> Outcome:
    return Outcome(experiment, scale, rows.read(rows.path_of(results, experiment.name, scale)))


def _section(experiment: Experiment, results: Path) -> Iterator[str]:
    published = experiment.published
    yield from (f"## {experiment.name}: {escaped(experiment.title)}", "")
    spread = f" Its ±: {escaped(published.spread)}." if published.spread else ""
    note = f" Note: {escaped(published.note)}." if published.note else ""
    yield f"Paper, {escaped(published.place)}: {escaped(experiment.found)}.{spread}{note}"
    yield ""
    for scale in SCALES[::-1]:
        yield from _scale(_outcome(experiment, scale, results))


def _scale(found: Outcome) -> Iterator[str]:
    scale, command = found.scale.capitalize(), f"`invaug reproduce {found.experiment.name} --scale {found.scale}`"
    if not found.rows:
        lacks = found.plan.lacks
        yield f"{scale} scale: {f'none: {escaped(lacks)}' if lacks else f'not run yet: {command}'}."
    else:
        yield from (f"{scale} scale, {command}:", "", to_markdown(found.table()))
        for figure in figures(found):
            yield from (f"![{escaped(figure.title)}](reproduce/{figure.key}.svg)", "")
        if verdicts := found.verdicts():
            yield to_markdown(claims.table_of(verdicts))
        yield from (f"- {escaped(note)}" for note in (*found.plan.notes, *found.weak_trials()))
        for row in found.rows:
            if row.status == rows.FAILED:
                yield f"- failed: {escaped(row.cell)}, seed {row.seed}: {escaped(str(row.more.get('reason')))}"
    yield ""


def figures(found: Outcome) -> list[Figure]:
    """Return the figures of an experiment at the small scale that have something to show."""
    if found.scale != "small" or not found.rows:
        return []
    experiment = found.experiment
    drawn = [(c.key, c.title, _lines(found, c) if c.x else _bars(found, c)) for c in experiment.charts]
    drawn += [each for kept in experiment.keeps for each in KEPT[kept](found)]
    return [Figure(f"{experiment.name}-{key}", title, drawing, "", found.table()) for key, title, drawing in drawn]


def _position(cell: Cell, setting: str) -> float:
    """Return where a cell lies on the x axis."""
    return float(cell.settings.get("n_steps", 0) + 1 if setting == "proposals" else cell.settings[setting])


def _point(found: Outcome, cell: str, measure: str) -> tuple[float | None, tuple[float, float] | None]:
    """Return the mean of a cell and its interval, as they are shown."""
    estimate, factor = found.estimate(cell, measure), MEASURES[measure].factor
    if estimate is None:
        return None, None
    ends = estimate.interval
    return factor * estimate.mean, (factor * ends[0], factor * ends[1]) if ends else None


def _lines(found: Outcome, chart: Chart) -> Drawing:
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


def _bars(found: Outcome, chart: Chart) -> Drawing:
    """Return means and intervals over seeds of some cells, named by what the pattern leaves open."""
    pattern = chart.series[0][1]
    keys = expand(pattern, found.cells)
    names = tuple(cell.removeprefix(pattern.partition("*")[0]) for cell, _ in keys)
    means, intervals = zip(*(_point(found, *key) for key in keys), strict=True)
    return Bars(chart.y, names, ((chart.y, means),), whiskers=intervals)


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
