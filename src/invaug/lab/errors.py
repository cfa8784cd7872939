"""Errors that are the user's to mend: one line, no traceback, exit code 2."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

MANY = 25  # more names than one line should list


class UserError(ValueError):
    """The input is wrong; the message names the value and the way out."""


def nearest(name: str, names: Iterable[str]) -> str:
    """Return a hint for an unknown name: the nearest known ones, or all of them."""
    known = sorted(names)
    near = get_close_matches(name, known, 3, 0.5)
    if near:
        return f"did you mean {' or '.join(near)}?"
    return f"choose one of {', '.join(known)}" if len(known) <= MANY else "see invaug ls"
