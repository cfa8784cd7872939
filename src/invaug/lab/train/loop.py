"""The training loop: Algorithm 2 over batches and epochs, saved so that a kill at any moment costs only time."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from invaug import Step
from invaug.lab.config.schema import Config, Train
from invaug.lab.data.batches import Batch, batches, n_batches
from invaug.lab.data.load import Dataset
from invaug.lab.errors import RunError, UserError
from invaug.lab.run import checkpoint, record
from invaug.lab.train import folders, ranks
from invaug.lab.train.check_state import Length
from invaug.lab.train.course import out_of_reach
from invaug.lab.train.saving import Saving
from invaug.lab.train.schedule import learning_rate
from invaug.lab.train.signals import Signals, Stopped
from invaug.lab.train.state import Training
from invaug.lab.train.summary import Measured, measure
from invaug.lab.train.tally import Tally
from invaug.rng import mix, seed_own

NAN_QUOTA = 0.01  # share of an epoch's batches that on_nan=skip may leave out; one is always allowed
Row = dict[str, Any]
AfterStep = Callable[[bool], None]
FINISH = 1  # keys the random crops and flips apart from the other random numbers of a batch


class BadStepError(RunError):
    """A step whose loss or gradient is not finite; nothing was updated.

    Args:
        reason: What went wrong, without the way out, which names the user's folder.
    """

    shared = True  # all ranks raise it together

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason or message


@dataclass(frozen=True)
class Watch:
    """Callbacks that follow a run: after a batch, after an epoch, and with warnings."""

    batch: Callable[[int, Row], None] = lambda *_: None
    epoch: Callable[[Row], None] = lambda _: None
    warn: Callable[[str], None] = print


def fit(config: Config, dataset: Dataset, folder: Path, training: Training, watch: Watch, measured: Measured) -> None:
    """Train to the last epoch, from the last checkpoint if there is one; every epoch adds a record and a checkpoint."""
    fabric, epochs = training.fabric, int(config.train.epochs)
    total = n_batches(dataset.train, int(config.train.batch_size), bool(config.train.drop_last), fabric.world_size)
    _go_back(folder / "checkpoints", training, watch, Length(epochs, total))
    rows: list[Row] = []
    if fabric.is_global_zero:
        record.resume(folder, training.epoch, len(training.problem.constraints))
        rows = record.read(folder)
    with Signals() as signals:
        saving = Saving(config.run, folder / "checkpoints", training, signals, folders.identity(config))
        while training.epoch < epochs:
            try:
                row = one_epoch(config, dataset, training, watch, saving.after_step)
                row |= measure(config, training, measured.every_epoch, saving.check)
                if training.epoch + 1 == epochs:
                    row |= measure(config, training, measured.at_the_end, saving.check)
            except (Stopped, BadStepError):
                saving.now()  # as it was before the step that failed, or after the last one
                raise
            training.end_epoch()
            if fabric.is_global_zero:
                row["out_of_reach"] = _out_of_reach([*rows, row], training)
                rows.append(row)
            ranks.on_first_rank(fabric, lambda: record.append(folder, row))  # noqa: B023 - called at once
            saving.now()
            watch.epoch(row)


def _out_of_reach(rows: list[Row], training: Training) -> list[bool]:
    """Return which constraints cannot be met; a level that a rule sets is never out of reach."""
    constraints = training.problem.constraints
    return [stuck and not each.level.adapts for stuck, each in zip(out_of_reach(rows), constraints, strict=True)]


def _go_back(folder: Path, training: Training, watch: Watch, length: Length) -> None:
    saved = checkpoint.load(folder)
    if saved:
        training.restore(saved, length)
        for message in saved.skipped:
            watch.warn(message)
    training.fabric.barrier()  # nobody saves, and so deletes the older ones, while another rank still reads


def one_epoch(
    config: Config, dataset: Dataset, training: Training, watch: Watch, after_step: AfterStep = lambda _: None
) -> Row:
    """Run Algorithm 2 over the rest of this epoch's training images; return the record line of the whole epoch."""
    fabric, started = training.fabric, time.perf_counter() - training.seconds
    size, drop_last = int(config.train.batch_size), bool(config.train.drop_last)
    total = n_batches(dataset.train, size, drop_last, fabric.world_size)
    stream = batches(
        dataset.train,
        size,
        epoch=training.epoch,
        seed=config.run.seed,
        shuffle=True,
        drop_last=drop_last,
        device=fabric.device,
        workers=config.data.workers,
        start=training.batch,
        rank=fabric.global_rank,
        world_size=fabric.world_size,
    )
    training.model.train()
    while group := list(islice(stream, config.train.accumulate)):  # the batches of an optimiser step
        lr = _learning_rate(config.train, training, total)
        try:
            step = take_step(config, training, group, lr)
            shown = {"loss": step.loss, "slack": step.slack, "gamma": training.problem.gamma, "batches": total}
            watch.batch(training.batch, shown)
        except BadStepError as error:
            _skip(config.train, training, len(group), total, error)
            watch.warn(f"skipped: {error}")
        training.seconds = time.perf_counter() - started
        after_step(training.batch == total)
    return _row(config.train, training, total)


def take_step(config: Config, training: Training, group: list[Batch], lr: float) -> Step:
    """Take one primal and one dual step on a group of batches; if anything is not finite, change nothing and raise."""
    fabric, steps = training.fabric, []
    undo = training.make_undo()
    for i, batch in enumerate(group):
        # every random number of this batch comes from these four, so a resumed run repeats it
        key = (config.run.seed, training.epoch, training.batch + i, fabric.global_rank)
        seed_own(mix(*key), fabric.device)
        training.finish.generator.manual_seed(mix(*key, FINISH))
        training.memory.begin(batch.indices)
        with _large_enough():
            step: Step = training.problem(training.model, batch.images, batch.targets)
        blamed = ranks.max_over_ranks(fabric, 0 if torch.isfinite(step.lagrangian) else 1 + fabric.global_rank)[0]
        if blamed:
            undo()
            message = _complaint(f"the loss is {step.lagrangian.item():g}", batch)
            raise BadStepError(ranks.broadcast_text(fabric, int(blamed) - 1, message))
        with fabric.no_backward_sync(training.model, enabled=i + 1 < len(group)):
            fabric.backward(step.lagrangian / config.train.accumulate)
        steps.append(step)
    if not _update(config.train, training, lr, [step.slack for step in steps]):
        undo()
        raise BadStepError(_complaint("the gradient is not finite", group[-1]))
    for step, batch in zip(steps, group, strict=True):
        training.tally.add(step, batch)
        training.memory.learn(batch.indices, step.outputs)
    training.batch += len(group)
    return steps[-1]


def _update(settings: Train, training: Training, lr: float, slacks: list[Tensor]) -> bool:
    """Take the primal step, then the dual step; return whether the gradients allowed it."""
    fabric, scaler = training.fabric, getattr(training.fabric.strategy.precision, "scaler", None)
    norm = fabric.clip_gradients(
        training.model, training.optimizer, max_norm=settings.clip or math.inf, error_if_nonfinite=False
    )
    finite = bool(torch.isfinite(norm)) if norm is not None else True
    if not finite and scaler is None:
        return False
    for group in training.optimizer.param_groups:
        group["lr"] = lr
    training.optimizer.step()  # with a scaler, an overflow only lowers its scale
    training.optimizer.zero_grad()
    if finite:
        training.problem.dual_step(slacks)
    ranks.average_buffers(fabric, training.model)
    if training.average:
        training.average.update_parameters(training.model)
    return True


def _skip(settings: Train, training: Training, n: int, total: int, error: BadStepError) -> None:
    """Skip a group of batches, if the config allows it and the quota is not used up."""
    if settings.on_nan == "stop":
        raise error
    if training.skipped + n > max(n, int(NAN_QUOTA * total)):
        raise BadStepError(f"{error}; {training.skipped + n} of {total} batches of this epoch are over the quota")
    training.skipped += n
    training.batch += n
    training.problem.n_batches += n


def _learning_rate(settings: Train, training: Training, total: int) -> float:
    """Return the rate of a group: that of its last batch."""
    last = min(training.batch + settings.accumulate, total) - 1
    at, epochs, lr = training.epoch + last / total, int(settings.epochs), float(settings.lr)
    return learning_rate(settings.schedule, at, epochs, lr, settings.min_lr, settings.warmup)


def _row(settings: Train, training: Training, total: int) -> Row:
    """Return the record line of the epoch, over all ranks."""
    whole = Tally(training.problem)
    whole.restore(ranks.gather_vectors(training.fabric, training.tally.vector()).sum(0))
    return {
        "epoch": training.epoch + 1,
        "lr": _learning_rate(settings, training, total),
        **whole.row(),
        "skipped_batches": training.skipped,
        "seconds": training.seconds,
        "images_per_second": whole.n_images / max(training.seconds, 1e-9),
    }


@contextmanager
def _large_enough() -> Iterator[None]:
    """Say what to do where BatchNorm refuses to train on the features of a single image."""
    try:
        yield
    except ValueError as error:
        if not str(error).startswith("Expected more than 1 value per channel when training"):
            raise
        way_out = "choose another batch_size, or leave out a smaller last batch (drop_last)"
        raise UserError(f"the network's BatchNorm cannot train on a batch of one image: {way_out}") from error


def _complaint(what: str, batch: Batch) -> str:
    ids = ", ".join(map(str, batch.indices[:8].tolist()))
    more = ", …" if len(batch.indices) > 8 else ""
    return f"{what} on the batch of images {ids}{more}: lower lr, or check them"
