"""What insights.json adds: gamma of every symmetry with its interval, how far it is learned, a set to train with."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from invaug.lab.insights.thresholds import FULLY, MOSTLY, VERDICTS
from invaug.lab.report.document import Bars, Cell, Document, Figure, Rule, Section, Table, Tile
from invaug.lab.report.read import read_document
from invaug.lab.report.values import MAX_OPS, Found, interval, list_in, number, rows_in, short, table_in
from invaug.lab.run.files import INSIGHTS


def with_insights(content: Document, folders: Sequence[Path]) -> Document:
    """Return the page of an insights folder: what the trainings under it say stands first, then the trainings."""
    if len(folders) != 1 or not (folders[0] / INSIGHTS).is_file():
        return content
    found, notes = read_document(folders[0], INSIGHTS)
    rows = families_in(found)
    if not found or not rows:
        return replace(content, notes=(*notes, *content.notes))
    readings = [short(row.get("reading", ""), 400) for row in rows]
    first = Section("How fully each symmetry is learned", (gammas(rows), *readings, *_suggested(found)))
    return replace(
        content,
        title=f"Which symmetries {short(found.get('data', 'the data'), 60)} shows a network",
        verdict=verdict(rows),
        notes=(*notes, *_unchanged(found), *content.notes),
        tiles=tuple(_tiles(found, rows)),
        sections=(first, *content.sections),
    )


def families_in(found: Any) -> list[Found]:
    """Return the families with a gamma, the smallest first; none for anything that is not an answer."""
    rows = [row for row in rows_in(table_in(found).get("families"))[:MAX_OPS] if number(row.get("gamma")) is not None]
    return sorted(rows, key=lambda row: number(row.get("gamma")) or 0.0)


def verdict(rows: Sequence[Found]) -> str:
    """Return in one sentence which symmetries are learned, mostly learned and not learned."""
    kinds = {kind: [_name(row) for row in rows if row.get("verdict") == kind] for kind in VERDICTS}
    text = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in kinds.items() if names)
    return f"{text[:1].upper()}{text[1:]}."


def gammas(rows: Sequence[Found]) -> Figure:
    """Return the gamma of each family as a bar with its interval over seeds."""
    title = "γ of each symmetry at the end of training"
    names = tuple(_name(row) for row in rows)
    values = tuple(number(row.get("gamma")) or 0.0 for row in rows)
    ends = tuple(interval(row.get("interval")) for row in rows)
    reading = (
        f"Smallest γ, the symmetry the network has learned most fully: {names[0]}, {values[0]:.2f}; largest: "
        f"{names[-1]}, {values[-1]:.2f}. γ is the gap that is left between transformed and clean loss on training "
        "images, as a share of the loss of a guess. Whiskers are 95 % intervals over seeds."
    )
    cells: tuple[tuple[Cell, ...], ...] = tuple(
        (name, value, *(end or (None, None)), short(row.get("verdict", ""), 20), number(row.get("factor")))
        for name, value, end, row in zip(names, values, ends, rows, strict=True)
    )
    table = Table(title, ("family", "γ", "from", "to", "verdict", "learned up to this part of its range"), cells)
    drawing = Bars("γ", names, (("γ", values),), Rule(MOSTLY, "mostly learned up to here"), whiskers=ends)
    return Figure("symmetry-gammas", title, drawing, reading, table)


def _suggested(found: Found) -> list[Table]:
    entries = list(table_in(found.get("suggested")).items())[:MAX_OPS]
    rows = tuple((short(name, 30), *(interval(ends) or (None, None))) for name, ends in entries)
    title = "Suggested set (suggested.toml, for invaug train --config)"
    return [Table(title, ("operation", "from", "to"), rows, "suggested")] if rows else []


def _tiles(found: Found, rows: Sequence[Found]) -> list[Tile]:
    accuracies = [value for value in map(number, list_in(found.get("clean_accuracy"))) if value is not None]
    limits = (f"γ up to {FULLY:g}", f"γ up to {MOSTLY:g}", f"γ above {MOSTLY:g}")
    tiles = [
        Tile(kind, str(sum(row.get("verdict") == kind for row in rows)), f"of {len(rows)} families, {limit}")
        for kind, limit in zip(VERDICTS, limits, strict=True)
    ]
    if accuracies:
        mean, n = fmean(accuracies), len(accuracies)
        tiles.append(Tile("held-out accuracy", f"{mean:.1%}", f"{n} seed{'s' * (n > 1)}, images as they are"))
    return tiles


def _unchanged(found: Found) -> list[str]:
    names = [short(name, 40) for name in list_in(found.get("unchanged"))]
    return [f"families that change none of the images: {', '.join(names)}"] if names else []


def _name(row: Found) -> str:
    return short(row.get("name", "?"), 40)
