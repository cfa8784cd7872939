"""evaluation.json as parts of a document, for page and terminal: laws, operations by level, calibration, classes."""

from collections import defaultdict
from collections.abc import Mapping
from itertools import islice
from statistics import fmean
from typing import Any

from invaug.lab.report import values
from invaug.lab.report.document import Document, Figure, Heat, Part, Point, Scatter, Section, Table, Tile
from invaug.lab.report.runs import Run
from invaug.lab.report.values import Found, cells_in, decimal, number, percent, rows_in, short, table_in, whole

N_CLASSES = 10  # classes shown, the worst first
LAWS = {"uniform": "uniform draws", "lambda_c": "λ_c", "worst": "the worst draw"}
COUNTED = ("accuracy", "images")
SHARES = ("confidence", "clean accuracy", "accuracy", "right under all", "right under nearly all", "from", "to")
"""Columns that people read in percent."""


def sections(run: Run, ending: str, name: str) -> list[Section]:
    """Return what `invaug evaluate` measured, if it did; see `assemble` for the ending and the name."""
    title = f"What the model can and cannot do{name}"
    return [Section(title, parts(run.evaluation, ending))] if run.evaluation else []


def document(evaluation: Found) -> Document:
    """Return an evaluation as `invaug evaluate` prints it."""
    text = {key: short(evaluation.get(key)) for key in ("method", "preset", "model", "data", "set", "draws")}
    clean, epsilon = table_in(evaluation.get("clean")), number(evaluation.get("epsilon"))
    tiles = (
        Tile("trained", f"{text['method']} ({text['preset']} preset), {text['model']}"),
        Tile("test images", f"{whole(evaluation.get('images')):,} of {text['data']}"),
        Tile("accuracy", percent(clean.get("accuracy"))),
        Tile("loss", decimal(clean.get("loss"))),
        Tile("calibration error", percent(evaluation.get("calibration_error"))),
    )
    drawn = f", {text['draws']} draws per image" if "transformed" in evaluation else ""
    level = "" if epsilon is None else f", epsilon {epsilon:g}"
    section = Section(f"Evaluated with the {text['set']} set{drawn}{level}", parts(evaluation))
    return Document(str(evaluation.get("run")), tiles=tiles, sections=(section,))


def parts(evaluation: Found, ending: str = "") -> tuple[Part, ...]:
    """Return the tables and figures of an evaluation; the ending tells their files from those of other runs."""
    laws = table_in(evaluation.get("transformed"))
    rows = {"clean images": evaluation.get("clean"), **{name: laws.get(key) for key, name in LAWS.items()}}
    under = tuple((name, *cells_in(row, "accuracy", "loss")) for name, row in values.tables_in(rows).items())
    columns = ("under", "accuracy", "loss")
    made = (
        Table("Test images, clean and transformed", columns, under, f"evaluation{ending}-1", SHARES) if under else None,
        level_map(evaluation, f"op-by-level{ending}", "Accuracy under each operation and level"),
        _calibration(evaluation, f"calibration{ending}"),
        worst_classes(evaluation, ("class", *COUNTED), COUNTED, 1, f"evaluation{ending}-2"),
    )
    return tuple(part for part in made if part)


def level_map(found: Found, key: str, title: str, unit: str = "level") -> Figure | None:
    """Return the accuracy by operation and level as a map; an absent level does the same as the one before it."""
    table = accuracy_by_level(found)
    if not table:
        return None
    columns = tuple(map(str, range(max(max(levels) for levels in table.values()) + 1)))
    cells = tuple(tuple(_at_or_before(levels, i) for i in range(len(columns))) for levels in table.values())
    lowest, name, level = min((value, name, level) for name in table for level, value in table[name].items())
    reading = f"Lowest: {name} at {unit} {level}, accuracy {lowest:.1%}."
    rows = tuple((name, *row) for name, row in zip(table, cells, strict=True))
    numbers = Table(title, ("operation", *columns), rows, percent=columns)
    return Figure(key, title, Heat(unit, tuple(table), columns, cells, "accuracy"), reading, numbers)


def accuracy_by_level(found: Found) -> dict[str, dict[int, float]]:
    """Return the accuracy of every operation at each of its levels, averaged over both signs."""
    table: dict[str, dict[int, float]] = {}
    for name, rows in islice(table_in(found.get("levels")).items(), values.MAX_OPS):
        signs: dict[int, list[float]] = defaultdict(list)
        for row in rows_in(rows):
            level, accuracy = whole(row.get("level")), values.share(row.get("accuracy"))
            if accuracy is not None and level < values.MAX_LEVELS:
                signs[level].append(accuracy)
        if signs:
            table[short(name, 30)] = {level: fmean(both) for level, both in signs.items()}
    return table


def _at_or_before(levels: Mapping[int, float], level: int) -> float | None:
    known = [each for each in levels if each <= level]
    return levels[max(known)] if known else None


def _calibration(evaluation: Found, key: str) -> Figure | None:
    columns = ("confidence", "accuracy", "images")
    bins: list[Any] = [tuple(cells_in(row, *columns)) for row in rows_in(evaluation.get("calibration"))]
    known = [(c, a, n) for c, a, n in bins if c is not None and a is not None and n]
    if not known:
        return None
    total = sum(n for _, _, n in known)
    gap = sum(n * (c - a) for c, a, n in known) / total
    error = sum(n * abs(c - a) for c, a, n in known) / total
    title, side = "Calibration on the test images", "over" if gap > 0 else "under"
    points = tuple(Point(c, a, f"confidence {c:.1%}: right {a:.1%} of {n:,} images", float(n)) for c, a, n in known)
    drawing = Scatter("confidence", "accuracy", points, "images", joined=((0.0, 0.0), (1.0, 1.0)))
    reading = f"Expected calibration error {error:.1%}; on average {side}confident by {abs(gap):.1%}."
    return Figure(key, title, drawing, reading, Table(title, columns, tuple(known), percent=SHARES))


def worst_classes(found: Found, columns: tuple[str, ...], keys: tuple[str, ...], at: int, file: str) -> Table | None:
    """Return the classes with the lowest number in a column, where the keys fill the columns after the name."""
    rows: list[Any] = [(name, *cells_in(row, *keys)) for name, row in values.tables_in(found.get("classes")).items()]
    known = sorted((row for row in rows if row[at] is not None), key=lambda row: (row[at], row[1] or 0.0))[:N_CLASSES]
    more = f" ({len(known)} of {len(rows)})" if len(rows) > len(known) else ""
    return Table(f"Classes, worst first{more}", columns, tuple(known), file, SHARES) if known else None
