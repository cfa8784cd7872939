"""Trains the cells of an experiment, each run in a folder of its own; what is done is read, what broke goes on.

While a run trains, its record looks at some of its training images; the test images are measured once, when it is done.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from lightning_fabric import Fabric

from invaug.lab import atomic, datasets, ranks, record, run, train
from invaug.lab import config as configs
from invaug.lab.config import Config
from invaug.lab.display import Screen
from invaug.lab.environment import under_torchrun
from invaug.lab.errors import UserError, reason_of
from invaug.lab.evaluate import clean
from invaug.lab.report import NAME as PAGE
from invaug.lab.reproduce import measures
from invaug.lab.reproduce.asked import Asked, check
from invaug.lab.reproduce.bars import bar
from invaug.lab.reproduce.cells import Cell
from invaug.lab.reproduce.jobs import FAILURE, OUTCOME, Job, jobs_of, write_results
from invaug.lab.reproduce.outcome import Outcome
from invaug.lab.run import check_usable
from invaug.lab.signals import Signals, Stopped

LOOKED_AT = 512  # training images the record of a run looks at
HELD = 4  # datasets in memory
EpochDone = Callable[[], None]


def run_experiment(asked: Asked, console: Screen, *, quiet: bool = False) -> Outcome:
    """Train what is not done yet; return what came out, and write it to the results."""
    if under_torchrun():
        raise UserError("reproduce trains one run after another in one process: start it without torchrun")
    check(asked)
    check_usable(asked.out)
    jobs = jobs_of(asked)
    waiting = [job for job in jobs if job.found() is None]
    trainer = Trainer(asked)
    with bar(jobs, waiting, asked, console, quiet) as progress, Signals() as signals:
        try:
            trainer.prepare(waiting)
            for job in waiting:
                _stop_if(signals)
                progress.start(job)
                trainer(job, progress.epoch_done, lambda *_: _stop_if(signals))
                progress.done(job)
        except Stopped as error:
            write_results(asked)
            raise Stopped(error.signum, f"stopped and saved; go on with: {asked.command()}") from None
    return write_results(asked)


def _stop_if(signals: Signals) -> None:
    if signals.caught:
        raise Stopped(signals.caught)


@dataclass
class Trainer:
    """Trains one run; a run that fails is noted, and the others go on."""

    asked: Asked
    data: dict[tuple[Any, ...], datasets.Dataset] = field(default_factory=dict)
    _fabric: Fabric | None = None

    @property
    def fabric(self) -> Fabric:
        """Fabric, launched by the first run that needs it."""
        if self._fabric is None:
            self._fabric = ranks.launch(train.decide(configs.build({})))
        return self._fabric

    def prepare(self, jobs: list[Job]) -> None:
        """Find data and policies of every run before the first one starts."""
        first = {job.cell.settings.get("data", "digits"): job for job in reversed(jobs)}
        for job in jobs:
            job.config(self.asked.data_dir)
        for job in first.values():
            self.load(job.config(self.asked.data_dir), job.cell)

    def load(self, config: Config, cell: Cell) -> datasets.Dataset:
        """Return the data of a run; the last few stay in memory."""
        key = (
            config.data, config.fraction, config.per_class, config.val_fraction, config.image_size, config.seed,
            cell.unit_inputs,
        )  # fmt: skip
        if key not in self.data:
            loaded = train.load_once(config, self.fabric)
            if cell.unit_inputs:
                channels = loaded.image_shape[0]
                loaded = replace(loaded, mean=(0.0,) * channels, std=(1.0,) * channels)
            self.data = dict(list(self.data.items())[1 - HELD :])
            self.data[key] = loaded
        return self.data[key]

    def __call__(self, job: Job, epoch_done: EpochDone, checked: Callable[..., None]) -> None:
        """Train the run to its end, or note why it failed."""
        try:
            found = self._train(job, epoch_done, checked)
        except RuntimeError as error:  # a loss that is not finite, a device out of memory
            job.folder.mkdir(parents=True, exist_ok=True)
            reason = reason_of(error).partition(" (the state before it is saved")[0]  # what follows names the folder
            atomic.write_text(job.folder / FAILURE, json.dumps({"digest": job.digest, "reason": reason}))
            return
        atomic.write_text(job.folder / OUTCOME, json.dumps(found))
        (job.folder / FAILURE).unlink(missing_ok=True)

    def _train(self, job: Job, epoch_done: EpochDone, checked: Callable[..., None]) -> dict[str, Any]:
        config = train.decide(job.config(self.asked.data_dir))
        dataset = self.load(config, job.cell)
        config = train.decide_for(config, dataset, config.method)
        looked_at = replace(dataset, test=some_of(dataset.train))
        train.train_one(
            config, looked_at, job.folder, self.fabric, Screen(quiet=True), quiet=True,
            resume=(job.folder / "config.toml").exists(), also=lambda _: epoch_done(),
        )  # fmt: skip
        tested = at_the_end(job.folder, dataset, str(self.fabric.device), config.workers, checked)
        rows = settle(job.folder, tested)
        (job.folder / PAGE).unlink(missing_ok=True)  # of a stop: what it calls test images were not
        versions = {name: run.versions()[name] for name in ("invaug", "torch") if name in run.versions()}
        return {
            "digest": job.digest, "numbers": measures.numbers(config, rows, tested), "versions": versions,
            **measures.extras(config, rows),
        }  # fmt: skip


def some_of(split: datasets.Split) -> datasets.Split:
    """Return images spread evenly over a split."""
    n = min(LOOKED_AT, len(split))
    return split.take(np.linspace(0, len(split) - 1, n).astype(np.int64))


def at_the_end(
    folder: Path, dataset: datasets.Dataset, device: str, workers: int, checked: Callable[..., None]
) -> dict[str, float]:
    """Return loss and accuracy of a finished run on all test and all training images as they are."""
    model = run.load(folder, device)
    splits = {"test": dataset.test, "train": dataset.train}
    return {
        f"{name}_{key}": value
        for name, split in splits.items()
        for key, value in clean(model.network, model.finish, split, workers, checked).items()
    }


def settle(folder: Path, tested: Mapping[str, float]) -> list[dict[str, Any]]:
    """Rewrite the record so that only its last line speaks of test images; return its lines."""
    rows = [_without_test(row) for row in record.read(folder)]
    rows[-1] |= {key: value for key, value in tested.items() if key.startswith("test_")}
    atomic.write_text(folder / record.NAME, "".join(f"{json.dumps(row)}\n" for row in rows))
    return rows


def _without_test(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a line of the record under the names of what it looked at; one that is settled keeps them."""
    if "looked_at_loss" in row:
        return {key: value for key, value in row.items() if not key.startswith("test_")}
    return {key.replace("test_", "looked_at_"): value for key, value in row.items()}
