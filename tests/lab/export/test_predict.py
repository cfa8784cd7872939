"""`invaug predict`: against softmax by hand, and on files that are not what they should be."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from invaug.lab.cli.main import main
from invaug.lab.errors import UserError
from invaug.lab.export import predict
from invaug.lab.export.predict import predict_files
from tests.support.untrained_runs import CLASSES, Made, assert_same, by_hand, make_run, settled


def saved(folder: Path, digits: Tensor, n: int) -> list[Path]:
    paths = [folder / f"{i}.png" for i in range(n)]
    for path, digit in zip(paths, digits, strict=False):
        Image.fromarray(digit[0].numpy()).save(path)
    return paths


def without_rounding(rows: list[predict.Row]) -> list[predict.Row]:
    """Return rows whose probabilities are compared as `pytest.approx`: their last bits depend on the batch."""
    guesses = [
        [guess | {"probability": pytest.approx(guess["probability"], rel=1e-5)} for guess in row["predictions"]]
        for row in rows
    ]
    return [row | {"predictions": each} for row, each in zip(rows, guesses, strict=True)]


def test_predictions_are_the_softmax_of_the_scores_best_first(grey: Made, tmp_path: Path, digits: Tensor) -> None:
    rows = predict_files(grey.folder, saved(tmp_path, digits, 5), top=3)
    scores = by_hand(grey.network, digits[:5]).double().numpy()
    shares = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    for i, row in enumerate(rows):
        assert row["file"] == str(tmp_path / f"{i}.png")
        best = np.argsort(-shares[i])[:3]
        assert [guess["class"] for guess in row["predictions"]] == [CLASSES[j] for j in best]
        assert_same([guess["probability"] for guess in row["predictions"]], torch.from_numpy(shares[i][best]))
    json.dumps(rows)


def test_more_files_than_a_batch_come_back_in_order(
    grey: Made, tmp_path: Path, digits: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = saved(tmp_path, digits, 7)
    at_once = predict_files(grey.folder, paths, top=1)
    monkeypatch.setattr(predict, "BATCH", 3)
    in_parts = predict_files(grey.folder, paths, top=1)
    assert [row["file"] for row in in_parts] == [str(path) for path in paths]
    assert [row["predictions"][0]["class"] for row in in_parts] == [r["predictions"][0]["class"] for r in at_once]


def test_no_more_classes_than_there_are(grey: Made, tmp_path: Path, digits: Tensor) -> None:
    (row,) = predict_files(grey.folder, saved(tmp_path, digits, 1), top=99)
    assert sorted(guess["class"] for guess in row["predictions"]) == sorted(CLASSES)
    assert sum(guess["probability"] for guess in row["predictions"]) == pytest.approx(1, abs=1e-5)


def test_images_of_other_kinds_are_brought_to_the_runs(made: Made, tmp_path: Path, digits: Tensor) -> None:
    pixels = digits[3, 0].numpy()
    upright = tmp_path / "upright.png"
    Image.fromarray(pixels).save(upright)
    turned = Image.fromarray(np.rot90(pixels).copy())  # the tag says: turn me a quarter clockwise
    exif = Image.Exif()
    exif[0x0112] = 6
    turned.save(tmp_path / "turned.png", exif=exif)
    Image.fromarray(pixels).convert("RGB").save(tmp_path / "colour.png")
    Image.fromarray(pixels.astype(np.uint16) * 257).save(tmp_path / "deep.png")
    files = [upright, *(tmp_path / name for name in ("turned.png", "colour.png", "deep.png"))]
    rows = predict_files(made.folder, files, top=10)
    (first,) = without_rounding(rows[:1])
    for row in rows[1:]:
        assert row["predictions"] == first["predictions"]


def test_every_image_below_a_folder_is_classified(grey: Made, tmp_path: Path, digits: Tensor) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    loose, first = saved(tmp_path, digits, 1), saved(tmp_path / "deep", digits, 2)
    second = saved(tmp_path / "deep" / "er", digits, 1)
    for name in ("notes.txt", ".hidden.png"):
        (tmp_path / "deep" / name).write_text("no image")
    rows = predict_files(grey.folder, [*loose, tmp_path / "deep"], top=1)
    assert [row["file"] for row in rows] == [*map(str, loose), *map(str, first), *map(str, second)]
    (first_row,) = without_rounding(rows[:1])
    for i in (1, 3):
        assert rows[i]["predictions"] == first_row["predictions"]


@pytest.fixture
def bad(tmp_path: Path, digits: Tensor) -> list[Path]:
    buffer = io.BytesIO()
    Image.fromarray(digits[0, 0].numpy()).save(buffer, "png")
    half, text, empty = tmp_path / "half.png", tmp_path / "text.png", tmp_path / "empty"
    half.write_bytes(buffer.getvalue()[:90])
    text.write_text("<html>")
    empty.mkdir()
    return [half, text, empty, tmp_path / "gone.png"]


def test_files_that_cannot_be_read_leave_the_others_as_they_are(
    grey: Made, bad: list[Path], tmp_path: Path, digits: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predict, "BATCH", 3)
    good = saved(tmp_path, digits, 3)
    rows = predict_files(grey.folder, [good[0], *bad, *good[1:]], top=2)
    expected_rows = without_rounding(predict_files(grey.folder, good, top=2))
    assert [row for row in rows if "predictions" in row] == expected_rows
    messages = [row["error"] for row in rows if "error" in row]
    assert [row["file"] for row in rows if "error" in row] == list(map(str, bad))
    for message, expected in zip(
        messages, ("image .*half", "image .*text", "folder .*empty", "image .*gone"), strict=True
    ):
        assert re.match(f"cannot read {expected}.*: ", message)
    assert messages[-1].endswith("gone.png: No such file or directory")


@pytest.mark.parametrize(("n_good", "n_bad", "code"), [(2, 0, 0), (2, 4, 1), (0, 4, 2)])
def test_the_exit_code_says_whether_all_some_or_none_could_be_read(
    n_good: int,
    n_bad: int,
    code: int,
    grey: Made,
    bad: list[Path],
    tmp_path: Path,
    digits: Tensor,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    files = [*saved(tmp_path, digits, n_good), *bad[:n_bad]]
    monkeypatch.setattr(sys, "argv", ["invaug", "predict", str(grey.folder), *map(str, files)])
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capfd.readouterr()
    assert ended.value.code == code
    assert len(out.splitlines()) == n_good
    assert [line.startswith("invaug: cannot read ") for line in err.splitlines()] == [True] * n_bad


def test_a_run_on_four_channels_takes_no_image_files(tmp_path: Path, digits: Tensor) -> None:
    shape = (4, 28, 28)
    folder = make_run(tmp_path / "run", settled("cnn-small", shape, digits), "cnn-small", shape)
    with pytest.raises(UserError, match="trained on images of 4 channels; image files have 1 or 3"):
        predict_files(folder, [tmp_path / "any.png"], top=1)
