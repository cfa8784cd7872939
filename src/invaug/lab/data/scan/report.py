"""What a scan finds, as data."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

WHOLE = "images"  # the part of a folder that training will split itself


class Finding(NamedTuple):
    """What is wrong or unusual, and where."""

    file: str
    reason: str


@dataclass
class Report:
    """What a scan found."""

    path: str
    files: int = 0
    bad: list[Finding] = field(default_factory=list)
    """What training would fail on, or learn wrong things from."""
    notes: list[Finding] = field(default_factory=list)
    """What is converted, left out or suspicious."""
    classes: dict[str, dict[str, int]] = field(default_factory=dict)
    """Number of images of each class in each part."""
    sizes: Counter[str] = field(default_factory=Counter)
    modes: Counter[str] = field(default_factory=Counter)

    def as_json(self) -> str:
        """Return the report as one JSON document."""
        lists = {name: [found._asdict() for found in getattr(self, name)] for name in ("bad", "notes")}
        counts = {"classes": self.classes, "sizes": dict(self.sizes), "modes": dict(self.modes)}
        return json.dumps({"path": self.path, "files": self.files, "usable": not self.bad, **lists, **counts})


class Scanned(NamedTuple):
    """An image: its name, the part it belongs to, its class, and a digest of its bytes if it can be read."""

    name: str
    part: str
    label: str
    digest: bytes


def find_duplicates(images: Iterable[Scanned]) -> Iterator[Finding]:
    """Yield every image whose bytes occurred before, with the harm that does."""
    first: dict[bytes, Scanned] = {}
    for image in images:
        before = first.setdefault(image.digest, image)
        if before is image or not image.digest:
            continue
        harm = []
        if before.part != image.part:
            harm.append(f"one image in {before.part} and in {image.part}, a leak")
        if before.label != image.label:
            harm.append(f"one image in two classes, {before.label} and {image.label}")
        if not harm and image.part == WHOLE:
            harm.append("training and test may get one each")
        yield Finding(image.name, ": ".join([f"same bytes as {before.name}", *filter(None, ["; ".join(harm)])]))
