"""Pictures for the page of a run: proposals with the one the method keeps, and the hardest transformations."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from invaug import Draw, TransformSet, metropolis_hastings
from invaug.lab.evaluate.measure import score_images
from invaug.lab.run.folder import Predictor
from invaug.samplers import Sampler

N_IMAGES, MOST_PROPOSALS = 8, 12
N_HARDEST, N_DRAWS = 8, 4  # pictures of hard transformations, and the draws per image they are chosen from
SIDE = 64  # pixels of a picture on the page
MODES = {1: "L", 3: "RGB"}  # by channels


@dataclass(frozen=True)
class Examples:
    """Images of known classes, and the model that scores them."""

    predictor: Predictor
    images: Tensor
    targets: Tensor

    def __getitem__(self, rows: slice) -> Examples:
        return Examples(self.predictor, self.images[rows], self.targets[rows])

    def score(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss and the predicted class of each image, on the CPU; the targets are those of the examples."""
        losses, scores = score_images(self.predictor.network, self.predictor.finish, images, self.targets)
        return losses.cpu(), scores.argmax(1).cpu()

    def describe(self, i: int) -> dict[str, str]:
        """Return the class and the picture of the i-th image."""
        return {"class": self.predictor.classes[int(self.targets[i])], "original": png(self.images[i])}


@torch.no_grad()
def gallery(
    examples: Examples, sets: Sequence[TransformSet], *, sampler: Sampler = metropolis_hastings, n_steps: int = 1
) -> list[dict[str, Any]]:
    """Return images with their proposals, the losses, and which one the method's own rule keeps; sets take turns."""
    if examples.images.shape[1] not in MODES:
        return []
    generator, n_images, rows = torch.Generator().manual_seed(0), max(N_IMAGES, len(sets)), []
    n_proposals = min(n_steps + 1, MOST_PROPOSALS)
    for i, transforms in enumerate(sets):
        ours = examples[i : n_images : len(sets)]
        draws = [transforms.draw(len(ours.images), generator=generator) for _ in range(n_proposals)]
        rows += _strips(ours, transforms, draws, sampler, generator)
    return [row | {"chain": n_steps + 1} for row in rows]


def _strips(
    examples: Examples, transforms: TransformSet, draws: Sequence[Draw], sampler: Sampler, generator: torch.Generator
) -> list[dict[str, Any]]:
    """Return each image with its proposals."""
    changed = [transforms.apply(examples.images, draw) for draw in draws]
    losses = torch.stack([examples.score(images)[0] for images in changed])
    kept = sampler(losses, generator=generator).state

    def describe_proposal(k: int, i: int) -> dict[str, Any]:
        scored = {"loss": float(losses[k, i]), "kept": int(kept[i]) == k}
        return {"image": png(changed[k][i]), **_describe_draw(transforms, draws[k], i), **scored}

    n_images, n_draws = len(examples.images), len(draws)
    return [
        examples.describe(i) | {"proposals": [describe_proposal(k, i) for k in range(n_draws)]} for i in range(n_images)
    ]


def _describe_draw(transforms: TransformSet, draw: Draw, i: int) -> dict[str, Any]:
    """Return the operation and the magnitude drawn for the i-th image; of two axes the first stands for both."""
    return {"op": transforms.ops[int(draw.op[i])].name, "magnitude": float(draw.magnitude[i].reshape(-1)[0])}


@torch.no_grad()
def hardest(examples: Examples, sets: Sequence[TransformSet]) -> list[dict[str, Any]]:
    """Return the draws that raise the loss most, the worst ones of each operation: the image before and after."""
    if examples.images.shape[1] not in MODES:
        return []
    generator = torch.Generator().manual_seed(0)
    n_each = -(-N_HARDEST // max(sum(len(transforms.ops) for transforms in sets), 1))
    found = [row for transforms in sets for row in _hardest_of_set(examples, transforms, n_each, generator)]
    return sorted(found, key=lambda row: row["clean"] - row["loss"])[:N_HARDEST]


def _hardest_of_set(
    examples: Examples, transforms: TransformSet, n_each: int, generator: torch.Generator
) -> list[dict[str, Any]]:
    """Return the worst draws of each operation of a set."""
    n = len(examples.images)
    draw = transforms.draw(n * N_DRAWS, generator=generator)
    before, _ = examples.score(examples.images)
    scored = [examples.score(transforms.apply(examples.images, draw[k * n : k * n + n])) for k in range(N_DRAWS)]
    after, predicted = (torch.cat(column) for column in zip(*scored, strict=True))
    rise = after - before.repeat(N_DRAWS)
    return [
        {
            **examples.describe(i % n),
            "clean": float(before[i % n]),
            "image": png(transforms.apply(examples.images[i % n : i % n + 1], draw[i])[0]),
            **_describe_draw(transforms, draw, i),
            "loss": float(after[i]),
            "seen": examples.predictor.classes[int(predicted[i])],
        }
        for i in _highest_of_each(rise, draw.op.flatten().cpu(), n_each)
    ]


def _highest_of_each(values: Tensor, ops: Tensor, n_each: int) -> list[int]:
    """Return the indices of the highest finite values of each operation."""
    found: list[int] = []
    for op in ops.unique():
        rows = torch.nonzero((ops == op) & values.isfinite()).flatten()
        found += rows[values[rows].argsort(descending=True)[:n_each]].tolist()
    return found


def png(image: Tensor, side: int = SIDE) -> str:
    """Return an image, shape (channels, height, width), as the address of a PNG inside the page; larger ones shrink."""
    pixels = image.cpu().permute(1, 2, 0).numpy()
    picture = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels, MODES[pixels.shape[2]])
    picture.thumbnail((side, side))
    file = io.BytesIO()
    picture.save(file, "PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
