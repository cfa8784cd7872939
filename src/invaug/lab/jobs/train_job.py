"""Trains one job after another in this process; a run that fails is noted, and the others go on.

While a run trains, its record looks at some of its training images; the test images are measured once, when it is done.
A run that holds images out is measured on these, and never sees the test images.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from lightning_fabric import Fabric

from invaug.lab.config import schema as configs
from invaug.lab.config.schema import Config
from invaug.lab.data.load import Dataset
from invaug.lab.data.splits import Split
from invaug.lab.errors import reason_of
from invaug.lab.evaluate.measure import clean
from invaug.lab.jobs import measures
from invaug.lab.jobs.job import Job
from invaug.lab.report.command import NAME as PAGE
from invaug.lab.run import atomic, record
from invaug.lab.run import folder as run
from invaug.lab.train import command as train
from invaug.lab.train import ranks
from invaug.lab.train.display import Screen

LOOKED_AT = 64  # training images the record of a run looks at
HELD = 4  # datasets in memory
EpochDone = Callable[[], None]


@dataclass
class Trainer:
    """Keeps what several jobs share: the device and the last few datasets."""

    data: dict[tuple[Any, ...], Dataset] = field(default_factory=dict)
    _fabric: Fabric | None = None

    @property
    def fabric(self) -> Fabric:
        """Fabric, launched by the first run that needs it."""
        if self._fabric is None:
            self._fabric = ranks.launch(train.decide(configs.build({})))
        return self._fabric

    def prepare(self, jobs: list[Job]) -> None:
        """Check every config and find the data of every run, before the first one starts."""
        first = {job.settings.get("data", "digits"): job for job in reversed(jobs)}
        for job in jobs:
            job.config()
        for job in first.values():
            self.load(job)

    def load(self, job: Job) -> Dataset:
        """Return the data of a run; the last few stay in memory."""
        config = job.config()
        key = (
            config.data, config.fraction, config.per_class, config.subset, config.val_fraction, config.val_fold,
            config.image_size, config.seed, job.unit_inputs,
        )  # fmt: skip
        if key not in self.data:
            loaded = train.load_once(config, self.fabric, with_test=not config.val_fraction)
            if job.unit_inputs:
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
            job.fail(reason_of(error).partition(" (the state before it is saved")[0])  # what follows names the folder
            return
        job.keep(found)

    def _train(self, job: Job, epoch_done: EpochDone, checked: Callable[..., None]) -> dict[str, Any]:
        config, dataset = train.decide(job.config()), self.load(job)
        config = train.decide_for(config, dataset, config.method)
        looked_at = replace(dataset, val=None, test=some_of(dataset.train))
        train.train_one(
            config, looked_at, job.folder, self.fabric, Screen(quiet=True), quiet=True,
            resume=(job.folder / "config.toml").exists(), also=lambda _: epoch_done(),
        )  # fmt: skip
        tested = at_the_end(job.folder, dataset, config, str(self.fabric.device), checked)
        rows = settle(job.folder, tested)
        (job.folder / PAGE).unlink(missing_ok=True)  # of a stop: what it calls test images were not
        versions = {name: run.versions()[name] for name in ("invaug", "torch") if name in run.versions()}
        numbers = measures.numbers(config, rows, tested)
        return {"numbers": numbers, "versions": versions, **measures.extras(config, rows)}


def some_of(split: Split) -> Split:
    """Return images spread evenly over a split."""
    n = min(LOOKED_AT, len(split))
    return split.take(np.linspace(0, len(split) - 1, n).astype(np.int64))


def at_the_end(
    folder: Path, dataset: Dataset, config: Config, device: str, checked: Callable[..., None]
) -> dict[str, float]:
    """Return loss and accuracy of a finished run on all training images as they are, and all test or held-out ones."""
    model = run.load(folder, device, trust_model=True)  # it was trained here by its name
    new = {measures.HELD_OUT: dataset.val} if dataset.val else {measures.TEST: dataset.test}
    splits = {**new, "train": dataset.train}
    return {
        f"{name}_{key}": value
        for name, split in splits.items()
        for key, value in clean(model.network, model.finish, split, config.workers, checked).items()
    }


def settle(folder: Path, tested: Mapping[str, float]) -> list[dict[str, Any]]:
    """Rewrite the record so that only its last line speaks of new images; return its lines."""
    rows = [_without_new(row) for row in record.read(folder)]
    new = {key: value for key, value in tested.items() if not key.startswith("train_")}
    rows[-1] |= {key.replace(measures.HELD_OUT, "val"): value for key, value in new.items()}
    atomic.write_text(folder / record.NAME, "".join(f"{json.dumps(row)}\n" for row in rows))
    return rows


def _without_new(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a line of the record under the names of what it looked at; one that is settled keeps them."""
    if "looked_at_loss" in row:
        return {key: value for key, value in row.items() if not key.startswith(("test_", "val_"))}
    return {key.replace("test_", "looked_at_"): value for key, value in row.items()}
