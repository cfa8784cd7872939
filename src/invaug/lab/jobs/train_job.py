"""Trains one job after another in this process; a run that fails is noted, and the others continue.

Test images are measured once, after the last epoch. A run that holds images out is measured on these, and never reads
the test images.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from lightning_fabric import Fabric

from invaug.lab.config.build import build
from invaug.lab.config.schema import Config
from invaug.lab.data.load import Dataset
from invaug.lab.errors import reason_of
from invaug.lab.jobs import measures
from invaug.lab.jobs.job import Job
from invaug.lab.run import folder as run
from invaug.lab.run import record
from invaug.lab.train import command as train
from invaug.lab.train import ranks
from invaug.lab.train.display import Screen
from invaug.lab.train.measured import Measured

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
            self._fabric = ranks.launch(build({}))
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
        key = (config.data.model_dump_json(), config.run.seed, job.unit_inputs)
        if key not in self.data:
            loaded = train.load_once(config, self.fabric, with_test=not config.data.val_fraction)
            if job.unit_inputs:
                channels = loaded.image_shape[0]
                loaded = replace(loaded, mean=(0.0,) * channels, std=(1.0,) * channels)
            self.data = dict(list(self.data.items())[1 - HELD :])
            self.data[key] = loaded
        return self.data[key]

    def __call__(self, job: Job, epoch_done: EpochDone) -> None:
        """Train the run to its end, or note why it failed."""
        try:
            found = self._train(job, epoch_done)
        except RuntimeError as error:  # a loss that is not finite, a device out of memory
            job.fail(getattr(error, "reason", "") or reason_of(error))
            return
        job.keep(found)

    def _train(self, job: Job, epoch_done: EpochDone) -> dict[str, Any]:
        dataset = self.load(job)
        config = train.resolve_for(job.config(), dataset, self.fabric)
        train.train_one(
            config,
            dataset,
            job.folder,
            self.fabric,
            Screen(quiet=True),
            quiet=True,
            resume=(job.folder / "config.toml").exists(),
            measured=measured_in(dataset, config),
            on_epoch=epoch_done,
        )
        rows = record.read(job.folder)
        versions = {name: run.versions()[name] for name in ("invaug", "torch") if name in run.versions()}
        numbers = measures.numbers(config, rows)
        return {"numbers": numbers, "versions": versions, **measures.extras(config, rows)}


def measured_in(dataset: Dataset, config: Config) -> Measured:
    """Return what a job is measured on, once, at its end: test or held-out images, and the clean training images."""
    new = {"val": dataset.val} if dataset.val else {"test": dataset.test}
    every_epoch = new if config.train.early_stop else {}
    return Measured(every_epoch, {**new, measures.TRAIN: dataset.train})
