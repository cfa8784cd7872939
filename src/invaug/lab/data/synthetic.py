"""Symmetries planted in a dataset: every image under a transformation of its own, so that the truth is known.

The datasets of the paper's synthetic experiments: `mnist+r180`, `fashion-mnist+scaled`.
"""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from invaug.lab.errors import UserError, nearest
from invaug.transforms import continuous

TRAIN, TEST = 1, 0  # seeds of the planted transformations
BLOCK = 4096  # images as floats at once


class Plant(NamedTuple):
    """A family of transformations and how far it goes."""

    function: Callable[[Tensor, Tensor], Tensor]
    most: float
    n_magnitudes: int = 1
    of_half_width: bool = False
    """Whether `most` is a share of half the image's width."""


PLANTS: Mapping[str, Plant] = {
    "r180": Plant(continuous.turn, math.pi),
    "r90": Plant(continuous.turn, math.pi / 2),
    "translated": Plant(continuous.shift, 8 / 14, 2, True),
    "scaled": Plant(continuous.zoom, math.log(2)),
}
"""Rotations by up to 180 or 90 degrees, shifts by up to 8/14 of half the width, enlargements by 1/2 to 2."""


def find(kind: str) -> Plant:
    """Return a family of transformations by its name."""
    if kind not in PLANTS:
        raise UserError(f"unknown symmetry +{kind}, {nearest(kind, PLANTS)}")
    return PLANTS[kind]


def plant(images: Tensor, kind: str, seed: int) -> Tensor:
    """Return the images, each under its own transformation: bilinear, black outside, clipped to bytes."""
    chosen = find(kind)
    generator = torch.Generator().manual_seed(seed)
    uniform = torch.rand(len(images), chosen.n_magnitudes, generator=generator, dtype=torch.float64) * 2 - 1
    # the authors count from pixel centre to pixel centre, so half of 28 pixels is 13.5
    most = chosen.most * ((images.shape[-1] - 1) / 2 if chosen.of_half_width else 1.0)
    magnitudes = (uniform * most).float()
    magnitudes = magnitudes.squeeze(1) if chosen.n_magnitudes == 1 else magnitudes
    parts = zip(images.split(BLOCK), magnitudes.split(BLOCK), strict=True)
    return torch.cat([chosen.function(some.float(), m).clamp_(0, 255).to(torch.uint8) for some, m in parts])
