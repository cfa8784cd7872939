"""What is said before a training: it leaves the training as it is, and what is refused leaves nothing on disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from invaug.lab.errors import UserError
from invaug.lab.run.folder import read_config
from invaug.lab.run.record import read
from invaug.lab.train import command, folders
from invaug.lab.train.command import run_one
from invaug.lab.train.one_process import OneProcess
from tests.support.checkpoints import load, same
from tests.support.runs import SMALL, train, write_digits


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_digits(tmp_path_factory.mktemp("data"))


def write_photographs(folder: Path, n: int) -> Path:
    """Write a folder of colour images of two classes."""
    pixels = np.random.default_rng(0).integers(0, 256, (n, 32, 32, 3), np.uint8)
    for i, image in enumerate(pixels):
        path = folder / "ab"[i % 2] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)
    return folder


def test_timing_a_few_steps_leaves_no_trace_in_the_run(data: Path, tmp_path: Path) -> None:
    train(data, tmp_path / "quiet", epochs=1)
    torch.manual_seed(5)  # the run must not depend on it
    run_one({"data": str(data), **SMALL, "epochs": 1}, tmp_path / "timed", resume=False, quiet=False)
    states = [load(tmp_path / name / "checkpoints").state for name in ("quiet", "timed")]
    assert all(same(states[0][key], states[1][key]) for key in ("model", "optimizer", "problem"))
    quiet, timed = (read(tmp_path / name)[0] for name in ("quiet", "timed"))
    assert {key for key in quiet if quiet[key] != timed[key]} <= {"seconds", "images_per_second"}


def test_what_is_said_names_images_network_steps_flips_and_how_to_watch(data: Path, tmp_path: Path, capsys) -> None:
    out = tmp_path / "a run"
    run_one({"data": str(data), **SMALL, "epochs": 1, "val_fraction": 0.25}, out, resume=False, quiet=False)
    first, second = capsys.readouterr().out.splitlines()[:2]
    recipe, watch = first.split("; ")
    assert recipe.startswith("191 train / 65 validation / 128 test, 28 px, cnn-small, batch 64, 2 steps × 1 epoch, ")
    assert watch == f"watch it with: invaug watch '{out}'"
    assert second == "invaug (mild set, epsilon set by the resilient rule) on some-digits"


@pytest.mark.parametrize("n", [10, 30])
def test_a_folder_of_a_few_photographs_trains(n: int, tmp_path: Path) -> None:
    photographs = write_photographs(tmp_path / "photos", n)
    run_one({"data": str(photographs), "epochs": 1, "workers": 0}, tmp_path / "run", resume=False, quiet=True)
    settings = read_config(tmp_path / "run")[0].train
    assert (settings.batch_size, settings.flip, settings.drop_last) == (8, "yes", True)
    assert len(read(tmp_path / "run")) == 1


@pytest.mark.parametrize("exists", [False, True])
def test_what_is_refused_after_the_folder_was_made_leaves_nothing(
    exists: bool, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise UserError("no such image")

    out = tmp_path / "runs" / "a"
    if exists:
        out.mkdir(parents=True)
    monkeypatch.setattr(command.loop, "fit", refuse)
    with pytest.raises(UserError, match="no such image"):
        train(data, out, epochs=1)
    assert list(tmp_path.rglob("*")) == ([out.parent, out] if exists else [])


def test_a_run_that_has_begun_is_kept_when_it_is_refused_later(data: Path, tmp_path: Path) -> None:
    train(data, tmp_path / "run", epochs=1)
    before = sorted(tmp_path.rglob("*"))
    with (
        pytest.raises(UserError, match="lost"),
        folders.locked(tmp_path / "run", OneProcess(torch.device("cpu"))),
    ):
        raise UserError("lost")
    assert sorted(tmp_path.rglob("*")) == before
