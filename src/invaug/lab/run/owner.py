"""The process that holds a lock, as its file names it: who it is, and whether it is ending."""

from __future__ import annotations

import json
import os
import socket
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path

EXITING = 0x4  # the kernel's PF_EXITING: its memory is being freed, and its files are still open
KILLED = 1 << 8  # SIGKILL among the pending signals
MAX_BYTES = 4096  # of a lock's file


@dataclass(frozen=True)
class Owner:
    """A process on a host."""

    pid: int
    host: str
    search: int | None = None
    """The process that started it as one of its workers; it ends with that one."""

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"process {self.pid} on {self.host}"

    def is_ending(self) -> bool:
        """Whether it will be gone in a moment: it was killed, or the search it works for is gone."""
        if self.host != socket.gethostname():
            return False
        return _is_ending(self.pid) or (self.search is not None and (is_gone(self.search) or _is_ending(self.search)))


_myself = Owner(0, "")


def work_for(search: int) -> None:
    """Note the process that this one is a worker of."""
    global _myself
    _myself = replace(_myself, search=search)


def describe_myself() -> bytes:
    """Return what this process writes into the locks it holds."""
    owner = asdict(replace(_myself, pid=os.getpid(), host=socket.gethostname()))
    return json.dumps({key: value for key, value in owner.items() if value is not None}).encode()


def read_owner(path: Path) -> Owner | None:
    """Return the process that the file names, or None if it names none or one that is gone."""
    try:
        with path.open("rb") as file:
            found = json.loads(file.read(MAX_BYTES))
        search = int(found["search"]) if "search" in found else None
        owner = Owner(int(found["pid"]), str(found["host"]), search)
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return owner if owner.host != socket.gethostname() or not is_gone(owner.pid) else None


def is_gone(pid: int) -> bool:
    """Whether there is no such process, or one that has ended and only its parent has not noticed."""
    if sys.platform == "win32":
        return False  # os.kill would end the process there
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        pass  # of another user, or not a process number
    return _stat(pid)[:1] in (["Z"], ["X"])


def _is_ending(pid: int) -> bool:
    """Whether it was killed but is not gone yet, where the system tells."""
    stat = _stat(pid)
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    pending = [int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd:", "ShdPnd:"))]
    return any(signals & KILLED for signals in pending) or (len(stat) > 6 and bool(int(stat[6]) & EXITING))


def _stat(pid: int) -> list[str]:
    """Return what Linux says about a process, from its state on; empty on other systems."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()
