"""Runs an experiment: what is done is read, what broke goes on, and what came out is written."""

from __future__ import annotations

from invaug.lab.environment import under_torchrun
from invaug.lab.errors import UserError
from invaug.lab.jobs.job import Job
from invaug.lab.jobs.pool import check_place, run_jobs
from invaug.lab.jobs.progress import bar
from invaug.lab.jobs.train_job import Trainer
from invaug.lab.reproduce import costs
from invaug.lab.reproduce.jobs import jobs_of, placed, write_results
from invaug.lab.reproduce.outcome import Outcome
from invaug.lab.reproduce.request import Asked, check
from invaug.lab.run.folder import check_usable
from invaug.lab.train.display import Screen
from invaug.lab.train.signals import Stopped


def run_experiment(asked: Asked, console: Screen, *, quiet: bool = False) -> Outcome:
    """Train what is not done yet; return what came out, and write it to the results."""
    if under_torchrun():
        raise UserError("reproduce starts processes of its own: start it without torchrun, with --jobs for several")
    check(asked)
    check_place(asked.on)
    check_usable(asked.out)
    jobs = jobs_of(asked)
    waiting = [placed(job, asked.data_dir) for job in jobs if job.found() is None]
    Trainer().prepare(waiting)

    def cost(job: Job) -> float:
        return costs.of_settings(job.settings, asked.scale)

    total = sum(map(cost, waiting))
    with bar(len(jobs), len(jobs) - len(waiting), total, cost, console, quiet) as progress:
        try:
            run_jobs(iter(waiting), progress, at_once=asked.at_once, on=asked.on, ended=lambda _: None)
        except Stopped as error:
            write_results(asked)
            raise Stopped(error.signum, f"stopped and saved; go on with: {asked.command()}") from None
    return write_results(asked)
