"""Jobs as tasks of Ray, with a stand-in for Ray: what a task returns is written here, whatever disk it has."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from invaug.lab.errors import UserError
from invaug.lab.jobs import ray_jobs
from invaug.lab.jobs.job import Job


class TaskError(ConnectionError):
    """Stands for RayTaskError, which is a RayError."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class FakeRay:
    """Runs tasks at once, by what `result_of` says of their job."""

    def __init__(self, result_of: Any) -> None:
        self.result_of, self.results = result_of, {}
        self.cancelled: list[str] = []
        self.is_down = False
        self.exceptions = SimpleNamespace(RayError=ConnectionError)

    def remote(self, **_: Any) -> Any:
        return lambda _: SimpleNamespace(remote=self.start)

    def start(self, text: str) -> str:
        job = Job.of_json(text)
        self.results[job.name] = self.result_of(job)
        return job.name

    def wait(self, tasks: list[str], **_: Any) -> tuple[list[str], list[str]]:
        return tasks, []

    def get(self, task: str) -> Any:
        if isinstance(self.results[task], Exception):
            raise self.results[task]
        return self.results[task]

    def cancel(self, task: str) -> None:
        self.cancelled.append(task)

    def shutdown(self) -> None:
        self.is_down = True


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job("cell", {"method": "none"}, 0, tmp_path / "run")


def tasks_of(monkeypatch, result_of: Any) -> ray_jobs.RayTasks:
    monkeypatch.setattr(ray_jobs, "connect", lambda _: FakeRay(result_of))
    return ray_jobs.RayTasks("ray")


def test_what_a_task_returns_is_written_here(monkeypatch, job):
    other = replace(job, seed=1, folder=job.folder.with_name("other"))
    results = {0: {"outcome": {"numbers": {"test_accuracy": 0.5}}}, 1: {"failed": "the loss is nan"}}
    tasks = tasks_of(monkeypatch, lambda job: results[job.seed])
    tasks.start(job)
    tasks.start(other)
    assert tasks.collect() == [job, other]
    assert tasks.collect() == []
    assert job.found()["numbers"] == {"test_accuracy": 0.5}
    assert (other.found(), other.failure()) == (None, "the loss is nan")


def test_a_task_that_breaks_fails_its_job_and_bad_input_ends_all(monkeypatch, job):
    for error, reason in (
        (TaskError(OSError("disk full")), "disk full"),
        (ConnectionError("worker died"), "worker died"),
    ):
        tasks = tasks_of(monkeypatch, lambda _, error=error: error)
        tasks.start(job)
        assert tasks.collect() == [job]
        assert reason in job.failure()
    tasks = tasks_of(monkeypatch, lambda _: TaskError(UserError("lr should be greater than 0")))
    tasks.start(job)
    with pytest.raises(UserError, match="lr should be greater than 0"):
        tasks.collect()


def test_a_stop_cancels_what_runs_and_disconnects(monkeypatch, job):
    tasks = tasks_of(monkeypatch, lambda _: {})
    tasks.start(job)
    tasks.stop()
    assert tasks.ray.cancelled == ["cell seed 0"]
    assert tasks.ray.is_down


def test_ray_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(UserError, match=r"--on ray needs Ray: pip install 'invaug\[ray\]'"):
        ray_jobs.connect("ray")
