"""Files that a flag or a config names: regular ones of a limited size, whatever a link leads to."""

import os
from pathlib import Path

import pytest

from invaug.lab.baselines.deepaa import deepaa
from invaug.lab.config.build import read_toml
from invaug.lab.errors import UserError
from invaug.lab.models.weights import read_weights
from invaug.lab.run.files import UnsafeFileError, parse_toml, read_named
from invaug.lab.train.folders import own_places


def test_a_link_to_a_regular_file_is_followed(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"1234")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert read_named(tmp_path / "link", 4) == b"1234"
    with pytest.raises(UnsafeFileError, match="has 4 bytes, over the limit of 3"):
        read_named(tmp_path / "link", 3)


@pytest.mark.parametrize("name", ["/dev/zero", "pipe"])
def test_devices_and_pipes_are_refused_at_once(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UnsafeFileError, match="is not a regular file"):
        read_named(tmp_path / name, 100)
    with pytest.raises(UserError, match="is not a regular file"):
        deepaa(tmp_path / name)
    with pytest.raises(UserError, match="is not a regular file"):
        read_weights(tmp_path / name)


def test_large_files_are_refused_before_they_are_read(tmp_path: Path) -> None:
    for name, size in (("policy.npz", 1 << 34), ("large.pt", 1 << 34), ("zeros.pt", 1 << 32), ("c.toml", 1 << 34)):
        with (tmp_path / name).open("wb") as file:
            file.truncate(size)
    with pytest.raises(UserError, match="over the limit"):
        deepaa(tmp_path / "policy.npz")
    with pytest.raises(UserError, match=r"begins neither like a \.safetensors file nor like"):
        read_weights(tmp_path / "zeros.pt")
    with pytest.raises(UserError, match="cannot read weights"):
        read_weights(tmp_path / "large.pt")
    with pytest.raises(UserError, match="over the limit"):
        read_toml(tmp_path / "c.toml")


@pytest.mark.parametrize("number", ["9" * 5000, "0x" + "f" * 5000, str(2**63)])
def test_integers_that_toml_does_not_have_are_refused(number: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"digits|64 bits"):
        parse_toml(f"[run]\nseed = {number}".encode())
    (tmp_path / "config.toml").write_text(f"a = [{{b = {number}}}]")
    with pytest.raises(UserError, match="is not TOML"):
        read_toml(tmp_path / "config.toml")


def test_nothing_is_downloaded_into_a_folder_that_only_the_run_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored = {"data": "cifar10", "data_dir": tmp_path / "new", "lr": 0.1}
    assert own_places(stored, {}) == {"data": "cifar10", "lr": 0.1}
    assert "which only the run names: give --data-dir" in capsys.readouterr().err
    assert own_places(stored, {"data_dir": tmp_path}) == stored
    (tmp_path / "new").mkdir()
    assert "data_dir" not in own_places(stored, {})
    (tmp_path / "new" / "cifar10.npz").touch()
    assert own_places(stored, {}) == stored
