"""Archives, read member by member under a quota: regular files only, into memory, nothing is ever unpacked to disk.

We read members ourselves because the standard library's extraction filters have been bypassed repeatedly.
"""

import gzip
import os
import tarfile
import zipfile
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from invaug.lab.errors import UserError, reading

MAX_MEMBER = 512 << 20  # bytes of one file inside an archive; the largest official one has 154 million
MAX_TOTAL = 4 << 30  # bytes of all members; reading stops there
MAX_MEMBERS = 100_000  # of a tar, each of which costs a kilobyte of memory to list
MAX_READ = 4 << 20  # bytes requested at once: tarfile reads a header of any length whole
SUSPECT = 64 << 20  # bytes from which a member must not be a bomb
MAX_RATIO = 250  # times a member may grow; deflate reaches 1,032, and images rarely 20


class _RationedStream:
    """A stream that refuses to hand out much at once, whatever the headers in it ask for."""

    def __init__(self, stream: gzip.GzipFile) -> None:
        self.stream, self.seek, self.tell = stream, stream.seek, stream.tell

    def read(self, n: int) -> bytes:
        if not 0 <= n <= MAX_READ:
            raise UserError(f"a header asks for {n:,} bytes, over the limit of {MAX_READ:,}")
        return self.stream.read(n)


def read_tar_members(archive: Path, names: Sequence[str]) -> list[bytes]:
    """Return regular files of a gzipped tar by their exact names; everything else is skipped."""
    found: dict[str, bytes] = {}
    total = 0
    with reading(archive), gzip.open(archive) as stream, _open_tar(stream) as tar:
        for n, member in enumerate(tar, 1):
            total += member.size
            if member.size < 0 or total > MAX_TOTAL or n > MAX_MEMBERS:
                raise UserError(f"more than {MAX_TOTAL:,} bytes or {MAX_MEMBERS:,} members, or a negative size")
            if member.name in names and member.name not in found and _is_plain(member):
                found[member.name] = _read_member(tar, member)
            if len(found) == len(set(names)):
                break
    for name in names:
        if name not in found:
            raise UserError(f"{archive} does not hold the file {name}")
    return [found[name] for name in names]


def _open_tar(stream: gzip.GzipFile) -> tarfile.TarFile:
    return tarfile.open(fileobj=_RationedStream(stream), mode="r:")  # type: ignore[call-overload,no-any-return]


def _is_plain(member: tarfile.TarInfo) -> bool:
    """Whether a member is a regular file within the quota; a sparse file is not, its size is a mere claim."""
    return member.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and not member.issparse() and member.size <= MAX_MEMBER


def _read_member(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(member)
    return b"".join(iter(lambda: file.read(MAX_READ), b"")) if file else b""


def check_zip(archive: Path) -> list[str]:
    """Return the names of all members of a zip; raise if one is a bomb or a name occurs twice."""
    if archive.exists() and not archive.is_file():  # opening a pipe would wait for ever
        raise UserError(f"cannot read {archive}: it is not a regular file")
    with reading(archive), zipfile.ZipFile(archive) as members:
        names = members.namelist()
        for info in members.infolist():
            _refuse_bomb(info)
        stored, size = sum(info.compress_size for info in members.infolist()), archive.stat().st_size
        if stored > size:  # members that overlap, or a size that is a mere claim
            raise UserError(f"its members take {stored:,} bytes, but it has {size:,}")
        if len(set(names)) < len(names):
            raise UserError(f"it holds {Counter(names).most_common(1)[0][0]} twice")
        return names


def _refuse_bomb(info: zipfile.ZipInfo) -> None:
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
    members = _open_zip(archive, os.getpid(), (now.st_size, now.st_mtime_ns, now.st_ino))
    info = members.getinfo(name)
    if info.file_size > limit:
        raise UserError(f"{info.file_size:,} bytes, over the limit of {limit:,}")
    _refuse_bomb(info)
    return members.read(info)


@lru_cache(maxsize=4)
def _open_zip(path: Path, process: int, state: tuple[int, ...]) -> zipfile.ZipFile:
    """Return an open zip; each process has its own, because two must not share a position in the file."""
    return zipfile.ZipFile(path)
