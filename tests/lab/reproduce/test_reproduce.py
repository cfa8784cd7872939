"""The paper's experiments: plans that say what the paper says, and a runner that loses nothing and hides nothing."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

from invaug.lab.cli import main
from invaug.lab.cli.main import app
from invaug.lab.config import build as configs
from invaug.lab.config.resolve import resolve
from invaug.lab.data.load import load_dataset
from invaug.lab.errors import UserError
from invaug.lab.evaluate import measure as evaluate
from invaug.lab.jobs import job as lab_job
from invaug.lab.jobs import measures, pool, progress, train_job
from invaug.lab.report.tables import to_html, to_markdown
from invaug.lab.reproduce import full, jobs, outcome, page, paper, plans, runner, small
from invaug.lab.reproduce.cells import SCALES, Cell, Experiment, Plan, falling, rising
from invaug.lab.reproduce.outcome import DONE, FAILED, Outcome, Row
from invaug.lab.reproduce.request import Asked
from invaug.lab.run import folder as run
from invaug.lab.run import record
from invaug.lab.train import problem
from invaug.lab.train.display import Screen
from tests.support.runs import write_digits
from tests.support.tiny_experiment import EPOCHS, tiny

ROOT = Path(__file__).parents[3]
NAMES = (
    "pilot", "table-1", "table-2", "figure-epsilon", "figure-uniform", "figure-steps", "figure-steps-dual",
    "table-synthetic", "figure-dual", "figure-epochs", "figure-frequency", "figure-levels", "table-runtime",
    "table-views", "table-bias", "table-epsilon-rule",
)  # fmt: skip
EVERY = [(name, scale) for name in NAMES for scale in SCALES]


def plan_of(name: str, scale: str) -> Plan:
    return plans.find(name).plans[scale]


def test_every_name_of_the_issue_has_a_plan_and_a_place_in_the_paper():
    assert tuple(plans.experiments()) == NAMES
    assert tuple(paper.PUBLISHED) == NAMES


@pytest.mark.parametrize(("name", "scale"), EVERY)
def test_every_cell_is_a_valid_config_without_a_seed(name, scale):
    plan = plan_of(name, scale)
    assert plan.lacks or plan.cells
    labels = [cell.label for cell in plan.cells]
    assert len(set(labels)) == len(labels)
    for cell in plan.cells:
        assert Path(cell.label).name == cell.label
        assert bool(cell.lacks) == (not cell.settings)
        assert "seed" not in cell.settings
        configs.build(cell.settings)


@pytest.mark.parametrize(("name", "scale"), EVERY)
def test_what_stands_beside_a_cell_is_in_the_paper(name, scale):
    entries = {entry for entry, _ in paper.PUBLISHED[name].numbers}
    assert {cell.beside for cell in plan_of(name, scale).cells} - {""} <= entries


def counted(name: str, scale: str = "full", end: str = "") -> tuple[int, int]:
    plan = plan_of(name, scale)
    cells = [cell for cell in plan.cells if cell.label.endswith(end)]
    return len(cells), len(cells) * plan.seeds


def test_full_scale_has_as_many_runs_as_the_paper():
    entries = 5 * 2  # datasets and networks, times two sets
    assert counted("table-1", end="paper-trivial") == (entries, entries * 5)
    assert counted("table-1", end="paper-deepaa") == (entries, entries * 5)
    assert counted("table-1", end="paper-constrained") == (entries, entries * 5)
    assert counted("table-1", end="authors-code-trivial") == (entries, entries * 5)
    assert counted("table-1", end="authors-code-constrained") == (8, 40)  # two entries have no published epsilon
    assert counted("table-1") == (48, 240)
    assert counted("table-2") == (2 * 4 * 2, 2 * 4 * 2 * 3)
    assert built("table-2", "authors-code-0.01-constrained")["subset"] == "first"
    levels = [cell for cell in plan_of("figure-epsilon", "full").cells if "-paper-constrained" in cell.label]
    assert len(levels) * plan_of("figure-epsilon", "full").seeds == 8 * 5 * 2
    assert counted("figure-steps")[1] == 2 * 2 * 4 * 4  # datasets, presets, steps, repetitions
    assert counted("table-synthetic", end="paper")[0] == 16
    assert len(paper.PUBLISHED["table-synthetic"].numbers) == 12 * 4
    assert len(paper.PUBLISHED["table-1"].numbers) == 5 * 6
    assert counted("table-bias") == (3, 15)


def test_small_scale_has_the_methods_of_the_issue_with_three_seeds():
    plan = plan_of("table-1", "small")
    problem = {"none", "trivial", "trivial-no-identity", "randaugment", "uniform", "constrained"}
    assert {cell.label for cell in plan.cells} == {f"{d}-{m}" for d in ("cifar10", "cifar100") for m in problem}
    assert plan.seeds >= 3
    keys = ("data", "model", "per_class", "epochs", "batch_size", "lr")
    budgets = {tuple(cell.settings[key] for key in keys) for cell in plan.cells}
    assert {data for data, *_ in budgets} == {"cifar10", "cifar100"}
    assert len(budgets) == 2  # one for each dataset, the same for every method


@pytest.mark.parametrize("name", NAMES)
def test_a_small_experiment_is_estimated_to_take_less_than_45_minutes(name):
    assert Asked(plans.find(name), "small").own_seconds() < 45 * 60


EPSILONS = {
    ("cifar10", "wrn-40-2"): {"paper": (0.6, 0.8), "authors-code": (0.6, 0.8)},
    ("cifar10", "wrn-28-10"): {"paper": (0.4, 0.8), "authors-code": (1.2, None)},
    ("cifar100", "wrn-40-2"): {"paper": (0.9, 0.8), "authors-code": (0.9, 2.1)},
    ("cifar100", "wrn-28-10"): {"paper": (0.9, 1.2), "authors-code": (1.3, 2.1)},
    ("svhn", "wrn-28-10"): {"paper": (0.1, 0.2), "authors-code": (None, 0.2)},
}
PRESETS = {
    "paper": {"n_steps": 2, "dual_lr": 1e-3, "identity": True, "scoring": "frozen"},
    "authors-code": {"n_steps": 1, "dual_lr": 1e-4, "identity": False, "scoring": "train"},
}
TRAINING = {
    "epochs": 200, "batch_size": 128, "optimizer": "sgd", "momentum": 0.9, "lr": 0.1, "weight_decay": 5e-4, "crop": 4,
    "flip": "yes", "cutout": 16, "clip": 5.0, "schedule": "cosine", "n_levels": 30, "drop_last": True, "n_views": 1,
}  # fmt: skip
SVHN_CODE = {"lr": 0.005, "weight_decay": 0.005, "crop": 0, "flip": "no"}


def built(name: str, label: str, scale: str = "full") -> dict[str, Any]:
    cells = {cell.label: cell for cell in plan_of(name, scale).cells}
    return configs.build(cells[label].settings).flat()


@pytest.mark.parametrize(("data", "model"), EPSILONS)
@pytest.mark.parametrize("preset", PRESETS)
def test_table_1_is_trained_with_the_published_values(data, model, preset):
    expected = {**TRAINING, **PRESETS[preset], "data": data, "model": model, "preset": preset}
    if (data, preset) == ("svhn", "authors-code"):
        expected |= SVHN_CODE
    for space, epsilon in zip(("standard", "wide"), EPSILONS[data, model][preset], strict=True):
        name = f"{data}-{model}-{space}-{preset}"
        trivial = built("table-1", f"{name}-trivial")
        assert {key: trivial[key] for key in expected} == expected
        assert (trivial["method"], trivial["set"], trivial["epsilon"]) == ("trivial", space, None)
        if epsilon is not None:
            ours = built("table-1", f"{name}-constrained")
            assert {key: ours[key] for key in expected} == expected
            assert (ours["method"], ours["set"], ours["epsilon"]) == ("constrained", space, epsilon)


def test_imagenet_100_is_trained_with_the_published_values():
    ours = built("table-2", "paper-0.025-constrained")
    expected = {
        "data": "imagenet100", "model": "resnet-50", "set": "wide", "optimizer": "adam", "lr": 5e-4, "epochs": 270,
        "weight_decay": 0.0, "batch_size": 128, "cutout": 0, "dual_lr": 1e-3, "epsilon": 0.7, "fraction": 0.025,
    }  # fmt: skip
    assert {key: ours[key] for key in expected} == expected
    assert {c.settings["fraction"] for c in plan_of("table-2", "full").cells} == {0.01, 0.025, 0.05, 0.1}


@pytest.mark.parametrize(
    ("data", "model", "epsilon"),
    [("mnist", "mlp", 0.6), ("mnist", "cnn", 0.35), ("fashion-mnist", "mlp", 0.8), ("fashion-mnist", "cnn", 0.6)],
)
def test_the_synthetic_experiments_have_three_constraints_and_the_published_values(data, model, epsilon):
    expected = {
        "optimizer": "adam", "lr": 0.005, "min_lr": 1e-6, "weight_decay": 1e-4, "clip": 1.0, "batch_size": 1000,
        "epochs": 400, "dual_lr": 5e-4, "gamma_init": 0.0, "epsilon": epsilon, "model": model, "crop": 0, "flip": "no",
        "cutout": 0, "schedule": "cosine",
    }  # fmt: skip
    for plant in ("r180", "r90", "translated", "scaled"):
        for preset, pixels in (("paper", 16), ("authors-code", 7)):
            ours = built("table-synthetic", f"{data}-{model}-{plant}-{preset}")
            assert {key: ours[key] for key in expected} == expected
            assert ours["data"] == f"{data}+{plant}"
            assert ours["families"] == {
                "rotation": {"Rotation": math.pi}, "translation": {"Translation": pixels}, "scale": {"Scale": 1.5},
            }  # fmt: skip
    assert all(cell.unit_inputs for cell in plan_of("table-synthetic", "full").cells)


def test_ablations_change_what_they_are_about_and_nothing_else():
    base = built("figure-steps", "cifar10-paper-2-steps")
    long = built("figure-steps", "cifar10-paper-16-steps")
    assert (base["n_steps"], base["epsilon"], long["n_steps"]) == (2, 0.8, 16)
    assert {**base, "n_steps": 16} == long
    assert built("figure-steps", "cifar100-authors-code-16-steps")["n_steps"] == 15  # they count proposals
    assert built("figure-steps", "cifar100-paper-2-steps")["epsilon"] == 2.1
    short = built("figure-epochs", "cifar100-paper-constrained-0.9")
    assert {**short, "epochs": 600, "schedule": "cosine-600"} == built(
        "figure-epochs", "cifar100-paper-constrained-0.9-600-epochs"
    )
    assert full.LEVELS["cifar10"] == tuple(np.linspace(0.2, 2.3, 8).round(9))
    strongest = built("table-bias", "identity-mix")
    assert (strongest["n_levels"], strongest["identity"], strongest["method"]) == (2, False, "identity-mix")
    assert [built("table-views", f"authors-code-{m}-views")["gamma_init"] for m in (1, 2, 16)] == [0, 1, 1]


def all_jobs(scale: str) -> list[tuple[str, lab_job.Job]]:
    return [(name, job) for name in NAMES for job in jobs.jobs_of(Asked(plans.find(name), scale))]


@pytest.mark.parametrize("scale", SCALES)
def test_no_two_cells_share_a_folder_with_different_configs_and_no_config_is_trained_twice(scale):
    configs_in: dict[Path, set[str]] = {}
    folders_of: dict[str, set[Path]] = {}
    for name, job in all_jobs(scale):
        configs_in.setdefault(job.folder, set()).add(job.digest)
        if not plans.find(name).reference:  # seconds are measured in runs of their own
            folders_of.setdefault(job.digest, set()).add(job.folder)
    assert all(len(found) == 1 for found in configs_in.values())
    assert all(len(found) == 1 for found in folders_of.values())


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize(
    ("name", "other"),
    [("figure-dual", "figure-epsilon"), ("figure-steps-dual", "figure-steps"), ("figure-levels", "figure-frequency")],
)
def test_figures_of_the_same_runs_train_nothing_of_their_own(name, other, scale):
    mine = {job.folder for job in jobs.jobs_of(Asked(plans.find(name), scale))}
    assert mine <= {job.folder for job in jobs.jobs_of(Asked(plans.find(other), scale))}
    assert Asked(plans.find(name), scale).own_seconds() == 0


def asked(folder: Path, experiment: Experiment, **given: Any) -> Asked:
    return Asked(experiment, out=folder / "runs", results=folder / "results", **given)


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> tuple[Path, Asked, Outcome]:
    folder = tmp_path_factory.mktemp("tiny")
    given = asked(folder, tiny(write_digits(folder)))
    return folder, given, runner.run_experiment(given, Screen(quiet=True), quiet=True)


def test_an_experiment_ends_with_a_row_a_run_and_the_interval_of_scipy(finished):
    folder, _, found = finished
    lines = (folder / "results" / "tiny" / "small.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert [(row["cell"], row["seed"]) for row in rows] == [(c, s) for c in ("none", "ours") for s in range(3)]
    assert str(folder) not in "".join(lines)
    for cell in ("none", "ours"):
        values = np.array([row["numbers"]["test_accuracy"] for row in rows if row["cell"] == cell])
        low, high = stats.t.interval(0.95, 2, values.mean(), stats.sem(values))
        estimate = found.estimate(cell, "test_accuracy")
        assert estimate.mean == pytest.approx(values.mean())
        assert estimate.interval == pytest.approx((low, high), rel=1e-4)
        assert found.counts(cell) == (3, 0, 0)
    assert len(found.verdicts()) == 1
    shown = dict(zip(found.table().columns, found.table().rows[1], strict=True))
    assert shown["test accuracy (%)"].startswith(f"{100 * values.mean():.2f} ± ")


def test_test_images_are_measured_once_at_the_end(finished):
    _, given, found = finished
    for job in jobs.jobs_of(given):
        rows = record.read(job.folder)
        assert ["test_accuracy" in row for row in rows] == [False, True]
        assert all("looked_at_accuracy" in row for row in rows)
    measured = found.values("ours", "test_accuracy")
    assert measured[-1] == pytest.approx(rows[-1]["test_accuracy"], abs=1e-6)


def test_what_is_done_is_not_trained_again(finished, monkeypatch):
    folder, given, found = finished
    monkeypatch.setattr(train_job.Trainer, "__call__", lambda *_: pytest.fail("trained again"))
    again = runner.run_experiment(given, Screen(quiet=True), quiet=True)
    assert again.as_json() == found.as_json()
    alone = Outcome(given.experiment, "small", outcome.read(folder / "results" / "tiny" / "small.jsonl"))
    assert alone.table() == found.table()


def test_a_folder_with_another_config_is_refused(finished):
    folder, given, _ = finished
    other = replace(given, experiment=tiny(folder / "some-digits.npz", lr=0.01))
    with pytest.raises(UserError, match=r"none.seed-0 holds a run with other settings: choose another --out"):
        runner.run_experiment(other, Screen(quiet=True), quiet=True)


def test_planted_digits_under_three_constraints_have_a_gamma_each_and_inputs_in_0_to_1(tmp_path):
    given = {"epochs": 1, "batch_size": 50, "per_class": 20, "workers": 0, "threads": 1, "data": "digits+r180"}
    settings = {**plan_of("table-synthetic", "small").cells[0].settings, **given}
    numbers = plans.find("table-synthetic").numbers
    plan = Plan((Cell("planted", settings, unit_inputs=True),), 1)
    found = runner.run_experiment(
        asked(tmp_path, Experiment("tiny", "", "", numbers, {"small": plan})), Screen(quiet=True), quiet=True
    )
    assert [found.mean("planted", number) is not None for number in numbers] == [True] * 3
    written = configs.read_toml(tmp_path / "runs" / "tiny-small" / "planted" / "seed-0" / "config.toml")
    assert (written["dataset"]["mean"], written["dataset"]["std"]) == ([0.0], [1.0])
    assert written["dataset"]["images"]["train"] == 200


def test_a_run_that_fails_is_counted_and_the_others_go_on(tmp_path):
    experiment = tiny(write_digits(tmp_path), lr=1e30, seeds=1)
    found = runner.run_experiment(asked(tmp_path, experiment), Screen(quiet=True), quiet=True)
    assert (found.counts("none"), found.counts("ours")) == ((0, 1, 0), (1, 0, 0))
    (failed,) = [row for row in found.rows if row.status == FAILED]
    assert "loss is" in failed.more["reason"] or "gradient" in failed.more["reason"]
    assert str(tmp_path) not in failed.line()
    assert [(verdict.text, verdict.said()) for verdict in found.verdicts()] == [("a sentence", "not run yet")]


SCRIPT = """
import sys
from pathlib import Path
from tests.support.tiny_experiment import EPOCHS, tiny
from invaug.lab.reproduce import plans
experiment = tiny(Path(sys.argv[1]), seeds=1, epochs=EPOCHS)
plans.experiments = lambda: {"tiny": experiment}
sys.argv = ["invaug", "reproduce", "tiny"]
from invaug.lab.cli.main import main
main()
"""


def start(folder: Path) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", SCRIPT, str(folder / "some-digits.npz")]
    where = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    pipe = subprocess.PIPE
    return subprocess.Popen(words, cwd=folder, env=where, text=True, stdout=pipe, stderr=pipe)  # noqa: S603


def wait_for_epochs(folder: Path, n: int, process: subprocess.Popen[str]) -> None:
    """Wait until the record has so many epochs."""
    path = folder / record.NAME
    while process.poll() is None and not (path.is_file() and path.read_bytes().count(b"\n") >= n):
        time.sleep(0.01)
    assert process.poll() is None, process.communicate()


@pytest.mark.long
def test_a_killed_experiment_goes_on_and_a_stopped_one_says_how_both_to_the_same_numbers(tmp_path, monkeypatch, capsys):
    experiment = tiny(write_digits(tmp_path), seeds=1, epochs=EPOCHS)
    first = tmp_path / "runs" / "reproduce" / "tiny-small" / "none" / "seed-0"
    killed = start(tmp_path)
    wait_for_epochs(first, 2, killed)
    killed.kill()
    killed.communicate()
    assert not (first / lab_job.OUTCOME).exists()
    assert 2 <= len(record.read(first)) <= EPOCHS
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plans, "experiments", lambda: {"tiny": experiment})
    monkeypatch.setattr(sys, "argv", ["invaug", "reproduce", "tiny"])
    with monkeypatch.context() as patched:
        patched.setattr(progress.Bar, "reached", lambda *_: os.kill(os.getpid(), signal.SIGTERM))
        with pytest.raises(SystemExit) as ended:
            main.main()
    assert ended.value.code == 143
    assert capsys.readouterr().err == ("invaug: stopped and saved; go on with: invaug reproduce tiny --scale small\n")
    code, shown = invoke("tiny", "--json")
    assert code == 0
    assert Path(json.loads(shown)["report"]).is_file()
    broken = {cell["cell"]: cell["ours"] for cell in json.loads(shown)["cells"]}
    whole = runner.run_experiment(asked(tmp_path / "whole", experiment), Screen(quiet=True), quiet=True)
    for cell in ("none", "ours"):
        assert whole.mean(cell, "test_accuracy") == broken[cell]["test_accuracy"]["mean"]
    assert whole.mean("ours", "gamma") == broken["ours"]["gamma"]["mean"]


def test_a_run_that_holds_images_out_is_measured_on_these_and_reads_no_test_image(tmp_path, monkeypatch):
    data = write_digits(tmp_path)
    settings = {**tiny(data).plans["small"].cells[0].settings, "val_fraction": 0.5, "epochs": 1}
    held = lab_job.Job("held", settings, 0, tmp_path / "held")
    seen, measure = [], train_job.clean
    monkeypatch.setattr(train_job, "clean", lambda *given: seen.append(given[2]) or measure(*given))
    train_job.Trainer()(held, lambda: None, lambda *_: None)
    loaded = load_dataset(str(data), val_fraction=0.5)
    assert [split.images.sum() for split in seen] == [loaded.val.images.sum(), loaded.train.images.sum()]
    model = run.load(tmp_path / "held")
    right = evaluate.clean(model.network, model.finish, loaded.val)["accuracy"]
    numbers = held.found()["numbers"]
    assert numbers["held_out_accuracy"] == pytest.approx(right, abs=1e-6)
    assert not [name for name in numbers if name.startswith("test_")]
    (row,) = record.read(tmp_path / "held")
    assert row["val_accuracy"] == pytest.approx(right, abs=1e-6)
    assert not [key for key in row if key.startswith("test_")]


def test_several_processes_give_the_numbers_of_one_whoever_is_killed_on_the_way(finished, tmp_path, monkeypatch):
    _, given, alone = finished
    killed = []
    begin = pool.started

    def started(job, at_once, starts=1):
        each = begin(job, at_once, starts)
        if job.seed == 1 or not killed:  # one is killed once, the other every time
            killed.append(job.name)
            each.process.kill()
        return each

    monkeypatch.setattr(pool, "started", started)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    beside = replace(given, out=tmp_path / "runs", results=tmp_path / "results", at_once=2, n_seeds=2, only=("ours",))
    found = runner.run_experiment(beside, Screen(quiet=True), quiet=True)
    assert killed.count("ours seed 0") == 1
    assert killed.count("ours seed 1") == pool.STARTS
    assert found.counts("ours") == (1, 1, 0)
    for number in ("test_accuracy", "test_loss", "gamma"):
        assert found.values("ours", number) == alone.values("ours", number)[:1]
    (failed,) = [row for row in found.rows if row.status == FAILED]
    assert failed.more["reason"] == f"its process was killed by signal 9, {pool.STARTS} times"


def row(cell: str, seed: int = 0, status: str = DONE, **numbers: float) -> Row:
    return Row(cell, seed, status, {}, numbers, {} if status == DONE else {"reason": "<b>|reason"})


def test_hostile_text_in_results_is_escaped(tmp_path):
    hostile = "<script>alert(1)</script>|x\n# y\x1b[31m"
    path = outcome.path_of(tmp_path, "table-1", "small")
    outcome.write(path, [row(hostile, test_accuracy=0.5), row("cifar10-none", status=FAILED)])
    found = Outcome(plans.find("table-1"), "small", outcome.read(path))
    assert "<script>" not in to_html(found.table())
    text = page.page(tmp_path)
    assert "<script>" not in text.replace("\\<script\\>", "")
    assert "\n# y" not in text
    assert "\x1b" not in text
    assert r"\<b\>\|reason" in text


@pytest.mark.parametrize(
    "line", ["", "{", "[]", '{"cell": 1}', '{"cell":"a","seed":0,"status":"done","config":{},"numbers":{"x":"y"}}']
)
def test_damaged_results_are_named_by_line(tmp_path, line):
    path = tmp_path / "small.jsonl"
    path.write_text(f"{row('a').line()}\n{line or 'null'}\n")
    with pytest.raises(UserError, match=r"small.jsonl is damaged in line 2: not the row of a run"):
        outcome.read(path)


def test_the_table_puts_the_papers_number_beside_ours():
    rows = [row("cifar10-constrained", seed, test_accuracy=0.5 + seed / 100) for seed in range(3)]
    table = Outcome(plans.find("table-1"), "small", rows).table()
    found = {line[0]: dict(zip(table.columns, line, strict=True)) for line in table.rows}
    ours = found["cifar10-constrained"]
    assert (ours["test accuracy (%)"], ours["paper"], ours["runs"]) == ("51.00 ± 2.48", "97.05 ± 0.18", 3)
    assert (found["cifar10-none"]["paper"], found["cifar10-none"]["left out"]) == (None, 3)
    assert "| cifar10-constrained | 51.00 ± 2.48 | 97.05 ± 0.18 | 3 | 0 | 0 |" in to_markdown(table)


def test_a_claim_says_by_how_much_and_in_how_many_seeds_it_holds():
    ours, theirs = (0.52, 0.55, 0.50), (0.50, 0.51, 0.51)
    rows = [row("cifar10-constrained", seed, test_accuracy=value) for seed, value in enumerate(ours)]
    rows += [row("cifar10-none", seed, test_accuracy=value) for seed, value in enumerate(theirs)]
    found = {verdict.text: verdict for verdict in Outcome(plans.find("table-1"), "small", rows).verdicts()}
    ahead = found["cifar10-constrained is above cifar10-none"]
    differences = np.subtract(ours, theirs)
    low, high = stats.t.interval(0.95, 2, differences.mean(), stats.sem(differences))
    assert ahead.difference.interval == pytest.approx((low, high), rel=1e-4)
    half = 100 * (high - low) / 2
    assert ahead.said() == (
        f"not decided: above in the mean, within the noise (by +1.67 ± {half:.2f} points, in 2 of 3 seeds)"
    )
    assert found["cifar10-constrained is above cifar10-trivial"].said() == "not run yet"
    clear = [replace(each, numbers={"test_accuracy": 0.4 + each.seed / 1000}) for each in rows[3:]]
    (first, *_) = Outcome(plans.find("table-1"), "small", [*rows[:3], *clear]).verdicts()
    assert first.word == "shown"


def test_what_holds_for_the_means_but_hardly_a_seed_is_not_shown():
    gaps = ((0.10, 0.30, 0.20), (0.21, 0.22, 0.20), (0.22, 0.21, 0.22), (0.23, 0.22, 0.21), (0.24, 0.20, 0.24))
    rows = [
        row(cell, seed, gap=value)
        for cell, values in zip(plans.LEVELS, gaps, strict=True)
        for seed, value in enumerate(values)
    ]
    found = {verdict.text: verdict for verdict in Outcome(plans.find("figure-epsilon"), "small", rows).verdicts()}
    verdict = found["the gap grows with epsilon"]
    assert (verdict.holds, verdict.in_seeds, verdict.of_seeds) == (True, 1, 3)
    assert verdict.said() == "not decided: true of the means, of fewer than half of the seeds (in 1 of 3 seeds)"


@pytest.mark.parametrize(
    ("gammas", "factors"),
    [((0.0, 1.3, 1.8), (0.5, 2, 2)), ((0.004, 0.038, 0.045), (0.5, 0.5, 0.5)), ((3.2, 0.3, 4.2), (2, 0.5, 2))],
)
def test_the_rule_halves_epsilon_where_gamma_vanished_and_doubles_it_elsewhere(gammas, factors):
    names = ("rotation", "translation", "scale")
    settings = full.synthetic("mnist", "mlp", "r180", "paper").settings
    prices = dict(zip(names, gammas, strict=True))
    changed = full.adjusted(settings, prices, full.vanished(prices))
    levels = [changed["families"][name]["epsilon"] / settings["epsilon"] for name in names]
    assert levels == list(factors)
    assert [c.epsilon for c in problem_of(changed).constraints] == pytest.approx(np.multiply(factors, 0.6))


def problem_of(settings):
    config = configs.build({**settings, "data": "digits", "workers": 0})
    loaded = load_dataset("digits", per_class=2)
    return problem.build_problem(resolve(config, loaded), loaded, lambda images: images)


def test_the_levels_of_the_small_scale_are_the_best_of_the_pilot():
    results = ROOT / "results"
    found = Outcome(plans.find("pilot"), "small", outcome.read(outcome.path_of(results, "pilot", "small")))
    for data, levels in small.TRIED.items():
        right = {level: found.mean(f"{data}-constrained-{level:g}", "held_out_accuracy") for level in levels}
        assert max(right, key=right.get) == small.EPSILON[data]


def test_the_levels_of_the_small_rule_are_those_the_small_gammas_ask_for():
    results = ROOT / "results"
    found = Outcome(
        plans.find("table-synthetic"), "small", outcome.read(outcome.path_of(results, "table-synthetic", "small"))
    )
    besides = {cell.beside: cell.label for cell in plan_of("table-synthetic", "small").cells}
    for beside, gammas in small.GAMMAS.items():
        measured = [found.mean(besides[beside], f"gamma.{family}") for family in full.families(1.0)]
        assert measured == pytest.approx(gammas, abs=5e-4), beside


def test_seconds_are_compared_within_a_seed():
    times = {"trivial": (1.0, 2.0), "2-steps": (3.0, 5.0)}
    rows = [
        row(cell, seed, seconds_per_epoch=seconds, passes=3 if cell == "trivial" else 8, test_accuracy=0.1)
        for cell, both in times.items()
        for seed, seconds in enumerate(both)
    ]
    found = Outcome(plans.find("table-runtime"), "small", rows)
    assert found.values("2-steps", "time_ratio") == [3.0, 2.5]
    assert found.mean("2-steps", "pass_ratio") == pytest.approx(8 / 3)


def test_uniform_draws_are_as_extreme_as_uniform_and_the_largest_alone_more():
    config = configs.build({"n_levels": 31})
    kept = {"Identity": [9] * 31, "Rotate": [7] * 31, "Color": [5] * 31}
    ends = {"gamma": [0.0], "constraint_loss": [1.0], "entropy": [1.0], "seconds": 1.0}
    tested = {"train_accuracy": 0.9, "test_accuracy": 0.8, "train_loss": 0.1, "test_loss": 0.2}
    rows = [{**ends, "kept": [kept]}, {**ends, "kept": [{**kept, "Rotate": [0] * 30 + [217]}]}]
    found = measures.numbers(config, rows, tested)
    assert found["extreme_first"] == pytest.approx(1.0)
    assert found["extreme"] > 3
    assert found["geometric"] == pytest.approx(7 / 21, abs=1e-4)
    assert (found["gap"], found["test_error"]) == pytest.approx((0.1, 0.2))


def invoke(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["reproduce", *words])
    return result.exit_code, str(result.exception) if isinstance(result.exception, UserError) else result.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["tune"], "tune is a command of its own: invaug tune cifar10"),
        (["tabel-1"], "unknown experiment tabel-1, did you mean table-1"),
        (["table-1", "--list"], "--list shows every experiment: leave out table-1"),
        ([], "name an experiment, for example table-1"),
        (["table-1", "--scale", "smal"], "unknown scale smal, did you mean small?"),
        (["pilot", "--scale", "full"], "pilot cannot run yet: at full scale the levels are the published ones"),
        (["table-1", "--only", "cifar10-non"], "no cell of table-1 is called cifar10-non, did you mean cifar10-none"),
        (["table-1", "--without", "*"], "nothing is left of table-1"),
    ],
)
def test_bad_input_is_one_clear_line(tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    assert said in invoke(*words)[1]
    assert not list(tmp_path.iterdir())


def test_no_seeds_and_missing_data_are_refused_with_code_2(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("INVAUG_DATA", str(tmp_path))
    assert invoke("table-1", "--seeds", "0")[0] == 2
    assert "imagenet100 cannot be downloaded" in invoke("table-2", "--scale", "full", "--data-dir", str(tmp_path))[1]
    needed = invoke("table-1", "--scale", "full", "--only", "*deepaa")[1]
    assert "needs the DeepAA policy" in needed
    assert "--without '*deepaa'" in needed
    assert not list(tmp_path.iterdir())


def test_the_list_names_everything_and_a_dry_run_trains_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    listed = json.loads(invoke("--list", "--json")[1])
    assert [entry["name"] for entry in listed] == list(NAMES)
    assert listed[1]["paper"]["cifar10 wrn-40-2 wide constrained: test_accuracy"] == {"mean": 97.05, "spread": 0.18}
    assert all(name in invoke("--list")[1] for name in NAMES)
    for name, scale in (("table-1", "full"), ("table-bias", "small"), ("figure-dual", "small")):
        planned = json.loads(invoke(name, "--scale", scale, "--dry-run", "--json")[1])
        assert [cell["cell"] for cell in planned["cells"]] == [cell.label for cell in plan_of(name, scale).cells]
    assert "6 cells × 2 seeds = 12 runs" in invoke("figure-epsilon", "--seeds", "2", "--dry-run")[1]
    assert not list(tmp_path.iterdir())


def test_the_page_says_what_is_still_to_be_run(tmp_path):
    text = page.page(tmp_path)
    assert all(f"\n## {name}: " in text for name in NAMES)
    assert "Small scale: to be run: `invaug reproduce figure-dual --scale small`." in text
    assert "cannot run yet: at full scale the levels are the published ones" in text


def test_the_page_in_docs_is_the_one_the_results_make():
    root = ROOT
    text = (root / "docs" / "reproduce.md").read_text(encoding="utf-8")
    assert text == page.page(root / "results"), page.COMMAND


@pytest.mark.parametrize(
    ("values", "rises"), [((1, 2, 3), True), ((0, 0, 1), True), ((1, 1), False), ((1, 3, 2), False)]
)
def test_numbers_rise_if_they_end_higher_and_never_fall(values, rises):
    assert (rising(*values), falling(*values[::-1])) == (rises, rises)


def test_tables_and_the_page_are_made_without_torch(tmp_path):
    code = "import sys; from invaug.lab.reproduce import page, outcome; page.page(__import__('pathlib').Path('.'))"
    words = [sys.executable, "-c", f"{code}; assert 'torch' not in sys.modules"]
    subprocess.run(words, cwd=tmp_path, check=True)  # noqa: S603


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"method": "trivial"}, 3),
        ({"method": "uniform", "views": "both"}, 6),
        ({"views": "both"}, 8),
        ({"views": "both", "n_views": 2}, 13),
        ({"views": "both", "share": 0.5}, 5.5),
        ({"method": "sampled"}, 5),
        ({"epsilon": 0.8}, 4),
        ({"epsilon": 0.8, "n_steps": 3}, 5),
        ({}, 4.125),
        ({"method": "uniform"}, 3.25),
    ],
)
def test_passes_are_counted_as_a_step_makes_them_at_a_gamma_of_one(settings, expected):
    assert measures.passes(configs.build(settings)) == expected


def test_rows_of_earlier_versions_are_those_of_the_same_cells():
    results = ROOT / "results"
    for name in NAMES:
        known = {cell.label: outcome.essentials(cell.settings) for cell in plan_of(name, "small").cells}
        rows = outcome.read(outcome.path_of(results, name, "small"))
        assert rows
        assert [outcome.essentials(row.config) for row in rows] == [known[row.cell] for row in rows], name
