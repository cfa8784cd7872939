"""Epsilon in a config: a number, `auto`, or a table that describes a rule."""

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from invaug.lab.errors import nearest, shown
from invaug.levels import Resilient

RESILIENT = "resilient"
Level = float | Resilient
SMALLEST, LARGEST = 1e-6, 1e6
LIMITS = {
    "alpha": (SMALLEST, math.inf),
    "base": (0.0, math.inf),
    "cap": (SMALLEST, math.inf),
    "guess": (SMALLEST, LARGEST),
}
"""The numbers of a rule: none lies between LARGEST and infinity, which has a meaning of its own where it is allowed."""


def is_rule(epsilon: object) -> bool:
    """Whether a rule sets epsilon while training."""
    return epsilon == "auto" or isinstance(epsilon, Mapping)


def table_of_rule(rule: Resilient) -> dict[str, float | str]:
    """Return a rule as a config file has it."""
    values = {key: value for key, value in asdict(rule).items() if value is not None}
    return {"rule": RESILIENT, **values}


def rule_of_table(table: Mapping[str, Any]) -> Resilient:
    """Return the rule that a table of the config describes; ValueError if it describes none."""
    known = {key: value for key, value in table.items() if key != "rule"}
    if table.get("rule") != RESILIENT:
        raise ValueError(f'needs rule = "{RESILIENT}"')
    for key, value in known.items():
        if key not in Resilient.__dataclass_fields__:
            raise ValueError(f"has an unknown key {key}, {nearest(key, Resilient.__dataclass_fields__)}")
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number and (key != "base" or not isinstance(value, str)):
            raise ValueError(f"needs a number as {key}")
        if is_number:
            check_level(key, value, *LIMITS[key])
    return Resilient(**known)


def check_level(name: str, value: float, low: float = 0.0, high: float = math.inf) -> None:
    """Raise unless a number lies from `low` to LARGEST, or is infinite where `high` is."""
    if not (low <= value <= LARGEST or value == high):
        infinite = ", or inf" if high == math.inf else ""
        raise ValueError(f"{name} must be from {low:g} to {LARGEST:g}{infinite}, got {shown(value)}")


def level_of(epsilon: Any) -> Level:
    """Return what a resolved epsilon is to a constraint: the number, or the rule of a table."""
    return rule_of_table(epsilon) if isinstance(epsilon, Mapping) else float(epsilon)


def parse_epsilon(value: Any) -> Any:
    """Return a number, which a flag gives as text, `auto`, or a table with every key of its rule; None stays None."""
    if value is None or value == "auto":
        return value
    if isinstance(value, Mapping):
        return table_of_rule(rule_of_table(value))
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f'must be a number, auto or a table {{rule = "{RESILIENT}", …}}') from None
    if not number >= 0:
        raise ValueError(f"must be positive, got {number} (0 makes a pure penalty, inf switches it off)")
    too_long = number == math.inf and isinstance(value, str) and any(map(str.isdigit, value))  # 1e999 is no infinity
    if too_long or not (number <= LARGEST or number == math.inf):
        raise ValueError(f"must be at most {LARGEST:g}, or inf, which switches it off, got {shown(value)}")
    return number
