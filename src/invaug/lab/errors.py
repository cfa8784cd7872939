"""Errors the user can fix: one line, no traceback, exit code 2; and what to say when memory runs out."""

import errno
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from itertools import islice
from pathlib import Path

from invaug import checks

MOST_BESIDE = 1000  # names of a folder that are searched for a similar one
MAX_SHOWN = 80  # characters of a value in a message
NO_MEMORY = ("out of memory", "not enough memory", "can't allocate memory", "cannot allocate memory", "bad_alloc")
"""What torch says, in a RuntimeError, when it gets no memory from a processor or a graphics card."""


class UserError(ValueError):
    """The input is wrong; the message names the value and the way out."""

    shared = False  # whether every rank has it, so that one may speak for all


class RunError(RuntimeError):
    """Training cannot continue; the last good state is on disk."""

    shared = False


def nearest(name: str, names: Iterable[str]) -> str:
    """Return a hint for an unknown name: the known names most like it, or else where to find all of them."""
    return checks.nearest(name, names, otherwise="see invaug ls")


def names_beside(path: Path) -> str:
    """Return a hint for a path that does not exist: what is in its folder under a similar name, or nothing."""
    with suppress(OSError, ValueError):
        beside = [entry.name for entry in islice(path.parent.iterdir(), MOST_BESIDE) if not entry.name.startswith(".")]
        near = [str(path.parent / name) for name in get_close_matches(path.name, beside)]
        return f", did you mean {' or '.join(near)}?" if near else ""
    return ""


def shown(value: object) -> str:
    """Return a value as a message shows it: its start if it is long, and never an exception.

    Example:
        >>> shown("lr"), shown(2**100_000)
        ("'lr'", 'a number of 30,103 digits')
    """
    try:
        text = repr(value)
    except ValueError:  # Python writes no integer of more than 4,300 digits
        digits = round(value.bit_length() * 0.30103) if isinstance(value, int) else 0
        return f"a number of {digits:,} digits" if digits else f"a {type(value).__name__} of huge numbers"
    except RecursionError:
        return f"a {type(value).__name__} nested too deeply"
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception says that there is no memory left: Python's, numpy's, torch's or the system's."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    said = str(error).lower() if isinstance(error, RuntimeError) else ""
    return isinstance(error, MemoryError) or any(words in said for words in NO_MEMORY)


@contextmanager
def reading(what: object) -> Iterator[None]:
    """Turn any exception raised while reading untrusted bytes into one line; decoders raise all kinds."""
    try:
        yield
    except Exception as error:
        if is_out_of_memory(error):
            raise MemoryError(f"while reading {what}") from error
        raise UserError(f"cannot read {what}: {reason_of(error)}") from error


def reason_of(error: Exception) -> str:
    """Return in one line why something failed."""
    return " ".join((getattr(error, "strerror", None) or str(error) or type(error).__name__).split())
