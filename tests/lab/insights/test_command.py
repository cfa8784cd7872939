"""The command: what it asks, refuses and prints; a stopped search resumes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch

from invaug import sets
from invaug.lab.data import synthetic
from invaug.lab.errors import UserError
from invaug.lab.insights.command import InsightsRequest, insights, run_insights
from invaug.lab.insights.document import as_json
from invaug.lab.insights.verdicts import Answer
from invaug.lab.insights.words import summary_lines
from invaug.lab.train.display import Screen
from tests.support.images import load_labelled_digits
from tests.support.runs import train, write_digits

PAPER = (  # at half the size of the images, and so of the translation
    "[families.rotation]\nRotation = 3.1416\n[families.translation]\nTranslation = 3.5\n[families.scale]\nScale = 1.5\n"
)
BRIEFLY = {"seeds": 1, "epochs": 1, "only": ("inversion",)}


def save(path: Path, images: np.ndarray, labels: np.ndarray) -> str:
    shown = images[..., None]
    np.savez(path, x_train=shown, y_train=labels, x_test=shown[:9], y_test=labels[:9])  # test images are not asked for
    return str(path)


def digits_and_labels(n: int) -> tuple[np.ndarray, np.ndarray]:
    images, labels = load_labelled_digits()
    return images[:n], labels[:n]


def halve(images: np.ndarray) -> np.ndarray:
    """Return images of half the height and width, which train in less time."""
    return images.reshape(-1, 14, 2, 14, 2).mean((2, 4)).round().astype(np.uint8)


def _without_places(text: str) -> str:
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def ask(data: str, out: Path, **given: object) -> Answer:
    request = InsightsRequest(data, out=out, **{"seeds": 1, "rounds": 0, "epochs": 6, **given})
    return insights(request, Screen(quiet=True))[0]


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "truth"), [("r180", "rotation"), ("scaled", "scale"), ("r90", "rotation"), ("translated", "translation")]
)
def test_the_planted_symmetry_has_the_smallest_gap_of_the_papers_three(tmp_path, kind, truth):
    images, labels = digits_and_labels(1500)
    moved = synthetic.plant(torch.from_numpy(images).unsqueeze(1), kind, synthetic.TRAIN).squeeze(1).numpy()
    (tmp_path / "paper.toml").write_text(PAPER)
    found = ask(save(tmp_path / "d.npz", halve(moved), labels), tmp_path / "out", families=tmp_path / "paper.toml")
    assert min(found.families, key=lambda each: each.gap.mean).name == truth, list(summary_lines(found))


@pytest.mark.long
def test_sixes_and_nines_leave_rotation_unlearned_unless_it_is_small(tmp_path):
    images, labels = digits_and_labels(5000)
    rows = (labels == 6) | (labels == 9)
    data = save(tmp_path / "69.npz", halve(images[rows]), labels[rows] // 9)
    found = ask(data, tmp_path / "out", only=("rotation",), rounds=3, epochs=None)
    (rotation,) = found.families
    assert rotation.verdict == "not learned"
    assert 0 < rotation.factor < 1, list(summary_lines(found))


@pytest.mark.long
def test_the_suggestion_is_a_set_in_code_and_a_config_that_trains(tmp_path):
    images, labels = digits_and_labels(400)
    data = save(tmp_path / "d.npz", images, labels)
    command = [
        sys.executable,
        "-m",
        "invaug",
        "insights",
        data,
        "--out",
        str(tmp_path / "out"),
        "--seeds",
        "1",
        "--rounds",
        "0",
        "--epochs",
        "16",
        "--only",
        "sharpness",
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    answer = json.loads(done.stdout)
    shown = subprocess.run(
        [sys.executable, "-c", f"{answer['code']}\nprint(transforms)"], capture_output=True, text=True, check=True
    )
    file = tmp_path / "out" / "suggested.toml"
    families = tomllib.loads(file.read_text())["families"]
    assert _without_places(shown.stdout) == _without_places(f"{sets.of(families['suggested'])}\n")
    (row,) = train(write_digits(tmp_path), tmp_path / "run", **tomllib.loads(file.read_text()))
    assert list(row["families"]) == ["suggested"]


@pytest.mark.long
def test_a_stopped_search_says_how_to_resume_and_ends_with_the_same_gammas(tmp_path):
    images, labels = digits_and_labels(300)
    data = save(tmp_path / "d.npz", images, labels)
    words = ["insights", data, "--seeds", "2", "--rounds", "0", "--epochs", "4", "--only", "rotation"]
    cut = tmp_path / "cut"
    process = subprocess.Popen(
        [sys.executable, "-m", "invaug", *words, "--out", str(cut)],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    record = cut / "00-rotation-seed-0" / "record.jsonl"
    while not record.exists() and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    said = process.communicate()[1]
    assert process.returncode == 143, said
    assert f"resume with: invaug insights {data} --out {cut}" in said
    given = {"seeds": 2, "rounds": 0, "epochs": 4, "only": ("rotation",)}
    one, other = (as_json(ask(data, folder, **given)) for folder in (tmp_path / "whole", cut))
    one.pop("seconds"), other.pop("seconds")
    assert one == other


def test_bad_input_is_refused_in_one_line(tmp_path):
    images, labels = digits_and_labels(200)
    data = save(tmp_path / "d.npz", images, labels)
    with pytest.raises(UserError, match="unknown family rotatoin, did you mean rotation"):
        ask(data, tmp_path / "a", only=("rotatoin",))
    with pytest.raises(UserError, match="at least two classes"):
        ask(save(tmp_path / "one.npz", images, np.zeros_like(labels)), tmp_path / "a")
    with pytest.raises(UserError, match=r"val_fraction of 0.2 leaves a part of class 1 empty"):
        ask(save(tmp_path / "few.npz", images[:20], np.arange(20) // 18), tmp_path / "a")
    (tmp_path / "none.toml").write_text("epochs = 3\n")
    with pytest.raises(UserError, match="names no family"):
        ask(data, tmp_path / "a", families=tmp_path / "none.toml")
    (tmp_path / "far.toml").write_text("[families.far]\nTranslateX = [60, 90]\n")
    with pytest.raises(UserError, match="family far leaves nothing of the images"):
        ask(data, tmp_path / "a", families=tmp_path / "far.toml")
    with pytest.raises(UserError, match="none of the families changes the images"):
        ask(data, tmp_path / "a", only=("colour",))
    with pytest.raises(UserError, match="too small for the usual families"):
        ask(save(tmp_path / "tiny.npz", images[:, ::7, ::7], labels), tmp_path / "a")
    assert not (tmp_path / "a").exists()


@pytest.fixture(scope="module")
def asked(tmp_path_factory) -> tuple[str, Path, Answer]:
    """Ask about one family of two hundred digits in this process; return data, folder and answer."""
    folder = tmp_path_factory.mktemp("insights")
    data = save(folder / "d.npz", *digits_and_labels(200))
    return data, folder / "out", ask(data, folder / "out", **BRIEFLY)


def test_a_folder_with_other_settings_or_other_things_is_refused(tmp_path, asked):
    data, folder, _ = asked
    with pytest.raises(UserError, match=r"holds insights with other settings \(settings\)"):
        ask(data, folder, **{**BRIEFLY, "epochs": 2})
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("all of it")
    with pytest.raises(UserError, match="exists and holds no insights"):
        ask(data, tmp_path / "mine", **BRIEFLY)


@pytest.mark.long  # the pool is tested in reproduce/test_runner.py
def test_trainings_side_by_side_find_what_one_process_finds(tmp_path, asked):
    data, _, found = asked
    alone, beside = as_json(found), as_json(ask(data, tmp_path / "beside", jobs=2, **BRIEFLY))
    alone.pop("seconds"), beside.pop("seconds")
    assert alone == beside


@pytest.mark.parametrize(("n", "n_classes", "only"), [(36, 3, ("rotation", "tone")), (300, 10, ("rotation",))])
def test_after_one_epoch_nothing_is_judged_and_the_last_lines_say_what_to_do(tmp_path, capsys, n, n_classes, only):
    images, labels = load_labelled_digits()
    rows = np.flatnonzero(labels < n_classes)[:n]
    data = save(tmp_path / "d.npz", halve(images[rows]), labels[rows])
    request = InsightsRequest(data, out=tmp_path / "out", seeds=1, rounds=0, epochs=1, only=only)
    run_insights(request, for_machines=False)
    said = capsys.readouterr().out.splitlines()
    assert sum("undecided: train longer" in line for line in said) == len(only)
    assert "one seed: there are no intervals over seeds (--seeds 3 gives them)" in said
    assert said[-1].startswith(f"next: ask again about what is undecided: invaug insights {data} --only ")
    assert not (tmp_path / "out" / "suggested.toml").exists()
    assert not any("train with it" in line for line in said)
