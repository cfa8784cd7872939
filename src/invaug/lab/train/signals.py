"""SIGTERM, Ctrl-C, SIGHUP and SIGUSR1: the first asks the run to save and stop, the second ends the process at once."""

from __future__ import annotations

import os
import signal
import threading
import time
from types import FrameType
from typing import Any, ClassVar

HANDLED = (signal.SIGTERM, signal.SIGINT)
# a closed terminal sends SIGHUP, Slurm may send SIGUSR1 before it kills; Windows has neither
IF_HEEDED = tuple(getattr(signal, name) for name in ("SIGHUP", "SIGUSR1") if hasattr(signal, name))
"""Signals that stay ignored if they were ignored at the start, as `nohup` does with SIGHUP."""
HANGUP = getattr(signal, "SIGHUP", None)
EXITS = tuple(128 + number for number in (*HANDLED, *IF_HEEDED))
"""Exit codes of a process that has saved because it was asked to stop."""
ECHO = 1.0  # seconds in which another SIGHUP is the same one: shell and kernel both send it when a terminal is closed


class Stopped(Exception):  # noqa: N818 - not an error
    """The run was asked to stop, and has saved its state."""

    def __init__(self, signum: int, message: str = "") -> None:
        super().__init__(message or f"stopped by {signal.Signals(signum).name}")
        self.signum = signum


class Signals:
    """Installs the handlers during a run: `with Signals() as signals`, then read `signals.caught` between steps."""

    second_ends: ClassVar[bool] = True
    """Whether the second signal ends the process at once."""

    def __init__(self) -> None:
        self.caught = 0  # the number of the signal
        self._at = 0.0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():  # Python lets no other thread set handlers
            heeded = [number for number in IF_HEEDED if signal.getsignal(number) is not signal.SIG_IGN]
            self._before = {number: signal.signal(number, self._catch) for number in (*HANDLED, *heeded)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
            outer = getattr(handler, "__self__", None)
            if isinstance(outer, Signals):  # of a search, for which the next signal is the second one too
                outer.caught = outer.caught or self.caught

    def _catch(self, number: int, _frame: FrameType | None) -> None:
        echo = number == self.caught == HANGUP and time.monotonic() - self._at < ECHO
        if self.caught and not echo and self.second_ends:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        self.caught, self._at = number, time.monotonic()
