"""What an experiment is made of: cells, which are configs with a name, and claims, which are sentences with a check."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, Protocol

Scale = Literal["full", "small"]
SCALES: tuple[Scale, ...] = ("full", "small")
Settings = dict[str, Any]
USUAL: Settings = {"views": "both", "set": "wide", "cutout": 16}
"""The paper's two views per image, its set and its box, for cells without a preset."""


class Found(Protocol):
    """Means over seeds of what was measured; None where a cell has not run."""

    def mean(self, cell: str, number: str) -> float | None:
        """Return the mean of a number over the seeds of a cell."""


@dataclass(frozen=True)
class Cell:
    """One entry of a table: a config without its seed."""

    label: str
    settings: Settings
    """Where they name no preset, `USUAL` comes first, not the default of `invaug train`."""
    beside: str = ""
    """The name of the paper's entry it stands beside."""
    unit_inputs: bool = False
    """Whether the network sees pixels in 0 to 1, not normalised."""
    lacks: str = ""
    """Why the laboratory cannot run it, if so."""

    def __post_init__(self) -> None:
        first = {} if "preset" in self.settings or self.lacks else USUAL
        object.__setattr__(self, "settings", {**first, **self.settings})


@dataclass(frozen=True)
class Plan:
    """An experiment at one scale."""

    cells: tuple[Cell, ...]
    seeds: int
    notes: tuple[str, ...] = ()
    lacks: str = ""
    """Why the laboratory cannot run any of it, if so."""


@dataclass(frozen=True)
class Claim:
    """What the small scale must show; the check returns None where cells are missing."""

    text: str
    holds: Callable[[Found], bool | None]
    pair: tuple[str, str] | None = None
    """The two cells of a claim that one is above the other."""
    number: str = "test_accuracy"
    """Of these two."""


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper."""

    name: str
    title: str
    found: str
    """What the paper found, in one line."""
    numbers: tuple[str, ...]
    """What is measured, the columns of the table."""
    plans: Mapping[Scale, Plan]
    claims: tuple[Claim, ...] = ()
    keeps: tuple[str, ...] = ()
    """What its results hold beside numbers: curve, kept, levels."""
    reference: str = ""
    """The cells, by the end of their label, whose seconds an epoch of the others is compared with."""


def compared(holds: Callable[..., bool], *wanted: tuple[str, str]) -> Callable[[Found], bool | None]:
    """Return a check of the means of some cells: (cell, number), in the order `holds` takes them."""

    def check(found: Found) -> bool | None:
        means = [found.mean(*each) for each in wanted]
        return None if None in means else holds(*means)

    return check


def rising(*values: float) -> bool:
    """Whether values rise and never fall; some may be level, as gammas at zero are."""
    return all(a <= b for a, b in pairwise(values)) and values[0] < values[-1]


def falling(*values: float) -> bool:
    """Whether values fall and never rise."""
    return rising(*(-value for value in values))


def along(number: str, cells: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return one number of several cells, as `compared` wants it."""
    return tuple((cell, number) for cell in cells)
