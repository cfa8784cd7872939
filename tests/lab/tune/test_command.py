"""Cross-validation: folds that are trained once, chosen by what was held out, in one process, several, or on Ray."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from invaug.lab.cli.main import app
from invaug.lab.config import build as configs
from invaug.lab.data.load import load_dataset
from invaug.lab.errors import UserError
from invaug.lab.evaluate import measure
from invaug.lab.jobs import train_job
from invaug.lab.jobs.job import Job
from invaug.lab.run import folder as run
from invaug.lab.train.display import Screen
from invaug.lab.tune.command import TuneRequest, tune
from invaug.lab.tune.outcome import as_table, verdict
from tests.support.runs import write_digits

SMALL = {"model": "cnn-small", "epochs": 2, "batch_size": 32, "workers": 0, "threads": 1, "dual_lr": 0.05}


LEVELS = "epsilon=0.5,2"


def request(folder: Path, **given) -> TuneRequest:
    data = {"data": str(folder / "some-digits.npz"), **SMALL}
    return TuneRequest(data, **{"search": (LEVELS,), "folds": 2, "out": folder / "tuned", **given})


def invoke(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["tune", *words])
    return result.exit_code, str(result.exception) if isinstance(result.exception, UserError) else result.output


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tune")
    write_digits(folder)
    given = request(folder)
    return folder, given, *tune(given, Screen(quiet=True))


def test_every_fold_is_measured_on_the_images_it_did_not_train_on(tuned):
    folder, _, trials, best = tuned
    assert [trial.params for trial in trials] == [{"epsilon": "auto"}, {"epsilon": 0.5}, {"epsilon": 2.0}]
    for trial in trials:
        for fold, job in enumerate(trial.jobs):
            held_out = load_dataset(str(folder / "some-digits.npz"), val_fraction=0.5, val_fold=fold).val
            model = run.load(job.folder)
            expected = measure.clean(model.network, model.finish, held_out)
            assert trial.numbers("held_out_accuracy")[fold] == pytest.approx(expected["accuracy"], abs=1e-6)
            assert trial.numbers("held_out_loss")[fold] == pytest.approx(expected["loss"], abs=1e-5)
    means = [np.mean(trial.numbers("held_out_accuracy")) for trial in trials]
    losses = [np.mean(trial.numbers("held_out_loss")) for trial in trials]
    assert best is max(zip(means, -np.array(losses), trials, strict=True), key=lambda each: each[:2])[2]


def test_what_is_done_is_not_trained_again_and_the_best_can_be_trained(tuned, monkeypatch):
    folder, given, trials, best = tuned
    monkeypatch.setattr(train_job.Trainer, "__call__", lambda *_: pytest.fail("trained again"))
    words = [word for key, value in SMALL.items() for word in (f"--{key.replace('_', '-')}", str(value))]
    out = ["--out", str(given.out), "--folds", "2", "--search", LEVELS]
    code, shown = invoke(str(folder / "some-digits.npz"), *words, *out, "--json")
    assert code == 0, shown
    told = json.loads(shown)
    assert told["best"] == best.params
    assert [trial["held_out_accuracy"] for trial in told["trials"]] == [t.numbers("held_out_accuracy") for t in trials]
    shown = Path(told["report"]).read_text()
    assert "6 of 6 runs read no test image: their accuracy is on held-out training images" in shown
    assert "6 runs on some-digits, 3 experiments" in shown
    assert f"{best.name}: {told['verdict']}. Train on all training images with it:" in unescape(shown)
    top = shown[shown.index("<header") : shown.index("</header>")].replace("read no test image", "")
    assert not [word for word in ("seed", "test", "baseline") if word in top]
    chosen = configs.read(given.out / "best.toml")
    assert (chosen["epsilon"], chosen["epochs"]) == (best.params["epsilon"], 2)
    assert configs.build(chosen).data.val_fraction == 0
    code, shown = invoke(str(folder / "some-digits.npz"), *words, *out)
    assert f"best: {best.name}, " in shown
    assert "best.toml" in shown


def test_a_job_killed_just_before_it_wrote_its_outcome_ends_the_same(tuned):
    _, _, trials, _ = tuned
    job = trials[0].jobs[0]
    before = job.found()
    (job.folder / "outcome.json").unlink()
    train_job.Trainer()(job, lambda: None)
    assert job.found()["numbers"] == before["numbers"]


def test_another_search_in_the_same_folder_is_refused_and_nothing_is_lost(tuned):
    folder, given, *_ = tuned
    before = (given.out / "plan.json").read_bytes()
    for other in ({"folds": 3}, {"search": ("lr=0.1,0.2",)}):
        with pytest.raises(UserError, match=r"tuned holds another search: choose another --out"):
            tune(request(folder, **other), Screen(quiet=True))
    with pytest.raises(UserError, match=r"--folds 40 needs as many training images of every class: class \d has"):
        tune(request(folder, folds=40, out=folder / "many"), Screen(quiet=True))
    assert not (folder / "many").exists()
    assert (given.out / "plan.json").read_bytes() == before


def test_a_model_of_the_users_own_is_tuned_for_naming_it_is_trusting_it(tmp_path, monkeypatch):
    write_digits(tmp_path)
    (tmp_path / "my_own_net.py").write_text(
        "from math import prod\nfrom torch import nn\n\n\n"
        "def net(n_classes, image_shape):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(prod(image_shape), n_classes))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    given = request(tmp_path)
    given = replace(
        given, settings={**given.settings, "model": "my_own_net:net", "epochs": 1}, search=("optimizer=sgd",)
    )
    trials, best = tune(given, Screen(quiet=True))
    assert [(trial.params, len(trial.numbers("held_out_accuracy"))) for trial in trials] == [({"optimizer": "sgd"}, 2)]
    assert best is trials[0]
    assert verdict(trials, best) == "no combination is better than the default"


SCRIPT = "import sys; from invaug.lab.cli.main import main; sys.argv = ['invaug', *sys.argv[1:]]; main()"


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    settings = [word for key, value in SMALL.items() for word in (f"--{key.replace('_', '-')}", str(value))]
    given = ["tune", "some-digits.npz", *settings, "--folds", "2", "--search", LEVELS, "--out", "tuned", *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", SCRIPT, *given],
        cwd=folder,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def outcomes(folder: Path) -> dict[str, dict[str, float]]:
    found = sorted((folder / "tuned").glob("*/*/outcome.json"))
    numbers = {str(path.relative_to(folder)): json.loads(path.read_text())["numbers"] for path in found}
    return {name: {k: v for k, v in each.items() if "seconds" not in k} for name, each in numbers.items()}


def called(name: bytes) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += [int(path.parent.name)] if name in path.read_bytes() else []
        except OSError:
            continue
    return found


def parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


@pytest.mark.long
def test_killed_workers_and_a_stop_lose_nothing(tuned, tmp_path):
    write_digits(tmp_path)
    process = start(tmp_path, "--jobs", "2")
    killed: list[int] = []
    while len(killed) < 2 and process.poll() is None:
        for pid in called(b"invaug.lab.jobs.worker"):
            if pid not in killed and parent_of(pid) == process.pid:
                killed.append(pid)
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
    while process.poll() is None and not outcomes(tmp_path):
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 143, said
    assert "invaug: stopped and saved; resume with: invaug tune some-digits.npz" in said
    assert 0 < len(outcomes(tmp_path)) < 6
    given = TuneRequest({"data": "some-digits.npz", **SMALL}, (LEVELS,), folds=2, out=tmp_path / "tuned")
    with contextlib.chdir(tmp_path):
        tune(given, Screen(quiet=True))
    assert outcomes(tmp_path) == outcomes(tuned[0])


def test_optuna_searches_ranges_and_goes_on_with_what_it_asked(tmp_path, monkeypatch):
    optuna = pytest.importorskip("optuna")
    write_digits(tmp_path)
    given = request(
        tmp_path, search=("epsilon=0.1:2.5", "lr=0.001:0.3", "n_steps=1:2", "optimizer=sgd,adamw"), trials=3
    )
    first, best = tune(given, Screen(quiet=True))
    usual, *asked = first
    assert usual.params == {"epsilon": "auto", "lr": configs.build({}).train.lr, "n_steps": 1, "optimizer": "sgd"}
    assert len(asked) == 3
    for trial in asked:
        assert 0.1 <= trial.params["epsilon"] <= 2.5
        assert 0.001 <= trial.params["lr"] <= 0.3
        assert trial.params["n_steps"] in (1, 2)
        assert trial.params["optimizer"] in ("sgd", "adamw")
    expected = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0, constant_liar=True))
    kinds = optuna.distributions
    asked_first = expected.ask(
        {
            "epsilon": kinds.FloatDistribution(0.1, 2.5, log=True),
            "lr": kinds.FloatDistribution(0.001, 0.3, log=True),
            "n_steps": kinds.IntDistribution(1, 2),
            "optimizer": kinds.CategoricalDistribution(("sgd", "adamw")),
        }
    )
    assert asked[0].params == asked_first.params
    monkeypatch.setattr(train_job.Trainer, "__call__", lambda *_: pytest.fail("trained again"))
    again, same = tune(given, Screen(quiet=True))
    assert [trial.params for trial in again] == [trial.params for trial in first]
    assert same.params == best.params


def test_a_search_that_is_continued_step_by_step_tries_what_an_uninterrupted_one_tries(tmp_path, monkeypatch):
    pytest.importorskip("optuna")
    write_digits(tmp_path)

    def end_at_once(_: object, job: Job, *__: object) -> None:  # with an accuracy that depends on what is tried
        lr = job.settings["lr"]
        job.keep({"numbers": {"held_out_accuracy": 0.5 if lr == "auto" else 1 / (1 + lr), "held_out_loss": 1.0}})

    monkeypatch.setattr(train_job.Trainer, "__call__", end_at_once)

    def tried(folder: str, trials: int) -> list[dict[str, object]]:
        given = request(tmp_path, search=("lr=0.001:0.3",), trials=trials)
        return [trial.params for trial in tune(replace(given, out=tmp_path / folder), Screen(quiet=True))[0]]

    whole = tried("whole", 14)  # Optuna draws ten at random before it models what they gave
    for n in (1, 2, 3, 7, 11, 12, 13):
        assert tried("steps", n) == whole[: n + 1]
    assert tried("steps", 14) == whole
    assert len({params["lr"] for params in whole}) == 15


@pytest.mark.parametrize("content", ['{"trials": 3}', '{"trials": [3]}', '{"trials": [{"lrr": 1}]}', '{"other": []}'])
def test_a_list_of_trials_that_is_none_is_refused(tmp_path, content):
    pytest.importorskip("optuna")
    write_digits(tmp_path)
    given = request(tmp_path, search=("lr=0.001:0.3",), trials=1)
    given.out.mkdir(parents=True)
    (given.out / "trials.json").write_text(content)
    with pytest.raises(UserError, match="is not the list of an earlier search: remove it"):
        tune(given, Screen(quiet=True))


def test_a_combination_that_fails_is_counted_and_another_is_best(tmp_path):
    write_digits(tmp_path)
    trials, best = tune(request(tmp_path, search=("lr=1000,0.05", "weight_decay=10")), Screen(quiet=True))
    assert [len(trial.failures) for trial in trials] == [0, 2, 0]
    assert best in (trials[0], trials[2])
    rows = as_table(trials, best).rows
    assert (rows[0][-2], rows[-1][-2:]) == (0, (2, ""))
    assert sorted(word for row in rows for word in row[-1].split(", ") if word) == ["best", "default"]


def test_data_with_validation_images_of_its_own_needs_no_folds(tmp_path, monkeypatch):
    from PIL import Image

    images = np.random.default_rng(0).integers(0, 256, (2, 3, 4, 8, 8), np.uint8)
    for i, part in enumerate(("train", "val", "test")):
        for k in range(2):
            folder = tmp_path / "photos" / part / f"class-{k}"
            folder.mkdir(parents=True)
            for j in range(4):
                Image.fromarray(images[k, i, j]).save(folder / f"{j}.png")
    given = TuneRequest(
        {"data": str(tmp_path / "photos"), **SMALL, "batch_size": 4, "epochs": 1},
        ("epsilon=0.5,1",),
        out=tmp_path / "tuned",
    )
    trials, _ = tune(given, Screen(quiet=True))
    assert [len(trial.jobs) for trial in trials] == [1, 1, 1]
    assert all(trial.is_complete for trial in trials)
    assert trials[1].jobs[0].name == "epsilon 0.5, on the validation images"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--search", "epsilonn=1,2"], "unknown key epsilonn in --search, did you mean epsilon"),
        (["--search", "epsilon"], "cannot search epsilon: write KEY=A,B,C or KEY=LOW:HIGH"),
        (["--search", "epsilon=2:1"], "cannot search epsilon=2:1: a range is LOW:HIGH"),
        (["--search", "lr=a:b"], "cannot search lr=a:b: a range is LOW:HIGH"),
        (["--search", "n_steps=1.5,2"], "n_steps should be a valid integer"),
        (["--search", "lr=0,0.1"], "lr should be greater than 0"),
        (["--search", "lr=0.1", "--lr", "0.2"], "lr is both given (0.2) and searched (0.1): leave one out"),
        (["--search", "seed=1,2"], "seed cannot be searched"),
        (["--search", "lr=0.1", "--search", "lr=0.2"], "lr cannot be searched twice"),
        (["--search", "method=constrainde"], "unknown method constrainde, did you mean constrained"),
        (["--val-fraction", "0.2"], "tune holds out folds of its own: use --folds, not val_fraction 0.2"),
        (["--epsilon", "0.8"], "tune chooses epsilon: leave 0.8 out"),
        (["--method", "trivial"], "method trivial has no epsilon: name what to choose"),
        (["--on", "rai", "--search", "epsilon=1"], "unknown --on rai, did you mean ray"),
    ],
)
def test_bad_input_is_one_line_and_trains_nothing(tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    code, shown = invoke("digits", *words)
    assert said in shown
    assert code != 0
    assert "\n" not in shown.strip()
    assert not list(tmp_path.iterdir())


@pytest.mark.ray
def test_ray_gives_the_numbers_of_one_process_and_starts_a_killed_workers_job_again(tuned, tmp_path):
    pytest.importorskip("ray")
    write_digits(tmp_path)
    process = start(tmp_path, "--jobs", "2", "--on", "ray")
    killed = []
    while not killed and process.poll() is None:
        for pid in called(b"ray::train")[:1]:
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)
        time.sleep(0.05)
    shown, said = process.communicate(timeout=500)
    assert process.returncode == 0, said
    assert killed
    assert "best: " in shown
    assert outcomes(tmp_path) == outcomes(tuned[0])
