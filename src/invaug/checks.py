"""The checks that every door shares: one clear line that names the value and the way out."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from difflib import get_close_matches


def require(holds: object, message: str, error: type[Exception] = ValueError) -> None:
    """Raise the error with this message unless the condition holds."""
    if not holds:
        raise error(message)


def check_type(name: str, value: object, wanted: type, called: str) -> None:
    """Raise unless the value is of the wanted type, which the message calls by this name."""
    if not isinstance(value, wanted):
        raise TypeError(f"{name} must be {called}, got {type(value).__name__}")


def check_known(names: Iterable[str], known: Collection[str], whose: str) -> None:
    """Raise, with the nearest known name, unless all names of operations are known."""
    for name in names:
        if name not in known:
            near = get_close_matches(name, known, 1, 0.5)
            hint = f"did you mean {near[0]}?" if near else f"{whose} {', '.join(known)}"
            raise ValueError(f"unknown operation {name}, {hint}")
