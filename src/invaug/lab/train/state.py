"""The state of a training: everything that changes during it, and nothing else."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from invaug import InvarianceConstrained
from invaug.lab.baselines.policy import Memory
from invaug.lab.config.schema import Config, Train
from invaug.lab.data.load import Dataset
from invaug.lab.models.weights import new_model
from invaug.lab.run import checkpoint
from invaug.lab.terminal import say
from invaug.lab.train import ranks
from invaug.lab.train.check_state import Length, check_state
from invaug.lab.train.finish import Finish, Randomness
from invaug.lab.train.malloc import keep_freed
from invaug.lab.train.one_process import Processes
from invaug.lab.train.problem import build_problem, memory_of
from invaug.lab.train.tally import Tally

COUNTERS = ("batch", "seconds", "skipped")


@dataclass
class Training:
    """What a checkpoint contains."""

    model: Any  # Fabric's wrapper of an nn.Module
    problem: InvarianceConstrained
    optimizer: torch.optim.Optimizer
    average: AveragedModel | None
    fabric: Processes
    tally: Tally
    finish: Finish
    memory: Memory
    """What the policy of a baseline remembers; saved with the problem, whose `finish` it is part of."""
    epoch: int = 0
    """Epochs that are done."""
    batch: int = 0
    """Batches of the next epoch that are done; between batches the gradients are empty."""
    seconds: float = 0.0
    """Time those batches took."""
    skipped: int = 0
    """Those of them whose loss was not finite."""

    @property
    def network(self) -> Any:
        """The network to use: the one with averaged weights, if the run keeps an average."""
        return self.average.module if self.average else self.model

    def state(self) -> dict[str, Any]:
        """Return the state to save; every rank must call this, because each adds its sums."""
        return {
            "model": self.model.state_dict(),
            "problem": self.problem.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "precision": self.fabric.strategy.precision.state_dict(),
            "ema": self.average.module.state_dict() if self.average else None,
            "ema_count": int(self.average.n_averaged) if self.average else 0,
            "tallies": ranks.gather_vectors(self.fabric, self.tally.vector()),
            **{name: getattr(self, name) for name in COUNTERS},
        }

    def restore(self, saved: checkpoint.Checkpoint, length: Length) -> None:
        """Go back to a saved state, or refuse it and change nothing."""
        check_state(saved, self, length)
        state = saved.state
        self.model.load_state_dict(state["model"])
        self.problem.load_state_dict(state["problem"])
        self._restore_optimizer(state["optimizer"])
        self.fabric.strategy.precision.load_state_dict(state["precision"])
        if self.average:
            self.average.module.load_state_dict(state["ema"])
            self.average.n_averaged.fill_(state["ema_count"])
        self.tally.restore(state["tallies"][self.fabric.global_rank])
        self.epoch = saved.epoch
        for name in COUNTERS:
            setattr(self, name, state[name])

    def _restore_optimizer(self, saved: Mapping[str, Any]) -> None:
        """Restore the learning rate and the averages; all other settings are those of the config already."""
        own = self.optimizer.state_dict()["param_groups"]
        groups = [{**group, "lr": before["lr"]} for group, before in zip(own, saved["param_groups"], strict=True)]
        self.optimizer.load_state_dict({"state": saved["state"], "param_groups": groups})

    def make_undo(self) -> Callable[[], None]:
        """Return a function that undoes the forward passes made since, if their loss or gradient is not finite."""
        state = [*self.model.buffers(), self.problem.n_batches]
        before = [buffer.clone() for buffer in state]

        @torch.no_grad()
        def undo() -> None:
            self.optimizer.zero_grad()
            for buffer, as_it_was in zip(state, before, strict=True):
                buffer.copy_(as_it_was)

        return undo

    def end_epoch(self) -> None:
        """Count the epoch and reset what belongs to a single epoch."""
        self.epoch += 1
        self.batch, self.seconds, self.skipped = 0, 0.0, 0
        self.tally = Tally(self.problem)


OPTIMIZERS: dict[str, Callable[[Any, Train], torch.optim.Optimizer]] = {
    "sgd": lambda parameters, c: torch.optim.SGD(
        parameters, float(c.lr), momentum=c.momentum, nesterov=c.momentum > 0, weight_decay=c.weight_decay
    ),
    "adam": lambda parameters, c: torch.optim.Adam(parameters, float(c.lr), weight_decay=c.weight_decay),
    "adamw": lambda parameters, c: torch.optim.AdamW(parameters, float(c.lr), weight_decay=c.weight_decay),
}


def prepare(config: Config, dataset: Dataset, fabric: Processes) -> Training:
    """Return a fresh training state, its weights decided by the seed."""
    keep_freed()
    torch.manual_seed(config.run.seed)
    tell = say if fabric.is_global_zero else lambda _: None
    return assemble(config, dataset, fabric, new_model(config.model, dataset.classes, dataset.image_shape, tell))


def assemble(config: Config, dataset: Dataset, fabric: Processes, model: nn.Module) -> Training:
    """Return the state in which a training of this network begins."""
    train = config.train
    model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    crops = Randomness(int(train.crop), train.flip == "yes", train.cutout, train.resized_crop == "yes")
    finish = Finish(dataset.mean, dataset.std, crops).to(fabric.device)
    problem = build_problem(config, dataset, finish).to(fabric.device)
    optimizer = OPTIMIZERS[train.optimizer](model.parameters(), train)
    average = None
    if train.ema:
        average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(train.ema), use_buffers=True).to(fabric.device)
    model, optimizer = fabric.setup(model, optimizer)
    return Training(model, problem, optimizer, average, fabric, Tally(problem), finish, memory_of(problem))
