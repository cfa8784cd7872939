"""What a scan finds: as data, and as lines that a person reads, what matters first and what to do next last."""

import json
import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median_low
from typing import NamedTuple

from invaug.lab.config.schema import Data
from invaug.lab.data.check import skipping_flags
from invaug.lab.data.decode import Shape
from invaug.lab.data.depth import Depth, Range, common_range
from invaug.lab.data.inspect_file import Inspection
from invaug.lab.errors import UserError
from invaug.lab.terminal import plain

WHOLE = "images"  # the part of a folder that training will split itself
N_CLASSES = 12  # classes that get a line each; of more, the smallest
N_COMMON = 5  # sizes and modes named, the most common first
N_NAMED, N_NOTED = 10, 3  # files named of those with similar findings; with similar notes
HEADINGS = {
    "conflicts": ("in two classes", "the same picture in two classes, one of its labels is wrong"),
    "leaks": ("in train and test", "the same picture in two parts, which makes test results look better"),
    "bad": ("bad", "bad, training stops"),
    "notes": ("notes", "notes, training continues"),
}
"""What findings are called in the first line, and over their list; what matters most comes first."""


class Finding(NamedTuple):
    """What is wrong or unusual, and where."""

    file: str
    reason: str


@dataclass
class Report:
    """What a scan found."""

    path: str
    files: int = 0
    conflicts: list[Finding] = field(default_factory=list)
    """Copies of a picture that has another class."""
    leaks: list[Finding] = field(default_factory=list)
    """Copies of a picture in another part of the dataset."""
    bad: list[Finding] = field(default_factory=list)
    """What training would fail on."""
    notes: list[Finding] = field(default_factory=list)
    """What is converted, left out or suspicious."""
    classes: dict[str, dict[str, int]] = field(default_factory=dict)
    """Number of images of each class in each part."""
    sizes: Counter[str] = field(default_factory=Counter)
    modes: Counter[str] = field(default_factory=Counter)
    shape: Shape | None = None
    """What training decodes the files to, unless told."""
    grey_range: Range | None = None
    """What training makes black and white of images of more than 8 bits."""

    _unreadable: int = 0
    _depths: list[Depth] = field(default_factory=list)
    _first: dict[bytes, tuple[str, str, str]] = field(default_factory=dict)
    """Name, part and class of the first image with these bytes."""

    def add(self, name: str, part: str, label: str, found: Inspection) -> None:
        """Count an image and note what was found out about it."""
        self.files += 1
        counts = self.classes.setdefault(part, {})
        counts[label] = counts.get(label, 0) + (not found.bad)
        if found.bad:
            self._unreadable += 1
            self.bad.append(Finding(name, found.bad))
        self.notes += [Finding(name, note) for note in found.notes]
        self._depths += [found.depth] if found.depth else []
        if found.size:
            self.sizes["{} x {}".format(*found.size)] += 1
            self.modes[found.mode] += 1
            self._add_copy(name, part, label, *self._first.setdefault(found.digest, (name, part, label)))

    def _add_copy(self, name: str, part: str, label: str, first: str, first_part: str, first_label: str) -> None:
        """Note an image with the same bytes as another, by the harm that does."""
        if first == name:
            return
        kinds = {
            "conflicts": (first_label != label, f"one image in two classes, {first_label} and {label}"),
            "leaks": (first_part != part, f"one image in {first_part} and in {part}, a leak"),
        }
        only = "a copy, training and test may get one each" if part == WHOLE else "a copy"
        harm = {kind: words for kind, (is_so, words) in kinds.items() if is_so} or {"notes": only}
        getattr(self, next(iter(harm))).append(Finding(name, f"{'; '.join(harm.values())}: same bytes as {first}"))

    def finish(self) -> None:
        """Find, when all images are counted, which classes are too small and how images of 16 bits are scaled."""
        for part, counts in self.classes.items() if len(self.bad) == self._unreadable else ():
            needed = 2 if part == WHOLE else 1
            small = [(label, n) for label, n in counts.items() if n < needed]
            self.bad += [Finding(label, f"usable images of the class: {n}, needed: {needed}") for label, n in small]
        try:
            self.grey_range = common_range(self._depths)
        except UserError as error:
            self.bad.append(Finding(".", str(error)))

    def as_json(self) -> str:
        """Return the report as one JSON document."""
        lists = {name: [found._asdict() for found in getattr(self, name)] for name in HEADINGS}
        counts = {"classes": self.classes, "sizes": dict(self.sizes), "modes": dict(self.modes)}
        about = {"path": self.path, "files": self.files, "usable": not self.bad}
        about |= {"shape": self.shape, "grey_range": self.grey_range}
        return json.dumps({**about, **lists, **counts, "next": self.next_step()})

    def next_step(self) -> str:
        """Return what to do next: a command, and what to do before it."""
        path = shlex.quote(plain(self.path))
        if len(self.bad) > self._unreadable:
            return f"mend what is bad, then: invaug scan {path}"
        skip = f" {skipping_flags(len(self.bad), self.files, Data().max_bad)}" if self.bad else ""
        before = ["give every picture one class"] if self.conflicts else []
        before += ["fix or remove the bad files, or leave them out"] if self.bad else []
        return f"{', '.join(before)}{': ' if before else ''}invaug train {path}{skip}"


def lines(report: Report) -> Iterator[str]:
    """Yield the report as a person reads it: what is wrong, what is unusual, what the images are, what to do next."""
    found = {name: getattr(report, name) for name in HEADINGS}
    counts = [
        f"{len(found[name]):,} {HEADINGS[name][0]}" for name in HEADINGS if found[name] or name in ("bad", "notes")
    ]
    yield f"{plain(report.path)}: {report.files:,} images, {', '.join(counts)}"
    for name, findings in found.items():
        if findings:
            yield from (
                "",
                f"{HEADINGS[name][1]} ({len(findings):,}):",
                *_group(findings, N_NOTED if name == "notes" else N_NAMED),
            )
    yield ""
    for part, numbers in report.classes.items():
        yield from _count_classes(part, Counter(numbers))
    yield f"sizes: {_most_common(report.sizes)}"
    yield f"modes: {_most_common(report.modes)}"
    if report.shape and set(report.sizes) != {"{2} x {1}".format(*report.shape)}:
        yield "resized: training takes the centre of each image at {2} x {1} pixels (--image-size)".format(
            *report.shape
        )
    if report.grey_range:
        yield "16-bit values: {:,} becomes black, {:,} white".format(*report.grey_range)
    yield from ("", "not usable as it is" if report.bad else "usable", f"next: {report.next_step()}")


def _count_classes(part: str, counts: Counter[str]) -> Iterator[str]:
    values = sorted(counts.values())
    spread = f"{values[0]:,} to {values[-1]:,} each, median {median_low(values):,}"
    spread = spread if values[0] < values[-1] else f"{values[0]:,} each"
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


def _group(findings: list[Finding], most: int) -> Iterator[str]:
    """Yield similar findings together, with the first files of each."""
    groups: dict[str, list[Finding]] = {}
    for found in findings:
        groups.setdefault(found.reason.split(":")[0], []).append(found)
    for group in groups.values():
        yield from (f"  {plain(found.file)}: {plain(found.reason)}" for found in group[:most])
        if len(group) > most:
            yield f"  … and {len(group) - most:,} more like this (--json names all)"
