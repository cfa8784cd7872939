"""What `invaug evaluate` measures for the page alone: calibration by confidence, a gallery of draws.

This is the one module here that needs torch; `report` reads what it wrote and never imports it.
"""

from __future__ import annotations

import base64
import io
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F

from invaug import TransformSet, metropolis_hastings
from invaug.lab import atomic
from invaug.lab.evaluate import N_BINS
from invaug.lab.finish import Finish
from invaug.lab.report.reading import EVALUATION
from invaug.scoring import frozen

N_IMAGES, MOST_PROPOSALS = 8, 6
SIDE = 64  # pixels of a picture on the page
MODES = {1: "L", 3: "RGB"}  # by channels


def calibration(scores: Tensor, targets: Tensor) -> list[dict[str, float]]:
    """Return mean confidence, accuracy and size of every bin of confidence that has images."""
    confidence, predicted = scores.softmax(1).max(1)
    bins = (confidence * N_BINS).long().clamp(max=N_BINS - 1)
    right = (predicted == targets).float()
    masks = [bins == i for i in bins.unique()]
    return [
        {"confidence": float(confidence[m].mean()), "accuracy": float(right[m].mean()), "images": int(m.sum())}
        for m in masks
    ]


@torch.no_grad()
def gallery(
    network: nn.Module, finish: Finish, images: Tensor, targets: Tensor, classes: tuple[str, ...],
    transforms: TransformSet, *, n_steps: int = 1, seed: int = 0,
) -> list[dict[str, Any]]:  # fmt: skip
    """Return some images with the proposals of one chain each, their losses, and which the chain kept."""
    images, targets = images[:N_IMAGES], targets[:N_IMAGES]
    if images.shape[1] not in MODES:
        return []
    generator = torch.Generator().manual_seed(seed)
    draws = [transforms.draw(len(images), generator=generator) for _ in range(min(n_steps + 1, MOST_PROPOSALS))]
    changed = [transforms.apply(images, draw) for draw in draws]
    losses = torch.stack([_losses(network, finish, proposal, targets) for proposal in changed])
    kept = metropolis_hastings(losses, generator=generator).state

    def proposal(k: int, i: int) -> dict[str, Any]:
        size = float(draws[k].magnitude[i].reshape(-1)[0])  # the first axis stands for both
        name = transforms.ops[int(draws[k].op[i])].name
        chosen = int(kept[i]) == k
        return {
            "image": _png(changed[k][i]),
            "op": name,
            "magnitude": size,
            "loss": float(losses[k, i]),
            "kept": chosen,
        }

    return [
        {
            "class": classes[int(targets[i])],
            "original": _png(images[i]),
            "proposals": [proposal(k, i) for k in range(len(draws))],
        }
        for i in range(len(images))
    ]


def _losses(network: nn.Module, finish: Finish, images: Tensor, targets: Tensor) -> Tensor:
    with frozen(network) as scored:
        return F.cross_entropy(scored(finish.plain(images)).float(), targets, reduction="none").cpu()


def _png(image: Tensor) -> str:
    """Return an image, shape (channels, height, width), as the address of a PNG inside the page."""
    pixels = image.cpu().permute(1, 2, 0).numpy()
    picture = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels, MODES[pixels.shape[2]])
    picture.thumbnail((SIDE, SIDE))
    file = io.BytesIO()
    picture.save(file, "PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def write(folder: Path, report: Mapping[str, Any]) -> None:
    """Write evaluation.json into the folder of a run: where the run lies is not in it, for runs are passed on."""
    content = {key: finite(value) for key, value in report.items() if key != "run"}
    atomic.write_text(folder / EVALUATION, json.dumps(content))


def finite(value: Any) -> Any:
    """Return the value with null for what JSON cannot say."""
    if isinstance(value, Mapping):
        return {key: finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
