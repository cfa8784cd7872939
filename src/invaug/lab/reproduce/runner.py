"""Runs an experiment: finished runs are read, interrupted ones resume, and the outcome is written."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from invaug.lab.errors import UserError
from invaug.lab.jobs.job import Job
from invaug.lab.jobs.pool import check_start, run_jobs
from invaug.lab.jobs.progress import bar
from invaug.lab.jobs.resume import resumable
from invaug.lab.jobs.train_job import Trainer
from invaug.lab.reproduce.costs import estimate_seconds
from invaug.lab.reproduce.outcome import Outcome
from invaug.lab.reproduce.request import Request, check
from invaug.lab.reproduce.runs import jobs_of, write_results
from invaug.lab.run.folder import check_usable
from invaug.lab.train.display import Screen
from invaug.lab.train.signals import Stopped


def run_experiment(request: Request, console: Screen, *, quiet: bool = False) -> Outcome:
    """Train what is not done yet; write the results and return the outcome."""
    check(request)
    check_start("reproduce", request.on)
    check_usable(request.out)
    jobs = [job if job.found() else with_places(job, request.data_dir) for job in jobs_of(request)]
    Trainer().prepare([job for job in jobs if not job.found()])

    def cost(job: Job) -> float:
        return estimate_seconds(job.settings, request.scale)

    total = sum(map(cost, jobs))
    with resumable(request.command()), bar(len(jobs), console, quiet, cost, total) as shown:
        try:
            run_jobs(jobs, shown, at_once=request.jobs, on=request.on)
        except Stopped:
            write_results(request)
            raise
    return write_results(request)


def with_places(job: Job, data_dir: Path | None) -> Job:
    """Return the run with where its files are on this machine."""
    places: dict[str, Any] = {"data_dir": data_dir} if data_dir else {}
    if "policy" in job.settings:
        places["policy"] = find_policy(job, data_dir)
    return replace(job, places=places)


def find_policy(job: Job, data_dir: Path | None) -> Path:
    """Return where the policy file of a run is, in one of the folders that are searched for datasets."""
    from invaug.lab.data.known import data_folders

    paths: list[Path] = [root / job.settings["policy"] for root in data_folders(data_dir)]
    for path in paths:
        if path.is_file():
            return path
    way_out = "put it there, or leave such cells out with --without '*deepaa'"
    raise UserError(f"{job.label} needs the DeepAA policy {paths[0]}: {way_out}")
