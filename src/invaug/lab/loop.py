"""The training loop: Algorithm 2 over batches, epochs and checkpoints."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from invaug import InvarianceConstrained, Step
from invaug.lab import checkpoint, methods, models
from invaug.lab.batches import Batch, batches, n_batches
from invaug.lab.config import Config
from invaug.lab.datasets import Dataset
from invaug.lab.evaluate import clean
from invaug.lab.finish import Finish, randomness
from invaug.lab.memory import keep_freed
from invaug.lab.record import Record
from invaug.lab.schedules import learning_rate
from invaug.lab.tally import Tally

Row = dict[str, Any]


class RunError(RuntimeError):
    """Training cannot go on; the last good state is on disk."""


@dataclass
class Training:
    """Everything that changes while training, and nothing else: what a checkpoint holds."""

    model: Any  # Fabric's wrapper of an nn.Module
    problem: InvarianceConstrained
    optimizer: torch.optim.Optimizer
    average: AveragedModel | None
    epoch: int = 0
    best: dict[str, float] = field(default_factory=lambda: {"accuracy": -1.0, "epoch": 0})

    def state(self) -> dict[str, Any]:
        """Return the state to save."""
        return {
            "model": self.model.state_dict(),
            "problem": self.problem.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "ema": self.average.module.state_dict() if self.average else None,
            "ema_count": int(self.average.n_averaged) if self.average else 0,
            "best": self.best,
        }

    def restore(self, saved: checkpoint.Checkpoint) -> None:
        """Go back to a saved state."""
        self.model.load_state_dict(saved.state["model"])
        self.problem.load_state_dict(saved.state["problem"])
        self.optimizer.load_state_dict(saved.state["optimizer"])
        if self.average:
            self.average.module.load_state_dict(saved.state["ema"])
            self.average.n_averaged.fill_(saved.state["ema_count"])
        self.best = saved.state["best"]
        self.epoch = saved.epoch


OPTIMIZERS: dict[str, Callable[[Any, Config], torch.optim.Optimizer]] = {
    "sgd": lambda parameters, c: torch.optim.SGD(
        parameters, c.lr, momentum=c.momentum, nesterov=c.momentum > 0, weight_decay=c.weight_decay
    ),
    "adam": lambda parameters, c: torch.optim.Adam(parameters, c.lr, weight_decay=c.weight_decay),
    "adamw": lambda parameters, c: torch.optim.AdamW(parameters, c.lr, weight_decay=c.weight_decay),
}


def prepare(config: Config, dataset: Dataset, fabric: Fabric) -> tuple[Training, Finish]:
    """Return a fresh training state, its weights decided by the seed."""
    keep_freed()
    torch.manual_seed(config.seed)
    model = models.build(config.model, len(dataset.classes), dataset.image_shape)
    model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    finish = Finish(dataset.mean, dataset.std, randomness(config, dataset)).to(fabric.device)
    problem = methods.problem(config, dataset, finish).to(fabric.device)
    optimizer = OPTIMIZERS[config.optimizer](model.parameters(), config)
    average = (
        AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(config.ema), use_buffers=True) if config.ema else None
    )
    model, optimizer = fabric.setup(model, optimizer)
    return Training(model, problem, optimizer, average.to(fabric.device) if average else None), finish


def fit(
    config: Config, dataset: Dataset, folder: Path, fabric: Fabric, training: Training, finish: Finish,
    on_batch: Callable[[int, Row], None], on_epoch: Callable[[Row], None], meta: dict[str, Any],
    warn: Callable[[str], None] = print,
) -> Training:  # fmt: skip
    """Train to the last epoch, from the last checkpoint if there is one; a record line and a checkpoint an epoch."""
    saved = checkpoint.load(folder / "checkpoints")
    if saved:
        training.restore(saved)
        for message in saved.skipped:
            warn(message)
    record = Record.resume(folder, training.epoch)
    while training.epoch < config.epochs and not _stale(config, training):
        row = one_epoch(config, dataset, training, fabric, on_batch)
        row |= measure(dataset, training, finish, config)
        training.epoch += 1
        _remember_best(training, row)
        if fabric.is_global_zero:
            record.append(row)
            steps = int(training.problem.n_batches)
            checkpoint.save(folder / "checkpoints", training.state(), step=steps, epoch=training.epoch, meta=meta)
        on_epoch(row)
    return training


def one_epoch(
    config: Config, dataset: Dataset, training: Training, fabric: Fabric, on_batch: Callable[[int, Row], None]
) -> Row:
    """Take Algorithm 2 once over the training images; return what the epoch says."""
    started, epoch = time.perf_counter(), training.epoch
    ranks = {"rank": fabric.global_rank, "world_size": fabric.world_size}
    total = n_batches(dataset.train, config.batch_size, config.drop_last, fabric.world_size)
    stream = batches(
        dataset.train, config.batch_size, epoch=epoch, seed=config.seed, shuffle=True, drop_last=config.drop_last,
        device=fabric.device, workers=config.workers, **ranks,
    )  # fmt: skip
    tally, slacks = Tally(training.problem), []
    training.model.train()
    for i, batch in enumerate(stream):
        # every random number of this step comes from these four, so a resumed run repeats it
        torch.manual_seed(mixed(config.seed, epoch, i, fabric.global_rank))
        lr = learning_rate(config.schedule, epoch + i / total, config.epochs, config.lr, config.min_lr, config.warmup)
        step = training.problem(training.model, batch.images, batch.targets)
        _check_finite(step, batch)
        last_of_group = (i + 1) % config.accumulate == 0 or i + 1 == total
        with fabric.no_backward_sync(training.model, enabled=not last_of_group):
            fabric.backward(step.lagrangian / config.accumulate)
        slacks.append(step.slack)
        if last_of_group:
            _update(config, training, fabric, lr, torch.stack(slacks).mean(0))
            slacks = []
        tally.add(step, batch)
        on_batch(i + 1, {"loss": step.loss, "slack": step.slack, "gamma": training.problem.gamma, "batches": total})
    seconds = time.perf_counter() - started
    return {
        "epoch": epoch + 1,
        "lr": lr,
        **tally.row(),
        "seconds": seconds,
        "images_per_second": tally.n_images / seconds,
    }


def _update(config: Config, training: Training, fabric: Fabric, lr: float, slack: Tensor) -> None:
    """Primal step, then dual step."""
    for group in training.optimizer.param_groups:
        group["lr"] = lr
    if config.clip:
        fabric.clip_gradients(training.model, training.optimizer, max_norm=config.clip, error_if_nonfinite=False)
    training.optimizer.step()
    training.optimizer.zero_grad()
    training.problem.dual_step(slack)
    if training.average:
        training.average.update_parameters(training.model)


def measure(dataset: Dataset, training: Training, finish: Finish, config: Config) -> Row:
    """Return clean loss and accuracy on the held-out images."""
    network = training.average.module if training.average else training.model
    splits = {"val": dataset.val, "test": dataset.test}
    return {
        f"{name}_{key}": value
        for name, split in splits.items()
        if split is not None
        for key, value in clean(network, finish, split, workers=config.workers).items()
    }


def _check_finite(step: Step, batch: Batch) -> None:
    if not torch.isfinite(step.lagrangian):
        ids = ", ".join(map(str, batch.indices[:8].tolist()))
        raise RunError(f"the loss is {step.lagrangian.item()} on the batch of images {ids}, …: lower lr, or check them")


def _remember_best(training: Training, row: Row) -> None:
    accuracy = row.get("val_accuracy", -math.inf)
    if accuracy > training.best["accuracy"]:
        training.best = {"accuracy": accuracy, "epoch": float(training.epoch)}


def _stale(config: Config, training: Training) -> bool:
    """Whether validation has not improved for as long as the config allows."""
    return bool(config.early_stop) and training.epoch - training.best["epoch"] >= config.early_stop


def mixed(*numbers: int) -> int:
    """Return one seed from several numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> 1)
