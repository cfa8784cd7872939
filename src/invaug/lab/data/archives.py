"""Archives, read member by member under a quota: regular files only, into memory, nothing is ever unpacked to disk."""

from __future__ import annotations

import gzip
import os
import tarfile
import zipfile
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import IO

from invaug.lab.errors import UserError, reading

MAX_MEMBER = 512 << 20  # bytes of one file inside an archive; the largest official one has 154 million
MAX_TOTAL = 4 << 30  # bytes of all of them; nothing after is read
MAX_MEMBERS = 100_000  # of a tar, each of which costs a kilobyte of memory to list
MAX_READ = 4 << 20  # bytes asked for at once: tarfile reads a header of any length whole
SUSPECT = 64 << 20  # bytes from which a member must not be a bomb
MAX_RATIO = 250  # times a member may grow; deflate reaches 1,032, and images rarely 20


class _Rationed:
    """A stream that refuses to hand out much at once, whatever the headers in it ask for."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream = stream

    def read(self, n: int) -> bytes:
        if not 0 <= n <= MAX_READ:
            raise UserError(f"a header asks for {n:,} bytes, over the limit of {MAX_READ:,}")
        return self.stream.read(n)

    def seek(self, place: int) -> int:
        return self.stream.seek(place)

    def tell(self) -> int:
        return self.stream.tell()


def read_members(archive: Path, names: Sequence[str]) -> list[bytes]:
    """Return regular files of a tar, gzipped or not, by their exact names; everything else is passed over."""
    found: dict[str, bytes] = {}
    with reading(archive), _opened(archive) as stream, tarfile.open(fileobj=_Rationed(stream), mode="r:") as tar:  # type: ignore[call-overload]  # enough of a file
        total = 0
        for n, member in enumerate(tar, 1):
            total += member.size
            if member.size < 0 or total > MAX_TOTAL or n > MAX_MEMBERS:
                raise UserError(f"more than {MAX_TOTAL:,} bytes or {MAX_MEMBERS:,} members, or a negative size")
            if member.name in names and member.name not in found and _is_plain(member):
                found[member.name] = _content(tar, member)
            if len(found) == len(set(names)):
                break
    for name in names:
        if name not in found:
            raise UserError(f"{archive} does not hold the file {name}")
    return [found[name] for name in names]


def _opened(archive: Path) -> IO[bytes]:
    with archive.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    return gzip.open(archive) if packed else archive.open("rb")  # type: ignore[return-value]  # it reads, seeks, tells


def _is_plain(member: tarfile.TarInfo) -> bool:
    """Whether a member is a regular file within the quota; a sparse one is not: its size is only said."""
    return member.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and not member.issparse() and member.size <= MAX_MEMBER


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(member)
    parts = []
    while file and (part := file.read(MAX_READ)):
        parts.append(part)
    return b"".join(parts)


def check_zip(archive: Path) -> list[str]:
    """Return the names of all members of a zip whose members are as large as they may be, and none is there twice."""
    with reading(archive), zipfile.ZipFile(archive) as members:
        names = members.namelist()
        for info in members.infolist():
            refuse_bomb(info)
        if len(set(names)) < len(names):
            raise UserError(f"it holds {Counter(names).most_common(1)[0][0]} twice")
        return names


def refuse_bomb(info: zipfile.ZipInfo) -> None:
    """Raise if a member of a zip grows as only a bomb does."""
    if info.file_size > SUSPECT and info.file_size > MAX_RATIO * info.compress_size:
        raise UserError(f"{info.filename} grows from {info.compress_size:,} to {info.file_size:,} bytes: a zip bomb")


def zip_above(path: Path) -> Path | None:
    """Return the zip that a path leads through."""
    if ".zip" not in str(path):  # walking up every path would cost a fifth of the decoding
        return None
    return next((parent for parent in path.parents if parent.suffix == ".zip" and parent.is_file()), None)


def read_zip_member(archive: Path, name: str, limit: int = MAX_MEMBER) -> bytes:
    """Return one member of a zip; its checksum is verified on the way."""
    now = archive.stat()
    members = _zip(archive, os.getpid(), (now.st_size, now.st_mtime_ns, now.st_ino))
    info = members.getinfo(name)
    if info.file_size > limit:
        raise UserError(f"{info.file_size:,} bytes, over the limit of {limit:,}")
    refuse_bomb(info)
    return members.read(info)


def open_zip_member(archive: Path, path: Path, limit: int) -> IO[bytes]:
    """Return the file that a path leads to inside a zip."""
    return BytesIO(read_zip_member(archive, path.relative_to(archive).as_posix(), limit))


@lru_cache(maxsize=4)
def _zip(path: Path, process: int, state: tuple[int, ...]) -> zipfile.ZipFile:
    """Return an open zip; each process has its own, for two may not share a position in the file."""
    return zipfile.ZipFile(path)
