"""Files of a folder from elsewhere: what is not a regular file of a sane size is refused before it is opened."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest

from invaug.lab.errors import UserError
from invaug.lab.run import files


def test_a_regular_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    assert files.read_bytes(tmp_path / "a", 5) == b"12345"


def test_a_file_over_the_limit_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    with pytest.raises(files.UnsafeFileError, match="a has 5 bytes, over the limit of 4"):
        files.read_bytes(tmp_path / "a", 4)


@pytest.mark.parametrize("kind", ["link", "folder", "pipe"])
def test_what_is_not_a_regular_file_is_refused(kind: str, tmp_path: Path) -> None:
    path, target = tmp_path / "config.toml", tmp_path / "target"
    target.write_text("")
    {"link": lambda: path.symlink_to(target), "folder": path.mkdir, "pipe": lambda: os.mkfifo(path)}[kind]()
    with pytest.raises(files.UnsafeFileError, match=r"config\.toml is not a regular file"):
        files.read_bytes(path, 100)
    with pytest.raises(UserError, match=r"is not a run: config\.toml is not a regular file"):
        files.read_run_config(tmp_path)


@pytest.mark.parametrize("content", [b"a = ", b"\xff", b"a = " + b"1" * 5000, b"a = " + b"[" * 10**5])
def test_a_config_that_is_not_toml_is_one_line(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_bytes(content)
    with pytest.raises(UserError, match=r"config\.toml is not TOML: ") as caught:
        files.read_run_config(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_folder_that_does_not_exist_is_called_that_and_its_neighbours_named(tmp_path: Path) -> None:
    (tmp_path / "digits").mkdir()
    for name, hint in (("absent", "$"), ("digitss", rf", did you mean {tmp_path / 'digits'}\?$")):
        with pytest.raises(UserError, match=rf"{name} does not exist{hint}"):
            files.read_run_config(tmp_path / name)


@pytest.mark.parametrize("name", ["", "x" * 5000, "a\0b"], ids=["empty", "too long", "NUL"])
def test_a_folder_without_a_config_is_not_a_run(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"is not a run: it has no config\.toml") as caught:
        files.read_run_config(tmp_path / name)
    assert len(str(caught.value)) < 200


def test_numbers_json_cannot_express_become_null() -> None:
    assert files.json_safe({"a": [math.nan, 1.0], "b": {"c": math.inf}}) == {"a": [None, 1.0], "b": {"c": None}}


def test_a_document_is_plain_json(tmp_path: Path) -> None:
    files.write_document(tmp_path, "numbers.json", {"a": (1.0, math.inf)})
    assert json.loads((tmp_path / "numbers.json").read_text()) == {"a": [1.0, None]}
