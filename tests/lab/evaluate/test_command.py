"""`invaug evaluate` of a real run: what it prints, as JSON and as tables, and what it refuses."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from invaug import sets
from invaug.lab.errors import UserError
from invaug.lab.evaluate.command import evaluate_run
from invaug.lab.report.sections.evaluation import document
from invaug.lab.report.terminal import print_document
from invaug.lab.train.command import run_one


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "digits"
    given = {"data": "digits", "model": "cnn-small", "per_class": 30, "epochs": 2, "n_levels": 4, "device": "cpu"}
    run_one(given, folder, resume=False, quiet=True)
    return folder


def as_json(capsys: pytest.CaptureFixture[str], *arguments: Any) -> dict[str, Any]:
    evaluate_run(*arguments, as_json=True)
    return json.loads(capsys.readouterr().out)


def test_the_json_document_holds_what_the_loops_find(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = as_json(capsys, trained, None, None, 2, 16, "cpu")
    assert report["images"] == 1000
    assert report["run"] == str(trained)
    assert set(report["transformed"]) == {"uniform", "lambda_c", "worst"}
    assert list(report["levels"]) == list(sets.wide().names)
    assert set(report["classes"]) == set("0123456789")
    last = json.loads((trained / "record.jsonl").read_text().splitlines()[-1])
    assert report["clean"]["accuracy"] == pytest.approx(last["test_accuracy"])
    assert report["clean"]["loss"] == pytest.approx(last["test_loss"], rel=1e-4)


def test_the_tables_show_every_side_of_the_run(
    trained: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    report = as_json(capsys, trained, None, None, 2, 16, "cpu")
    monkeypatch.setenv("COLUMNS", "120")
    evaluate_run(trained, None, None, 2, 16, "cpu", as_json=False)
    output = capsys.readouterr()
    assert output.err == ""
    for words in ("calibration error", "uniform", "λ_c", "worst", *sets.wide().names, "Classes, worst first"):
        assert words in output.out
    assert f"{report['clean']['accuracy']:.2%}" in output.out
    worst = min(report["classes"], key=lambda name: report["classes"][name]["accuracy"])
    after = output.out.partition("Classes, worst first")[2].splitlines()
    assert after[2].split()[0] == worst


def test_at_most_ten_classes_are_shown_and_names_cannot_reach_the_terminal() -> None:
    classes = {f"[red]\x1b[2J{i}": {"accuracy": i / 12, "images": 5} for i in range(12)}
    report = {
        "run": "[bold]r",
        "method": "none",
        "preset": "default",
        "model": "mlp",
        "images": 60,
        "data": "d",
        "clean": {"accuracy": 0.5, "loss": 1.0},
        "calibration_error": 0.1,
        "classes": classes,
    }
    console = Console(file=io.StringIO(), width=100)
    with console.capture() as captured:
        print_document(document(report), console)
    text = captured.get()
    assert "Classes, worst first (10 of 12)" in text
    assert "[bold]r" in text
    assert "[red]?[2J9" in text
    assert "[red]?[2J10" not in text


def npz(path: Path, classes: list[str], shape: tuple[int, ...] = (28, 28)) -> str:
    images = np.random.default_rng(0).integers(0, 256, (4 * len(classes), *shape), dtype=np.uint8)
    labels = np.arange(len(images)) % len(classes)
    np.savez(path, x_train=images, y_train=labels, x_test=images, y_test=labels, classes=np.array(classes))
    return str(path)


@pytest.mark.parametrize("damage", ["linked", "cut", "gone"])
def test_a_run_without_a_record_is_measured_and_its_epsilon_is_not_known(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    run, record = shutil.copytree(trained, tmp_path / "run"), tmp_path / "run" / "record.jsonl"
    if damage == "cut":
        record.write_text("{}\n" + record.read_text())
    else:
        record.rename(tmp_path / "elsewhere")
    if damage == "linked":
        record.symlink_to(tmp_path / "elsewhere")
    evaluate_run(run, None, None, 1, 4, "cpu", as_json=True)
    printed, whole = capsys.readouterr(), as_json(capsys, trained, None, None, 1, 4, "cpu")
    assert json.loads(printed.out) | {"epsilon": whole["epsilon"], "run": str(trained)} == whole
    assert (json.loads(printed.out)["epsilon"], whole["epsilon"] > 0) == (None, True)
    said = {"linked": "is not a regular file", "cut": "is damaged in line 1", "gone": ""}[damage]
    assert printed.err.count("\n") == bool(said)
    assert said in printed.err


def test_another_dataset_with_the_same_classes_is_measured(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = npz(tmp_path / "other.npz", [str(i) for i in range(10)])
    report = as_json(capsys, trained, other, None, 1, 4, "cpu")
    assert (report["images"], report["data"]) == (40, "other")


def test_another_dataset_is_brought_to_the_size_of_the_run(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = npz(tmp_path / "large.npz", [str(i) for i in range(10)], (40, 56))
    assert as_json(capsys, trained, other, None, 1, 4, "cpu")["images"] == 40


def test_other_classes_are_refused_by_name(trained: Path, tmp_path: Path) -> None:
    other = npz(tmp_path / "cats.npz", [*map(str, range(9)), "cat"])
    with pytest.raises(UserError, match="cats has other classes than the run: without 9 and with cat; choose"):
        evaluate_run(trained, other, None, 1, 4, "cpu", as_json=True)


def test_classes_in_another_order_are_refused(trained: Path, tmp_path: Path) -> None:
    other = npz(tmp_path / "turned.npz", [str(i) for i in reversed(range(10))])
    with pytest.raises(UserError, match="turned has other classes than the run: in another order"):
        evaluate_run(trained, other, None, 1, 4, "cpu", as_json=True)


def test_colour_images_are_refused_by_a_grey_run(trained: Path, tmp_path: Path) -> None:
    other = npz(tmp_path / "colour.npz", [str(i) for i in range(10)], (28, 28, 3))
    with pytest.raises(UserError, match="colour has images of 3 x 28 x 28, the run was trained on 1 x 28 x 28"):
        evaluate_run(trained, other, None, 1, 4, "cpu", as_json=True)


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("cpi", r"unknown device cpi, did you mean cpu\?"),
        ("cuda:99", "device cuda:99 is not available: choose one of cpu"),
    ],
)
def test_a_device_that_is_not_there_is_refused(trained: Path, device: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        evaluate_run(trained, None, None, 1, 4, device, as_json=True)
