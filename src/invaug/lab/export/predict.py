"""`invaug predict`: the most probable classes of image files."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from invaug.lab.data import decode
from invaug.lab.data.folder import is_image_name
from invaug.lab.errors import UserError
from invaug.lab.run.folder import DataFacts, Predictor, load, read_config
from invaug.lab.terminal import with_progress

BATCH = 64  # files decoded and classified at once
Row = dict[str, Any]
"""A file and its most probable classes, or why it could not be read: file and predictions, or file and error."""


def predict_files(run: Path, paths: Sequence[Path], top: int, *, trust_model: bool = False) -> list[Row]:
    """Return, for every image file, its most probable classes, best first; of a folder, for every image below it."""
    predictor, facts = load(run, trust_model=trust_model), read_config(run)[1]
    if facts.image_shape[0] not in (1, 3):
        raise UserError(f"{run} was trained on images of {facts.image_shape[0]} channels; image files have 1 or 3")
    files = [file for path in paths for file in _images_below(path)]
    starts, rows = range(0, len(files), BATCH), []
    with decode.quiet():
        for start in with_progress(starts, "predicting"):
            rows += _predict(predictor, files[start : start + BATCH], facts, top)
    return rows


def _images_below(path: Path) -> list[Path]:
    """Return the images of a folder, links to other folders not followed; anything else as it is, to be read or not."""
    if not path.is_dir():
        return [path]
    unreadable: list[Path] = []
    walk = os.walk(path, onerror=lambda error: unreadable.append(Path(error.filename)))
    found = sorted(Path(place, name) for place, _, names in walk for name in names if is_image_name(name))
    return [*found, *unreadable] or [path]


def _predict(predictor: Predictor, files: Sequence[Path], facts: DataFacts, top: int) -> list[Row]:
    rows: list[Row] = [{"file": decode.printable(str(file))} for file in files]
    images = []
    for row, file in zip(rows, files, strict=True):
        try:
            images.append(_read(file, facts))
        except UserError as error:
            row["error"] = str(error)
    if images:
        good = [row for row in rows if "error" not in row]
        for row, found in zip(good, _most_probable(predictor, torch.stack(images), top), strict=True):
            row["predictions"] = found
    return rows


def _read(file: Path, facts: DataFacts) -> Tensor:
    if file.is_dir():
        raise UserError(f"cannot read folder {decode.printable(str(file))}: no image in it, or no permission")
    return torch.from_numpy(decode.decode(file, facts.image_shape, facts.grey_range).copy())


@torch.no_grad()
def _most_probable(predictor: Predictor, images: Tensor, top: int) -> list[list[dict[str, Any]]]:
    found = predictor(images).softmax(1).topk(min(top, len(predictor.classes)))
    return [
        [{"class": predictor.classes[i], "probability": share} for i, share in zip(*row, strict=True)]
        for row in zip(found.indices.tolist(), found.values.tolist(), strict=True)
    ]
