"""Values from files that nobody vouches for: finite numbers, short texts, tables and lists, whatever a file says."""

from collections.abc import Mapping, Sequence
from typing import Any

from invaug.lab.terminal import plain

MAX_TEXT = 80  # characters of a name that a page shows
MAX_CONSTRAINTS, MAX_OPS, MAX_LEVELS = 16, 64, 200  # more than any run has, and no more than a page can hold
LARGEST = 1e30  # a number beyond it has diverged, and no axis holds it
Numbers = tuple[float | None, ...]
Counts = Mapping[str, tuple[int, ...]]
Found = Mapping[str, Any]
"""A table of a JSON document, of which nothing is known yet."""


def short(text: object, most: int = MAX_TEXT) -> str:
    """Return one harmless line of at most so many characters."""
    line = plain(str(text)[: most + 1])
    return line if len(line) <= most else f"{line[: most - 1]}…"


def number(value: Any) -> float | None:
    """Return a finite float, None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if abs(found) <= LARGEST else None  # not a number compares as false


def share(value: Any) -> float | None:
    """Return a number from 0 to 1, None for anything else."""
    found = number(value)
    return found if found is not None and 0 <= found <= 1 else None


def whole(value: Any) -> int:
    """Return a whole number, 0 for anything else."""
    return int(found) if (found := number(value)) is not None and 0 <= found < 1e15 else 0


def list_in(value: Any, most: int = MAX_OPS) -> Sequence[Any]:
    """Return the first entries of a list, none for anything else."""
    return value[:most] if isinstance(value, list) else ()


def numbers(value: Any) -> Numbers:
    """Return a number for each constraint, None for what is not one."""
    return tuple(map(number, list_in(value, MAX_CONSTRAINTS)))


def interval(value: Any) -> tuple[float, float] | None:
    """Return the two ends of an interval, None for anything else."""
    ends = [end for end in map(number, list_in(value)) if end is not None]
    return (ends[0], ends[1]) if len(ends) == len(list_in(value)) == 2 else None


def table_in(value: Any) -> Found:
    """Return a table, an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def rows_in(value: Any) -> Sequence[Found]:
    """Return the tables in a list, none for anything else."""
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def counts_in(value: Any) -> Counts:
    """Return how often each operation was kept at each level."""
    entries = list(table_in(value).items())[:MAX_OPS]
    return {short(name, 30): tuple(map(whole, list_in(row, MAX_LEVELS))) for name, row in entries if list_in(row)}


def tables_in(value: Any) -> dict[str, Found]:
    """Return the tables in a table that have something in them, by name; none for anything else."""
    return {short(name, 40): row for name, row in table_in(value).items() if isinstance(row, dict) and row}


def ends_of(value: Any) -> tuple[float | None, float | None]:
    """Return the two ends of an interval, None where one is open."""
    ends = list_in(value)
    return (number(ends[0]), number(ends[1])) if len(ends) == 2 else (None, None)


def cells_in(row: Found, *keys: str) -> list[int | float | None]:
    """Return entries of a table as cells; an interval takes two, empty where it is open."""
    cells: list[int | float | None] = []
    for key in keys:
        value = row.get(key)
        single = whole(value) if type(value) is int else number(value)
        cells += ends_of(value) if key.endswith("interval") else (single,)
    return cells


def percent(value: Any) -> str:
    """Return a share as people read it."""
    share = number(value)
    return "–" if share is None else f"{share:.2%}"


def decimal(value: Any) -> str:
    """Return a loss as people read it."""
    loss = number(value)
    return "not finite" if loss is None else f"{loss:.3f}"
