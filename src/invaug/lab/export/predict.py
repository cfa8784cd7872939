"""`invaug predict`: the most probable classes of image files."""

from pathlib import Path
from typing import Any

import torch

from invaug.lab.data import decode
from invaug.lab.errors import UserError
from invaug.lab.run.folder import DataFacts, Predictor, load, read_config
from invaug.lab.terminal import with_progress

BATCH = 64  # files decoded and classified at once


def predict_files(run: Path, images: list[Path], top: int, *, trust_model: bool = False) -> list[dict[str, Any]]:
    """Return, for every image file, its most probable classes, best first."""
    predictor, facts = load(run, trust_model=trust_model), read_config(run)[1]
    if facts.image_shape[0] not in (1, 3):
        raise UserError(f"{run} was trained on images of {facts.image_shape[0]} channels; image files have 1 or 3")
    starts = range(0, len(images), BATCH)
    with decode.quiet():
        found = [
            _predict(predictor, images[start : start + BATCH], facts, top)
            for start in with_progress(starts, "predicting")
        ]
    return [row for rows in found for row in rows]


@torch.no_grad()
def _predict(predictor: Predictor, files: list[Path], facts: DataFacts, top: int) -> list[dict[str, Any]]:
    pixels = [decode.decode(file, facts.image_shape, facts.grey_range) for file in files]
    batch = torch.stack([torch.from_numpy(image.copy()) for image in pixels])
    found = predictor(batch).softmax(1).topk(min(top, len(predictor.classes)))
    rows = zip(files, found.indices.tolist(), found.values.tolist(), strict=True)
    return [
        {
            "file": decode.printable(str(file)),
            "predictions": [
                {"class": predictor.classes[index], "probability": probability}
                for index, probability in zip(indices, probabilities, strict=True)
            ],
        }
        for file, indices, probabilities in rows
    ]
