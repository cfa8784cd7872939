"""What `invaug evaluate` measures for the page alone: calibration by confidence, pictures.

This is the one module here that needs torch; `report` reads what it wrote and never imports it.
"""

from __future__ import annotations

import base64
import io
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F

from invaug import Draw, TransformSet, metropolis_hastings
from invaug.lab.evaluate.measure import N_BINS
from invaug.lab.report.read import EVALUATION
from invaug.lab.run import atomic
from invaug.lab.train.finish import Finish
from invaug.samplers import Sampler
from invaug.scoring import frozen

N_IMAGES, MOST_PROPOSALS = 8, 12
N_HARDEST, N_DRAWS = 8, 4  # pictures of hard transformations, and the draws per image they are found among
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
    sets: Sequence[TransformSet], *, sampler: Sampler = metropolis_hastings, n_steps: int = 1, seed: int = 0,
) -> list[dict[str, Any]]:  # fmt: skip
    """Return some images with their proposals, the losses, and which the method's own rule kept; sets take turns."""
    if images.shape[1] not in MODES:
        return []
    generator = torch.Generator().manual_seed(seed)
    n_images, rows = max(N_IMAGES, len(sets)), []
    for i, transforms in enumerate(sets):
        ours = slice(i, n_images, len(sets))
        rows += _strips(network, finish, images[ours], targets[ours], classes, transforms, sampler, n_steps, generator)
    return rows


def _strips(
    network: nn.Module, finish: Finish, images: Tensor, targets: Tensor, classes: tuple[str, ...],
    transforms: TransformSet, sampler: Sampler, n_steps: int, generator: torch.Generator,
) -> list[dict[str, Any]]:  # fmt: skip
    draws = [transforms.draw(len(images), generator=generator) for _ in range(min(n_steps + 1, MOST_PROPOSALS))]
    changed = [transforms.apply(images, draw) for draw in draws]
    losses = torch.stack([_losses(network, finish, proposal, targets)[0] for proposal in changed])
    kept = sampler(losses, generator=generator).state

    def proposal(k: int, i: int) -> dict[str, Any]:
        about = {"loss": float(losses[k, i]), "kept": int(kept[i]) == k}
        return {"image": _png(changed[k][i]), **_named(transforms, draws[k], i), **about}

    return [
        {
            "class": classes[int(targets[i])],
            "original": _png(images[i]),
            "proposals": [proposal(k, i) for k in range(len(draws))],
            "chain": n_steps + 1,
        }
        for i in range(len(images))
    ]


def _named(transforms: TransformSet, draw: Draw, i: int) -> dict[str, Any]:
    """Return what was drawn for the i-th image."""
    size = float(draw.magnitude[i].reshape(-1)[0])  # the first axis stands for both
    return {"op": transforms.ops[int(draw.op[i])].name, "magnitude": size}


@torch.no_grad()
def hardest(
    network: nn.Module, finish: Finish, images: Tensor, targets: Tensor, classes: tuple[str, ...],
    sets: Sequence[TransformSet], *, seed: int = 0,
) -> list[dict[str, Any]]:  # fmt: skip
    """Return the draws that raise the loss most, of each operation the worst ones: the image before and after."""
    if images.shape[1] not in MODES:
        return []
    generator = torch.Generator().manual_seed(seed)
    before, _ = _losses(network, finish, images, targets)
    n_ops = sum(len(transforms.ops) for transforms in sets)
    found: list[tuple[float, dict[str, Any]]] = []
    for transforms in sets:
        draw = transforms.draw(len(images) * N_DRAWS, generator=generator)
        places = torch.arange(len(images)).repeat(N_DRAWS)
        after, seen = _scored(network, finish, images, targets, transforms, draw, places)
        rise = after - before[places]
        for i in _highest(rise, draw.op.flatten().cpu(), len(transforms.ops), -(-N_HARDEST // n_ops)):
            place = int(places[i])
            row = {
                "class": classes[int(targets[place])], "original": _png(images[place]), "clean": float(before[place]),
                "image": _png(transforms.apply(images[place : place + 1], draw[i : i + 1])[0]),
                **_named(transforms, draw, i), "loss": float(after[i]), "seen": classes[int(seen[i])],
            }  # fmt: skip
            found.append((float(rise[i]), row))
    ranked = sorted(found, key=lambda pair: -pair[0])
    return [row for _, row in ranked[:N_HARDEST]]


def _scored(
    network: nn.Module, finish: Finish, images: Tensor, targets: Tensor, transforms: TransformSet, draw: Draw,
    places: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return the loss of every draw on its image, and the class the network sees, a batch at a time."""
    scored = []
    for start in range(0, len(draw), len(images)):
        chosen = places[start : start + len(images)].to(images.device)
        changed = transforms.apply(images[chosen], draw[start : start + len(images)])
        scored.append(_losses(network, finish, changed, targets[chosen]))
    return torch.cat([losses for losses, _ in scored]), torch.cat([seen for _, seen in scored])


def _highest(values: Tensor, ops: Tensor, n_ops: int, n_each: int) -> list[int]:
    """Return where the highest values of each operation are; what is not finite is not among them."""
    found: list[int] = []
    for op in range(n_ops):
        there = torch.nonzero((ops == op) & values.isfinite()).flatten()
        found += there[values[there].argsort(descending=True)[:n_each]].tolist()
    return found


def _losses(network: nn.Module, finish: Finish, images: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return the loss of each image and the class the network sees, on the CPU."""
    with frozen(network) as scored:
        scores = scored(finish.plain(images)).float()
    return F.cross_entropy(scores, targets, reduction="none").cpu(), scores.argmax(1).cpu()


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
