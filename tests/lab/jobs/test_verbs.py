"""The command that resumes."""

from __future__ import annotations

import shlex
from pathlib import Path

from invaug.lab.jobs.verbs import resume_command


def test_flags_at_their_default_are_left_out_and_lists_are_repeated():
    flags = {"seeds": 3, "out": Path("my runs"), "only": ("a", "b*"), "identity": False, "drop_last": True, "on": None}
    words = shlex.split(resume_command("tune", "digits", flags, {"seeds": 3}))
    assert words[:3] == ["invaug", "tune", "digits"]
    assert words[3:] == ["--out", "my runs", "--only", "a", "--only", "b*", "--no-identity", "--drop-last"]
