"""A scan as a person reads it: what stops training, what is unusual, and what the images are."""

from collections import Counter
from collections.abc import Iterator
from statistics import median_low

from invaug.lab.data.scan.report import Finding, Report
from invaug.lab.terminal import plain

N_CLASSES = 12  # classes that get a line each; of more, the smallest
N_COMMON = 5  # sizes and modes named, the most common first
N_NOTED = 10  # files named per note


def lines(report: Report) -> Iterator[str]:
    """Return the report as lines of text."""
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
