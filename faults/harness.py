"""A fault is a case: few tries of it in `make test`, all of them in `make faults`, by the same function."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

GROUPS = (
    *("crash", "ranks", "data", "numerics", "security", "operations"),
    *("serving", "limits", "inputs", "states", "searches", "fuzzing", "haul"),
)
Run = Callable[[int, Path], Iterable[str]]


@dataclass(frozen=True)
class Case:
    """One promise and how to try it."""

    group: str
    name: str
    full: int
    fast: int
    run: Run
    """(tries, an empty folder) -> one line for each try that failed."""

    def failures(self, tries: int, folder: Path) -> list[str]:
        """Return what failed; whatever the case itself raises counts against all tries."""
        folder.mkdir(parents=True, exist_ok=True)
        return list(self.run(tries, folder))


CASES: list[Case] = []


def case(name: str, *, full: int, fast: int) -> Callable[[Run], Run]:
    """Register a case under its module's name; `fast=0` leaves it to `make faults`."""

    def register(run: Run) -> Run:
        CASES.append(Case(run.__module__.rpartition(".")[2], name, full, fast, run))
        return run

    return register


def all_cases() -> list[Case]:
    """Return every case of every group, in the order of the groups."""
    for group in GROUPS:
        import_module(f"faults.{group}")
    return sorted(CASES, key=lambda case: GROUPS.index(case.group))
