"""Atomic writes: the old content or the new, and never a device."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

import pytest

from invaug.lab.run import atomic


def test_a_device_is_never_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(atomic.WriteError, match="pipe: it is not a regular file"):
        atomic.write_text(tmp_path / "pipe", "x")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_an_interrupted_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(descriptor: int) -> None:
        raise KeyboardInterrupt

    atomic.write_text(tmp_path / "a", "old")
    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        atomic.write_text(tmp_path / "a", "new")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_text() == "old"


def test_a_failure_in_a_folder_names_the_file(tmp_path: Path) -> None:
    inside, message = tmp_path / "a" / "b", "cannot write {}: No such file or directory"
    with pytest.raises(atomic.WriteError, match=re.escape(message.format(inside))), atomic.reporting(tmp_path):
        inside.unlink()
    file = tmp_path / "c"
    with pytest.raises(atomic.WriteError, match=re.escape(message.format(file))), atomic.reporting(file):
        (tmp_path / "elsewhere").unlink()
