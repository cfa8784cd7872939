"""What a training will do, said before its first epoch: the data, the recipe, and about how long it takes."""

import shlex
import time
from collections.abc import Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch

from invaug.lab.config import methods
from invaug.lab.config.levels import is_rule
from invaug.lab.config.schema import Config
from invaug.lab.data.batches import batches, n_batches
from invaug.lab.data.load import Dataset
from invaug.lab.jobs.measures import passes
from invaug.lab.models.build import build_model
from invaug.lab.terminal import count, duration
from invaug.lab.train.compiled import load_compiled_loops
from invaug.lab.train.loop import take_step
from invaug.lab.train.one_process import OneProcess, Processes
from invaug.lab.train.sets import set_name
from invaug.lab.train.state import assemble

TIMED = 4  # batches at most; the first warms up
TIMED_SECONDS = 1.0  # after which there is no further one
SUMMARY_PASSES = 5  # over the test images, after the last epoch


@dataclass(frozen=True)
class Plan:
    """A training of a resolved config on a dataset."""

    config: Config
    dataset: Dataset
    n_ranks: int = 1

    @property
    def n_steps(self) -> int:
        """Optimiser steps per epoch; images that are too few for one are refused."""
        train = self.config.train
        n = n_batches(self.dataset.train, int(train.batch_size), bool(train.drop_last), self.n_ranks)
        return -(-n // train.accumulate)

    def recipe(self) -> str:
        """Return images, network, batches, steps and flips in a few words."""
        data, train = self.dataset, self.config.train
        splits = {"train": data.train, "validation": data.val, "test": data.test}
        images = " / ".join(f"{len(split):,} {name}" for name, split in splits.items() if split)
        _, height, width = data.image_shape
        side = f"{width}" if width == height else f"{width} × {height}"
        steps = f"{count(self.n_steps, 'step')} × {count(int(train.epochs), 'epoch')}"
        flips = "on" if train.flip == "yes" else "off"
        return f"{images}, {side} px, {self.config.model.name}, batch {train.batch_size}, {steps}, flips {flips}"

    def method(self) -> str:
        """Return the method, with its set and level if it has them."""
        method = self.config.method
        if not methods.is_constrained(method.name):
            return methods.label(method.name)
        level = "set by the resilient rule" if is_rule(method.epsilon) else method.epsilon
        return f"{methods.label(method.name)} ({set_name(self.config)} set, epsilon {level})"

    def seconds(self, fabric: Processes, done: int = 0) -> float | None:
        """Return about how long the training takes without the epochs that are done, None where it is not known."""
        config, size = self.config, int(self.config.train.batch_size)
        per_batch = time_batch(config, self.dataset, fabric)
        if per_batch is None:
            return None
        per_pass = per_batch / size / passes(config, config.method.gamma_init)
        trained = self.n_steps * config.train.accumulate * size * passes(config)
        tested = len(self.dataset.test)
        measured = len(self.dataset.val or ()) + tested
        return per_pass * ((int(config.train.epochs) - done) * (trained + measured) + SUMMARY_PASSES * tested)

    def as_json(self, folder: Path, seconds: float | None) -> dict[str, Any]:
        """Return the plan as `--dry-run --json` prints it."""
        settings = self.config.flat("json")
        return {"run": str(folder), "steps_per_epoch": self.n_steps, "seconds": seconds, "config": settings}


def describe(plans: Sequence[Plan], seconds: Sequence[float | None], folder: Path | None) -> list[str]:
    """Return in two lines what will be trained.

    Args:
        seconds: Of each training.
        folder: Where they can be watched, if they will be.
    """
    several = len(plans) > 1
    known = [each for each in seconds if each is not None]
    total = f", about {duration(sum(known))}{' in all' if several else ''}" if len(known) == len(plans) else ""
    watch = f"; watch it with: invaug watch {shlex.quote(str(folder))}" if folder else ""
    names = ", ".join(dict.fromkeys(plan.method() for plan in plans))
    count = f"{len(plans)} trainings: " if several else ""
    return [f"{plans[0].recipe()}{total}{watch}", f"{count}{names} on {plans[0].dataset.name}"]


def time_batch(config: Config, dataset: Dataset, fabric: Processes) -> float | None:
    """Return the seconds of a batch, measured on a copy of the network, so that the training does not notice.

    Every step of a training seeds its own random numbers, so those drawn here change nothing. None on several ranks,
    for images that are decoded on demand, and where a step fails, which the training then reports.
    """
    if not isinstance(fabric, OneProcess) or dataset.train.images is None:
        return None
    load_compiled_loops()
    train, times = config.train, list[float]()
    sizes: dict[str, Any] = {"batch_size": int(train.batch_size), "drop_last": bool(train.drop_last)}
    with suppress(Exception), torch.random.fork_rng(devices=[]):
        network = deepcopy(build_model(config.model.name, len(dataset.classes), dataset.image_shape))
        training = assemble(config, dataset, fabric, network)
        training.model.train()
        for batch in batches(dataset.train, epoch=0, seed=0, shuffle=True, device=fabric.device, **sizes):
            started = time.perf_counter()
            take_step(config, training, [batch], float(train.lr))
            times.append(time.perf_counter() - started)
            if len(times) == TIMED or sum(times) > TIMED_SECONDS:
                break
    return median(times[1:] or times) if times else None
