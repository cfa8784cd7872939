"""What is remembered between runs in the user's cache folder; everything works without it, only slower."""

import hashlib
import json
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from invaug.lab.run.atomic import write_text
from invaug.lab.run.files import read_bytes

MAX_BYTES = 64 << 20  # of what is remembered of a folder
FRESH = 2_000_000_000  # nanoseconds: a file younger than this may change again without its times showing it


def cache_folder() -> Path:
    """Return the folder of the user's cache, which may not exist and may not be writable."""
    given = os.environ.get("XDG_CACHE_HOME")
    with suppress(RuntimeError):  # a user without a home
        return (Path(given) if given else Path.home() / ".cache") / "invaug"
    return Path(".cache") / "invaug"


def fingerprint(files: Iterable[Path]) -> str | None:
    """Return a fingerprint of files by what the system reports about them; None if that cannot be relied on.

    Nobody can set the change time of an inode, so a file with a new byte has another fingerprint even if its size
    and its modification time were restored.
    """
    digest, newest = hashlib.blake2b(digest_size=16), 0
    now = time.time_ns()
    for path in files:
        try:
            found = path.stat()
        except OSError:
            return None
        newest = max(newest, found.st_mtime_ns, found.st_ctime_ns)
        numbers = (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_dev)
        digest.update(os.fsencode(path.name) + b"\0" + repr(numbers).encode())
    return None if newest > now - FRESH else digest.hexdigest()


def recall(topic: str) -> dict[str, Any]:
    """Return the entries remembered under a topic; none if the file is damaged."""
    with suppress(OSError, ValueError, RecursionError):
        match json.loads(read_bytes(_cache_file(topic), MAX_BYTES)):
            case {"topic": str(name), "entries": dict(entries)} if name == topic:
                return entries
    return {}


def remember(topic: str, entries: dict[str, Any]) -> None:
    """Add entries to those remembered under a topic, if the cache can be written."""
    with suppress(OSError):
        file = _cache_file(topic)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, json.dumps({"topic": topic, "entries": {**recall(topic), **entries}}))


def _cache_file(topic: str) -> Path:
    name = hashlib.blake2b(topic.encode("utf-8", "surrogateescape"), digest_size=12).hexdigest()
    return cache_folder() / "checked" / f"{name}.json"
