"""evaluation.json of a real run: what is measured for the page, and what the page makes of it."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy

from invaug import TransformSet, sets, worst
from invaug.lab.data.batches import batches
from invaug.lab.data.load import load_dataset
from invaug.lab.evaluate import pictures
from invaug.lab.evaluate.command import evaluate_run
from invaug.lab.evaluate.pictures import Examples
from invaug.lab.report.assemble import document_of
from invaug.lab.report.command import report_runs
from invaug.lab.report.read import BY_CONSTRAINT, read_run, read_runs
from invaug.lab.report.sections import gallery
from invaug.lab.run.folder import load, read_config
from invaug.lab.train.display import Display
from invaug.lab.train.sets import transform_set
from invaug.lab.train.signals import Stopped
from tests.support import runs


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small real run, with chains of three proposals."""
    folder = tmp_path_factory.mktemp("measuring")
    data = runs.write_digits(folder, 128, 64)
    runs.train(data, folder / "run", views="both", set="wide", epochs=1, n_steps=2, model="mlp")
    return folder / "run"


def test_a_real_run_has_a_page_with_gallery_heat_map_and_calibration(run: Path) -> None:
    evaluate_run(run, None, None, 1, 8, "cpu", as_json=True)
    written = json.loads((run / "evaluation.json").read_text())
    assert "run" not in written
    strips = written["gallery"]
    assert [len(strip["proposals"]) for strip in strips] == [3] * 8
    assert all(sum(proposal["kept"] for proposal in strip["proposals"]) == 1 for strip in strips)
    keys = [figure.key for figure in document_of(read_runs([run])).figures]
    assert keys[-2:] == ["op-by-level", "calibration"]
    text = report_runs([run])[0].read_text(encoding="utf-8")
    _, _, below = text.partition("Images, what was proposed and what was kept")  # the top shows some of them as well
    assert below.count("<img ") == 8 * 4 + len(written["hardest"]) * 2
    assert str(run.parent) not in text


def test_images_that_are_no_picture_have_no_gallery() -> None:
    five_channels = Examples(None, torch.zeros(2, 5, 8, 8, dtype=torch.uint8), torch.zeros(2))  # type: ignore[arg-type]
    assert pictures.gallery(five_channels, []) == []
    assert pictures.hardest(five_channels, []) == []


def test_the_page_reads_every_number_the_training_loop_records(run: Path) -> None:
    last = read_run(run).last
    assert None not in (last.measured[key] for key in ("train_loss", "test_accuracy", "seconds"))
    assert all(len(last.by_constraint[key]) == 1 and None not in last.by_constraint[key] for key in BY_CONSTRAINT)
    assert sum(map(sum, last.kept[0].values())) == 128


@pytest.fixture(scope="module")
def examples(run: Path) -> Examples:
    """32 test images of a run, and its model."""
    config, _ = read_config(run)
    test = load_dataset(config.data.name).test
    first = next(iter(batches(test, 32, epoch=0, seed=0, shuffle=True, device=torch.device("cpu"))))
    return Examples(load(run), first.images, first.targets)


@pytest.fixture(scope="module")
def transforms(run: Path) -> TransformSet:
    """The set the run was trained with."""
    return transform_set(read_config(run)[0])


def test_a_run_of_method_worst_keeps_the_highest_loss(examples: Examples, transforms: TransformSet) -> None:
    for strip in pictures.gallery(examples, [transforms], sampler=worst, n_steps=4):
        losses = [proposal["loss"] for proposal in strip["proposals"]]
        (kept,) = [proposal["loss"] for proposal in strip["proposals"] if proposal["kept"]]
        assert kept == max(losses)


def test_every_set_has_images_in_the_gallery(examples: Examples) -> None:
    families = [sets.wide(3).only(op.name) for op in sets.wide(3).ops]
    strips = pictures.gallery(examples, families)
    assert {proposal["op"] for strip in strips for proposal in strip["proposals"]} == {f.ops[0].name for f in families}


def test_the_hardest_draws_are_those_with_the_highest_loss_of_all(examples: Examples, transforms: TransformSet) -> None:
    rows = pictures.hardest(examples, [transforms])
    rises = [row["loss"] - row["clean"] for row in rows]
    assert rises == sorted(rises, reverse=True)
    assert len({row["op"] for row in rows}) == len(rows) == pictures.N_HARDEST
    network, finish, images = examples.predictor.network, examples.predictor.finish, examples.images
    generator = torch.Generator().manual_seed(0)
    draw = transforms.draw(len(images) * pictures.N_DRAWS, generator=generator)
    repeated = images.repeat(pictures.N_DRAWS, 1, 1, 1)
    with torch.no_grad():
        scores = network(finish.plain(transforms.apply(repeated, draw))), network(finish.plain(repeated))
    labels = examples.targets.repeat(pictures.N_DRAWS)
    after, before = (cross_entropy(score, labels, reduction="none") for score in scores)
    assert rises[0] == pytest.approx(float((after - before).max()), rel=1e-4)


def test_a_set_of_one_operation_fills_the_row_with_its_worst_draws(examples: Examples) -> None:
    rows = pictures.hardest(examples, [sets.rotations(3.0)])
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
    (section,) = gallery.sections(replace(found, evaluation={"gallery": [strip]}), "", "")
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
