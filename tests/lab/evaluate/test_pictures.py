"""evaluation.json of a real run: what is measured for the page, and what the page makes of it."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from invaug import sets, worst
from invaug.lab.data.load import load_dataset
from invaug.lab.evaluate import measure, pictures
from invaug.lab.report.assemble import document_of
from invaug.lab.report.command import report_runs
from invaug.lab.report.read import read_run, read_runs
from invaug.lab.report.sections import gallery
from invaug.lab.run.folder import load, read_config
from invaug.lab.train.display import Display
from invaug.lab.train.sets import transform_set
from invaug.lab.train.signals import Stopped
from tests.support import runs


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("measuring")
    data = runs.write_digits(folder, 128, 64)
    runs.train(data, folder / "run", views="both", set="wide", epochs=1, n_steps=2, model="mlp")
    return folder / "run"


def test_bins_of_calibration_add_up_to_the_calibration_error() -> None:
    scores, targets = torch.randn(500, 4, generator=torch.Generator().manual_seed(0)), torch.arange(500) % 4
    bins = pictures.calibration(scores, targets)
    error = sum(row["images"] * abs(row["confidence"] - row["accuracy"]) for row in bins) / 500
    assert error == pytest.approx(measure.calibration_error(scores, targets), abs=1e-6)


def test_a_real_run_has_a_page_with_gallery_heat_map_and_calibration(run: Path) -> None:
    config, facts = read_config(run)
    predictor, test = load(run), load_dataset(config.data.name).test
    transforms = transform_set(config)
    found = measure.whole(predictor.network, predictor.finish, test, facts.classes, [transforms], n_draws=1, n_images=4)
    _, scores, targets = measure.predict_split(predictor.network, predictor.finish, test)
    images = next(iter(measure.batches(test, 8, epoch=0, seed=0, shuffle=True, device=torch.device("cpu"))))
    strips = pictures.gallery(
        predictor.network, predictor.finish, images.images, images.targets, facts.classes, [transforms], n_steps=2
    )
    assert [len(strip["proposals"]) for strip in strips] == [3] * 8
    assert all(sum(proposal["kept"] for proposal in strip["proposals"]) == 1 for strip in strips)
    extra = {"calibration": pictures.calibration(scores, targets), "gallery": strips, "epsilon": float("inf")}
    pictures.write(run, {"run": str(run), **found, **extra})
    written = json.loads((run / "evaluation.json").read_text())
    assert "run" not in written
    assert written["epsilon"] is None
    keys = [figure.key for figure in document_of(read_runs([run])).figures]
    assert keys[-2:] == ["op-by-level", "calibration"]
    text = report_runs([run])[0].read_text(encoding="utf-8")
    assert text.count("<img ") == 8 * 4 + len(found["hardest"]) * 2
    assert str(run.parent) not in text


def test_images_that_are_no_picture_have_no_gallery() -> None:
    images = torch.zeros(2, 5, 8, 8, dtype=torch.uint8)
    assert pictures.gallery(None, None, images, torch.zeros(2), ("a",), []) == []  # type: ignore[arg-type]
    assert pictures.hardest(None, None, images, torch.zeros(2), ("a",), []) == []  # type: ignore[arg-type]


def test_the_page_reads_every_number_the_training_loop_records(run: Path) -> None:
    last = read_run(run).last
    assert None not in (last.train_loss, last.test_accuracy, last.seconds, *last.gamma, *last.slack, *last.entropy)
    assert sum(map(sum, last.kept[0].values())) == 128


@pytest.fixture(scope="module")
def shown(run: Path) -> tuple[Any, ...]:
    """What pictures are made of: a network, its normalisation, 32 images and targets, the classes, one set."""
    config, facts = read_config(run)
    predictor, test = load(run), load_dataset(config.data.name).test
    first = next(iter(measure.batches(test, 32, epoch=0, seed=0, shuffle=True, device=torch.device("cpu"))))
    sets_ = [transform_set(config)]
    return predictor.network, predictor.finish, first.images, first.targets, facts.classes, sets_


def test_a_run_of_method_worst_keeps_the_highest_loss(shown: tuple[Any, ...]) -> None:
    for strip in pictures.gallery(*shown, sampler=worst, n_steps=4):
        losses = [proposal["loss"] for proposal in strip["proposals"]]
        (kept,) = [proposal["loss"] for proposal in strip["proposals"] if proposal["kept"]]
        assert kept == max(losses)


def test_every_set_has_images_in_the_gallery(shown: tuple[Any, ...]) -> None:
    families = [sets.wide(3).only(op.name) for op in sets.wide(3).ops]
    strips = pictures.gallery(*shown[:5], families)
    assert {proposal["op"] for strip in strips for proposal in strip["proposals"]} == {f.ops[0].name for f in families}


def test_the_hardest_draws_are_those_with_the_highest_loss_of_all(shown: tuple[Any, ...]) -> None:
    rows = pictures.hardest(*shown)
    rises = [row["loss"] - row["clean"] for row in rows]
    assert rises == sorted(rises, reverse=True)
    assert len({row["op"] for row in rows}) == len(rows) == pictures.N_HARDEST
    network, finish, images, targets, _, (transforms,) = shown
    generator = torch.Generator().manual_seed(0)
    draw = transforms.draw(len(images) * pictures.N_DRAWS, generator=generator)
    repeated = images.repeat(pictures.N_DRAWS, 1, 1, 1)
    with torch.no_grad():
        scores = network(finish.plain(transforms.apply(repeated, draw))), network(finish.plain(repeated))
    labels = targets.repeat(pictures.N_DRAWS)
    after, before = (cross_entropy(score, labels, reduction="none") for score in scores)
    assert rises[0] == pytest.approx(float((after - before).max()), rel=1e-4)


def test_a_set_of_one_operation_fills_the_row_with_its_worst_draws(shown: tuple[Any, ...]) -> None:
    rows = pictures.hardest(*shown[:5], [sets.rotations(3.0)])
    assert len(rows) == pictures.N_HARDEST
    assert all(row["image"].startswith("data:image/png;base64,") for row in rows)


@pytest.mark.parametrize(
    ("method", "said"),
    [("worst", "highest loss"), ("uniform", "always kept"), ("none", "would keep"), ("constrained", "min(1, ")],
)
def test_the_page_says_by_which_rule_was_kept(run: Path, method: str, said: str) -> None:
    found = replace(read_run(run), settings={"method": method})
    pixel = "data:image/png;base64,AAAA"
    strip = {"class": "a", "original": pixel, "proposals": [{"image": pixel, "op": "Rotate", "loss": 1.0}], "chain": 9}
    (section,) = gallery.sections([replace(found, evaluation={"gallery": [strip]})])
    reading = section.parts[0]
    assert said in reading
    assert reading.endswith("Shown are chains of 1 proposals; the run's own have 9.")


def test_a_run_that_is_stopped_leaves_the_page_of_what_it_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Display, "epoch", lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(Stopped, match="resume with"):
        runs.train(runs.write_digits(tmp_path, 128, 64), tmp_path / "run", epochs=9, model="mlp")
    assert "1 of 9 epochs are recorded" in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")


def test_a_page_that_fails_changes_nothing_about_how_a_run_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("invaug.lab.train.command.report_runs", broken)
    (row,) = runs.train(runs.write_digits(tmp_path, 128, 64), tmp_path / "run", epochs=1, model="mlp")
    assert row["epochs"] == 1
    assert "the report could not be written: a bug; try invaug report" in capsys.readouterr().err
