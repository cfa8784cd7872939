"""Running an experiment loses nothing and hides nothing."""

from __future__ import annotations

import json
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
from invaug.lab.errors import UserError
from invaug.lab.jobs import job as lab_job
from invaug.lab.jobs import processes, progress, train_job
from invaug.lab.reproduce import experiments, rows, runner
from invaug.lab.reproduce.cells import Cell, Experiment, ScalePlan
from invaug.lab.reproduce.experiments import find
from invaug.lab.reproduce.outcome import Outcome
from invaug.lab.reproduce.request import Request
from invaug.lab.reproduce.rows import FAILED
from invaug.lab.run import record
from invaug.lab.train.display import Screen
from tests.support.experiments import ROOT, plan_of
from tests.support.runs import write_digits
from tests.support.tiny_experiment import EPOCHS, tiny


def request(folder: Path, experiment: Experiment, **given: Any) -> Request:
    return Request(experiment, out=folder / "runs", results=folder / "results", **given)


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> tuple[Path, Request, Outcome]:
    folder = tmp_path_factory.mktemp("tiny")
    given = request(folder, tiny(write_digits(folder)))
    return folder, given, runner.run_experiment(given, Screen(quiet=True))


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
    for job in given.runs():
        rows = record.read(job.folder)
        assert ["test_accuracy" in row for row in rows] == [False, True]
        assert ["train_clean_accuracy" in row for row in rows] == [False, True]
    measured = list(found.by_seed("ours", "test_accuracy").values())
    assert measured[-1] == pytest.approx(rows[-1]["test_accuracy"], abs=1e-6)


def test_what_is_done_is_not_trained_again(finished, monkeypatch):
    folder, given, found = finished
    monkeypatch.setattr(train_job.Trainer, "__call__", lambda *_: pytest.fail("trained again"))
    again = runner.run_experiment(given, Screen(quiet=True))
    assert again.as_json() == found.as_json()
    alone = Outcome(given.experiment, "small", rows.read(folder / "results" / "tiny" / "small.jsonl"))
    assert alone.table() == found.table()


def test_a_folder_with_another_config_is_refused(finished):
    folder, given, _ = finished
    other = replace(given, experiment=tiny(folder / "some-digits.npz", lr=0.01))
    with pytest.raises(UserError, match=r"none.seed-0 holds a run with other settings: choose another --out"):
        runner.run_experiment(other, Screen(quiet=True))


def test_planted_digits_under_three_constraints_have_a_gamma_each_and_inputs_in_0_to_1(tmp_path):
    given = {"epochs": 1, "batch_size": 50, "per_class": 20, "workers": 0, "threads": 1, "data": "digits+r180"}
    settings = {**plan_of("table-synthetic", "small").cells[0].settings, **given}
    numbers = find("table-synthetic").measures
    plan = ScalePlan((Cell("planted", settings),), 1)
    found = runner.run_experiment(
        request(tmp_path, Experiment("tiny", "", "", numbers, {"small": plan})), Screen(quiet=True)
    )
    assert [found.mean("planted", number) is not None for number in numbers] == [True] * 3
    written = configs.read_toml(tmp_path / "runs" / "tiny-small" / "planted" / "seed-0" / "config.toml")
    assert (written["dataset"]["mean"], written["dataset"]["std"]) == ([0.0], [1.0])
    assert written["dataset"]["images"]["train"] == 200


def test_a_run_that_fails_is_counted_and_the_others_go_on(tmp_path):
    experiment = tiny(write_digits(tmp_path), lr=1000.0, weight_decay=1000.0, seeds=1)
    found = runner.run_experiment(request(tmp_path, experiment), Screen(quiet=True))
    assert (found.counts("none"), found.counts("ours")) == ((0, 1, 0), (1, 0, 0))
    (failed,) = [row for row in found.rows if row.status == FAILED]
    assert "loss is" in failed.more["reason"] or "gradient" in failed.more["reason"]
    assert str(tmp_path) not in failed.line()
    (verdict,) = found.verdicts()
    assert verdict.row() == ("a sentence", None, None, 0, "not run yet")


SCRIPT = """
import sys
from pathlib import Path
from tests.support.tiny_experiment import EPOCHS, tiny
from invaug.lab.reproduce import experiments
experiment = tiny(Path(sys.argv[1]), seeds=1, epochs=EPOCHS)
experiments.all_experiments = lambda: {"tiny": experiment}
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


def invoke(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["reproduce", *words])
    return result.exit_code, str(result.exception) if isinstance(result.exception, UserError) else result.output


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
    monkeypatch.setattr(experiments, "all_experiments", lambda: {"tiny": experiment})
    monkeypatch.setattr(sys, "argv", ["invaug", "reproduce", "tiny"])
    with monkeypatch.context() as patched:
        patched.setattr(progress.Bar, "advance", lambda *_: os.kill(os.getpid(), signal.SIGTERM))
        with pytest.raises(SystemExit) as ended:
            main.main()
    assert ended.value.code == 143
    assert capsys.readouterr().err == ("invaug: stopped and saved; resume with: invaug reproduce tiny --scale small\n")
    code, shown = invoke("tiny", "--json")
    assert code == 0
    assert Path(json.loads(shown)["report"]).is_file()
    broken = {cell["cell"]: cell["ours"] for cell in json.loads(shown)["cells"]}
    whole = runner.run_experiment(request(tmp_path / "whole", experiment), Screen(quiet=True))
    for cell in ("none", "ours"):
        assert whole.mean(cell, "test_accuracy") == broken[cell]["test_accuracy"]["mean"]
    assert whole.mean("ours", "gamma") == broken["ours"]["gamma"]["mean"]


def test_several_processes_give_the_numbers_of_one_whoever_is_killed_on_the_way(finished, tmp_path, monkeypatch):
    _, given, alone = finished
    killed = []
    begin = processes.Processes.start

    def start(self, job, starts=1):
        begin(self, job, starts)
        if job.seed == 1 or not killed:  # one is killed once, the other every time
            killed.append(job.name)
            self.running[-1].process.kill()

    monkeypatch.setattr(processes.Processes, "start", start)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    beside = replace(given, out=tmp_path / "runs", results=tmp_path / "results", jobs=2, seeds=2, only=("ours",))
    found = runner.run_experiment(beside, Screen(quiet=True))
    assert killed.count("ours seed 0") == 1
    assert killed.count("ours seed 1") == processes.STARTS
    assert found.counts("ours") == (1, 1, 0)
    for number in ("test_accuracy", "test_loss", "gamma"):
        assert list(found.by_seed("ours", number).values()) == list(alone.by_seed("ours", number).values())[:1]
    (failed,) = [row for row in found.rows if row.status == FAILED]
    assert failed.more["reason"] == f"its process was killed by signal 9, {processes.STARTS} times"


def test_rows_of_other_settings_move_to_the_archive(finished, tmp_path):
    folder, given, _ = finished
    there = rows.read(folder / "results" / "tiny" / "small.jsonl")
    other = [replace(row, config={**row.config, "lr": 9.0}) for row in there[:2]]
    path = rows.path_of(tmp_path, "tiny", "small")
    rows.write(path, [*other, *there[2:]])
    runner.write_results(replace(given, results=tmp_path))
    assert rows.read(path) == there
    assert rows.read(rows.path_of(tmp_path / "archive", "tiny", "small")) == other


def test_a_run_that_has_a_row_is_not_trained_again(finished, tmp_path):
    _, given, found = finished
    elsewhere = replace(given, out=tmp_path / "runs")
    again = runner.run_experiment(elsewhere, Screen(quiet=True))
    assert again.as_json() == found.as_json()
    assert not list(tmp_path.rglob("record.jsonl"))
