"""Trains one job after another in this process; a run that fails is noted, and the others continue.

Test images are measured once, after the last epoch. A run that holds images out is measured on these, and never reads
the test images.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from invaug.lab.config.schema import Config
from invaug.lab.data.load import Dataset
from invaug.lab.environment import commit, cpu_model
from invaug.lab.errors import reason_of
from invaug.lab.jobs import measures
from invaug.lab.jobs.job import FAILURE, Job
from invaug.lab.run import record
from invaug.lab.run.folder import versions
from invaug.lab.train import command as train
from invaug.lab.train import ranks
from invaug.lab.train.display import Screen
from invaug.lab.train.one_process import Processes
from invaug.lab.train.summary import Measured, summarise

N_DATASETS = 4  # in memory
PLACES = ("data_dir", "policy", "weights", "workers", "log")


@dataclass
class Trainer:
    """Keeps what several jobs share: the device and the last few datasets."""

    datasets: dict[tuple[Any, ...], Dataset] = field(default_factory=dict)
    fabrics: dict[tuple[Any, ...], Processes] = field(default_factory=dict)

    def fabric(self, config: Config) -> Processes:
        """Return Fabric for the device, precision and threads of a config; a job has one device."""
        run = config.run
        key = (run.device, run.precision, run.threads)
        if key not in self.fabrics:
            self.fabrics[key] = ranks.launch(config.replaced(devices=1))
        return self.fabrics[key]

    def prepare(self, jobs: list[Job]) -> None:
        """Check every config and find the data of every run, before the first one starts."""
        first = {job.config().data.name: job for job in reversed(jobs)}
        for job in first.values():
            self.load(job)

    def load(self, job: Job) -> Dataset:
        """Return the data of a run; the last few stay in memory."""
        config = job.config()
        key = (config.data.model_dump_json(), config.run.seed, job.summary)
        if key not in self.datasets:
            loaded = train.load_once(config, self.fabric(config), with_test=job.summary or not config.data.val_fraction)
            self.datasets = dict([*self.datasets.items()][1 - N_DATASETS :])
            self.datasets[key] = loaded
        return self.datasets[key]

    def __call__(self, job: Job, on_epoch: Callable[[], None]) -> None:
        """Train the run to its end, or note why it failed."""
        try:
            outcome = self._train(job, on_epoch)
        except (RuntimeError, MemoryError) as error:  # a loss that is not finite, a device out of memory
            job.fail(getattr(error, "reason", "") or reason_of(error))
            return
        job.keep(outcome)

    def _train(self, job: Job, on_epoch: Callable[[], None]) -> dict[str, Any]:
        dataset, fabric = self.load(job), self.fabric(job.config())
        config = train.resolve_for(job.config(), dataset, fabric)
        (job.folder / FAILURE).unlink(missing_ok=True)  # of an earlier try, which may have left nothing else
        training = train.train_one(
            config,
            dataset,
            job.folder,
            fabric,
            Screen(quiet=True),
            resume=True,  # if there is something: who holds the folder until we do may just have begun
            measured=measured_in(dataset, job),
            on_epoch=on_epoch,
        )
        rows = record.read(job.folder)
        outcome = {
            "model": config.model.name,
            "numbers": measures.numbers(config, rows),
            "versions": {name: version for name, version in versions().items() if name in ("invaug", "torch")},
            "resolved": without_places(config),
            "commit": commit(),
            "cpu": cpu_model(),
            "gpu": torch.cuda.get_device_name(fabric.device) if fabric.device.type == "cuda" else None,
            **measures.extras(config, rows),
        }
        if job.summary:
            outcome["summary"] = summarise(config, dataset, job.folder, training, dataset.test)
        split = dataset.val or dataset.test
        outcome["new_images"] = {"count": len(split), "majority": measures.majority(split.targets.tolist())}
        if job.under_families:
            found = summarise(config, dataset, job.folder, training, split)["families"]
            outcome["families"] = {name: each["uniform"] for name, each in found.items()}
        return outcome


def without_places(config: Config) -> dict[str, Any]:
    """Return every setting of a resolved config except where files are on this machine."""
    known = {key: value for key, value in config.flat("json").items() if value is not None and key not in PLACES}
    return {**known, "data": Path(known["data"]).name}


def measured_in(dataset: Dataset, job: Job) -> Measured:
    """Return what a job is measured on: test or held-out images, at its end together with the clean training images."""
    new = {"val": dataset.val} if dataset.val else {"test": dataset.test}
    new = dict(Measured.held_out(dataset).every_epoch) if job.summary else new
    return Measured(new if job.summary else {}, {**new, measures.TRAIN: dataset.train})
