"""The runs of an experiment: a job for each cell and seed, and the row it makes of the results."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from invaug.lab.errors import UserError
from invaug.lab.jobs.job import Job
from invaug.lab.reproduce import outcome
from invaug.lab.reproduce.cells import Cell
from invaug.lab.reproduce.outcome import DONE, FAILED, Outcome, Row
from invaug.lab.reproduce.request import Asked


def policy_of(job: Job, data_dir: Path | None) -> dict[str, Path]:
    """Return where the policy file of a run is, in one of the folders datasets are looked for in."""
    if "policy" not in job.settings:
        return {}
    from invaug.lab.data.known import data_folders

    places = [root / job.settings["policy"] for root in data_folders(data_dir)]
    found = next((path for path in places if path.is_file()), None)
    if found is None:
        way_out = "put it there, or leave such cells out with --without '*deepaa'"
        raise UserError(f"{job.label} needs the DeepAA policy {places[0]}: {way_out}")
    return {"policy": found}


def job_of(asked: Asked, cell: Cell, seed: int) -> Job:
    """Return a run."""
    return Job(cell.label, cell.settings, seed, asked.folder_of(cell, seed), cell.unit_inputs)


def jobs_of(asked: Asked) -> list[Job]:
    """Return the runs, a seed of every cell before the next seed: a stopped experiment has whole columns."""
    return [job_of(asked, cell, seed) for seed in range(asked.seeds) for cell in asked.cells()]


def placed(job: Job, data_dir: Path | None) -> Job:
    """Return the run with where its files lie."""
    places: dict[str, Any] = {"data_dir": data_dir} if data_dir else {}
    return replace(job, places={**places, **policy_of(job, data_dir)})


def write_results(asked: Asked) -> Outcome:
    """Write a row for every run that is there, of any seed; keep rows of the same config that ran elsewhere."""
    path = outcome.path_of(asked.results, asked.experiment.name, asked.scale)
    known = {cell.label: json.dumps(outcome.essentials(cell.settings), sort_keys=True) for cell in asked.plan.cells}
    rows = {
        (row.cell, row.seed): row
        for row in outcome.read(path)
        if json.dumps(outcome.essentials(row.config), sort_keys=True) == known.get(row.cell)
    }
    seeds = range(max(asked.seeds, asked.plan.seeds))
    for cell in asked.plan.cells:
        for seed in seeds if not cell.lacks else ():
            row = row_of(asked, job_of(asked, cell, seed))
            if row:
                rows[cell.label, seed] = row
    order = list(known)
    ordered = sorted(rows.values(), key=lambda row: (order.index(row.cell), row.seed))
    outcome.write(path, ordered)
    return Outcome(asked.experiment, asked.scale, ordered, asked.n_seeds)


def row_of(asked: Asked, job: Job) -> Row | None:
    """Return the row of a run, None where it has neither ended nor failed."""
    config, found, failure = outcome.essentials(job.settings), job.found(), job.failure()
    if found:
        more = {key: found[key] for key in ("versions", *asked.experiment.keeps) if key in found}
        return Row(job.label, job.seed, DONE, config, found["numbers"], more)
    return Row(job.label, job.seed, FAILED, config, {}, {"reason": failure}) if failure else None
