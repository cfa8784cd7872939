"""A scan as a person reads it: what stops training, what is odd, and what the images are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from statistics import median_low

from invaug.lab.data.scan.report import Finding, Report
from invaug.lab.terminal import plain

N_CLASSES = 12  # classes of which each has a line; of more, the smallest
N_KINDS = 5  # sizes and modes named, the most common first
N_NOTED = 10  # files named per note


def lines(report: Report) -> Iterator[str]:
    """Return the report as lines of text."""
    yield f"{plain(report.path)}: {report.files:,} images, {len(report.bad):,} bad, {len(report.notes):,} notes"
    yield from _balance(report)
    yield from (f"{name}: {_common(counts)}" for name, counts in (("sizes", report.sizes), ("modes", report.modes)))
    if report.bad:
        yield from ("", "bad, training stops on them:", *(f"  {_line(found)}" for found in report.bad))
    if report.notes:
        yield from ("", "notes, training goes on:", *_grouped(report.notes))
    yield from ("", "not usable as it is" if report.bad else "usable")


def _balance(report: Report) -> Iterator[str]:
    for part, counts in report.classes.items():
        values = sorted(counts.values())
        spread = f"{values[0]:,} to {values[-1]:,} each, median {median_low(values):,}"
        yield f"{part}: {sum(values):,} images of {len(counts):,} classes, {spread}"
        if len(counts) > N_CLASSES and values[0] == values[-1]:
            continue
        smallest = sorted(counts, key=lambda name: counts[name])
        chosen = list(counts) if len(counts) <= N_CLASSES else smallest[:N_CLASSES]
        width = max(len(plain(name)) for name in chosen)
        yield from (f"  {plain(name):{width}}  {counts[name]:>7,}" for name in chosen)
        if len(chosen) < len(counts):
            yield f"  and {len(counts) - len(chosen):,} larger ones"


def _common(counts: Counter[str]) -> str:
    named = ", ".join(f"{name} ({n:,})" for name, n in counts.most_common(N_KINDS))
    return named + (f" and {len(counts) - N_KINDS:,} more" if len(counts) > N_KINDS else "")


def _grouped(notes: list[Finding]) -> Iterator[str]:
    """Return the notes with the same words together, the first files of each."""
    groups: dict[str, list[Finding]] = {}
    for note in notes:
        groups.setdefault(note.reason.split(":")[0], []).append(note)
    for group in groups.values():
        yield from (f"  {_line(note)}" for note in group[:N_NOTED])
        if len(group) > N_NOTED:
            yield f"  … and {len(group) - N_NOTED:,} more like this (--json names all)"


def _line(found: Finding) -> str:
    return f"{plain(found.file)}: {plain(found.reason)}"
