"""Odd entries of a checkpoint, one by one: what is changed, and what a resume must name."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

FALLS_BACK = ""  # the manifest is no manifest: the checkpoint before is used


class Forged(NamedTuple):
    """A checkpoint to change: the manifest as JSON, and the tensors by name."""

    body: dict[str, Any]
    tensors: dict[str, torch.Tensor]

    @property
    def state(self) -> dict[str, Any]:
        """The state as JSON."""
        found: dict[str, Any] = self.body["state"]
        return found

    @property
    def group(self) -> dict[str, Any]:
        """The settings of the optimiser."""
        found: dict[str, Any] = self.state["optimizer"]["param_groups"][0]
        return found

    @property
    def entries(self) -> list[Any]:
        """What the optimiser keeps: pairs of the number of a parameter and a table."""
        found: list[Any] = self.state["optimizer"]["state"]["$dict"]
        return found


Change = Callable[[Forged], Any]
Table = dict[str, tuple[Change, str]]


def put(*path: Any, value: Any) -> Change:
    """Return the change that sets an entry of the state."""

    def change(forged: Forged) -> None:
        place = forged.state
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value

    return change


def drop(*path: Any) -> Change:
    """Return the change that removes an entry of the state."""

    def change(forged: Forged) -> None:
        place = forged.state
        for key in path[:-1]:
            place = place[key]
        del place[path[-1]]

    return change


def tensor(part: str, make: Callable[[torch.Tensor], torch.Tensor]) -> Change:
    """Return the change that replaces the first tensor whose name contains a text."""

    def change(forged: Forged) -> None:
        name = next(name for name in forged.tensors if part in name)
        forged.tensors[name] = make(forged.tensors[name].clone())

    return change


def cell(part: str, index: int, value: float) -> Change:
    """Return the change that sets one number of a tensor."""

    def make(found: torch.Tensor) -> torch.Tensor:
        found.view(-1)[index] = value
        return found

    return tensor(part, make)


def double(found: torch.Tensor) -> torch.Tensor:
    """Return the tensor in another dtype."""
    return found.double() if found.dtype != torch.float64 else found.float()


def longer(found: torch.Tensor) -> torch.Tensor:
    """Return the tensor with its content twice."""
    return torch.cat([found.reshape(-1), found.reshape(-1)])


WEIGHT = "0.weight"
COMMON: Table = {
    "no optimizer": (drop("optimizer"), "state/optimizer is missing"),
    "optimizer is None": (put("optimizer", value=None), "optimizer is None, expected a table"),
    "optimizer without groups": (drop("optimizer", "param_groups"), "optimizer/param_groups is missing"),
    "groups are a number": (put("optimizer", "param_groups", value=3), "optimizer/param_groups is 3"),
    "no group": (put("optimizer", "param_groups", value=[]), "optimizer/param_groups is a list of 0"),
    "two groups": (lambda f: f.state["optimizer"]["param_groups"].append(f.group), "optimizer/param_groups"),
    "a group is a text": (put("optimizer", "param_groups", value=["x"]), "optimizer/param_groups/0 is 'x'"),
    "a rate that is a text": (lambda f: f.group.update(lr="x"), "param_groups/0/lr is 'x'"),
    "a rate of NaN": (lambda f: f.group.update(lr={"$float": "nan"}), "param_groups/0/lr is nan"),
    "a negative rate": (lambda f: f.group.update(lr=-0.1), "param_groups/0/lr is -0.1"),
    "a weight decay that is a text": (lambda f: f.group.update(weight_decay="x"), "weight_decay is 'x'"),
    "another weight decay": (lambda f: f.group.update(weight_decay=0.77), "weight_decay is 0.77"),
    "an unknown setting": (lambda f: f.group.update(evil=1), "param_groups/0/evil is unknown"),
    "no params": (lambda f: f.group.pop("params"), "param_groups/0/params is missing"),
    "params twice": (lambda f: f.group["params"].append(0), "param_groups/0/params"),
    "params in another order": (lambda f: f.group["params"].reverse(), "param_groups/0/params"),
    "entries that are a list": (put("optimizer", "state", value=[1]), "optimizer/state is a list of 1"),
    "an entry of no parameter": (lambda f: f.entries.append([99, {}]), "optimizer/state/99 is unknown"),
    "an entry named by a text": (lambda f: f.entries[0].__setitem__(0, "0"), "optimizer/state/0 is unknown"),
    "an entry named by a truth": (lambda f: f.entries[1].__setitem__(0, True), "optimizer/state/True is unknown"),
    "an entry that is a number": (lambda f: f.entries[0].__setitem__(1, 3), "optimizer/state/0 is 3"),
    "an entry with a strange name": (lambda f: f.entries[0][1].update(evil=1), "optimizer/state/0/evil is unknown"),
    "an entry of another shape": (lambda f: f.entries[0].__setitem__(1, f.entries[1][1]), "optimizer/state/0"),
    "no ema": (drop("ema"), "state/ema is missing"),
    "ema is None": (put("ema", value=None), "ema is None, expected a table"),
    "ema is a tensor": (lambda f: f.state.update(ema=f.state["tallies"]), "ema is a tensor"),
    "ema of nothing": (put("ema", value={}), f"ema/{WEIGHT} is missing"),
    "ema with a number": (put("ema", WEIGHT, value=1.5), f"ema/{WEIGHT} is 1.5"),
    "ema of another dtype": (tensor(f"state/ema/{WEIGHT}", double), f"ema/{WEIGHT} is a tensor of float64"),
    "ema of another shape": (tensor(f"state/ema/{WEIGHT}", longer), f"ema/{WEIGHT} is a tensor of float32"),
    "a count of averages too large": (put("ema_count", value=2**70), "ema_count is 118"),
    "a count of averages that is a text": (put("ema_count", value="8"), "ema_count is '8'"),
    "a negative count of averages": (put("ema_count", value=-1), "ema_count is -1"),
    "no tallies": (drop("tallies"), "state/tallies is missing"),
    "tallies that are a text": (put("tallies", value="x"), "tallies is 'x'"),
    "tallies of two ranks": (tensor("state/tallies", lambda t: torch.cat([t, t])), "was started on 2 ranks"),
    "tallies too short": (tensor("state/tallies", lambda t: t[:, :-1]), "tallies is a tensor"),
    "tallies without ranks": (tensor("state/tallies", lambda t: t[0]), "tallies is a tensor"),
    "tallies of another dtype": (tensor("state/tallies", lambda t: t.float()), "tallies is a tensor of float32"),
    "a tally of NaN images": (cell("state/tallies", 0, math.nan), "tallies/0 is nan"),
    "a tally of infinite passes": (cell("state/tallies", 2, math.inf), "tallies/0 is inf"),
    "a tally of other batches": (cell("state/tallies", 1, 5.0), "tallies/0/1 is 5.0, expected 2"),
    "a loss of NaN": (cell("state/tallies", 3, math.nan), "tallies/0/3 is nan"),
    "a negative histogram": (cell("state/tallies", -1, -7.0), "tallies/0 is -7.0"),
    "half a kept operation": (cell("state/tallies", -1, 0.5), "tallies/0 is 0.5"),
    "a huge histogram": (cell("state/tallies", -1, 1e300), "tallies/0 is 1e+300"),
    "a batch that is a text": (put("batch", value="2"), "batch is '2'"),
    "a batch that is a truth": (put("batch", value=True), "batch is True"),
    "a batch after the last": (put("batch", value=7), "batch is 7"),
    "a negative batch": (put("batch", value=-1), "batch is -1"),
    "an endless batch": (put("batch", value=10**4000), "batch is 1000"),
    "seconds of NaN": (put("seconds", value={"$float": "nan"}), "seconds is nan"),
    "negative seconds": (put("seconds", value=-1.0), "seconds is -1.0"),
    "seconds that are a list": (put("seconds", value=[]), "seconds is a list of 0"),
    "more skipped than seen": (put("skipped", value=3), "skipped is 3"),
    "no problem": (drop("problem"), "state/problem is missing"),
    "a negative gamma": (cell("state/problem/gamma", 0, -1.0), "problem/gamma"),
    "a gamma of NaN": (cell("state/problem/gamma", 0, math.nan), "problem/gamma"),
    "two gammas": (tensor("state/problem/gamma", longer), "problem/gamma is a tensor"),
    "another number of batches": (cell("state/problem/n_batches", 0, 9), "problem/n_batches is 9"),
    "a standard deviation of 0": (cell("state/problem/finish.std", 0, 0.0), "problem/finish.std"),
    "a precision of its own": (put("precision", value={"scale": 1.0}), "precision/scale is unknown"),
    "a precision that is a list": (put("precision", value=[]), "precision is a list of 0"),
    "a model that is a list": (put("model", value=[1]), "does not fit the model"),
    "a model without a tensor": (drop("model", WEIGHT), f"model/{WEIGHT} is missing"),
    "a model of another shape": (tensor(f"state/model/{WEIGHT}", longer), f"model/{WEIGHT} is a tensor"),
    "a further entry": (put("evil", value=1), "state/evil is unknown"),
    "an epoch after the last": (lambda f: f.body.update(epoch=4), "epoch is 4"),
    "the last epoch with batches": (lambda f: f.body.update(epoch=3), "batch is 2"),
    "no config": (lambda f: f.body["meta"].pop("config"), "does not say its config"),
    "a config that is a list": (lambda f: f.body["meta"].update(config=[1]), "does not say its config"),
    "a setting of any length": (lambda f: f.body["meta"]["config"].update(lr="x" * 10**6), "another config (lr: 'xxx"),
    "an endless step": (lambda f: f.body.update(step=2**80), FALLS_BACK),
    "a further key": (lambda f: f.body.update(evil=1), FALLS_BACK),
    "an epoch that is a truth": (lambda f: f.body.update(epoch=True), FALLS_BACK),
    "tensors without a size": (lambda f: f.body["tensors"].pop("size"), FALLS_BACK),
    "a tensor in meta": (lambda f: f.body["meta"].update(config={"$tensor": "state/tallies"}), FALLS_BACK),
    "an unknown tag": (put("seconds", value={"$complex": "1j"}), FALLS_BACK),
    "a tag beside other keys": (put("seconds", value={"a": 1, "$float": "nan"}), FALLS_BACK),
    "a strange float": (put("seconds", value={"$float": "1_0"}), FALLS_BACK),
    "a tensor named by a table": (put("tallies", value={"$tensor": {}}), FALLS_BACK),
    "an order of truths": (put("tallies", value={"$tensor": "state/tallies", "order": [True, False]}), FALLS_BACK),
    "a key twice": (lambda f: f.entries.append(f.entries[0]), FALLS_BACK),
    "a key that is a list": (lambda f: f.entries.append([[1], 2]), FALLS_BACK),
}
SGD: Table = {
    "a momentum that is a text": (lambda f: f.group.update(momentum="x"), "param_groups/0/momentum is 'x'"),
    "another momentum": (lambda f: f.group.update(momentum=0.5), "param_groups/0/momentum is 0.5"),
    "nesterov that is a number": (lambda f: f.group.update(nesterov=1), "param_groups/0/nesterov is 1"),
    "an average that is a number": (lambda f: f.entries[0][1].update(momentum_buffer=1.0), "momentum_buffer is 1.0"),
    "an average of another dtype": (tensor("0/momentum_buffer", double), "momentum_buffer is a tensor of float64"),
    "one average for two": (lambda f: f.entries[2].__setitem__(1, f.entries[1][1]), "not that of optimizer/state/1"),
}
ADAM: Table = {
    "betas that are a number": (lambda f: f.group.update(betas=0.9), "param_groups/0/betas is 0.9"),
    "other betas": (lambda f: f.group.update(betas={"$tuple": [0.5, 0.5]}), "param_groups/0/betas"),
    "an eps that is a text": (lambda f: f.group.update(eps="x"), "param_groups/0/eps is 'x'"),
    "amsgrad that is a number": (lambda f: f.group.update(amsgrad=1), "param_groups/0/amsgrad is 1"),
    "a step that is a number": (lambda f: f.entries[0][1].update(step=8), "optimizer/state/0/step is 8"),
    "a step of NaN": (cell("state/0/step", 0, math.nan), "optimizer/state/0/step is nan"),
    "a step after the last": (cell("state/0/step", 0, 9.0), "optimizer/state/0/step is 9.0"),
    "steps of several": (tensor("state/0/step", lambda t: torch.zeros(2)), "optimizer/state/0/step is a tensor"),
    "an entry without squares": (lambda f: f.entries[0][1].pop("exp_avg_sq"), "state/0/exp_avg_sq is missing"),
    "a negative square": (cell("state/0/exp_avg_sq", 0, -1.0), "optimizer/state/0/exp_avg_sq"),
    "squares that are the averages": (
        lambda f: f.entries[0][1].update(exp_avg_sq=f.entries[0][1]["exp_avg"]),
        "state/0",
    ),
}
ODD: dict[str, Table] = {"sgd": COMMON | SGD, "adam": ADAM}

MANY = 10**6
BOMBS: dict[str, Callable[[], bytes]] = {
    "a tensor named a million times": lambda: b'{"x": [' + b'{"$tensor": "state/x"},' * 650_000 + b"1]}",
    "a tensor named as often as is allowed": lambda: b"[" + b'{"$tensor": "state/x"},' * (MANY // 2) + b"1]",
    "millions of lists": lambda: b'{"x": [' + b"[]," * (5 * MANY) + b"1]}",
    "as many tables as are allowed": lambda: b"[" + b'{"a": {}},' * (MANY // 3) + b"1]",
    "nested lists": lambda: b"[" * MANY,
    "nested lists that end": lambda: b"[" * 900 + b"]" * 900,
    "nested tables": lambda: b'{"a":' * 40 + b"1" + b"}" * 40,
    "nested tuples": lambda: b'{"$tuple": [' * 300 + b"]}" * 300,
    "an integer of a million digits": lambda: b'{"x": ' + b"9" * MANY + b"}",
    "integers of 4,000 digits": lambda: b"[" + (b"9" * 4000 + b",") * 4000 + b"1]",
    "a text of 15 MB as a tag": lambda: b'{"$' + b"x" * (15 * MANY) + b'": 1}',
    "a text of 15 MB as a tensor": lambda: b'{"$tensor": "' + b"x" * (15 * MANY) + b'"}',
}
