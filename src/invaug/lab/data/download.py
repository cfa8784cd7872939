"""Downloads that can be interrupted: resumed where they stopped, checked, and in place only when whole."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPException, HTTPResponse
from io import BytesIO
from pathlib import Path
from typing import IO
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from invaug.lab.errors import UserError, reading
from invaug.lab.run.atomic import sync_folder

TIMEOUT = 30.0  # seconds without a byte
ATTEMPTS = 4  # connections per address: university servers drop them
PAUSE = 1.0  # seconds before the second attempt, doubled before each further one
MAX_BYTES = 8 << 30  # a server that never stops must not fill the disk
CHUNK = 1 << 18
MAX_TEXT = 1 << 20  # bytes of a file of words

if sys.platform == "win32":

    def _lock(file: IO[bytes]) -> None:
        """Windows refuses to rename an open file, which is lock enough."""
else:
    import fcntl

    def _lock(file: IO[bytes]) -> None:
        """Wait until no other process downloads into this file; some network disks have no locks."""
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)


def md5_of(path: Path, *, text: bool = False) -> str:
    """Return the MD5 of a file, the checksum its publishers give; of text, without carriage returns."""
    with reading(path), path.open("rb") as file:
        return _md5(BytesIO(file.read(MAX_TEXT).replace(b"\r", b"")) if text else file)


def verify(path: Path, md5: str, *, text: bool = False) -> None:
    """Raise unless the file is, byte for byte, or line for line, the one that was published."""
    found = md5_of(path, text=text)
    if found != md5:
        way_out = "delete it, so that it is downloaded again, or put the official file there"
        raise UserError(f"{path} is not the official file (md5 {found}, published {md5}): {way_out}")


def fetch(urls: Sequence[str], target: Path, md5: str) -> Path:
    """Return `target`, downloaded from the first address that serves the published file.

    Bytes collect in `<target>.part`, which a later call, or another address, continues. Processes that want the
    same file wait for one another.
    """
    part = target.with_name(f"{target.name}.part")
    with _writing(target), _claimed(part) as file:
        if target.is_file():  # somebody else finished it while we waited
            part.unlink()
            verify(target, md5)
            return target
        try:
            _download(urls, file, target, md5)
        except BaseException:
            if not os.fstat(file.fileno()).st_size:
                part.unlink()
            raise
        _settle(file, part, target)
    return target


@contextmanager
def _writing(target: Path) -> Iterator[None]:
    """Turn what the file system refuses (permission, no room) into the user's one line."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        way_out = "choose another folder with --data-dir or INVAUG_DATA"
        raise UserError(f"cannot write {target}: {error.strerror or error}; {way_out}") from error


@contextmanager
def _claimed(part: Path) -> Iterator[IO[bytes]]:
    """Yield the partial file, open for appending, as its only writer."""
    while True:
        with part.open("a+b") as file:
            _lock(file)
            # the file we waited for may be finished and renamed by now: then it is no longer the partial one
            with contextlib.suppress(FileNotFoundError):
                if not os.path.samestat(os.fstat(file.fileno()), part.stat()):
                    continue
                yield file
                return


def _settle(file: IO[bytes], part: Path, target: Path) -> None:
    file.flush()
    os.fsync(file.fileno())
    part.replace(target)
    sync_folder(target.parent)


def _download(urls: Sequence[str], file: IO[bytes], target: Path, md5: str) -> None:
    """Fill the file from the first address that works, or raise one error that says what to do by hand."""
    failures = []
    for url in urls:
        reason = _from_address(url, file, target.name, md5)
        if reason is None:
            return
        failures.append(f"{url} ({reason})")
    way_out = f"put {target.name} in {target.parent} by hand, or set --data-dir or INVAUG_DATA to a folder that has it"
    raise UserError(f"cannot download {' or '.join(failures)}: {way_out}")


def _from_address(url: str, file: IO[bytes], name: str, md5: str) -> str | None:
    """Complete the file from one address; return why that failed, or None if the file is the published one."""
    reason = "no answer"
    for attempt in range(ATTEMPTS):
        resumed = file.seek(0, os.SEEK_END) > 0
        if resumed and _md5(file) == md5:  # stopped after the last byte, before the rename
            return None
        try:
            _receive(url, file, name)
        except HTTPError as error:
            reason = f"HTTP status {error.code}"
            if error.code == 416:  # nothing is left to send: the partial file is not the beginning of this one
                file.truncate(0)
            elif error.code < 500:
                return reason
        except (_NetworkError, HTTPException) as error:
            reason = str(error) or type(error).__name__
        else:
            found = _md5(file)
            if found == md5:
                return None
            file.truncate(0)
            reason = f"it sent md5 {found}, published is {md5}"
            if not resumed:
                return reason
            continue  # the old part was to blame, perhaps: once more from the start
        if attempt < ATTEMPTS - 1:
            time.sleep(PAUSE * 2**attempt)
    return reason


class _NetworkError(Exception):
    """The connection failed, not the disk: both are OSError to Python."""


def _receive(url: str, file: IO[bytes], name: str) -> None:
    """Append what the server still has to send."""
    have = file.seek(0, os.SEEK_END)
    with _connected(url, have) as response:
        if not _continues(response, have):
            file.truncate(0)
            have = 0
        length = response.headers.get("Content-Length")
        total = have + int(length) if length and length.isdigit() else None
        with _bar(name, total, have) as advance:
            have += _copy(response, file, advance, MAX_BYTES - have)
    if total is not None and have < total:
        raise _NetworkError(f"connection closed after {have:,} of {total:,} bytes")


@contextmanager
def _connected(url: str, have: int) -> Iterator[HTTPResponse]:
    if not url.startswith(("https://", "http://")):
        raise _NetworkError("only http and https addresses are fetched")
    headers = {"User-Agent": "invaug"} | ({"Range": f"bytes={have}-"} if have else {})
    try:
        response = urlopen(Request(url, headers=headers), timeout=TIMEOUT)  # noqa: S310 - the scheme is checked above
    except HTTPError as error:
        error.close()
        raise
    except OSError as error:
        raise _NetworkError(str(getattr(error, "reason", error))) from error
    with response:
        yield response


def _continues(response: HTTPResponse, have: int) -> bool:
    """Whether the server sends the rest from byte `have`; servers may ignore the wish and send all."""
    return response.status == 206 and response.headers.get("Content-Range", "").startswith(f"bytes {have}-")


def _copy(response: HTTPResponse, file: IO[bytes], advance: Callable[[int], None], room: int) -> int:
    n_bytes = 0
    while chunk := _read(response):
        n_bytes += len(chunk)
        if n_bytes > room:
            raise _NetworkError(f"more than {MAX_BYTES:,} bytes")
        file.write(chunk)
        advance(len(chunk))
    file.flush()
    return n_bytes


def _read(response: HTTPResponse) -> bytes:
    try:
        return response.read(CHUNK)
    except OSError as error:
        raise _NetworkError(str(error)) from error


@contextmanager
def _bar(name: str, total: int | None, done: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar of bytes on stderr; yield the function that moves it."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    console = Console(stderr=True)
    columns = ("{task.description}", BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(name, total=total, completed=done)
        yield lambda n_bytes: progress.advance(task, n_bytes)


def _md5(file: IO[bytes]) -> str:
    file.seek(0)
    digest = hashlib.md5(usedforsecurity=False)
    while chunk := file.read(1 << 20):
        digest.update(chunk)
    return digest.hexdigest()
