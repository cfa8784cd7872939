"""`invaug train` end to end, and its loop against the same steps written out by hand."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional as F
from torch.optim.lr_scheduler import CosineAnnealingLR

from invaug import Constraint, InvarianceConstrained, Resilient, metropolis_hastings, sets
from invaug.lab.config.levels import table_of_rule
from invaug.lab.data.batches import batches, n_batches
from invaug.lab.data.load import load_dataset
from invaug.lab.errors import UserError
from invaug.lab.models.build import build_model
from invaug.lab.report.read import read_runs
from invaug.lab.report.sections.words import meanings, verdict
from invaug.lab.run import checkpoint
from invaug.lab.run.folder import load, read_config
from invaug.lab.run.record import read
from invaug.lab.train import schedule as schedules
from invaug.lab.train.course import course_of
from invaug.lab.train.finish import Finish
from invaug.lab.train.loop import RunError
from invaug.lab.train.problem import METHODS, build_problem
from invaug.lab.train.summary import table_row
from invaug.lab.train.tally import entropy_of_uniform
from invaug.rng import mix
from tests.support.runs import train, write_digits


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_digits(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def default(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One epoch with the default settings; tests read it and leave it as it is."""
    folder = tmp_path_factory.mktemp("default") / "run"
    train(data, folder, epochs=1)
    return folder


def weights(folder: Path) -> dict[str, torch.Tensor]:
    saved = checkpoint.load(folder / "checkpoints")
    assert saved is not None
    return saved.state["model"]


def assert_same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> None:
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def lines(folder: Path) -> list[dict[str, object]]:
    """Return the record without what the clock says."""
    return [{k: v for k, v in row.items() if k not in ("seconds", "images_per_second")} for row in read(folder)]


def test_loop_takes_the_steps_of_algorithm_2_written_out_by_hand(data: Path, tmp_path: Path) -> None:
    """The same weights with and without Fabric, config, record and checkpoints."""
    train(data, tmp_path / "run", views="both", set="wide", epsilon=0.7, dual_lr=0.01, clip=0.0)
    dataset = load_dataset(str(data))
    torch.manual_seed(0)
    model = build_model("cnn-small", 10, dataset.image_shape).to(memory_format=torch.channels_last)
    finish = Finish(dataset.mean, dataset.std)
    problem = InvarianceConstrained(Constraint(sets.wide(), 0.7), views="both", dual_lr=0.01, finish=finish)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, nesterov=True, weight_decay=5e-4)
    schedule = CosineAnnealingLR(optimizer, T_max=2 * n_batches(dataset.train, 64, True))
    for epoch in range(2):
        for i, batch in enumerate(batches(dataset.train, 64, epoch=epoch, seed=0, shuffle=True, drop_last=True)):
            torch.manual_seed(mix(0, epoch, i, 0))
            step = problem(model, batch.images, batch.targets)
            optimizer.zero_grad()
            step.lagrangian.backward()
            optimizer.step()
            problem.dual_step(step.slack)
            schedule.step()
    saved = weights(tmp_path / "run")
    assert all(torch.allclose(saved[name], value, atol=1e-6) for name, value in model.state_dict().items())
    assert read(tmp_path / "run")[-1]["gamma"] == pytest.approx(problem.gamma.tolist(), rel=1e-5)


@pytest.mark.parametrize("method", [name for name in METHODS if name != "deepaa"])
def test_every_method_trains_and_says_how_it_went(method: str, data: Path, tmp_path: Path) -> None:
    (summary,) = train(data, tmp_path / "run", method=method, epochs=1, gamma_init=0.2, epsilon=0.8)
    constrains = METHODS[method].is_constrained
    assert 0.05 < summary["test_accuracy"] <= 1
    assert 0.05 < summary["transformed_accuracy"] <= 1
    assert len(summary["gamma"]) == int(constrains)
    assert (summary["feasible"] is not None) == (constrains and method not in ("penalty", "identity-mix", "sampled"))
    assert [row["epoch"] for row in read(tmp_path / "run")] == [1]


@pytest.mark.parametrize("views", ["one", "both", "apart"])
def test_every_way_to_view_a_batch_trains_and_moves_gamma(data: Path, tmp_path: Path, views: str) -> None:
    (summary,) = train(data, tmp_path / "run", epochs=2, views=views, epsilon=0.1, dual_lr=0.1)
    assert 0 < summary["gamma"][0] < 10
    assert summary["test_accuracy"] > 0.15


@pytest.mark.parametrize("views", ["one", "both"])
def test_the_rule_says_where_epsilon_and_gamma_ended(data: Path, tmp_path: Path, views: str) -> None:
    folder = tmp_path / "run"
    (summary,) = train(data, folder, views=views, epochs=10)
    rows = read(folder)
    last, rule = rows[-1], Resilient()
    assert (summary["feasible"], summary["epsilon_chosen"]) == (None, True)
    assert summary["settled"] == course_of([row["gamma"][0] for row in rows]).is_settled
    assert table_row(summary | {"settled": True})["constraint"] == f"epsilon {summary['epsilon']:.2f}, by its rule"
    assert table_row(summary | {"settled": False})["constraint"] == "epsilon not settled yet"
    assert summary["epsilon"] == last["epsilon"][0]
    assert last["slack"][0] == pytest.approx(last["constraint_loss"][0] - last["epsilon"][0], abs=1e-5)
    assert 0 < summary["gamma"][0] <= rule.cap
    assert all(0 <= row["gamma"][0] <= rule.cap for row in rows)
    assert not any(any(row["out_of_reach"]) for row in rows)
    (gamma, _) = meanings(read_runs([folder]))
    assert f"{rule.alpha:g} × the gap between the loss on the transformations the chain keeps" in gamma


def test_the_epsilon_of_a_short_run_is_not_settled_yet(data: Path, tmp_path: Path) -> None:
    (summary,) = train(data, tmp_path / "run", epochs=2)
    assert table_row(summary)["constraint"] == "epsilon not settled yet"


def test_the_record_has_the_entropy_that_uniform_draws_would_have(default: Path) -> None:
    (row,) = read(default)
    ((low, high),) = row["entropy_uniform"]
    n = sum(map(sum, row["kept"][0].values()))
    assert [low, high] == entropy_of_uniform(14, n)
    assert 0 < row["acceptance"][0] < 1


def test_families_that_all_have_a_level_leave_nothing_to_choose(data: Path, tmp_path: Path) -> None:
    families = {"turn": {"Rotate": 30.0, "epsilon": 2.0}, "shift": {"TranslateX": 2.0, "epsilon": 9.0}}
    (summary,) = train(data, tmp_path / "run", families=families, method="uniform", epochs=1)
    assert (summary["epsilon_chosen"], summary["epsilon"]) == (False, None)
    assert summary["feasible"] == all(slack <= 0 for slack in summary["slack"])
    assert table_row(summary)["constraint"].startswith(("feasible", "violated"))
    assert "the invariance gap" not in verdict(read_runs([tmp_path / "run"])[0])
    families["shift"].pop("epsilon")
    (summary,) = train(data, tmp_path / "one", families=families, method="uniform", epochs=1)
    assert summary["epsilon_chosen"]
    assert summary["epsilon"] == read(tmp_path / "one")[-1]["epsilon"][1]
    assert summary["feasible"] == (summary["slack"][0] <= 0)


def test_a_gamma_that_hardly_moves_is_not_called_out_of_reach(data: Path, tmp_path: Path) -> None:
    train(data, tmp_path / "run", epochs=6, dual_lr=1e-5, lr=1e-6)  # the loss cannot fall, and gamma hardly moves
    assert not any(any(row["out_of_reach"]) for row in read(tmp_path / "run"))
    assert "γ stayed at zero" in verdict(read_runs([tmp_path / "run"])[0])


def test_run_without_a_bound_is_valid_json(data: Path, tmp_path: Path) -> None:
    (summary,) = train(data, tmp_path / "run", epsilon=float("inf"), epochs=1)
    json.loads(json.dumps(summary, allow_nan=False))
    assert [summary["feasible"], summary["slack"], summary["gamma"]] == [True, [None], [0.0]]


def test_penalty_keeps_gamma_where_it_starts(data: Path, tmp_path: Path) -> None:
    (summary,) = train(data, tmp_path / "run", method="penalty", epochs=1, gamma_init=0.25)
    assert summary["gamma"] == [0.25]


@pytest.mark.parametrize(
    "more",
    [
        {"epsilon": 0.7, "views": "both"},
        {"gamma_init": 1.0},
        {"method": "uniform"},
        {"epsilon": {"rule": "resilient", "alpha": 2.0, "base": 0.5, "cap": 1.0}, "accumulate": 2},
    ],
    ids=["two-view", "default", "uniform", "rule"],
)
def test_resumed_run_ends_as_the_uninterrupted_one(data: Path, tmp_path: Path, more: dict[str, Any]) -> None:
    settings = {"ema": 0.9, "val_fraction": 0.2, "crop": 2, **more}
    train(data, tmp_path / "whole", **settings, epochs=3)
    shutil.copytree(tmp_path / "whole", tmp_path / "parts")
    for file in sorted((tmp_path / "parts" / "checkpoints").iterdir())[-2:]:
        file.unlink()  # as if it had been killed before the last epoch was saved
    train(data, tmp_path / "parts", **settings, epochs=3, resume=True)
    assert_same(weights(tmp_path / "whole"), weights(tmp_path / "parts"))
    assert lines(tmp_path / "whole") == lines(tmp_path / "parts")


def test_number_of_workers_does_not_change_a_run(data: Path, default: Path, tmp_path: Path) -> None:
    train(data, tmp_path / "two", workers=2, epochs=1)
    assert_same(weights(default), weights(tmp_path / "two"))


def test_accumulated_batches_step_once(data: Path, tmp_path: Path) -> None:
    """Two batches of 32 without BatchNorm give the gradient of one of 64; the dual step follows the optimiser."""
    train(data, tmp_path / "one", model="mlp", method="none", batch_size=64, epochs=1, clip=0.0, schedule="constant")
    train(
        data,
        tmp_path / "two",
        model="mlp",
        method="none",
        batch_size=32,
        accumulate=2,
        epochs=1,
        clip=0.0,
        schedule="constant",
    )
    first, second = weights(tmp_path / "one"), weights(tmp_path / "two")
    assert all(torch.allclose(first[name], second[name], atol=1e-5) for name in first)


def test_record_says_what_was_kept(data: Path, tmp_path: Path) -> None:
    train(data, tmp_path / "run", epochs=1, views="both", set="wide")
    (row,) = read(tmp_path / "run")
    kept = row["kept"][0]
    assert list(kept) == list(sets.wide().names)
    assert sum(map(sum, kept.values())) == 256
    assert 0 < row["entropy"][0] <= torch.log(torch.tensor(14.0))
    assert 0 <= row["acceptance"][0] <= 1


def test_of_two_operations_in_sequence_both_are_counted(data: Path, tmp_path: Path) -> None:
    train(data, tmp_path / "run", epochs=1, gamma_init=3.0, dual_lr=0.0, epsilon=0.8)
    (row,) = read(tmp_path / "run")
    assert sum(map(sum, row["kept"][0].values())) == 2 * 256 * 3 / 4  # three of four images are transformed ones


def test_accumulated_batches_move_gamma_by_the_mean_of_their_slacks(data: Path, tmp_path: Path) -> None:
    given = {"model": "mlp", "views": "both", "epsilon": 0.0, "dual_lr": 0.5, "lr": 1e-9, "epochs": 1, "clip": 0.0}
    train(data, tmp_path / "one", **given, batch_size=32)
    train(data, tmp_path / "two", **given, batch_size=32, accumulate=2)
    one, two = (read(tmp_path / name)[-1]["gamma"][0] for name in ("one", "two"))
    assert two == pytest.approx(one / 2, rel=0.02)  # half as many steps of about the same size


def test_by_default_a_run_has_the_proven_way(data: Path, default: Path) -> None:
    config = read_config(default)[0]
    problem = build_problem(config, load_dataset(str(data)), Finish((0.0,), (1.0,)))
    (constraint,) = problem.constraints
    assert type(problem) is InvarianceConstrained
    assert (problem.views, problem.n_steps, problem.dual_lr) == ("one", 1, 2e-2)
    assert constraint.transforms == sets.mild()
    assert constraint.epsilon == Resilient()
    assert constraint.sampler is metropolis_hastings
    assert constraint.share == 1 / 8


def test_run_remembers_its_whole_config_and_data(default: Path) -> None:
    config, facts = read_config(default)
    assert config.method.epsilon == table_of_rule(Resilient())  # nothing is left to decide
    assert config.method.set == "mild"
    assert config.model.name == "cnn-small"
    assert "auto" not in config.flat().values()
    assert facts.classes == tuple(str(digit) for digit in range(10))
    assert "[versions]" in (default / "config.toml").read_text()


def test_a_preset_has_the_epsilon_of_the_paper(data: Path, tmp_path: Path) -> None:
    train(data, tmp_path / "run", preset="paper", epochs=1)
    assert read_config(tmp_path / "run")[0].method.epsilon == pytest.approx(0.81)


def test_loaded_model_predicts_what_the_record_says(data: Path, tmp_path: Path) -> None:
    (summary,) = train(data, tmp_path / "run", ema=0.5)
    test = load_dataset(str(data)).test
    predictor = load(tmp_path / "run")
    with torch.no_grad():
        scores = predictor(test.images)
    assert float((scores.argmax(1) == test.targets).float().mean()) == pytest.approx(summary["test_accuracy"])
    assert float(F.cross_entropy(scores, test.targets)) == pytest.approx(summary["test_loss"], rel=1e-4)


def test_checkpoint_is_readable_by_safetensors(default: Path) -> None:
    (file,) = (default / "checkpoints").glob("*.safetensors")
    assert any("gamma" in name for name in load_file(file))


def test_infinite_loss_stops_the_run_and_keeps_the_last_good_state(data: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"the loss is (nan|inf) on the batch of images \d+"):
        train(data, tmp_path / "run", method="none", lr=1000.0, weight_decay=1000.0, clip=0.0, epochs=5, model="mlp")
    saved = checkpoint.load(tmp_path / "run" / "checkpoints")
    assert saved is None or all(torch.isfinite(v).all() for v in saved.state["model"].values())


def test_a_last_batch_of_one_image_is_said_where_batch_norm_cannot_train_on_it(tmp_path: Path) -> None:
    data = write_digits(tmp_path, n_train=161)
    settings = {"model": "faults.small:network", "batch_size": 32, "crop": 0, "views": "one"}
    with pytest.raises(UserError, match="BatchNorm cannot train on a batch of one image: choose another batch_size"):
        train(data, tmp_path / "run", epochs=1, drop_last=False, **settings)
    train(data, tmp_path / "again", epochs=1, drop_last=True, **settings)


def test_changed_config_is_refused_on_resume_with_what_differs(data: Path, default: Path) -> None:
    with pytest.raises(UserError, match=r"another config \(epsilon: {'rule'.* -> 0.5\): use a new --out"):
        train(data, default, epochs=1, epsilon=0.5, resume=True)


def test_existing_run_is_never_overwritten(data: Path, default: Path) -> None:
    before = {file: file.read_bytes() for file in default.rglob("*") if file.is_file()}
    with pytest.raises(UserError, match="exists and is not empty: add --resume"):
        train(data, default, epochs=1)
    assert before == {file: file.read_bytes() for file in default.rglob("*") if file.is_file()}


def test_nothing_to_resume_is_said(data: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nothing to resume"):
        train(data, tmp_path / "nowhere", resume=True)
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("name", ["cosine", "constant"])
def test_schedule_follows_torch(name: str) -> None:
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.1)
    reference = CosineAnnealingLR(optimizer, T_max=50, eta_min=1e-6)
    for i in range(50):
        expected = reference.get_last_lr()[0] if name == "cosine" else 0.1
        assert schedules.learning_rate(name, i / 5, 10, 0.1, 1e-6, 0.0) == pytest.approx(expected)
        optimizer.step()
        reference.step()


def test_600_epoch_schedule_slows_its_clock_as_published() -> None:
    ticks, tick = [], 0
    for epoch in range(600):
        ticks.append(tick)
        pace = 1 if tick < 180 else 10 if tick < 185 else 20 if tick < 195 else 40
        since = epoch + 1 - (0 if tick < 180 else 180 if tick < 185 else 230 if tick < 195 else 430)
        tick += since % pace == 0
    for epoch, at in enumerate(ticks):
        assert schedules.cosine_600(epoch, 600) == pytest.approx(schedules.cosine(at, 200)), epoch


def test_warm_up_rises_to_the_highest_rate() -> None:
    rates = [schedules.learning_rate("cosine", epoch / 4, 10, 0.1, 0.0, 2.0) for epoch in range(9)]
    assert rates == sorted(rates)
    assert rates[-1] == pytest.approx(0.1)
    assert 0 < rates[0] < 0.01


def test_tensorboard_and_csv_hold_the_record(data: Path, tmp_path: Path) -> None:
    train(data, tmp_path / "run", epochs=1, log=["csv"])
    table = (tmp_path / "run" / "record.csv").read_text()
    row = json.loads((tmp_path / "run" / "record.jsonl").read_text())
    assert str(row["train_loss"]) in table
