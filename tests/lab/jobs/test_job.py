"""A job's outcome belongs to its settings, and survives another process."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from invaug.lab.errors import UserError
from invaug.lab.jobs.job import FAILURE, Job, unfinished


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job("a cell", {"method": "none", "epochs": 2}, 1, tmp_path / "run", places={"data_dir": tmp_path})


def test_an_outcome_is_found_again_and_ends_a_failure(job):
    assert job.found() is None
    job.fail("the loss is nan")
    assert (job.failure(), job.found()) == ("the loss is nan", None)
    job.keep({"numbers": {"test_accuracy": 0.5}})
    assert job.found()["numbers"] == {"test_accuracy": 0.5}
    assert not (job.folder / FAILURE).exists()


def test_an_outcome_of_other_settings_is_refused_wherever_its_files_are(job, tmp_path):
    job.keep({"numbers": {}})
    elsewhere = replace(job, places={"data_dir": tmp_path / "elsewhere"})
    assert elsewhere.found() == job.found()
    for other in (replace(job, seed=2), replace(job, settings={"method": "none", "epochs": 3})):
        with pytest.raises(UserError, match="holds a run with other settings: choose another --out, or remove it"):
            other.found()


def test_settings_given_or_by_default_are_the_same_training(job):
    assert replace(job, settings={**job.settings, "momentum": 0.9}).digest == job.digest


def test_a_job_survives_the_way_to_another_process(job):
    there = Job.of_json(job.as_json())
    assert "\n" not in job.as_json()
    assert (there.digest, there.folder, there.name) == (job.digest, job.folder.resolve(), "a cell seed 1")
    assert json.loads(there.as_json()) == json.loads(job.as_json())


def test_only_unfinished_jobs_are_trained(job):
    done, skipped = replace(job, folder=job.folder / "done"), []
    done.keep({"numbers": {}})
    assert list(unfinished([done, job], skipped.append)) == [job]
    assert skipped == [done]
