"""What a scan finds, as data."""

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from invaug.lab.data.inspect_file import Inspection

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

    _first: dict[bytes, tuple[str, str, str]] = field(default_factory=dict)
    """Name, part and class of the first image with these bytes."""

    def add(self, name: str, part: str, label: str, found: Inspection) -> None:
        """Count an image and note what was found out about it."""
        self.files += 1
        counts = self.classes.setdefault(part, {})
        counts[label] = counts.get(label, 0) + (not found.bad)
        if found.bad:
            self.bad.append(Finding(name, found.bad))
        self.notes += [Finding(name, note) for note in found.notes]
        if found.size:
            self.sizes["{} x {}".format(*found.size)] += 1
            self.modes[found.mode] += 1
            before = self._first.setdefault(found.digest, (name, part, label))
            if before[0] != name:
                self.notes.append(Finding(name, _describe_copy(*before, part, label)))

    def as_json(self) -> str:
        """Return the report as one JSON document."""
        lists = {name: [found._asdict() for found in getattr(self, name)] for name in ("bad", "notes")}
        counts = {"classes": self.classes, "sizes": dict(self.sizes), "modes": dict(self.modes)}
        return json.dumps({"path": self.path, "files": self.files, "usable": not self.bad, **lists, **counts})


def _describe_copy(name: str, first_part: str, first_label: str, part: str, label: str) -> str:
    """Return that an image has the same bytes as another, and the harm that does."""
    harm = []
    if first_part != part:
        harm.append(f"one image in {first_part} and in {part}, a leak")
    if first_label != label:
        harm.append(f"one image in two classes, {first_label} and {label}")
    if not harm and part == WHOLE:
        harm.append("training and test may get one each")
    return f"same bytes as {name}" + (f": {'; '.join(harm)}" if harm else "")
