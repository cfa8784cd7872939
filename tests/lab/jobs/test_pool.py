"""Jobs side by side: no more at once than asked, asked for late, stopped by a signal."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from invaug.lab.errors import UserError
from invaug.lab.jobs import pool
from invaug.lab.jobs.job import Job
from invaug.lab.jobs.progress import bar
from invaug.lab.train.display import Screen
from invaug.lab.train.signals import Stopped


class FakeWorkers:
    """Ends the oldest job at every look."""

    def __init__(self) -> None:
        self.running: list[Job] = []
        self.most, self.stopped = 0, False

    def start(self, job: Job) -> None:
        self.running.append(job)
        self.most = max(self.most, len(self.running))

    def collect(self) -> list[Job]:
        ended, self.running = self.running[:1], self.running[1:]
        for job in ended:
            job.keep({"numbers": {"test_accuracy": 0.5}})
        return ended

    def stop(self) -> None:
        self.stopped = True


@pytest.fixture
def workers(monkeypatch) -> FakeWorkers:
    found = FakeWorkers()
    monkeypatch.setattr(pool, "_workers", lambda *_: found)
    monkeypatch.setattr(pool, "POLL", 0.0)
    return found


def make_jobs(folder: Path, n: int) -> list[Job]:
    return [Job(f"job {i}", {"method": "none"}, 0, folder / str(i)) for i in range(n)]


def run(jobs: Iterator[Job], ended, at_once: int = 2) -> None:
    with bar(5, Screen(quiet=True), "invaug tune digits") as shown:
        pool.run_jobs(jobs, shown, at_once=at_once, ended=ended)


def test_no_more_jobs_run_at_once_than_asked_and_the_next_one_may_depend_on_what_has_ended(tmp_path, workers):
    jobs, ended, known = make_jobs(tmp_path, 5), [], []

    def one_after_another() -> Iterator[Job]:
        for job in jobs:
            known.append(len(ended))
            yield job

    run(one_after_another(), ended.append)
    assert ended == jobs
    assert workers.most == 2
    assert known == [0, 0, 1, 2, 3]
    assert workers.stopped


def test_a_signal_stops_the_workers_and_names_the_command_that_resumes(tmp_path, workers):
    with pytest.raises(Stopped, match="stopped and saved; resume with: invaug tune digits") as stopped:
        run(iter(make_jobs(tmp_path, 3)), lambda _: os.kill(os.getpid(), signal.SIGTERM))
    assert stopped.value.signum == signal.SIGTERM
    assert workers.stopped


@pytest.mark.parametrize("on", ["processes", "ray", "ray://head:10001", "10.0.0.1:6379"])
def test_known_places_are_accepted(on):
    pool.check_start("tune", on)


def test_an_unknown_place_and_torchrun_are_refused(monkeypatch):
    with pytest.raises(UserError, match="unknown --on rai, did you mean ray"):
        pool.check_start("tune", "rai")
    monkeypatch.setattr(pool, "under_torchrun", lambda: True)
    with pytest.raises(UserError, match="insights starts processes of its own: start it without torchrun"):
        pool.check_start("insights", "processes")
