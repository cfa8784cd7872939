"""The files of a run, which may come from somebody else: read only if regular, of a limited size, and never links.

Files that a config or a flag names may be links, but the same holds for what these lead to.
"""

import json
import math
import os
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from invaug.lab.errors import UserError, names_beside
from invaug.lab.run import atomic
from invaug.lab.terminal import plain

CONFIG = "config.toml"
EVALUATION, CERTIFICATE, INSIGHTS = "evaluation.json", "certificate.json", "insights.json"
MAX_CONFIG = 16 << 20  # bytes; a thousand class names take about 20 kB
MAX_SHOWN = 100  # characters of a path in a message


class UnsafeFileError(OSError):
    """The file is not a regular one, or it is larger than any that invaug writes."""


def read_bytes(path: Path, limit: int) -> bytes:
    """Return the content of a regular file of at most `limit` bytes.

    A link is refused, because in a folder from elsewhere it could lead to any file of the user's.
    """
    if path.is_symlink():
        raise UnsafeFileError(f"{path.name} is not a regular file")
    return _read_regular(path, limit, path.name)


def read_named(path: Path, limit: int) -> bytes:
    """Return the content of a regular file that a flag or a config names, of at most `limit` bytes; links are fine."""
    return _read_regular(path, limit, shorten(path))


def _read_regular(path: Path, limit: int, name: str) -> bytes:
    """Return the content of a file; devices and pipes, which may have no end, are opened without waiting and refused.

    What is checked is what is read. No more memory is taken than the file has bytes, however large the limit is.
    """
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise UnsafeFileError(f"{name} is not a regular file")
        if found.st_size > limit:
            raise UnsafeFileError(f"{name} has {found.st_size:,} bytes, over the limit of {limit:,}")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(found.st_size)
    finally:
        os.close(descriptor)


def parse_toml(content: bytes) -> dict[str, Any]:
    """Return the content of a TOML file; ValueError or RecursionError if it is none.

    TOML's integers have 64 bits. Python's parser takes longer ones, which Python then cannot print.
    """
    found = tomllib.loads(content.decode())
    _check_integers(found)
    return found


def _check_integers(value: Any) -> None:
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        if isinstance(each, int) and each.bit_length() > 63:
            raise ValueError("an integer has more than 64 bits")
        _check_integers(each)


def read_run_config(folder: Path) -> dict[str, Any]:
    """Return the content of a run's config.toml, unchecked."""
    try:
        content = read_bytes(folder / CONFIG, MAX_CONFIG)
    except UnsafeFileError as error:
        raise UserError(f"{shorten(folder)} is not a run: {error}") from None
    except (OSError, ValueError) as error:  # the name may be too long, or contain a NUL
        if isinstance(error, FileNotFoundError) and not folder.is_dir():
            raise UserError(f"{shorten(folder)} does not exist{names_beside(folder)}") from None
        raise UserError(f"{shorten(folder)} is not a run: it has no {CONFIG}") from None
    try:
        return parse_toml(content)
    except (ValueError, RecursionError) as error:  # not UTF-8, not TOML, a number of 5,000 digits, or nested too deeply
        raise UserError(f"{folder / CONFIG} is not TOML: {error}") from None


def shorten(path: Path) -> str:
    """Return a path that fits on one line of a terminal."""
    name = plain(str(path))
    return name if len(name) <= MAX_SHOWN else f"{name[:60]}…"


def write_document(folder: Path, name: str, content: Mapping[str, Any]) -> None:
    """Write a JSON document into the folder of a run, for its page."""
    atomic.write_text(folder / name, json.dumps(json_safe(content), allow_nan=False))


def json_safe(value: Any) -> Any:
    """Return the value with null in place of infinities and NaN, which JSON cannot express."""
    if isinstance(value, Mapping):
        return {key: json_safe(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [json_safe(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
