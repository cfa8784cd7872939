"""Runs an experiment: finished runs are read, interrupted ones resume, and the outcome is written."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from invaug.lab.errors import UserError
from invaug.lab.jobs.job import Job
from invaug.lab.jobs.pool import check_start, run_jobs
from invaug.lab.jobs.progress import bar
from invaug.lab.jobs.train_job import Trainer
from invaug.lab.reproduce import rows
from invaug.lab.reproduce.outcome import Outcome
from invaug.lab.reproduce.request import Request, check, estimate_seconds, read_rows
from invaug.lab.reproduce.rows import DONE, FAILED, Row
from invaug.lab.run.folder import check_usable
from invaug.lab.train.display import Screen
from invaug.lab.train.signals import Stopped

ALWAYS = ("resolved", "commit", "versions", "cpu", "gpu")
"""What every row has besides numbers."""
EVERY = 60.0  # seconds between two looks at what has ended


def run_experiment(request: Request, console: Screen) -> Outcome:
    """Train what is not done yet; write the results and return the outcome."""
    check(request)
    check_start("reproduce", request.on)
    check_usable(request.out)
    known = {(row.cell, row.seed) for row in read_rows(request) if row.status == DONE}
    wanted = [job for job in request.runs() if (job.label, job.seed) not in known or job.found()]
    jobs = [job if job.found() else with_places(job, request.data_dir) for job in wanted]
    Trainer().prepare([job for job in jobs if not job.found()])
    mean = request.seconds() / max(len(request.runs()), 1)
    written = time.monotonic()

    def write_now_and_then(_: Job) -> None:
        nonlocal written
        if time.monotonic() - written > EVERY:
            write_results(request)
            written = time.monotonic()

    def cost(job: Job) -> float:
        return estimate_seconds(job.settings, request.scale) / mean

    with bar(len(jobs), console, request.command(), cost) as shown:
        try:
            run_jobs(jobs, shown, at_once=request.jobs, on=request.on, ended=write_now_and_then)
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


def write_results(request: Request) -> Outcome:
    """Write a row for every run in the folder, of any seed; keep rows of the same config that ran elsewhere."""
    cells = request.plan.cells
    here = [row_of(request, request.run_of(cell, seed)) for cell in cells for seed in range(request.most_seeds)]
    usable = read_rows(request)
    latest = {(row.cell, row.seed): row for row in (*usable, *here) if row}
    order = [cell.label for cell in cells]
    ordered = sorted(latest.values(), key=lambda row: (order.index(row.cell), row.seed))
    path = rows.path_of(request.results, request.experiment.name, request.scale)
    superseded = [row for row in rows.read(path) if row not in usable]
    if superseded:  # rows are never deleted
        archive = rows.path_of(request.results / "archive", request.experiment.name, request.scale)
        rows.write(archive, [*rows.read(archive), *superseded])
    rows.write(path, ordered)
    return Outcome(request.experiment, request.scale, ordered, request.seeds)


def row_of(request: Request, job: Job) -> Row | None:
    """Return the row of a run, None if it has neither finished nor failed."""
    config, found, failure = rows.essentials(job.settings), job.found(), job.failure()
    if found:
        more = {key: found[key] for key in (*ALWAYS, *request.experiment.keeps) if found.get(key) is not None}
        return Row(job.label, job.seed, DONE, config, found["numbers"], more)
    return Row(job.label, job.seed, FAILED, config, {}, {"reason": failure}) if failure else None
