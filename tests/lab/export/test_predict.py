"""`invaug predict`: against softmax by hand, and on files that are not what they should be."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from invaug.lab.errors import UserError
from invaug.lab.export import predict
from invaug.lab.export.predict import predict_files
from tests.support.untrained_runs import CLASSES, Made, assert_same, by_hand, make_run, settled


def saved(folder: Path, digits: Tensor, n: int) -> list[Path]:
    paths = [folder / f"{i}.png" for i in range(n)]
    for path, digit in zip(paths, digits, strict=False):
        Image.fromarray(digit[0].numpy()).save(path)
    return paths


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
    first, *others = predict_files(made.folder, files, top=10)
    for other in others:
        assert other["predictions"] == first["predictions"]


def test_a_missing_image_is_named(grey: Made, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot read image .*gone\.png: No such file"):
        predict_files(grey.folder, [tmp_path / "gone.png"], top=1)


def test_a_corrupt_image_is_named(grey: Made, tmp_path: Path, digits: Tensor) -> None:
    buffer = io.BytesIO()
    Image.fromarray(digits[0, 0].numpy()).save(buffer, "png")
    half, text = tmp_path / "half.png", tmp_path / "text.png"
    half.write_bytes(buffer.getvalue()[:90])
    text.write_text("<html>")
    for path in (half, text):
        with pytest.raises(UserError, match=f"cannot read image .*{path.name}"):
            predict_files(grey.folder, [path], top=1)


def test_a_run_on_four_channels_takes_no_image_files(tmp_path: Path, digits: Tensor) -> None:
    shape = (4, 28, 28)
    folder = make_run(tmp_path / "run", settled("cnn-small", shape, digits), "cnn-small", shape)
    with pytest.raises(UserError, match="trained on images of 4 channels; image files have 1 or 3"):
        predict_files(folder, [tmp_path / "any.png"], top=1)
