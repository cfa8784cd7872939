"""The page of insights.json: what symmetries cost on held-out images, how far they are learned, a set to train with."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from invaug.lab.insights.thresholds import FULLY, MOSTLY, VERDICTS
from invaug.lab.report.document import Answer, Bars, Cell, Document, Figure, Gallery, Picture, Section, Table, Tile
from invaug.lab.report.read import read_document
from invaug.lab.report.sections.gallery import PICTURE
from invaug.lab.report.values import MAX_OPS, Found, interval, list_in, number, rows_in, short, table_in
from invaug.lab.run.files import INSIGHTS

MEASURES = (
    ("gap", "Held-out accuracy lost under each family", "lost under the family", True),
    ("cost", "Clean held-out accuracy lost by training with each family", "lost on clean images", True),
    ("gamma", "γ of each family at the end of its training", "γ", False),
)
"""Key, title, axis and whether it is a share of the images."""
READINGS = {
    "gap": "The invariance gap: accuracy of the network trained with the family, on held-out images as they are minus "
    "the same images under the family.",
    "cost": "Accuracy on held-out images as they are, of the network trained without any family minus with this one. "
    "Below zero, the family helps.",
    "gamma": "The gap between transformed and clean loss that is left on training images, as a share of the loss of a "
    "guess. It shows what was hard to learn, and is no verdict.",
}
RULE = (
    "Losses are compared with the skill, the accuracy above that of always guessing the most frequent class. A family "
    f"is {VERDICTS[0]} if it loses at most {FULLY:.0%} of the skill, and {VERDICTS[1]} up to {MOSTLY:.0%}, counting "
    "the gap and the cost; it is undecided where the network is near chance, γ still moves or the images are too few."
)


def insights_document(folders: Sequence[Path]) -> Document | None:
    """Return the page of an insights folder; None for anything else."""
    if len(folders) != 1 or not (folders[0] / INSIGHTS).is_file():
        return None
    found, notes = read_document(folders[0], INSIGHTS)
    rows = families_in(found)
    if not found or not rows:
        return None
    return Document(
        title=f"Which symmetries of {short(found.get('data', 'the data'), 60)} a network learns",
        verdict=verdict(rows),
        answers=tuple(_next_step(found)),
        notes=(*notes, *_unchanged(found), *_seeds(found)),
        tiles=tuple(_tiles(found, rows)),
        sections=tuple(section for section in _sections(found, rows) if section.parts),
    )


def _sections(found: Found, rows: Sequence[Found]) -> list[Section]:
    readings = [short(row.get("reading", ""), 400) for row in rows]
    costs, gammas = [_figure(rows, *measure) for measure in MEASURES[:2]], _figure(rows, *MEASURES[2])
    return [
        Section("What each symmetry costs on images that were not trained on", (RULE, _table(rows), *costs)),
        Section("Each family as far as it is learned", _examples(found, rows)),
        Section("Family by family", tuple(readings)),
        Section("A set to train with", tuple(_suggested(found))),
        Section("γ", (gammas,)),
    ]


def families_in(found: Any) -> list[Found]:
    """Return the families with their numbers; none for anything that is not an answer."""
    rows = rows_in(table_in(found).get("families"))[:MAX_OPS]
    return [row for row in rows if _mean(row, "gap") is not None and row.get("verdict") in VERDICTS]


def verdict(rows: Sequence[Found]) -> str:
    """Return in one sentence which symmetries are learned, mostly learned, not learned and undecided."""
    kinds = {kind: [_name(row) for row in rows if row.get("verdict") == kind] for kind in VERDICTS}
    text = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in kinds.items() if names)
    return f"{text[:1].upper()}{text[1:]}."


def _table(rows: Sequence[Found]) -> Table:
    keys = {"clean, without it": "clean_without", "clean, with it": "clean_with", "under it": "accuracy_under"}
    cells: tuple[tuple[Cell, ...], ...] = tuple(
        (_name(row), _verdict(row), _learned(row) or "–", *(_percent(row, key) for key in keys.values()), _gamma(row))
        for row in rows
    )
    return Table("Accuracy on held-out images", ("family", "verdict", "learned up to", *keys, "γ"), cells, "symmetries")


def _percent(row: Found, key: str) -> str:
    """Return a mean over seeds in percent, with the half width of its interval."""
    mean, ends = _mean(row, key), interval(table_in(row.get(key)).get("interval"))
    half = f" ± {50 * (ends[1] - ends[0]):.1f}" if ends else ""
    return "–" if mean is None else f"{100 * mean:.1f}{half} %"


def _gamma(row: Found) -> float | None:
    gamma = _mean(row, "gamma")
    return None if gamma is None else round(gamma, 3)


def _figure(rows: Sequence[Found], key: str, title: str, axis: str, percent: bool) -> Figure:
    """Return a number of each family as a bar with its interval over seeds."""
    names, values = tuple(map(_name, rows)), tuple(_mean(row, key) for row in rows)
    ends = tuple(interval(table_in(row.get(key)).get("interval")) for row in rows)
    whiskers = "Whiskers are 95 % intervals over seeds." if any(ends) else "One seed: there is no interval over seeds."
    cells: tuple[tuple[Cell, ...], ...] = tuple(
        (name, value, *(end or (None, None))) for name, value, end in zip(names, values, ends, strict=True)
    )
    columns = ("family", axis, "from", "to")
    table = Table(title, columns, cells, percent=columns[1:] if percent else ())
    drawing = Bars(axis, names, ((axis, values),), percent=percent, whiskers=ends)
    return Figure(f"symmetry-{key}", title, drawing, f"{READINGS[key]} {whiskers}", table)


def _examples(found: Found, rows: Sequence[Found]) -> tuple[str | Gallery, ...]:
    by_family = {_name(row, "family"): row for row in rows_in(found.get("examples"))[:MAX_OPS]}
    strips = [_strip(row, table_in(by_family.get(_name(row)))) for row in rows]
    shown = tuple(strip for strip in strips if strip)
    said = "An image as it is, and at the ends of the range. Look whether the label still holds."
    return (said, Gallery(shown)) if shown else ()


def _strip(row: Found, example: Found) -> tuple[Picture, ...]:
    state = "as far as it is learned" if _learned(row) else f"{row.get('verdict')}, as far as tried"
    original = _pictures(example.get("original"), f"{_name(row)}, {state}; before")
    changed = [
        picture
        for each in rows_in(example.get("changed"))[:MAX_OPS]
        for picture in _pictures(each.get("image"), short(each.get("caption", ""), 40))
    ]
    return (*original, *changed) if original else ()


def _pictures(source: Any, caption: str) -> list[Picture]:
    is_png = isinstance(source, str) and PICTURE.fullmatch(source)
    return [Picture(source, caption)] if is_png else []


def _suggested(found: Found) -> list[str | Table]:
    entries = list(table_in(found.get("suggested")).items())[:MAX_OPS]
    rows = tuple((short(name, 30), *(interval(ends) or (None, None))) for name, ends in entries)
    said = "Every operation as far as it is learned; families without a verdict are not in it."
    return [said, Table("suggested.toml", ("operation", "from", "to"), rows, "suggested")] if rows else []


def _next_step(found: Found) -> list[Answer]:
    command = f"invaug train {short(found.get('data', 'DATA'), 60)} --config suggested.toml"
    said = "Train with the families that are learned, each as far as it is:"
    return [Answer("Next", said, command)] if found.get("suggested") else []


def _tiles(found: Found, rows: Sequence[Found]) -> list[Tile]:
    counts = {kind: sum(row.get("verdict") == kind for row in rows) for kind in VERDICTS}
    tiles = [Tile(kind, str(n), f"of {len(rows)} families") for kind, n in counts.items() if n]
    held_out = table_in(found.get("held_out"))
    accuracy, guess = _mean(rows[0], "clean_without"), number(held_out.get("majority"))
    if accuracy is not None and guess is not None:
        tiles.append(Tile("held-out accuracy", f"{accuracy:.1%}", f"without any family; a guess: {guess:.1%}"))
    return tiles


def _unchanged(found: Found) -> list[str]:
    names = [short(name, 40) for name in list_in(found.get("unchanged"))]
    return [f"families that change none of the images: {', '.join(names)}"] if names else []


def _seeds(found: Found) -> list[str]:
    n = len(list_in(table_in(found.get("held_out")).get("accuracies")))
    return ["one seed: there are no intervals over seeds (--seeds 3 gives them)"] if n == 1 else []


def _mean(row: Found, key: str) -> float | None:
    return number(table_in(row.get(key)).get("mean"))


def _learned(row: Found) -> str:
    return short(row.get("learned_up_to") or "", 80)


def _verdict(row: Found) -> str:
    return short(row.get("verdict_in_words", row.get("verdict", "")), 40)


def _name(row: Found, key: str = "name") -> str:
    return short(row.get(key, "?"), 40)
