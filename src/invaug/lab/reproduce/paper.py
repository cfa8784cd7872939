"""The paper's printed numbers, read from `paper.toml`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from invaug.lab.reproduce.cells import read_table


class Number(NamedTuple):
    """A printed number and what follows its ±, if anything does."""

    mean: float
    spread: float | None = None


@dataclass(frozen=True)
class Published:
    """Where something is in the paper and what is printed there, by entry and measure."""

    place: str
    spread: str = ""
    """What its ± is."""
    note: str = ""
    numbers: Mapping[tuple[str, str], Number] = field(default_factory=dict)


def _published(entry: dict[str, Any]) -> Published:
    tables = entry.pop("numbers", {})
    numbers = {(name, measure): Number(*row) for measure, rows in tables.items() for name, row in rows.items()}
    return Published(**entry, numbers=numbers)


PUBLISHED: Mapping[str, Published] = {name: _published(entry) for name, entry in read_table("paper").items()}
