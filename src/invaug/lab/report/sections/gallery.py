"""Real images on the page: what was proposed and kept, and what the model finds hardest."""

import re
from collections.abc import Sequence
from itertools import chain

from invaug.lab.config import methods
from invaug.lab.report.document import Gallery, Picture, Section
from invaug.lab.report.runs import Run
from invaug.lab.report.values import Found, number, rows_in, short, whole

N_ROWS, N_IMAGES, N_HARDEST = 16, 12, 16
PICTURE = re.compile(r"data:image/png;base64,[A-Za-z0-9+/]{1,200000}={0,2}")
RULES = {
    "worst": "Kept, in orange, is the proposal with the highest loss: the rule this run was trained with.",
    "uniform": "One uniform draw per image, which is always kept: the rule this run was trained with.",
}
CHAIN = "Kept, in orange, is where the chain ended: it moves with probability min(1, proposed loss / current loss)."
FOREIGN = " This run was trained without a constraint; shown is what the chain would keep."


def sections(run: Run, _ending: str, name: str) -> list[Section]:
    """Return the pictures of a run: proposals by image, and the hardest draw of each operation."""
    found = run.evaluation or {}
    rows, hard = rows_in(found.get("gallery"))[:N_ROWS], rows_in(found.get("hardest"))[:N_HARDEST]
    parts = (
        ("Images, what was proposed and what was kept", _rule(run, rows), tuple(filter(None, map(_strip, rows)))),
        ("The transformations this model finds hardest", _hard_reading(hard), tuple(filter(None, map(_pair, hard)))),
    )
    return [Section(title + name, (reading, Gallery(strips))) for title, reading, strips in parts if strips]


def mistakes(run: Run, operations: Sequence[str]) -> tuple[tuple[Picture, ...], ...]:
    """Return pairs of pictures, before and after, that the model gets wrong: one of each of these operations."""
    rows = {_name(row): row for row in reversed(rows_in((run.evaluation or {}).get("hardest"))) if _is_mistake(row)}
    return tuple(pair for name in operations if name in rows and (pair := _pair(rows[name])))


def _is_mistake(row: Found) -> bool:
    return row.get("seen") != row.get("class")


def _rule(run: Run, rows: Sequence[Found]) -> str:
    """Return by which rule proposals were kept, and how many of a long chain are shown."""
    said = RULES.get(run.method, CHAIN) + ("" if methods.is_constrained(run.method) else FOREIGN)
    longest = max((whole(row.get("chain")) for row in rows), default=0)
    shown = max((len(rows_in(row.get("proposals"))[:N_IMAGES]) for row in rows), default=0)
    return said + (f" Shown are chains of {shown} proposals; the run's own have {longest}." if longest > shown else "")


def _hard_reading(rows: Sequence[Found]) -> str:
    if not rows:
        return ""
    first = rows[0]
    before, after = number(first.get("clean")), number(first.get("loss"))
    rise = "" if before is None or after is None else f", from {before:.2f} to {after:.2f}"
    return (
        f"Of each operation the draw that raised the loss most; the highest rise is by {_operation(first)}{rise}. "
        "Look whether the label still holds: a set that changes it asks for too much."
    )


def _strip(row: Found) -> tuple[Picture, ...]:
    original = _pictures(row, "original", f"original, class {_class(row)}")
    proposals = [
        _pictures(entry, "image", f"{_operation(entry)}{_loss(entry, 'loss')}", entry.get("kept") is True)
        for entry in rows_in(row.get("proposals"))[:N_IMAGES]
    ]
    return tuple(chain(original, *proposals)) if original else ()


def _pair(row: Found) -> tuple[Picture, ...]:
    seen = f", seen as {short(row['seen'], 40)}" if isinstance(row.get("seen"), str) else ""
    original = _pictures(row, "original", f"original, class {_class(row)}{_loss(row, 'clean')}")
    changed = _pictures(row, "image", f"{_operation(row)}{_loss(row, 'loss')}{seen}")
    return (*original, *changed) if original and changed else ()


def _class(row: Found) -> str:
    return short(row.get("class", "?"), 40)


def _operation(row: Found) -> str:
    size = number(row.get("magnitude"))
    return _name(row) if size is None else f"{_name(row)} {size:.3g}"


def _name(row: Found) -> str:
    return short(row.get("op", "?"), 30)


def _loss(row: Found, key: str) -> str:
    loss = number(row.get(key))
    return "" if loss is None else f", loss {loss:.2f}"


def _pictures(row: Found, key: str, caption: str, is_kept: bool = False) -> list[Picture]:
    """Return one image with its caption; none for anything but a PNG inside the file itself."""
    source = row.get(key)
    is_png = isinstance(source, str) and PICTURE.fullmatch(source)
    return [Picture(str(source), f"{caption}{', kept' * is_kept}", is_kept)] if is_png else []
