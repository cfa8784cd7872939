"""What a saved state must be before any of it is restored: all that the training itself would have saved.

The SHA-256 of a checkpoint tells damage, not sense: one that was edited and sealed again, or copied from another run,
is whole and fits nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from invaug.lab.errors import UserError
from invaug.lab.run.checkpoint import Checkpoint
from invaug.lab.run.expect import MisfitError, require, require_alike, require_keys, shown

if TYPE_CHECKING:
    from invaug.lab.train.state import Training

KEYS = (
    *("model", "problem", "optimizer", "precision", "ema", "ema_count"),
    *("tallies", "batch", "seconds", "skipped"),
)
RANGES = {"gamma": (0.0, math.inf), "std": (1e-30, math.inf), "strengths": (0.0, 1.0)}
"""What the numbers of a problem's buffers are between; those of the others may be any that are finite."""
EXTRA = "_extra_state"  # what a model of the user's own may add to its weights, in any form


class Length(NamedTuple):
    """How long a training is."""

    epochs: int
    batches: int
    """Batches of an epoch."""


def check_state(saved: Checkpoint, training: Training, length: Length) -> None:
    """Raise UserError, naming the first entry that is odd, unless the whole state can be restored."""
    try:
        state = saved.state
        require_keys(state, KEYS, "state")
        _check_tallies(state["tallies"], training, saved)
        _check_counters(saved, training, length)
        _check_weights(state["model"], training.model, "model")
        _check_problem(state["problem"], training.problem.state_dict(), saved.step)
        _check_optimizer(state["optimizer"], training.optimizer, saved.step)
        require_alike(state["precision"], training.fabric.strategy.precision.state_dict(), "precision")
        _check_average(state["ema"], training)
        for rank, vector in enumerate(state["tallies"]):
            training.tally.check(vector, state["batch"] - state["skipped"], f"tallies/{rank}")
    except MisfitError as error:
        run, name = saved.path.parent.parent, saved.path.stem
        way = f"remove {saved.path} to resume from the checkpoint before it, or use a new --out"
        raise UserError(f"cannot resume {run}: {name} does not fit, {error}; {way}") from error


def _check_tallies(found: Any, training: Training, saved: Checkpoint) -> None:
    own, n_ranks = training.tally.vector(), training.fabric.world_size
    is_tensor = isinstance(found, Tensor) and found.dtype == own.dtype
    is_table = is_tensor and found.ndim == 2 and found.shape[1:] == own.shape
    if is_table and len(found) != n_ranks:
        raise UserError(
            f"{saved.path.parent.parent} was started on {len(found)} ranks, this is a run on {n_ranks}: "
            "resume it with as many, or use a new --out"
        )
    require(is_table, "tallies", found, shown(own.expand(n_ranks, -1)))


def _check_counters(saved: Checkpoint, training: Training, length: Length) -> None:
    state, epochs = saved.state, length.epochs
    require(saved.epoch <= epochs, "epoch", saved.epoch, f"at most {epochs}, the epochs of this run")
    _require_count(state["batch"], length.batches if saved.epoch < epochs else 0, "batch")
    _require_count(state["skipped"], state["batch"], "skipped")
    _require_count(state["ema_count"], saved.step if training.average else 0, "ema_count")
    seconds = state["seconds"]
    fits = type(seconds) is float and 0 <= seconds < math.inf
    require(fits, "seconds", seconds, "a finite number of type float, at least 0")


def _require_count(found: Any, most: int, where: str) -> None:
    require(type(found) is int and 0 <= found <= most, where, found, f"a whole number from 0 to {most}")


def _check_weights(found: Any, network: Any, where: str) -> None:
    like = network.state_dict()
    require_keys(found, like, where)
    for name in like:
        if not name.endswith(EXTRA):
            require_alike(found[name], like[name], f"{where}/{name}")


def _check_average(found: Any, training: Training) -> None:
    if training.average is None:
        require(found is None, "ema", found, "None, because this run keeps no average")
    else:
        _check_weights(found, training.average.module, "ema")


def _check_problem(found: Any, like: Mapping[str, Tensor], step: int) -> None:
    require_alike(found, like, "problem")
    count = int(found["n_batches"])
    require(count == step, "problem/n_batches", count, f"{step}, the step of the checkpoint")
    for name, tensor in found.items():
        low, high = RANGES.get(name.rpartition(".")[2], (-math.inf, math.inf))
        fits = bool((tensor.isfinite() & (tensor >= low) & (tensor <= high)).all())
        require(fits, f"problem/{name}", tensor, f"finite numbers from {low:g} to {high:g}")


def _check_optimizer(found: Any, optimizer: torch.optim.Optimizer, step: int) -> None:
    require_keys(found, ("state", "param_groups"), "optimizer")
    groups, own = found["param_groups"], optimizer.state_dict()["param_groups"]
    require(type(groups) is list and len(groups) == len(own), "optimizer/param_groups", groups, shown(own))
    kept: dict[int, dict[str, Tensor]] = {}
    for k, (group, like) in enumerate(zip(groups, own, strict=True)):
        _check_group(group, like, f"optimizer/param_groups/{k}")
        for index, parameter in zip(like["params"], optimizer.param_groups[k]["params"], strict=True):
            kept[index] = _kept_by(like, parameter)
    require_keys(found["state"], (), "optimizer/state", optional=kept)
    for index, entry in found["state"].items():
        _check_entry(entry, kept[index], step, f"optimizer/state/{index}")
    _refuse_shared(found["state"])


def _check_group(found: Any, like: Mapping[str, Any], where: str) -> None:
    """Refuse settings that are not this run's; those that an older torch did not have may be missing."""
    require_keys(found, ("lr", "params"), where, optional=like)
    for key, value in found.items():
        if key == "lr":  # set by the schedule before each step
            require(type(value) is float and 0 <= value < math.inf, f"{where}/lr", value, "a finite number, at least 0")
            continue
        require_alike(value, like[key], f"{where}/{key}")
        require(value == like[key], f"{where}/{key}", value, shown(like[key]))


def _kept_by(group: Mapping[str, Any], parameter: Tensor) -> dict[str, Tensor]:
    """Return what the optimiser keeps of a parameter it has moved, by name: tensors of the right type and shape."""
    if "betas" in group:
        count = torch.zeros((), dtype=torch.get_default_dtype())
        return {"step": count, "exp_avg": parameter, "exp_avg_sq": parameter}
    return {"momentum_buffer": parameter} if group["momentum"] else {}


def _check_entry(found: Any, like: Mapping[str, Tensor], step: int, where: str) -> None:
    require(type(found) is dict, where, found, "a table")
    if all(value is None and name in like for name, value in found.items()):
        return  # a parameter that has not been moved yet
    require_alike(found, like, where)
    if "step" in found:
        count, squares = float(found["step"]), found["exp_avg_sq"]
        require(0 <= count <= step and count.is_integer(), f"{where}/step", count, f"a whole number from 0 to {step}")
        require(not bool((squares < 0).any()), f"{where}/exp_avg_sq", squares, "no number below 0")


def _refuse_shared(state: Mapping[int, Mapping[str, Tensor | None]]) -> None:
    """Refuse one tensor for two entries: updates in place would mix them."""
    seen: dict[int, str] = {}
    for index, entry in state.items():
        for name, tensor in entry.items():
            if tensor is not None and tensor.numel():
                where = f"optimizer/state/{index}/{name}"
                first = seen.setdefault(tensor.data_ptr(), where)
                require(first == where, where, tensor, f"one of its own, not that of {first}")
