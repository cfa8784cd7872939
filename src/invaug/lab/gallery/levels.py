"""Images under the operations of a set: each at its levels, and random draws as training makes them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from invaug import Draw, Op, TransformSet

N_COLUMNS = 6  # levels of an operation: two rows of three on a telephone
N_DRAWS = 9
PLACE = (0.75, 0.3)  # of crops and cutouts, for in the middle a crop changes nothing


class Shot(NamedTuple):
    """An image, shape (channels, height, width), and what was done to it."""

    image: Tensor
    caption: str
    is_kept: bool = False


Strip = list[Shot]


def level_strips(transforms: TransformSet, i: int, images: Tensor) -> list[Strip]:
    """Return the images under the i-th operation: a strip per image and direction, from the first level to the last."""
    op, last = transforms.ops[i], transforms.n_levels - 1
    levels = torch.linspace(transforms.min_level, last, N_COLUMNS).round().unique()
    sizes = list(dict.fromkeys(op.magnitude(levels, transforms.n_levels).tolist()))
    ways = [[sign * size for size in sizes if sign > 0 or size] for sign in _signs(op)]
    draws = [draw_at(op, i, way, axis) for axis in range(op.n_magnitudes) for way in ways]
    return [shots(transforms, image, draw) for image in images for draw in draws]


def _signs(op: Op) -> tuple[int, ...]:
    return (1, -1) if op.signed else (1,)


def draw_at(op: Op, i: int, sizes: Sequence[float], axis: int = 0) -> Draw:
    """Return a draw of the i-th operation at these magnitudes, along one axis of those that have several."""
    n = len(sizes)
    magnitude = torch.zeros(n, 1, op.n_magnitudes, dtype=torch.float64)
    magnitude[:, 0, axis] = torch.tensor(sizes, dtype=torch.float64)
    place = torch.tensor(PLACE, dtype=torch.float64).expand(n, 1, 2)
    return Draw(torch.full((n,), i), torch.full((n,), -1), magnitude, place)


def draw_strips(transforms: TransformSet, images: Tensor, depth: int) -> list[Strip]:
    """Return random draws of each image, as many operations in sequence as training applies."""
    deep, generator = replace(transforms, depth=depth), torch.Generator().manual_seed(0)
    return [shots(deep, image, deep.draw(N_DRAWS, generator=generator)) for image in images]


def shots(transforms: TransformSet, image: Tensor, draw: Draw) -> Strip:
    """Return one image under each transformation of a draw."""
    changed = transforms.apply(image.expand(len(draw), *image.shape).contiguous(), draw)
    return [Shot(each, words) for each, words in zip(changed, transforms.describe(draw), strict=True)]
