"""Errors the user can fix: one line, no traceback, exit code 2."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from itertools import islice
from pathlib import Path

from invaug import checks

MOST_BESIDE = 1000  # names of a folder that are searched for a similar one


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


@contextmanager
def reading(what: object) -> Iterator[None]:
    """Turn any exception raised while reading untrusted bytes into one line; decoders raise all kinds."""
    try:
        yield
    except Exception as error:
        raise UserError(f"cannot read {what}: {reason_of(error)}") from error


def reason_of(error: Exception) -> str:
    """Return in one line why something failed."""
    return " ".join((getattr(error, "strerror", None) or str(error) or type(error).__name__).split())
