"""The command that resumes."""

from __future__ import annotations

import shlex
import signal
from pathlib import Path

import pytest

from invaug.lab.jobs.resume import resumable, resume_command
from invaug.lab.train.signals import Stopped


def test_flags_at_their_default_are_left_out_and_lists_are_repeated():
    flags = {"seeds": 3, "out": Path("my runs"), "only": ("a", "b*"), "identity": False, "drop_last": True, "on": None}
    words = shlex.split(resume_command("tune", "digits", flags, {"seeds": 3}))
    assert words[:3] == ["invaug", "tune", "digits"]
    assert words[3:] == ["--out", "my runs", "--only", "a", "--only", "b*", "--no-identity", "--drop-last"]


def test_a_stop_names_the_command():
    with (
        pytest.raises(Stopped, match="stopped and saved; resume with: invaug tune digits") as stopped,
        resumable("invaug tune digits"),
    ):
        raise Stopped(signal.SIGTERM)
    assert stopped.value.signum == signal.SIGTERM
