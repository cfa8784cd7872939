"""Output that cannot end a run, and text that cannot control a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO, TypeVar, cast

from invaug.lab.run.atomic import WriteError

Item = TypeVar("Item")


def plain(text: str) -> str:
    """Return one line without control codes, which the names of classes, files and runs may contain."""
    return "".join(character if character.isprintable() else "?" for character in text)


def duration(seconds: float) -> str:
    """Return a time as roughly as a person would give it.

    Example:
        >>> [duration(seconds) for seconds in (0.2, 42, 170, 5000, 100_000)]
        ['1 s', '42 s', '3 min', '1.4 h', '28 h']
    """
    minutes, hours = seconds / 60, seconds / 3600
    if hours >= 1:
        return f"{hours:.1f} h" if hours < 10 else f"{hours:,.0f} h"
    return f"{minutes:.0f} min" if minutes >= 1 else f"{max(seconds, 1):.0f} s"


def count(n: int, thing: str) -> str:
    """Return how many there are of a thing.

    Example:
        >>> count(1, "seed"), count(1860, "step")
        ('1 seed', '1,860 steps')
    """
    return f"{n:,} {thing}{'' if n == 1 else 's'}"


def say(message: str) -> None:
    """Print one line to stderr."""
    print(plain(message), file=sys.stderr)


@contextmanager
def progress_bars() -> Iterator[Callable[[str, int, int], None]]:
    """Show bars on stderr if that is a terminal; yield the function that moves them: name, done, total."""
    from rich.console import Console  # after the first line of a command, which must come within a second
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        tasks: dict[str, TaskID] = {}

        def move(name: str, done: int, total: int) -> None:
            if name not in tasks:
                tasks[name] = progress.add_task(plain(name))
            progress.update(tasks[name], completed=done, total=total)

        yield move


def with_progress(items: Iterable[Item], description: str, total: int | None = None) -> Iterable[Item]:
    """Return the items under a progress bar on stderr, where that is a terminal."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    return track(items, description, total=total, console=console, transient=True, disable=not console.is_terminal)


class Forgiving:
    """A text stream that discards its text once writing fails: its reader has left, or its disk is full."""

    def __init__(self, stream: TextIO | Forgiving, *forgiven: type[OSError]) -> None:
        self._stream: TextIO = stream._stream if isinstance(stream, Forgiving) else stream
        self._forgiven = forgiven or (OSError,)
        self._lost: WriteError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write, or lose the text."""
        self._attempt(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        """Flush, or lose what was not written yet."""
        self._attempt(self._stream.flush)

    def _attempt(self, action: Callable[[], object]) -> None:
        try:
            action()
        except OSError as error:
            _silence(self._stream)
            if not isinstance(error, self._forgiven):
                self._lost = WriteError(f"cannot write the output: {error.strerror}", error.errno)
        if self._lost:  # every time, because the parser of the command line tries its output, and ignores errors
            raise self._lost


def _silence(stream: TextIO) -> None:
    """Redirect a stream to nowhere with its buffer: Python flushes it at exit, and would complain."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


@contextmanager
def safe_streams() -> Iterator[None]:
    """Make stdout and stderr safe to print to, even if closed, full, without a reader, or in a narrow encoding."""
    before = sys.stdout, sys.stderr
    _reopen()
    sys.stdout = cast(TextIO, Forgiving(_any_letter(sys.stdout), BrokenPipeError))  # a lost result is an error
    sys.stderr = cast(TextIO, Forgiving(_any_letter(sys.stderr)))
    try:
        yield
    finally:
        with suppress(WriteError):
            sys.stdout.flush()
        sys.stdout, sys.stderr = (old or new for old, new in zip(before, (sys.stdout, sys.stderr), strict=True))


def _reopen() -> None:
    """Open closed streams (`>&-`) to nowhere, before a file of ours takes their number and receives their output."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "r" if number == 0 else "w", closefd=False))  # noqa: SIM115


def _any_letter(stream: TextIO) -> TextIO:
    """Return the stream; characters that its encoding lacks (LC_ALL=C) are written as escapes."""
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="backslashreplace")
    return stream
