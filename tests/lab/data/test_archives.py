"""Hostile and broken archives: refused or read right, and nothing is written."""

from __future__ import annotations

import gzip
import os
import tarfile
import zipfile
from pathlib import Path

import pytest

from faults.archives import FIRST, TARS, member, records, write_tar
from invaug.lab.data import archives
from invaug.lab.data.load import load_dataset
from invaug.lab.errors import UserError
from tests.support.datasets import CIFAR10_NAMES, cifar_files, images, trust, write_gzipped_tar


def hostile(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


@pytest.mark.parametrize(
    "member",
    [
        hostile("../evil.bin"),
        hostile("/evil.bin"),
        hostile("cifar-10-batches-bin/../../evil.bin"),
        hostile("link", tarfile.SYMTYPE, "/etc/passwd"),
        hostile(FIRST, tarfile.SYMTYPE, "../secret"),
        hostile(FIRST, tarfile.LNKTYPE, "../secret"),
        hostile(FIRST, tarfile.FIFOTYPE),
        hostile(FIRST, tarfile.CHRTYPE),
        hostile(FIRST, tarfile.DIRTYPE),
        hostile(f"./{FIRST}"),
        hostile("cifar-10-batches-bin", tarfile.SYMTYPE, "/"),
    ],
    ids=lambda member: f"{member.name} {member.type.decode()}",
)
def test_a_hostile_tar_writes_nothing_and_follows_no_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, member: tarfile.TarInfo
) -> None:
    (tmp_path / "secret").write_bytes(b"s" * 3073)
    root = tmp_path / "data"
    root.mkdir()
    files, arrays = cifar_files(1, CIFAR10_NAMES)
    packed = {f"cifar-10-batches-bin/{name}": content for name, content in files.items()}
    write_gzipped_tar(root / "cifar-10-binary.tar.gz", packed, (member, b"e" * 3073 if member.isreg() else b""))
    trust(monkeypatch, "cifar10", root)
    monkeypatch.chdir(root)
    dataset = load_dataset("cifar10", data_dir=root)
    assert (dataset.train.images.numpy()[:20] == arrays["data_batch_1.bin"][0]).all()
    del packed[FIRST]
    write_gzipped_tar(root / "cifar-10-binary.tar.gz", packed, (member, b""))
    trust(monkeypatch, "cifar10", root)
    with pytest.raises(UserError, match=f"does not hold the file {FIRST}"):
        load_dataset("cifar10", data_dir=root)
    written = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*"))
    assert written == ["data", "data/cifar-10-binary.tar.gz", "secret"]


@pytest.mark.parametrize("cut", [0, 10, 500])
def test_broken_tars_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: int) -> None:
    write_gzipped_tar(tmp_path / "whole.tar.gz", {FIRST: images(1).tobytes()})
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes((tmp_path / "whole.tar.gz").read_bytes()[:cut])
    trust(monkeypatch, "cifar10", tmp_path)
    with pytest.raises(UserError, match=r"cannot read .*cifar-10-binary\.tar\.gz"):
        load_dataset("cifar10", data_dir=tmp_path)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("member of 8 EB", "more than 4,294,967,296 bytes"),
        ("header of 1 GB", "a header asks for 1,073,741,824 bytes, over the limit of 4,194,304"),
        ("name of 1 GB", "a header asks for 1,073,741,824 bytes, over the limit of 4,194,304"),
        ("negative size", "or a negative size"),
    ],
)
def test_a_tar_whose_sizes_lie_is_refused_before_it_costs_anything(tmp_path: Path, kind: str, message: str) -> None:
    path = tmp_path / "a.tar.gz"
    write_tar(path, TARS[kind](tmp_path))
    with pytest.raises(UserError, match=rf"^cannot read .*a\.tar\.gz: .*{message}"):
        archives.read_tar_members(path, [FIRST])


def test_a_tar_is_read_no_further_than_needed_and_only_so_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.tar.gz"
    write_tar(path, member(FIRST, b"mine") + b"\xff" * 512)
    assert archives.read_tar_members(path, [FIRST]) == [b"mine"]
    write_tar(path, b"".join(member(f"file-{i}") for i in range(12)))
    assert archives.read_tar_members(path, [FIRST]) == [records(1, 0)]
    monkeypatch.setattr(archives, "MAX_MEMBERS", 10)
    with pytest.raises(UserError, match="or 10 members"):
        archives.read_tar_members(path, [FIRST])


def test_a_sparse_member_is_no_regular_file(tmp_path: Path) -> None:
    path = tmp_path / "a.tar.gz"
    sparse = bytearray(member("file", bytes(512), b"S"))
    path.write_bytes(gzip.compress(bytes(sparse) + bytes(1024)))
    with pytest.raises(UserError, match=r"does not hold the file file|cannot read"):
        archives.read_tar_members(path, ["file"])


def test_a_member_of_a_zip_that_lies_about_its_size_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.txt", os.urandom(10_000))
    content = path.read_bytes()
    central = content.index(b"PK\1\2") + 24
    path.write_bytes(content[:central] + (100).to_bytes(4, "little") + content[central + 4 :])
    with pytest.raises(zipfile.BadZipFile, match="Bad CRC-32"):
        archives.read_zip_member(path, "a.txt")
