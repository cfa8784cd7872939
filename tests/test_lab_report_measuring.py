"""evaluation.json of a real run: what is measured for the page, and what the page makes of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import lab_runs
from invaug.lab import datasets, evaluate, methods
from invaug.lab.report import measuring, page, report_runs
from invaug.lab.report.reading import read_run, read_runs
from invaug.lab.run import load, read_config


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("measuring")
    data = lab_runs.write_digits(folder, 128, 64)
    lab_runs.train(data, folder / "run", epochs=1, n_steps=2, model="mlp")
    return folder / "run"


def test_bins_of_calibration_add_up_to_the_calibration_error() -> None:
    scores, targets = torch.randn(500, 4, generator=torch.Generator().manual_seed(0)), torch.arange(500) % 4
    bins = measuring.calibration(scores, targets)
    error = sum(row["images"] * abs(row["confidence"] - row["accuracy"]) for row in bins) / 500
    assert error == pytest.approx(evaluate.calibration_error(scores, targets), abs=1e-6)


def test_a_real_run_has_a_page_with_gallery_heat_map_and_calibration(run: Path) -> None:
    config, facts = read_config(run)
    predictor, test = load(run), datasets.load(config.data).test
    transforms = methods.transform_set(config)
    found = evaluate.whole(
        predictor.network, predictor.finish, test, facts.classes, [transforms], n_draws=1, n_images=4
    )
    _, scores, targets = evaluate.predict_split(predictor.network, predictor.finish, test)
    images = next(iter(evaluate.batches(test, 8, epoch=0, seed=0, shuffle=True, device=torch.device("cpu"))))
    strips = measuring.gallery(
        predictor.network, predictor.finish, images.images, images.targets, facts.classes, transforms, n_steps=2
    )
    assert [len(strip["proposals"]) for strip in strips] == [3] * 8
    assert all(sum(proposal["kept"] for proposal in strip["proposals"]) == 1 for strip in strips)
    extra = {"calibration": measuring.calibration(scores, targets), "gallery": strips, "epsilon": float("inf")}
    measuring.write(run, {"run": str(run), **found, **extra})
    written = json.loads((run / "evaluation.json").read_text())
    assert "run" not in written
    assert written["epsilon"] is None
    keys = [figure.key for figure in page.content(read_runs([run])).figures]
    assert keys[-2:] == ["op-by-level", "calibration"]
    text = report_runs([run])[0].read_text(encoding="utf-8")
    assert text.count("<img ") == 8 * 4
    assert str(run.parent) not in text


def test_images_that_are_no_picture_have_no_gallery() -> None:
    images = torch.zeros(2, 5, 8, 8, dtype=torch.uint8)
    assert measuring.gallery(None, None, images, torch.zeros(2), ("a",), None) == []  # type: ignore[arg-type]


def test_the_page_reads_every_number_the_training_loop_records(run: Path) -> None:
    last = read_run(run).last
    assert None not in (last.train_loss, last.test_accuracy, last.seconds, *last.gamma, *last.slack, *last.entropy)
    assert sum(map(sum, last.kept[0].values())) == 128
