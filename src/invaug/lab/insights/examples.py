"""Example pictures: an image under every family, at the ends of the range up to which it is learned."""

from typing import Any

import torch
from torch import Tensor

from invaug import Draw, sets
from invaug.lab.evaluate.pictures import MODES, png
from invaug.lab.insights.families import Ranges, describe_magnitude
from invaug.lab.insights.verdicts import Answer
from invaug.transforms.ops import Op


def examples(answer: Answer, images: Tensor) -> list[dict[str, Any]]:
    """Return, for each family, an image before and after; one that is not learned is shown as far as it was tried."""
    if images.shape[1] not in MODES:
        return []
    shown = [(found, images[i % len(images)]) for i, found in enumerate(answer.ranking)]
    return [
        {"family": found.name, "original": png(image), "changed": at_the_ends(image, found.learned or found.ranges)}
        for found, image in shown
    ]


def at_the_ends(image: Tensor, ranges: Ranges) -> list[dict[str, str]]:
    """Return an image under each operation, at every end of its range that changes it."""
    ops = [(op, sets.of({op.name: ranges[op.name]})) for op in sets.of(ranges).ops]
    ends = [(op, one, end) for op, one in ops for end in _ends(op)]
    changed = [(op, end, one.apply(image[None], _draw(op, end))[0]) for op, one, end in ends]
    return [{"caption": describe_magnitude(op, end), "image": png(each)} for op, end, each in changed]


def _ends(op: Op) -> list[float]:
    if not op.has_magnitude:
        return [0.0]
    if op.signed:
        return [-op.stop, op.stop]
    return [op.start, op.stop] if 0 < op.start < 1 < op.stop else [op.stop]  # blends do nothing at 1


def _draw(op: Op, magnitude: float) -> Draw:
    zero = torch.zeros(1, 1, dtype=torch.long)
    return Draw(zero, zero - 1, torch.full((1, 1, op.n_magnitudes), magnitude, dtype=torch.float64))
