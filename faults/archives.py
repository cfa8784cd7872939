"""Archives that mean harm, and the small datasets they pretend to be."""

from __future__ import annotations

import gzip
import hashlib
import io
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
from PIL import Image

from invaug.lab.data import known as sources
from invaug.lab.data.readers import CIFAR10_NAMES

FOLDER = "cifar-10-batches-bin"
FIRST = f"{FOLDER}/data_batch_1.bin"
SECRET = b"s" * 3073 * 2  # has the size of two CIFAR records
WNIDS = ("n00000001", "n00000002")
TINY = "tiny-imagenet-200"


@contextmanager
def trusted(name: str, root: Path) -> Iterator[None]:
    """Let the files in a folder be the published ones of a dataset."""
    source = sources.SOURCES[name]
    found = {path.name: path for path in root.rglob("*")}
    files = {
        file: hashlib.md5(found[file].read_bytes()).hexdigest() if file in found else md5  # noqa: S324
        for file, md5 in source.files.items()
    }
    with patch.dict(sources.SOURCES, {name: source._replace(files=files)}):
        yield


def records(n_labels: int, seed: int) -> bytes:
    """Return twenty records of CIFAR's binary version."""
    random = np.random.default_rng(seed)
    labels = np.stack([np.arange(20) % 10] * n_labels, axis=1).astype(np.uint8)
    return np.concatenate([labels, random.integers(256, size=(20, 3072), dtype=np.uint8)], axis=1).tobytes()


def cifar10_files() -> dict[str, bytes]:
    """Return the six files of a small CIFAR-10."""
    return {name: records(1, i) for i, name in enumerate(CIFAR10_NAMES)}


def member(name: str, content: bytes = b"", kind: bytes = tarfile.REGTYPE, link: str = "", size: int = -1) -> bytes:
    """Return a member of a tar as it is stored; its size may be another than it says."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, len(content)
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))[-512:]
    if size != -1:
        header[124:136] = (
            b"\x80" + size.to_bytes(11, "big") if size >= 0 else b"\xff" + (256**11 + size).to_bytes(11, "big")
        )
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + content + bytes(-len(content) % 512)


EVIL = member("evil.bin", SECRET)
TARS: dict[str, Callable[[Path], bytes]] = {
    "absolute name": lambda outside: member(str(outside / "evil.bin"), SECRET),
    "name with ..": lambda outside: member("../evil.bin", SECRET) + member(f"{FOLDER}/../../evil.bin", SECRET),
    "file through a link": lambda outside: (
        member("way", b"", tarfile.SYMTYPE, str(outside)) + member("way/evil.bin", SECRET)
    ),
    "link under the name of a file": lambda outside: member(FIRST, b"", tarfile.SYMTYPE, str(outside / "secret")),
    "hard link under the name of a file": lambda outside: member(FIRST, b"", tarfile.LNKTYPE, str(outside / "secret")),
    "folder that is a link": lambda outside: member(FOLDER, b"", tarfile.SYMTYPE, str(outside)),
    "device": lambda outside: member(FIRST, b"", tarfile.CHRTYPE),
    "pipe": lambda outside: member(FIRST, b"", tarfile.FIFOTYPE),
    "member of 8 EB": lambda outside: member(FIRST, b"", size=2**63),
    "header of 1 GB": lambda outside: member("pax", b"", tarfile.XHDTYPE, size=2**30),
    "name of 1 GB": lambda outside: member("long", b"", tarfile.GNUTYPE_LONGNAME, size=2**30),
    "negative size": lambda outside: member("back", b"", size=-1024),
    "the same name twice": lambda outside: member(FIRST, records(1, 0)) + member(FIRST, SECRET),
    "NUL in a name": lambda outside: member(f"{FIRST}\0.txt", records(1, 0)) + member(f"{outside}/evil.bin\0x", SECRET),
}
"""What precedes the true files in a tar, given the folder that must stay as it is."""


def write_tar(path: Path, head: bytes) -> None:
    """Write the official tar of a small CIFAR-10 behind a head that means harm."""
    members = b"".join(member(f"{FOLDER}/{name}", content) for name, content in cifar10_files().items())
    path.write_bytes(gzip.compress(head + members + bytes(1024), 1))


def cifar100_tar() -> bytes:
    """Return the official tar of a small CIFAR-100."""
    names = b"".join(b"kind_%d\n" % i for i in range(10))
    files = {"train.bin": records(2, 1), "test.bin": records(2, 2), "fine_label_names.txt": names}
    members = b"".join(member(f"cifar-100-binary/{name}", content) for name, content in files.items())
    return gzip.compress(members + bytes(1024), 1)


class Entry(NamedTuple):
    """A member of a zip: its name, what it holds, and what is said of it."""

    name: str
    content: bytes
    mode: int = 0o100644


def jpeg(value: int) -> bytes:
    """Return a small image of one colour."""
    buffer = io.BytesIO()
    Image.new("RGB", (64, 64), (value, 255 - value, value // 2)).save(buffer, "JPEG")
    return buffer.getvalue()


def tiny_entries() -> list[Entry]:
    """Return the members of a small Tiny ImageNet."""
    train = [
        Entry(f"{TINY}/train/{w}/images/{w}_{i}.JPEG", jpeg(60 * c + i)) for c, w in enumerate(WNIDS) for i in range(4)
    ]
    val = [Entry(f"{TINY}/val/images/val_{i}.JPEG", jpeg(150 + i)) for i in range(4)]
    rows = "\n".join(f"val_{i}.JPEG\t{WNIDS[i % 2]}\t0\t0\t9\t9" for i in range(4))
    return [*train, *val, Entry(f"{TINY}/val/val_annotations.txt", rows.encode())]


def write_zip(path: Path, entries: list[Entry]) -> None:
    """Write a zip, whatever its members are called: Python itself would end a name at a NUL."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for entry in entries:
            info = zipfile.ZipInfo(entry.name.replace("\0", "\1"))
            info.external_attr, info.compress_type = entry.mode << 16, zipfile.ZIP_DEFLATED
            archive.writestr(info, entry.content)
    path.write_bytes(path.read_bytes().replace(b"evil\1", b"evil\0"))


IMAGE = f"{TINY}/train/{WNIDS[0]}/images/{WNIDS[0]}_9.JPEG"
ZIPS: dict[str, Callable[[Path], list[Entry]]] = {
    "absolute name": lambda outside: [Entry(f"{outside}/evil.JPEG", jpeg(1))],
    "name with ..": lambda outside: [Entry("../evil.JPEG", jpeg(1)), Entry(f"{TINY}/../../evil.JPEG", jpeg(1))],
    "link under the name of an image": lambda outside: [Entry(IMAGE, str(outside / "secret.JPEG").encode(), 0o120777)],
    "NUL in a name": lambda outside: [Entry(f"{outside}/evil\0.JPEG", jpeg(1))],
    "image that grows to 100 MB": lambda outside: [Entry(IMAGE, bytes(100_000_000))],
    "image of 144 million pixels": lambda outside: [Entry(IMAGE, bomb())],
}
"""What is added to the official zip of a small Tiny ImageNet, given the folder that must stay as it is."""


def bomb() -> bytes:
    """Return the header of a GIF of 144 million pixels."""
    return (
        b"GIF89a"
        + struct.pack("<HHBBB", 12000, 12000, 0x80, 0, 0)
        + bytes(6)
        + b",\0\0\0\0"
        + struct.pack("<HH", 12000, 12000)
        + b"\0\x02\x01\0\0;"
    )


def idx_files() -> dict[str, bytes]:
    """Return the four files of a small MNIST."""
    pixels = np.random.default_rng(0).integers(256, size=(20, 28, 28), dtype=np.uint8)
    content = {
        3: b"\0\0\x08\x03" + struct.pack(">III", 20, 28, 28) + pixels.tobytes(),
        1: b"\0\0\x08\x01" + struct.pack(">I", 20) + bytes(i % 10 for i in range(20)),
    }
    names = list(sources.SOURCES["mnist"].files)
    return {name: gzip.compress(content[3 if "idx3" in name else 1]) for name in names}


def mat_file() -> bytes:
    """Return a small file of SVHN."""
    from scipy.io import savemat

    buffer = io.BytesIO()
    pixels = np.random.default_rng(0).integers(256, size=(32, 32, 3, 20), dtype=np.uint8)
    savemat(buffer, {"X": pixels, "y": np.arange(20)[:, None] % 10})
    return buffer.getvalue()


def write_cached(folder: Path) -> list[tuple[str, Path]]:
    """Write small known datasets in all their forms, each in a folder of its own; return their names and folders."""
    forms: list[tuple[str, dict[str, bytes]]] = [
        ("mnist", idx_files()),
        ("fashion-mnist", idx_files()),
        ("svhn", dict.fromkeys(("train_32x32.mat", "test_32x32.mat"), mat_file())),
        ("cifar100", {"cifar-100-binary.tar.gz": cifar100_tar()}),
    ]
    for i, (_, files) in enumerate(forms):
        for name, content in files.items():
            (folder / str(i) / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / str(i) / name).write_bytes(content)
    found = [(known, folder / str(i)) for i, (known, _) in enumerate(forms)]
    for known, file in (("cifar10", "cifar-10-binary.tar.gz"), ("tiny-imagenet", "tiny-imagenet-200.zip")):
        (folder / file.partition(".")[0]).mkdir()
        found.append((known, folder / file.partition(".")[0]))
    write_tar(folder / "cifar-10-binary" / "cifar-10-binary.tar.gz", b"")
    write_zip(folder / "tiny-imagenet-200" / "tiny-imagenet-200.zip", tiny_entries())
    return found
