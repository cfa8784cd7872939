"""A checkpoint that is whole but not of this training is refused before any of it is restored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from faults.small import copied, differences
from invaug.lab.errors import UserError
from invaug.lab.run import checkpoint
from invaug.lab.run.folder import load, read_config
from invaug.lab.train import command
from invaug.lab.train.check_state import Length
from invaug.lab.train.one_process import OneProcess
from invaug.lab.train.state import Training, prepare
from tests.support.runs import train, write_digits

LENGTH = Length(epochs=1, batches=4)


@pytest.fixture(scope="module", params=["sgd", "adamw"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    train(write_digits(folder), folder / "run", epochs=1, optimizer=request.param, ema=0.9, model="cnn-small")
    return folder / "run"


@pytest.fixture(scope="module")
def saved(run: Path) -> checkpoint.Checkpoint:
    found = checkpoint.load(run / "checkpoints")
    assert found is not None
    return found


@pytest.fixture
def training(run: Path) -> Training:
    config, fabric = read_config(run)[0], OneProcess(torch.device("cpu"))
    dataset = command.load_once(config, fabric)
    return prepare(command.resolve_for(config, dataset, fabric), dataset, fabric)


def odd(saved: checkpoint.Checkpoint, change: Callable[[dict[str, Any]], Any]) -> checkpoint.Checkpoint:
    state = copied(saved.state)
    change(state)
    return saved._replace(state=state)


def test_what_was_saved_is_restored_bit_for_bit(saved: checkpoint.Checkpoint, training: Training) -> None:
    training.restore(odd(saved, lambda _: None), LENGTH)
    assert list(differences(dict(training.state()), saved.state)) == []


def first(state: dict[str, Any]) -> dict[str, Any]:
    return state["optimizer"]["state"][0]  # type: ignore[no-any-return]


ODD: dict[str, Callable[[dict[str, Any]], Any]] = {
    "optimizer/param_groups/0/weight_decay is 'x'": lambda s: s["optimizer"]["param_groups"][0].update(
        weight_decay="x"
    ),
    "optimizer/param_groups/0/weight_decay is 0.3, expected": lambda s: s["optimizer"]["param_groups"][0].update(
        weight_decay=0.3
    ),
    "optimizer/state/0/evil is unknown": lambda s: first(s).update(evil=1),
    "optimizer/state/99 is unknown": lambda s: s["optimizer"]["state"].update({99: {}}),
    "of its own, not that of optimizer/state/": lambda s: s["optimizer"]["state"].update(
        {1: s["optimizer"]["state"][2]}
    ),
    "ema is a tensor of float64": lambda s: s.update(ema=s["tallies"]),
    "ema_count is 5, expected a whole number from 0 to 4": lambda s: s.update(ema_count=5),
    "tallies is a tensor of float32": lambda s: s.update(tallies=s["tallies"].float()),
    "tallies/0 is nan": lambda s: s["tallies"].fill_diagonal_(float("nan")),
    "batch is 1, expected a whole number from 0 to 0": lambda s: s.update(batch=1),
    "problem/gamma is a tensor": lambda s: s["problem"]["gamma"].fill_(-1.0),
    "problem/n_batches is 7, expected 4": lambda s: s["problem"]["n_batches"].fill_(7),
    "state/seconds is missing": lambda s: s.pop("seconds"),
    "was started on 2 ranks": lambda s: s.update(tallies=torch.cat([s["tallies"]] * 2)),
}


@pytest.mark.parametrize("message", ODD)
def test_an_odd_entry_is_named_and_nothing_is_restored(
    message: str, saved: checkpoint.Checkpoint, training: Training
) -> None:
    before = copied(training.state())
    with pytest.raises(UserError) as caught:
        training.restore(odd(saved, ODD[message]), LENGTH)
    assert message in str(caught.value)
    assert "use a new --out" in str(caught.value)
    assert list(differences(training.state(), before)) == []


def test_settings_an_older_torch_did_not_have_come_from_the_config(
    saved: checkpoint.Checkpoint, training: Training
) -> None:
    own = training.optimizer.param_groups[0]["maximize"]
    training.restore(odd(saved, lambda s: s["optimizer"]["param_groups"][0].pop("maximize")), LENGTH)
    assert training.optimizer.param_groups[0]["maximize"] is own


def test_an_average_that_is_no_table_of_weights_is_not_loaded(run: Path, tmp_path: Path, saved: Any) -> None:
    copy = tmp_path / "run"
    copy.mkdir()
    (copy / "config.toml").write_bytes((run / "config.toml").read_bytes())
    state = {**saved.state, "ema": saved.state["tallies"]}
    checkpoint.save(copy / "checkpoints", state, step=saved.step, epoch=saved.epoch, meta=saved.meta)
    with pytest.raises(UserError, match="does not fit the model cnn-small"):
        load(copy)
