"""One writer per run folder: a lock that the system releases when its owner dies, however it dies.

Our own, because `filelock` does not record who holds a lock, which is what a user who is refused needs to know.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import stat
import sys
import time
from pathlib import Path
from types import TracebackType

from invaug.lab.errors import UserError

NAME = ".lock"
BUSY = (errno.EAGAIN, errno.EACCES, errno.EDEADLK)
PATIENCE = 2.0  # seconds for a new owner to write its name, or for a dying one to be gone

if sys.platform == "win32":
    import msvcrt

    def _seize(descriptor: int) -> None:
        os.lseek(descriptor, 2**30, os.SEEK_SET)  # Windows blocks reading what is locked: lock a byte past the name
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        os.lseek(descriptor, 0, os.SEEK_SET)
else:
    import fcntl

    def _seize(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


class RunLock:
    """Holds the folder for this process: `with RunLock(folder):`. The file stays, but its existence means nothing."""

    held: set[int] = set()  # noqa: RUF012 - per process, as descriptors are

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / NAME
        self._descriptor = -1

    def __enter__(self) -> RunLock:
        descriptor = self._open()
        try:
            self._take(descriptor)
            os.truncate(descriptor, 0)
            os.write(descriptor, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode())
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        self.held.add(descriptor)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._descriptor in self.held:  # false in a forked child
            self.held.remove(self._descriptor)
            os.truncate(self._descriptor, 0)
            os.close(self._descriptor)

    def _open(self) -> int:
        # not through a link, which in a folder from elsewhere could lead to any file of the user's
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path, flags, 0o666)
        except OSError as error:
            raise UserError(f"cannot lock {self.folder}: {error.strerror}") from None
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:  # it will be overwritten
            os.close(descriptor)
            raise UserError(f"cannot lock {self.folder}: {NAME} is not a regular file; remove it")
        return descriptor

    def _take(self, descriptor: int) -> None:
        """Lock, or name the owner in an error; a new owner needs a moment to write its name."""
        until = time.monotonic() + PATIENCE
        while True:
            try:
                return _seize(descriptor)
            except OSError as error:
                if error.errno not in BUSY:
                    message = f"cannot lock {self.folder}: {error.strerror}; choose a folder on another disk"
                    raise UserError(message) from None
            owner = _live_owner(self.path)
            if owner or time.monotonic() > until:
                holder = owner or "another process"
                raise UserError(f"{self.folder} is in use by {holder}: wait for it to end, or choose another folder")
            time.sleep(0.01)


def _live_owner(path: Path) -> str | None:
    """Return the process that the file names, or None if it names none or a dead one."""
    try:
        owner = json.loads(path.read_bytes())
        pid, host = int(owner["pid"]), str(owner["host"])
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return f"process {pid} on {host}" if host != socket.gethostname() or _is_alive(pid) else None


def _is_alive(pid: int) -> bool:
    if sys.platform == "win32":
        return True  # os.kill would end the process there
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        pass  # of another user, or not a process number
    return True


def _release_in_child() -> None:
    """Close the locks in a forked child: a data worker that outlives its parent must not keep the folder locked."""
    for descriptor in RunLock.held:
        os.close(descriptor)
    RunLock.held.clear()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_release_in_child)
