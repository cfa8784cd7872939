"""A run of an experiment on disk: its folder, whether it is done, and the row it makes of the results."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from invaug.lab import atomic
from invaug.lab import config as configs
from invaug.lab.config import Config
from invaug.lab.errors import UserError
from invaug.lab.reproduce import outcome, plans
from invaug.lab.reproduce.asked import Asked
from invaug.lab.reproduce.cells import Cell
from invaug.lab.reproduce.outcome import DONE, FAILED, Outcome, Row

OUTCOME, FAILURE = "outcome.json", "failed.json"


@dataclass(frozen=True)
class Job:
    """One run: a cell and a seed."""

    cell: Cell
    seed: int
    folder: Path

    def config(self, data_dir: Path | None) -> Config:
        """Return the config of the run."""
        places = {"data_dir": data_dir} if data_dir else {}
        return configs.build({**self.cell.settings, **policy_of(self.cell, data_dir), **places, "seed": self.seed})

    @property
    def digest(self) -> str:
        """What the run is, in 64 letters."""
        return hashlib.sha256(f"{plans.identity(self.cell)} {self.seed}".encode()).hexdigest()

    def found(self) -> dict[str, Any] | None:
        """Return the outcome of the run if it is done."""
        there = atomic.read_json(self.folder / OUTCOME)
        if there is not None and there.get("digest") != self.digest:
            raise UserError(f"{self.folder} holds a run with other settings: choose another --out, or remove it")
        return there


def policy_of(cell: Cell, data_dir: Path | None) -> dict[str, Path]:
    """Return where the policy file of a cell is, in one of the folders datasets are looked for in."""
    if "policy" not in cell.settings:
        return {}
    from invaug.lab import sources

    places = [root / cell.settings["policy"] for root in sources.roots(data_dir)]
    found = next((path for path in places if path.is_file()), None)
    if found is None:
        way_out = "put it there, or leave such cells out with --without '*deepaa'"
        raise UserError(f"{cell.label} needs the DeepAA policy {places[0]}: {way_out}")
    return {"policy": found}


def jobs_of(asked: Asked) -> list[Job]:
    """Return the runs, a seed of every cell before the next seed: a stopped experiment has whole columns."""
    cells = asked.cells()
    return [Job(cell, seed, asked.folder_of(cell, seed)) for seed in range(asked.seeds) for cell in cells]


def write_results(asked: Asked) -> Outcome:
    """Write a row for every run that is there, of any seed; keep rows of the same config that ran elsewhere."""
    path = outcome.path_of(asked.results, asked.experiment.name, asked.scale)
    known = {cell.label: json.dumps(outcome.essentials(cell.settings), sort_keys=True) for cell in asked.plan.cells}
    rows = {
        (row.cell, row.seed): row
        for row in outcome.read(path)
        if json.dumps(row.config, sort_keys=True) == known.get(row.cell)
    }
    seeds = range(max(asked.seeds, asked.plan.seeds))
    for cell in asked.plan.cells:
        for seed in seeds if not cell.lacks else ():
            row = row_of(asked, Job(cell, seed, asked.folder_of(cell, seed)))
            if row:
                rows[cell.label, seed] = row
    order = list(known)
    ordered = sorted(rows.values(), key=lambda row: (order.index(row.cell), row.seed))
    outcome.write(path, ordered)
    return Outcome(asked.experiment, asked.scale, ordered, asked.n_seeds)


def row_of(asked: Asked, job: Job) -> Row | None:
    """Return the row of a run, None where it has neither ended nor failed."""
    config, found = outcome.essentials(job.cell.settings), job.found()
    if found:
        more = {key: found[key] for key in ("versions", *asked.experiment.keeps) if key in found}
        return Row(job.cell.label, job.seed, DONE, config, found["numbers"], more)
    failed = atomic.read_json(job.folder / FAILURE)
    if failed and failed.get("digest") == job.digest:
        return Row(job.cell.label, job.seed, FAILED, config, {}, {"reason": str(failed.get("reason"))})
    return None
