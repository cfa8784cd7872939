"""What evaluation.json adds: accuracy by operation and level, calibration, worst classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from invaug.lab.report.document import Section
from invaug.lab.report.drawing.figures import Figure, Heat, Point, Scatter
from invaug.lab.report.runs import Run
from invaug.lab.report.tables import Table
from invaug.lab.report.values import number, rows_in, short, table_in, whole

N_CLASSES = 10  # classes shown, the worst first
MOST_RUNS = 6  # runs whose evaluation is shown
LAWS = {"uniform": "uniform draws", "lambda_c": "λ_c", "worst": "the worst draw"}


def sections(runs: Sequence[Run]) -> list[Section]:
    """Return one section with the figures and tables of the first few runs that were evaluated."""
    evaluated = [run for run in runs if run.evaluation][:MOST_RUNS]
    endings = [f"-{i}" if len(runs) > 1 else "" for i in range(1, len(evaluated) + 1)]
    made = [figure for run, end in zip(evaluated, endings, strict=True) for figure in figures(run, end)]
    listed = [
        replace(table, title=f"{run.name}: {table.title}" if end else table.title, key=f"evaluation{end}-{i}")
        for run, end in zip(evaluated, endings, strict=True)
        for i, table in enumerate(tables(run), 1)
    ]
    return [Section("What the model can and cannot do", (*made, *listed))] if made or listed else []


def figures(run: Run, ending: str = "") -> list[Figure]:
    """Return the figures of one run's evaluation."""
    where = f": {run.name}" if ending else ""
    made = (_heat(run.evaluation or {}, ending, where), _calibration(run.evaluation or {}, ending, where))
    return [figure for figure in made if figure is not None]


def tables(run: Run) -> list[Table]:
    """Return the tables of one run's evaluation."""
    found = run.evaluation or {}
    return [table for table in (_laws(found), _hardest(found), _classes(found)) if table is not None]


def _by_level(found: Mapping[str, Any]) -> dict[str, dict[int, float]]:
    """Return the accuracy of every operation at every level, both signs of a level averaged."""
    result: dict[str, dict[int, float]] = {}
    for name, rows in table_in(found.get("levels")).items():
        pairs = [(whole(row.get("level")), number(row.get("accuracy"))) for row in rows_in(rows)]
        known = [(level, value) for level, value in pairs if value is not None and level < 1000]
        levels = dict.fromkeys(level for level, _ in known)
        means = {level: [value for at, value in known if at == level] for level in levels}
        result[short(name, 30)] = {level: sum(values) / len(values) for level, values in means.items()}
    return {name: levels for name, levels in result.items() if levels}


def _heat(found: Mapping[str, Any], ending: str, where: str) -> Figure | None:
    table = _by_level(found)
    if not table:
        return None
    highest = max(max(levels) for levels in table.values())
    cells = tuple(_every_level(levels, highest) for levels in table.values())
    drops = {name: min(levels.values()) for name, levels in table.items()}
    hard = min(drops, key=lambda name: drops[name])
    at = min(table[hard], key=lambda level: table[hard][level])
    title = f"Accuracy under each operation and level{where}"
    columns = tuple(map(str, range(highest + 1)))
    rows = tuple((name, *row) for name, row in zip(table, cells, strict=True))
    varied = [name for name in drops if len(table[name]) > 1] or list(drops)
    easy = max(varied, key=lambda name: drops[name])
    reading = (
        f"Hardest: {hard} at level {at}, accuracy {drops[hard]:.1%}; easiest of those with levels: {easy}, "
        f"{drops[easy]:.1%} at its worst."
    )
    drawing = Heat("level", tuple(table), columns, cells, "accuracy")
    return Figure(f"op-by-level{ending}", title, drawing, reading, Table(title, ("operation", *columns), rows))


def _every_level(levels: Mapping[int, float], highest: int) -> tuple[float | None, ...]:
    """Return the accuracy at each level; one that is not listed does the same as the one before, so it was not run."""
    found: list[float | None] = []
    for level in range(highest + 1):
        found.append(levels.get(level, found[-1] if found else None))
    return tuple(found)


def _calibration(found: Mapping[str, Any], ending: str, where: str) -> Figure | None:
    bins = [(number(row.get("confidence")), number(row.get("accuracy")), whole(row.get("images")))
            for row in rows_in(found.get("calibration"))]  # fmt: skip
    known = [(c, a, n) for c, a, n in bins if c is not None and a is not None and n]
    if not known:
        return None
    total = sum(n for _, _, n in known)
    gap = sum(n * (c - a) for c, a, n in known) / total
    error = sum(n * abs(c - a) for c, a, n in known) / total
    side = "more" if gap > 0 else "less"
    title = f"Calibration on the test images{where}"
    points = tuple(Point(c, a, f"confidence {c:.1%}: right {a:.1%} of {n:,} images", float(n)) for c, a, n in known)
    drawing = Scatter("confidence", "accuracy", points, "images", joined=((0.0, 0.0), (1.0, 1.0)))
    reading = f"Expected calibration error {error:.1%}; on average {side} confident than right, by {abs(gap):.1%}."
    table = Table(title, ("confidence", "accuracy", "images"), tuple(known))
    return Figure(f"calibration{ending}", title, drawing, reading, table)


def _laws(found: Mapping[str, Any]) -> Table | None:
    clean, changed = table_in(found.get("clean")), table_in(found.get("transformed"))
    rows = {"clean images": clean, **{name: table_in(changed.get(key)) for key, name in LAWS.items()}}
    known = tuple((name, number(row.get("accuracy")), number(row.get("loss"))) for name, row in rows.items() if row)
    return Table("Test images, clean and under the set", ("under", "accuracy", "loss"), known) if known else None


def _hardest(found: Mapping[str, Any]) -> Table | None:
    cells = [(name, level, value) for name, levels in _by_level(found).items() for level, value in levels.items()]
    worst = tuple(sorted(cells, key=lambda cell: cell[2])[:N_CLASSES])
    return (
        Table("Transformations this model finds hardest", ("operation", "level", "accuracy"), worst) if worst else None
    )


def _classes(found: Mapping[str, Any]) -> Table | None:
    rows = [(short(name, 40), number(row.get("accuracy")), whole(row.get("images")))
            for name, row in table_in(found.get("classes")).items() if isinstance(row, dict)]  # fmt: skip
    known = sorted((row for row in rows if row[1] is not None), key=lambda row: row[1] or 0.0)[:N_CLASSES]
    more = f" ({len(known)} of {len(rows)})" if len(rows) > len(known) else ""
    return Table(f"Classes, worst first{more}", ("class", "accuracy", "images"), tuple(known)) if known else None
