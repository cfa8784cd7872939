"""Mutated files of every format that invaug reads from others: one line or accepted, never a traceback or a hang."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from faults.fuzz.formats import FORMATS
from faults.fuzz.server import ask
from faults.fuzz.worker import GOOD, GROWTH, SECONDS
from faults.harness import Run, case


def mutated(name: str) -> Run:
    """Return the case of a format."""

    def run(tries: int, _: Path) -> Iterator[str]:
        for index, found in enumerate(ask(name, tries)):
            if found.kind not in GOOD:
                yield f"mutation {index}: {found.kind}: {found.text}"

    return run


for each in FORMATS:
    case(
        f"{each}, mutated in its structure with all checksums right: accepted or refused in one line, "
        f"within {SECONDS:g} s and {GROWTH >> 20} MB",
        full=2000,
        fast=20,
    )(mutated(each))
