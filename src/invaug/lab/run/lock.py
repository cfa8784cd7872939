"""One writer per run folder: a lock that the system releases when its owner dies, however it dies.

Our own, because `filelock` does not record who holds a lock, which is what a user who is refused needs to know.
"""

import errno
import os
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from invaug.lab.errors import UserError
from invaug.lab.run.atomic import reporting
from invaug.lab.run.owner import describe_myself, read_owner
from invaug.lab.terminal import say

NAME = ".lock"
BUSY = (errno.EAGAIN, errno.EACCES, errno.EDEADLK)
PATIENCE = 2.0  # seconds for a new owner to write its name
DYING = 15.0  # seconds for a dying owner to be gone; a worker has a third of it to save when its search is gone
HELD: set[int] = set()  # per process, as descriptors are

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


@contextmanager
def run_lock(folder: Path) -> Iterator[None]:
    """Hold the folder for this process: `with run_lock(folder):`. The file stays, but its existence means nothing."""
    descriptor = _open(folder)
    try:
        _take(folder, descriptor)
        with reporting(folder / NAME):
            os.truncate(descriptor, 0)
            os.write(descriptor, describe_myself())
    except BaseException:
        os.close(descriptor)
        raise
    HELD.add(descriptor)
    try:
        yield
    finally:
        if descriptor in HELD:  # false in a forked child
            HELD.remove(descriptor)
            os.truncate(descriptor, 0)
            os.close(descriptor)


def _open(folder: Path) -> int:
    # not through a link, which in a folder from elsewhere could lead to any file of the user's
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / NAME, flags, 0o666)
    except OSError as error:
        raise UserError(f"cannot lock {error.filename}: {error.strerror}") from None
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:  # it will be overwritten
        os.close(descriptor)
        raise UserError(f"cannot lock {folder}: {NAME} is not a regular file; remove it")
    return descriptor


def _take(folder: Path, descriptor: int) -> None:
    """Lock, or name the owner in an error; a new owner needs a moment to write its name, a dying one to be gone."""
    started, waits = time.monotonic(), False
    while True:
        try:
            return _seize(descriptor)
        except OSError as error:
            if error.errno not in BUSY:
                message = f"cannot lock {folder}: {error.strerror}; choose a folder on another disk"
                raise UserError(message) from None
        owner = read_owner(folder / NAME)
        ending = owner is not None and owner.is_ending()
        if time.monotonic() - started >= (DYING if ending else 0.0 if owner else PATIENCE):
            holder = owner.name if owner else "another process"
            raise UserError(f"{folder} is in use by {holder}: wait for it to end, or choose another folder")
        if owner and ending and not waits:
            say(f"invaug: waiting for {owner.name}, which is ending, to release {folder}")
            waits = True
        time.sleep(0.01)


def _release_in_child() -> None:
    """Close the locks in a forked child: a data worker that outlives its parent must not keep the folder locked."""
    for descriptor in HELD:
        os.close(descriptor)
    HELD.clear()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_release_in_child)
