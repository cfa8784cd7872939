"""Real images on the page: what was proposed and kept, and what the model finds hardest."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from invaug.lab.config.methods import is_constrained
from invaug.lab.report.read import Run, number, short, whole
from invaug.lab.report.sections.evaluation import rows_in

N_ROWS, N_IMAGES, N_HARDEST = 16, 12, 16
PICTURE = re.compile(r"data:image/png;base64,[A-Za-z0-9+/]{1,200000}={0,2}")
RULES = {
    "worst": "Kept, in orange, is the proposal with the highest loss: the rule this run was trained with.",
    "uniform": "One uniform draw per image, which is always kept: the rule this run was trained with.",
}
CHAIN = "Kept, in orange, is where the chain ended: it moves with probability min(1, proposed loss / current loss)."
FOREIGN = " This run was trained without a constraint; shown is what the chain would keep."


def sections(run: Run) -> list[tuple[str, str, str]]:
    """Return the title, the reading and the pictures of each part as HTML, where there are pictures."""
    found = run.evaluation or {}
    rows, hard = rows_in(found.get("gallery"))[:N_ROWS], rows_in(found.get("hardest"))[:N_HARDEST]
    parts = (
        ("Images, what was proposed and what was kept", _rule(run, rows), "".join(map(_strip, rows))),
        ("The transformations this model finds hardest", _hard_reading(hard), "".join(map(_pair, hard))),
    )
    return [(title, reading, f'<div class="gallery">{strips}</div>') for title, reading, strips in parts if strips]


def _rule(run: Run, rows: Sequence[Mapping[str, Any]]) -> str:
    """Return by which rule proposals were kept, and how many of a long chain are shown."""
    method = run.text("method")
    said = RULES.get(method, CHAIN) + ("" if is_constrained(method) else FOREIGN)
    longest = max((whole(row.get("chain")) for row in rows), default=0)
    shown = max((len(rows_in(row.get("proposals"))[:N_IMAGES]) for row in rows), default=0)
    return said + (f" Shown are chains of {shown} proposals; the run's own have {longest}." if longest > shown else "")


def _hard_reading(rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return ""
    first = rows[0]
    before, after = number(first.get("clean")), number(first.get("loss"))
    rise = "" if before is None or after is None else f", from {before:.2f} to {after:.2f}"
    return (
        f"Of each operation the draw that raised the loss most; the highest rise is by {_operation(first)}{rise}. "
        "Look whether the label still holds: a set that changes it asks for too much."
    )


def _strip(row: Mapping[str, Any]) -> str:
    original = _picture(row.get("original"), f"original, class {_class(row)}")
    proposals = [
        _picture(entry.get("image"), _proposal(entry), "kept" if entry.get("kept") is True else "")
        for entry in rows_in(row.get("proposals"))[:N_IMAGES]
    ]
    return f'<div class="strip">{original}{"".join(proposals)}</div>' if original else ""


def _pair(row: Mapping[str, Any]) -> str:
    before, after = number(row.get("clean")), number(row.get("loss"))
    said = "" if before is None else f", loss {before:.2f}"
    outcome = "" if after is None else f", loss {after:.2f}"
    seen = f", seen as {short(row['seen'], 40)}" if isinstance(row.get("seen"), str) else ""
    original = _picture(row.get("original"), f"original, class {_class(row)}{said}")
    changed = _picture(row.get("image"), f"{_operation(row)}{outcome}{seen}")
    return f'<div class="strip">{original}{changed}</div>' if original and changed else ""


def _class(row: Mapping[str, Any]) -> str:
    return short(row.get("class", "?"), 40)


def _operation(row: Mapping[str, Any]) -> str:
    name, size = short(row.get("op", "?"), 30), number(row.get("magnitude"))
    return name if size is None else f"{name} {size:.3g}"


def _proposal(entry: Mapping[str, Any]) -> str:
    loss = number(entry.get("loss"))
    parts = [_operation(entry), "" if loss is None else f"loss {loss:.2f}", "kept" if entry.get("kept") is True else ""]
    return ", ".join(filter(None, parts))


def _picture(source: Any, text: str, kind: str = "") -> str:
    """Return one image with its caption; anything but a PNG inside the file itself is left out."""
    if not isinstance(source, str) or not PICTURE.fullmatch(source):
        return ""
    said = escape(text)
    return f'<figure class="picture {kind}"><img src="{source}" alt="{said}"><figcaption>{said}</figcaption></figure>'
