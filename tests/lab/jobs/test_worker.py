"""A worker ends with the search that started it, whatever it is doing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from invaug.lab.jobs import worker
from invaug.lab.jobs.job import Job
from tests.support.runs import write_digits

HANG = """
import sys, time
from invaug.lab.jobs import worker
from invaug.lab.train.signals import Signals
def train(_):
    with Signals():
        print("training", file=sys.stderr, flush=True)
        time.sleep(60)  # a long step
worker.train, worker.GRACE = train, 0.2
worker.main()
"""


def test_a_worker_in_a_long_step_ends_soon_after_its_search() -> None:
    command = [sys.executable, "-c", HANG, str(os.getpid())]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:  # noqa: S603
        assert process.stdin is not None
        assert process.stderr is not None
        print("{}", file=process.stdin, flush=True)
        assert process.stderr.readline() == "training\n"
        process.stdin.close()  # as the system does when the search is killed
        assert process.wait(30) < 0


def test_a_worker_that_cannot_write_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    job = Job("a job", {"data": str(write_digits(tmp_path)), "epochs": 1}, 0, tmp_path / "file" / "run")
    reader, writer = os.pipe()
    os.write(writer, f"{job.as_json()}\n".encode())
    with os.fdopen(reader) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        monkeypatch.setattr(sys, "argv", ["worker", "1"])
        monkeypatch.setattr(worker.Signals, "second_ends", True)  # put back afterwards
        monkeypatch.setattr(worker, "_end_with_the_search", lambda: None)
        monkeypatch.setattr(worker, "work_for", lambda _: None)
        assert worker.main() in (1, 2)
    os.close(writer)
    lines = capsys.readouterr().err.splitlines()
    assert str(tmp_path / "file" / "run") in lines[-1]
