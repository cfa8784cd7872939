"""The runs of an experiment: a job for each cell and seed, and the row that it becomes in the results."""

import json
from collections.abc import Mapping
from typing import Any

from invaug.lab.jobs.job import Job
from invaug.lab.reproduce import rows
from invaug.lab.reproduce.cells import Cell
from invaug.lab.reproduce.outcome import Outcome
from invaug.lab.reproduce.request import Request
from invaug.lab.reproduce.rows import DONE, FAILED, Row


def job_of(request: Request, cell: Cell, seed: int) -> Job:
    """Return a run."""
    return Job(cell.label, cell.settings, seed, request.folder_of(cell, seed), cell.unit_inputs)


def jobs_of(request: Request) -> list[Job]:
    """Return the runs, one seed of every cell before the next seed: a stopped experiment has whole columns."""
    return [job_of(request, cell, seed) for seed in range(request.seeds) for cell in request.cells()]


def write_results(request: Request) -> Outcome:
    """Write a row for every run in the folder, of any seed; keep rows of the same config that ran elsewhere."""
    path = rows.path_of(request.results, request.experiment.name, request.scale)
    cells = request.plan.cells
    known = {cell.label: _comparable(cell.settings) for cell in cells}
    before = [row for row in rows.read(path) if _comparable(row.config) == known.get(row.cell)]
    seeds = range(max(request.seeds, request.plan.seeds))
    here = [row_of(request, job_of(request, cell, seed)) for cell in cells for seed in seeds]
    latest = {(row.cell, row.seed): row for row in (*before, *here) if row}
    order = list(known)
    ordered = sorted(latest.values(), key=lambda row: (order.index(row.cell), row.seed))
    rows.write(path, ordered)
    return Outcome(request.experiment, request.scale, ordered, request.n_seeds)


def _comparable(config: Mapping[str, Any]) -> str:
    return json.dumps(rows.essentials(config), sort_keys=True)


def row_of(request: Request, job: Job) -> Row | None:
    """Return the row of a run, None if it has neither finished nor failed."""
    config, found, failure = rows.essentials(job.settings), job.found(), job.failure()
    if found:
        more = {key: found[key] for key in ("versions", *request.experiment.keeps) if key in found}
        return Row(job.label, job.seed, DONE, config, found["numbers"], more)
    return Row(job.label, job.seed, FAILED, config, {}, {"reason": failure}) if failure else None
