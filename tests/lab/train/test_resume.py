"""Stopping and going on: within an epoch, after a signal, after a bad batch."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from invaug import InvarianceConstrained
from invaug.lab.errors import UserError
from invaug.lab.run import checkpoint
from invaug.lab.run.folder import read_config
from invaug.lab.run.record import read
from invaug.lab.train import loop
from invaug.lab.train.command import run_one
from invaug.lab.train.compare import compare_methods
from invaug.lab.train.signals import Signals, Stopped
from tests.support.runs import train, write_digits

SETTINGS = {"epsilon": 0.7, "ema": 0.9, "val_fraction": 0.2, "crop": 2, "batch_size": 32, "epochs": 2}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_digits(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "run"
    train(data, folder, **SETTINGS)
    return folder


def saved(folder: Path) -> checkpoint.Checkpoint:
    found = checkpoint.load(folder / "checkpoints")
    assert found is not None
    return found


def lines(folder: Path) -> list[dict[str, object]]:
    return [{k: v for k, v in row.items() if k not in ("seconds", "images_per_second")} for row in read(folder)]


def assert_same_runs(one: Path, other: Path) -> None:
    first, second = saved(one), saved(other)
    assert (first.step, first.epoch) == (second.step, second.epoch)
    for part in ("model", "ema", "problem"):
        assert all(torch.equal(first.state[part][k], second.state[part][k]) for k in first.state[part])
    momenta = [s.state["optimizer"]["state"] for s in (first, second)]
    assert all(torch.equal(momenta[0][k]["momentum_buffer"], momenta[1][k]["momentum_buffer"]) for k in momenta[0])
    assert lines(one) == lines(other)


def signal_at(step: int, signum: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Send this process a real signal while it takes a step."""
    forward = InvarianceConstrained.forward

    def signalled(self, *args, **kwargs):
        if int(self.n_batches) == step:
            os.kill(os.getpid(), signum)
        return forward(self, *args, **kwargs)

    monkeypatch.setattr(InvarianceConstrained, "forward", signalled)


@pytest.mark.parametrize(
    ("step", "signum"), [(0, signal.SIGTERM), (3, signal.SIGINT), (5, signal.SIGHUP), (9, signal.SIGUSR1)]
)
def test_signal_finishes_the_step_and_resume_ends_as_if_nothing_had_happened(
    data: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int, signum: int
) -> None:
    with monkeypatch.context() as patch:
        signal_at(step, signum, patch)
        with pytest.raises(
            Stopped, match=rf"stopped by {signal.Signals(signum).name} and saved; resume with: .*--resume"
        ):
            train(data, tmp_path / "run", **SETTINGS)
    assert saved(tmp_path / "run").step == step + 1
    train(data, tmp_path / "run", **SETTINGS, resume=True)
    assert_same_runs(whole, tmp_path / "run")


def test_signal_during_evaluation_loses_no_batch(
    data: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure = loop.measure

    def signalled(*args):
        os.kill(os.getpid(), signal.SIGTERM)
        return measure(*args)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "measure", signalled)
        with pytest.raises(Stopped):
            train(data, tmp_path / "run", **SETTINGS)
    assert read(tmp_path / "run") == []
    assert saved(tmp_path / "run").state["batch"] == 6
    train(data, tmp_path / "run", **SETTINGS, resume=True)
    assert_same_runs(whole, tmp_path / "run")


def test_handlers_are_put_back() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    with Signals() as signals:
        os.kill(os.getpid(), signal.SIGINT)
        assert signals.caught == signal.SIGINT
    assert before == [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]


def test_checkpoints_within_an_epoch_come_every_so_many_steps(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = []
    save = checkpoint.save
    monkeypatch.setattr(checkpoint, "save", lambda *a, **k: (steps.append(k["step"]), save(*a, **k))[1])
    train(data, tmp_path / "run", **SETTINGS, checkpoint_steps=2)
    assert steps == [2, 4, 6, 8, 10, 12]  # the sixth and twelfth end an epoch
    assert len(list((tmp_path / "run" / "checkpoints").glob("*.json"))) == 2


def test_checkpoints_come_after_so_many_minutes(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that runs two minutes a look: due at every step, never twice at the end of an epoch."""
    ticks = iter(range(0, 10**6, 120))
    monkeypatch.setattr(loop.time, "monotonic", lambda: float(next(ticks)))
    steps = []
    save = checkpoint.save
    monkeypatch.setattr(checkpoint, "save", lambda *a, **k: (steps.append(k["step"]), save(*a, **k))[1])
    train(data, tmp_path / "run", **{**SETTINGS, "epochs": 1}, checkpoint_minutes=1.5)
    assert steps == [1, 2, 3, 4, 5, 6]


def poison(steps: set[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the loss of some batches NaN."""
    forward = InvarianceConstrained.forward

    def poisoned(self, *args, **kwargs):
        number = int(self.n_batches)
        step = forward(self, *args, **kwargs)
        return replace(step, lagrangian=step.lagrangian * float("nan")) if number in steps else step

    monkeypatch.setattr(InvarianceConstrained, "forward", poisoned)


def test_bad_loss_leaves_the_state_before_it_and_the_run_can_go_on(
    data: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        poison({4}, patch)
        with pytest.raises(
            loop.BadStepError, match=r"the loss is nan on the batch of images \d+, .*state before it is"
        ):
            train(data, tmp_path / "run", **SETTINGS)
    assert saved(tmp_path / "run").step == 4
    train(data, tmp_path / "run", **SETTINGS, resume=True)  # whatever made it NaN is gone
    assert_same_runs(whole, tmp_path / "run")


def test_bad_batch_is_skipped_within_the_quota(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    poison({2}, monkeypatch)
    train(data, tmp_path / "run", **SETTINGS, on_nan="skip", views="both", set="wide")  # each image is looked at once
    rows = read(tmp_path / "run")
    assert [row["skipped_batches"] for row in rows] == [1, 0]
    assert "skipped: the loss is nan on the batch of images" in capsys.readouterr().err
    kept = [sum(map(sum, row["kept"][0].values())) for row in rows]
    assert kept[1] - kept[0] == 32
    assert all(torch.isfinite(value).all() for value in saved(tmp_path / "run").state["model"].values())


def test_more_bad_batches_than_the_quota_stop_the_run(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poison({2, 3}, monkeypatch)
    with pytest.raises(loop.BadStepError, match="2 of 6 batches of this epoch are over the quota"):
        train(data, tmp_path / "run", **SETTINGS, on_nan="skip")


def test_bad_gradient_is_a_bad_step_too(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A finite loss may have an infinite gradient: sqrt at zero."""
    forward = InvarianceConstrained.forward

    def steep(self, *args, **kwargs):
        step = forward(self, *args, **kwargs)
        zero = step.lagrangian - step.lagrangian.detach()
        return replace(step, lagrangian=step.lagrangian + torch.sqrt(zero)) if int(self.n_batches) == 3 else step

    monkeypatch.setattr(InvarianceConstrained, "forward", steep)
    with pytest.raises(loop.BadStepError, match="the gradient is not finite on the batch of images"):
        train(data, tmp_path / "run", **SETTINGS, clip=0.0)
    assert saved(tmp_path / "run").step == 2


def test_bad_batch_in_a_group_leaves_the_whole_group_out(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poison({3}, monkeypatch)  # the second of the second pair
    with pytest.raises(loop.BadStepError):
        train(data, tmp_path / "run", **SETTINGS, accumulate=2)
    found = saved(tmp_path / "run")
    assert (found.step, found.state["batch"]) == (2, 2)


def test_edited_config_does_not_fool_a_resume(data: Path, tmp_path: Path) -> None:
    train(data, tmp_path / "run", epochs=1)
    file = tmp_path / "run" / "config.toml"
    file.write_text(file.read_text().replace("lr = 0.05", "lr = 0.06", 1))
    with pytest.raises(UserError, match=r"another config \(lr: 0.05 -> 0.06\): use a new --out"):
        train(data, tmp_path / "run", epochs=1, lr=0.06, resume=True)


def test_run_killed_before_its_first_write_can_be_resumed_or_started(data: Path, tmp_path: Path) -> None:
    for name, resume in (("one", True), ("other", False)):
        (tmp_path / name).mkdir()
        (tmp_path / name / ".lock").touch()
        (tmp_path / name / ".config.toml.0123abcd.tmp").write_text("half")
        train(data, tmp_path / name, epochs=1, resume=resume)
    assert lines(tmp_path / "one") == lines(tmp_path / "other")


def test_comparison_killed_in_its_first_run_goes_on_with_the_others(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        signal_at(2, signal.SIGTERM, patch)
        with pytest.raises(Stopped):
            train(data, tmp_path / "run", epochs=1, lr=0.03, compare=True)
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["compare.toml", "none"]
    rows = compare_methods({}, tmp_path / "run", resume=True, quiet=True)
    assert [row["epochs"] for row in rows] == [1, 1, 1]
    assert {read_config(Path(row["run"]))[0].train.lr for row in rows} == {0.03}


def test_infeasible_epsilon_is_told_on_screen_and_in_the_record(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A learning rate of almost nothing: no constraint can be met."""
    given = {"data": str(data), "epochs": 6, "batch_size": 64, "lr": 1e-9, "epsilon": 0.1, "workers": 0, "threads": 1}
    run_one(given, tmp_path / "run", resume=False, quiet=False)
    alarms = [row["out_of_reach"] for row in read(tmp_path / "run")]
    assert alarms[:3] == [[False]] * 3
    assert [True] in alarms[3:]
    out = " ".join(capsys.readouterr().out.split())
    assert "warning: epsilon 0.10 looks out of reach" in out
    gammas = [row["gamma"][0] for row in read(tmp_path / "run")]
    assert all(later > earlier for earlier, later in pairwise(gammas))
