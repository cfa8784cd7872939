"""Mutated files of every format that invaug reads from others: one line or accepted, never a traceback or a hang."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

from faults.fuzz import worker
from faults.fuzz.findings import workshop
from faults.fuzz.formats import FORMATS
from faults.harness import Run, case

SEED = 0
OPEN = ExitStack()  # closed with the process, so that its cases share the examples


@cache
def shared_workshop() -> tuple[Path, Path]:
    """Return the folders of this process for good examples and their mutated copies."""
    import atexit

    atexit.register(OPEN.close)
    return OPEN.enter_context(workshop())


def mutated(name: str) -> Run:
    """Return the case of a format."""

    def run(tries: int, _: Path) -> Iterator[str]:
        job = worker.mutations(name, SEED, *shared_workshop())
        for index, found in worker.attempt(job, range(tries)):
            if found.kind not in ("refused", "accepted"):
                yield f"mutation {index}: {found.kind}: {found.text}"

    run.__module__ = __name__
    return run


for each in FORMATS:
    case(
        f"{each}, mutated in its structure with all checksums right: accepted or refused in one line, "
        f"within {worker.SECONDS:g} s and {worker.GROWTH >> 20} MB",
        full=2000,
        fast=20,
    )(mutated(each))
