"""What a row of a record may contain: the types of the keys that reports and a resumed training read."""

import reprlib
from collections.abc import Callable
from typing import Any

Row = dict[str, Any]
MAX_EPOCH = 10**9
MAX_INTEGER = 2**63
LARGEST = 1e40  # beyond what a float of 32 bits holds
MAX_DEPTH = 4  # kept: a list of tables of lists of counts
COUNTS = ("passes", "skipped_batches")
NUMBERS = tuple(f"{part}_{what}" for part in ("train", "val", "test") for what in ("loss", "accuracy"))
PER_CONSTRAINT = ("slack", "constraint_loss", "epsilon", "gamma", "acceptance", "entropy")


def check_row(row: Row) -> str:
    """Return in a few words what is wrong with a row, nothing if nothing is.

    Example:
        >>> check_row({"epoch": 1, "gamma": "x"})
        "gamma must be a list of numbers, got 'x'"
    """
    if type(row["epoch"]) is not int or not 0 <= row["epoch"] < MAX_EPOCH:
        return f"epoch must be from 0 to {MAX_EPOCH - 1:,}, got {shown(row['epoch'])}"
    for key, value in row.items():
        is_right, rule = RULES.get(key, (is_shallow, "text, numbers and short lists of them"))
        if not is_right(value):
            return f"{shown(key) if key not in RULES else key} must be {rule}, got {shown(value)}"
    return ""


def check_complete(row: Row, n_constraints: int) -> str:
    """Return in a few words what a row lacks that training reads of it, nothing if nothing."""
    for key in ("slack", "constraint_loss", "gamma"):
        found = row.get(key, [])
        is_finite = all(each is None or abs(each) <= LARGEST for each in found)  # not a number compares as false
        if len(found) != n_constraints or not is_finite:
            return f"{key} must have {n_constraints} finite numbers, one per constraint, got {shown(found)}"
    if None in row.get("gamma", []):
        return f"gamma must be known, got {shown(row['gamma'])}"
    missing = [key for key in ("seconds", "passes") if row.get(key) is None]
    return f"{missing[0]} is missing" if missing else ""


def shown(value: Any) -> str:
    """Return a value as a short text: an integer of a hundred digits has no business in a message."""
    if type(value) is int and abs(value) >= MAX_INTEGER:
        return "an integer of more than 64 bits"
    return ascii(reprlib.repr(value))[1:-1] if isinstance(value, str) else reprlib.repr(value)


def is_number(value: Any) -> bool:
    """Whether a value is a number that a float can hold."""
    return type(value) is float or (type(value) is int and abs(value) < MAX_INTEGER)


def is_count(value: Any) -> bool:
    """Whether a value is a whole number from 0."""
    return type(value) is int and 0 <= value < MAX_INTEGER


def is_shallow(value: Any, depth: int = MAX_DEPTH) -> bool:
    """Whether a value is nested no deeper than rows are, and its integers are of 64 bits."""
    if isinstance(value, dict | list):
        entries = value.values() if isinstance(value, dict) else value
        return depth > 0 and all(is_shallow(entry, depth - 1) for entry in entries)
    return type(value) is not int or abs(value) < MAX_INTEGER


def optional(is_right: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Return the check of a value that may be missing."""
    return lambda value: value is None or is_right(value)


def list_of(is_right: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Return the check of a list."""
    return lambda value: isinstance(value, list) and all(map(is_right, value))


def is_histogram(value: Any) -> bool:
    """Whether a value is a table of how often each operation was kept at each level."""
    return isinstance(value, dict) and all(map(list_of(is_count), value.values()))


RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "epoch": (is_count, "a whole number"),
    "seconds": (optional(is_number), "a number"),
    **dict.fromkeys(COUNTS, (optional(is_count), "a whole number from 0")),
    **dict.fromkeys(NUMBERS, (optional(is_number), "a number")),
    **dict.fromkeys(PER_CONSTRAINT, (list_of(optional(is_number)), "a list of numbers")),
    "entropy_uniform": (list_of(optional(list_of(is_number))), "a list of intervals"),
    "kept": (list_of(is_histogram), "a list of tables of counts"),
    "out_of_reach": (list_of(lambda value: type(value) is bool), "a list of true and false"),
}
