"""Downloads that can be interrupted: resumed where they stopped, verified, and in place only when complete.

We do this ourselves because torchvision's and urllib's downloads neither resume nor rename only after the checksum
matches, and two processes that start at once would overwrite each other's file.
"""

import contextlib
import hashlib
import math
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from http.client import HTTPException, HTTPResponse
from io import BufferedIOBase
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from invaug.lab.errors import UserError, reading
from invaug.lab.run.atomic import sync_folder
from invaug.lab.terminal import with_progress

TIMEOUT = 30.0  # seconds without a byte
ATTEMPTS = 4  # connections per address: university servers drop them
PAUSE = 1.0  # seconds before the second attempt, then three and seven
MAX_BYTES = 8 << 30  # a server that never stops must not fill the disk
CHUNK = 1 << 18


def verify(path: Path, md5: str) -> None:
    """Raise unless the file is byte for byte the one that was published."""
    with reading(path), path.open("rb") as file:
        found = _md5(file)
    if found != md5:
        way_out = "delete it to download it again, or put the official file there"
        raise UserError(f"{path} is not the official file (md5 {found}, published {md5}): {way_out}")


def fetch(urls: Sequence[str], target: Path, md5: str) -> Path:
    """Return `target`, downloaded from the first address that serves the published file.

    Bytes collect in `<target>.part`, which a later call, or another address, continues. Processes that want the
    same file wait for one another.
    """
    part = target.with_name(f"{target.name}.part")
    with _disk_errors(target), _claim(part) as file:
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
        file.flush()
        os.fsync(file.fileno())
        part.replace(target)
        sync_folder(target.parent)
    return target


@contextmanager
def _disk_errors(target: Path) -> Iterator[None]:
    """Turn what the file system refuses (permission, no room) into one line for the user."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        way_out = "choose another folder with --data-dir or INVAUG_DATA"
        raise UserError(f"cannot write {target}: {error.strerror or error}; {way_out}") from error


@contextmanager
def _claim(part: Path) -> Iterator[BufferedIOBase]:
    """Yield the partial file, open for appending, as its only writer, once no other process downloads into it."""
    while True:
        with part.open("a+b") as file:
            with contextlib.suppress(ImportError, OSError):  # Windows and some network disks have no such locks
                import fcntl

                fcntl.flock(file, fcntl.LOCK_EX)
            # the file we waited for may be finished and renamed by now: then it is no longer the partial one
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file.fileno()), part.stat()):
                    yield file
                    return


def _download(urls: Sequence[str], file: BufferedIOBase, target: Path, md5: str) -> None:
    """Fill the file from the first address that works, or raise one error that says what to do by hand."""
    failures = []
    for url in urls:
        reason = _download_from(url, file, target, md5)
        if reason is None:
            return
        failures.append(f"{url} ({reason})")
    way_out = f"put {target.name} in {target.parent} by hand, or set --data-dir or INVAUG_DATA to a folder that has it"
    raise UserError(f"cannot download {' or '.join(failures)}: {way_out}")


def _download_from(url: str, file: BufferedIOBase, target: Path, md5: str) -> str | None:
    """Complete the file from one address; return why that failed, or None if the file is the published one."""
    reason = "no answer"
    for attempt in range(ATTEMPTS):
        time.sleep(PAUSE * (2**attempt - 1))
        resumed = file.seek(0, os.SEEK_END) > 0
        if resumed and _md5(file) == md5:  # stopped after the last byte, before the rename
            return None
        try:
            _receive(url, file, target)
        except HTTPError as error:
            error.close()
            reason = f"HTTP status {error.code}"
            if error.code == 416:  # nothing is left to send: the partial file is not the beginning of this one
                file.truncate(0)
            elif error.code < 500:
                return reason
        except (OSError, HTTPException) as error:
            reason = str(getattr(error, "reason", error)) or type(error).__name__
        else:
            found = _md5(file)
            if found == md5:
                return None
            file.truncate(0)
            reason = f"it sent md5 {found}, published is {md5}"
            if not resumed:  # otherwise the old part may be to blame: start over
                return reason
    return reason


def _receive(url: str, file: BufferedIOBase, target: Path) -> None:
    """Append what the server still has to send; OSErrors are the connection's, those of the disk are UserErrors."""
    have = file.seek(0, os.SEEK_END)
    with _connect(url, have) as response:
        # servers may ignore the request for the rest and send everything
        content_range = response.headers.get("Content-Range", "")
        if response.status != 206 or not content_range.startswith(f"bytes {have}-"):
            file.truncate(0)
            have = 0
        length = response.headers.get("Content-Length") or ""
        rest = int(length) if length.isdigit() else None
        total = have + (rest or 0)
        chunks = iter(partial(response.read, CHUNK), b"")
        for chunk in with_progress(chunks, f"downloading {target.name}", rest and math.ceil(rest / CHUNK)):
            have += len(chunk)
            if have > MAX_BYTES:
                raise ConnectionError(f"more than {MAX_BYTES:,} bytes")
            with _disk_errors(target):
                file.write(chunk)
                file.flush()
    if have < total:
        raise ConnectionError(f"connection closed after {have:,} of {total:,} bytes")


def _connect(url: str, have: int) -> HTTPResponse:
    if not url.startswith(("https://", "http://")):
        raise ConnectionError("only http and https addresses are fetched")
    headers = {"User-Agent": "invaug"} | ({"Range": f"bytes={have}-"} if have else {})
    response: HTTPResponse = urlopen(Request(url, headers=headers), timeout=TIMEOUT)  # noqa: S310 - the scheme is checked above
    return response


def _md5(file: BufferedIOBase) -> str:
    """Return the MD5 of a file, which is the checksum that the publishers give."""
    file.seek(0)
    return hashlib.file_digest(file, partial(hashlib.md5, usedforsecurity=False)).hexdigest()
