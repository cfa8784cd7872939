"""SIGTERM and Ctrl-C: the first asks the run to save and stop, the second ends the process at once."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Any

HANDLED = (signal.SIGTERM, signal.SIGINT)


class Stopped(Exception):  # noqa: N818 - not an error
    """The run was asked to stop, and has saved its state."""

    def __init__(self, signum: int, message: str = "") -> None:
        super().__init__(message or f"stopped by {signal.Signals(signum).name}")
        self.signum = signum


class Signals:
    """Installs the handlers during a run: `with Signals() as signals`, then read `signals.caught` between steps."""

    def __init__(self) -> None:
        self.caught = 0  # the number of the signal
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():  # Python lets no other thread set handlers
            self._before = {number: signal.signal(number, self._catch) for number in HANDLED}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _catch(self, number: int, _frame: FrameType | None) -> None:
        if self.caught:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        self.caught = number
