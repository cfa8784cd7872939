"""What an experiment is made of: named configs, sentences with a rule, charts, and what the paper printed."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, NamedTuple

Scale = Literal["full", "small"]
SCALES: tuple[Scale, ...] = ("full", "small")
Settings = dict[str, Any]
USUAL: Settings = {"views": "both", "set": "wide", "cutout": 16, "drop_last": True}
"""The paper's two views per image, set, cutout and complete batches, for cells without a preset."""


def read_table(name: str) -> dict[str, Any]:
    """Return one of the tables in this folder, such as `experiments.toml`."""
    return tomllib.loads(Path(__file__).with_name(f"{name}.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Cell:
    """One entry of a table: a config without its seed."""

    label: str
    settings: Settings
    """Without a preset they extend `USUAL`, not the defaults of `invaug train`."""
    beside: str = ""
    """The name of the paper's entry that it is compared with."""
    seeds: int | None = None
    """How many seeds it gets, if not as many as the others of its plan."""

    def __post_init__(self) -> None:
        defaults = {} if "preset" in self.settings else USUAL
        object.__setattr__(self, "settings", {**defaults, **self.settings})


@dataclass(frozen=True)
class ScalePlan:
    """The runs of an experiment at one scale."""

    cells: Sequence[Cell]
    seeds: int
    notes: Sequence[str] = ()
    lacks: str = ""
    """Why none of it can run, if so."""


@dataclass(frozen=True)
class Claim:
    """A sentence that the runs are expected to confirm."""

    text: str
    rule: str
    """A key of `claims.EFFECTS`."""
    of: tuple[tuple[str, str], ...]
    """The cells and measures whose numbers the rule gets."""
    limit: float | None = None
    """A number that the rule gets last."""


@dataclass(frozen=True)
class Chart:
    """Lines of measures along a setting of the cells; without a setting, a bar per cell."""

    key: str
    title: str
    y: str
    series: Sequence[tuple[str, str]]
    """A name and a pattern of cells with a measure, for each line or for all bars."""
    x: str = ""


class Number(NamedTuple):
    """A printed number and what follows its ±, if anything does."""

    mean: float
    spread: float | None = None


@dataclass(frozen=True)
class Published:
    """Where something is in the paper and what is printed there, by entry and measure."""

    place: str = ""
    spread: str = ""
    """What its ± is."""
    note: str = ""
    numbers: Mapping[tuple[str, str], Number] = field(default_factory=dict)


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper."""

    name: str
    title: str
    found: str
    """What the paper found, in one line."""
    measures: Sequence[str]
    """The columns of the table."""
    plans: Mapping[Scale, ScalePlan]
    claims: Sequence[Claim] = ()
    charts: Sequence[Chart] = ()
    keeps: Sequence[str] = ()
    """What its results hold besides numbers: curve, kept, levels."""
    reference: str = ""
    """The cells, by the end of their label, that the others' seconds per epoch are compared with."""
    published: Published = Published()


def expand(pattern: str, labels: Sequence[str]) -> list[tuple[str, str]]:
    """Return the cells that a pattern such as `constrained-* gamma` matches, each with the measure."""
    cell, _, measure = pattern.rpartition(" ")
    return [(label, measure) for label in labels if fnmatchcase(label, cell)]


def _published() -> dict[str, Published]:
    table = read_table("paper")
    for entry in table.values():
        measures = entry.get("numbers", {}).items()
        entry["numbers"] = {(name, measure): Number(*row) for measure, rows in measures for name, row in rows.items()}
    return {name: Published(**entry) for name, entry in table.items()}


PUBLISHED = _published()
"""What the paper printed, by experiment."""
