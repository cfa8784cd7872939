"""The tables [families.NAME] of a config: operations with their ranges, and perhaps a level of their own."""

from collections.abc import Mapping
from typing import Any

from invaug.lab.config.levels import check_level
from invaug.lab.errors import shown

MAX_MAGNITUDE = 8192.0  # degrees, pixels or factors; no image has more pixels on a side
N_FAMILIES = 100


def check_families(families: Any) -> Any:
    """Return the families if every one is a table of operations with sensible ranges; else raise ValueError."""
    if not isinstance(families, Mapping):
        raise ValueError(f"families must be tables [families.NAME], got {shown(families)}")
    if len(families) > N_FAMILIES:
        raise ValueError(f"there may be at most {N_FAMILIES} families, got {len(families)}")
    for name, family in families.items():
        if not isinstance(family, Mapping):
            raise ValueError(f"families.{name} must be a table of operations, got {shown(family)}")
        for key, value in family.items():
            check = _check_epsilon if key == "epsilon" else _check_range
            check(f"families.{name}.{key}", value)
    return families


def _check_epsilon(key: str, value: Any) -> None:
    if not _is_number(value) or not value >= 0:
        raise ValueError(f"{key} must be a number, at least 0, got {shown(value)}")
    check_level(key, value)


def _check_range(key: str, value: Any) -> None:
    ends = value if isinstance(value, list | tuple) and len(value) == 2 else [value]
    rule = f"true, a number or two numbers, each from -{MAX_MAGNITUDE:g} to {MAX_MAGNITUDE:g}"
    if not isinstance(value, bool) and not all(_is_number(end) and abs(end) <= MAX_MAGNITUDE for end in ends):
        raise ValueError(f"{key} must be {rule}, got {shown(value)}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
