"""Files that hold either the old content or the new, whatever happens while they are written.

Our own, because `atomicwrites`, the usual library, is no longer maintained and does not clean up after a killed writer.
"""

import errno
import json
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

LEFTOVER = re.compile(r"\..+\.[0-9a-f]{8}\.tmp", re.DOTALL)
MAX_JSON = 32 << 20  # bytes of a document
UNSYNCABLE = (errno.EINVAL, errno.ENOTSUP)  # some network file systems cannot sync a folder


class WriteError(OSError):
    """A file could not be written (disk full, no permission); its previous content is intact."""

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.errno = code


@contextmanager
def reporting(path: Path) -> Iterator[None]:
    """Turn the system's error about a failed write into one line that names the file."""
    try:
        yield
    except WriteError:
        raise
    except OSError as error:
        raise WriteError(f"cannot write {_named(path, error)}: {error.strerror or error}", error.errno) from error


def _named(path: Path, error: OSError) -> Path:
    """Return the file in the folder `path` that the error names, or `path` itself."""
    named = Path(error.filename) if isinstance(error.filename, str) else path
    return named if path in named.parents else path


def write_text(path: Path, text: str) -> None:
    """Replace the content of a file by this text."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Replace the content of a file: write a temporary file next to it, fsync, rename, fsync the folder."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    with reporting(path):
        if path.exists() and not path.is_file():  # renaming over a device would remove it, if the user is root
            raise OSError(errno.EINVAL, "it is not a regular file")
        try:
            with temporary.open("xb", buffering=0) as file:
                write_all(file.fileno(), data)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all the data and wait until it is on disk; a single call to write may stop early."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
    os.fsync(descriptor)


def sync_folder(folder: Path) -> None:
    """Wait until the names in the folder are on disk, if the system supports it."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in UNSYNCABLE:
            raise
    finally:
        os.close(descriptor)


def sweep(folder: Path) -> None:
    """Remove temporary files that a killed writer left behind; only for the single writer of the folder."""
    for entry in list(folder.iterdir()):
        if LEFTOVER.fullmatch(entry.name):
            entry.unlink(missing_ok=True)


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the table in a JSON file, or None if there is no such file, it is too large or has anything else in it."""
    if path.is_symlink() or not path.is_file() or path.stat().st_size > MAX_JSON:
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
