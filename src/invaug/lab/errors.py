"""Errors the user can fix: one line, no traceback, exit code 2."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from invaug import checks


class UserError(ValueError):
    """The input is wrong; the message names the value and the way out."""

    shared = False  # whether every rank has it, so that one may speak for all


class RunError(RuntimeError):
    """Training cannot continue; the last good state is on disk."""

    shared = False


def nearest(name: str, names: Iterable[str]) -> str:
    """Return a hint for an unknown name: the known names most like it, or else where to find all of them."""
    return checks.nearest(name, names, otherwise="see invaug ls")


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
