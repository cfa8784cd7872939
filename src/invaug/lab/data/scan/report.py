"""What a scan finds: as data, and as lines that a person reads."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median_low
from typing import NamedTuple

from invaug.lab.data.inspect_file import Inspection
from invaug.lab.terminal import plain

WHOLE = "images"  # the part of a folder that training will split itself
N_CLASSES = 12  # classes that get a line each; of more, the smallest
N_COMMON = 5  # sizes and modes named, the most common first
N_NOTED = 10  # files named per note


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


def lines(report: Report) -> Iterator[str]:
    """Yield the report as a person reads it: what stops training, what is unusual, and what the images are."""
    yield f"{plain(report.path)}: {report.files:,} images, {len(report.bad):,} bad, {len(report.notes):,} notes"
    for part, counts in report.classes.items():
        yield from _count_classes(part, Counter(counts))
    yield f"sizes: {_most_common(report.sizes)}"
    yield f"modes: {_most_common(report.modes)}"
    if report.bad:
        yield from ("", "bad, training stops:", *map(_line, report.bad))
    if report.notes:
        yield from ("", "notes, training continues:", *_group_notes(report.notes))
    yield from ("", "not usable as it is" if report.bad else "usable")


def _count_classes(part: str, counts: Counter[str]) -> Iterator[str]:
    values = sorted(counts.values())
    spread = f"{values[0]:,} to {values[-1]:,} each, median {median_low(values):,}"
    yield f"{part}: {sum(values):,} images of {len(counts):,} classes, {spread}"
    many = len(counts) > N_CLASSES
    if many and values[0] == values[-1]:
        return
    chosen = sorted(counts, key=counts.__getitem__)[:N_CLASSES] if many else list(counts)
    width = max(len(plain(name)) for name in chosen)
    yield from (f"  {plain(name):{width}}  {counts[name]:>7,}" for name in chosen)
    if many:
        yield f"  and {len(counts) - N_CLASSES:,} larger ones"


def _most_common(counts: Counter[str]) -> str:
    named = ", ".join(f"{name} ({n:,})" for name, n in counts.most_common(N_COMMON))
    return named + (f" and {len(counts) - N_COMMON:,} more" if len(counts) > N_COMMON else "")


def _group_notes(notes: list[Finding]) -> Iterator[str]:
    """Return similar notes together, with the first files of each."""
    groups: dict[str, list[Finding]] = {}
    for note in notes:
        groups.setdefault(note.reason.split(":")[0], []).append(note)
    for group in groups.values():
        yield from map(_line, group[:N_NOTED])
        if len(group) > N_NOTED:
            yield f"  … and {len(group) - N_NOTED:,} more like this (--json names all)"


def _line(found: Finding) -> str:
    return f"  {plain(found.file)}: {plain(found.reason)}"
