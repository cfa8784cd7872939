"""Policies: what other methods do to every image before training on it, in layers of one operation each.

A policy draws first, as data, one `Draw` with its layers, and applies it with invaug's own exact operations.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from invaug import ops
from invaug.checks import require
from invaug.lab.config.schema import Config
from invaug.lab.data.load import Dataset
from invaug.lab.errors import UserError
from invaug.lab.train.sets import transform_set
from invaug.transforms.draw import Draw
from invaug.transforms.ops import Op
from invaug.transforms.set import TransformSet

Array = np.ndarray[Any, Any]
Law = Callable[[int, torch.Generator | None], Draw]
Action = Callable[[TransformSet, Tensor, Draw], Tensor]

IDENTITY = "Identity"
UNIFORMS = 5  # numbers per image and layer: row, whether it applies, sign, two for the place


@dataclass(frozen=True)
class Policy:
    """A set of operations, how they are drawn, and how a draw is applied."""

    transforms: TransformSet
    law: Law
    action: Action = TransformSet.apply

    def draw(self, n: int, *, generator: torch.Generator | None = None) -> Draw:
        """Return a transformation for each of n images, from the generator (or torch's own)."""
        return self.law(n, generator)

    def apply(self, images: Tensor, draw: Draw) -> Tensor:
        """Return new images, each under its transformations, layer after layer; the same draw gives the same bytes."""
        return self.action(self.transforms, images, draw)


def trivial_augment(config: Config, _: Dataset) -> Policy:
    """Return the policy of --method trivial."""
    return trivial(transform_set(config))


def rand_augment(config: Config, _: Dataset) -> Policy:
    """Return the policy of --method randaugment."""
    return randaugment(config.method.n_ops, config.method.magnitude)


def trivial(transforms: TransformSet) -> Policy:
    """Return TrivialAugment: one operation of the set per image, at a uniform level."""
    return Policy(transforms, lambda n, generator: transforms.draw(n, generator=generator))


def randaugment(n_ops: int = 2, magnitude: int = 9, max_magnitude: int = 30) -> Policy:
    """Return RandAugment (Cubuk et al. 2020): n_ops operations per image, uniform over 14, all at one magnitude.

    The 14 operations have AutoAugment's ranges; strength grows with the magnitude, geometric operations get a random
    sign.

    Args:
        max_magnitude: The magnitude at which a range ends. The paper explores 0 to 30 on CIFAR, and torchvision and
            others take 30 for the end; in the paper's text and its ImageNet code the range ends at 10.
    """
    require(n_ops >= 1, f"n_ops must be at least 1, got {n_ops}", UserError)
    inside = 0 <= magnitude <= max_magnitude and max_magnitude >= 1
    require(inside, f"magnitude must lie in 0 to max_magnitude ({max_magnitude}), got {magnitude}", UserError)
    transforms = replace(AUTOAUGMENT_OPS.without("Invert"), n_levels=max_magnitude + 1)
    op = np.tile(np.arange(len(transforms.ops)), (n_ops, 1))
    return policy_of_rows(transforms, equal_rows(transforms, op, np.full(op.shape, magnitude), np.ones(op.shape)))


@dataclass(frozen=True, eq=False)
class Rows:
    """What each layer may do, in arrays of shape (n_layers, n_rows): an image draws one row per layer."""

    op: Array
    level: Array
    magnitude: Array
    """Before the random sign of signed operations."""
    probability: Array
    """How likely the row's operation is applied; otherwise the image stays as it is in this layer."""
    weight: Array
    """How often the row is drawn, relative to the others of its layer."""
    joint: bool = False
    """One row for all layers of an image, as AutoAugment draws a pair of operations."""

    @cached_property
    def shares(self) -> Array:
        """The cumulative shares of each layer's rows, except the last."""
        shares: Array = np.cumsum(self.weight, axis=1)[:, :-1] / self.weight.sum(axis=1, keepdims=True)
        return shares


def equal_rows(transforms: TransformSet, op: Array, level: Array, probability: Array, *, joint: bool = False) -> Rows:
    """Return rows that are equally likely, with the magnitudes of the set's levels."""
    levels = torch.arange(transforms.n_levels)
    magnitudes = np.stack([each.magnitude(levels, transforms.n_levels).numpy() for each in transforms.ops])
    return Rows(op, level, magnitudes[op, level], probability, np.ones(op.shape), joint)


def policy_of_rows(transforms: TransformSet, rows: Rows, action: Action = TransformSet.apply) -> Policy:
    """Return the policy that draws rows; the set's Identity stands for operations that are not applied."""
    return Policy(transforms, partial(_draw_rows, transforms, rows), action)


def _draw_rows(transforms: TransformSet, rows: Rows, n: int, generator: torch.Generator | None) -> Draw:
    shape, device = (len(rows.op), UNIFORMS, n), None if generator is None else generator.device
    numbers = torch.rand(shape, dtype=torch.float64, generator=generator, device=device).cpu().numpy()
    if rows.joint:
        numbers[:, 0] = numbers[0, 0]
    row = np.stack([one.searchsorted(u, side="right") for one, u in zip(rows.shares, numbers[:, 0], strict=True)])
    chosen = np.arange(len(row))[:, None], row
    applied = numbers[:, 1] < rows.probability[chosen]
    op = np.where(applied, rows.op[chosen], transforms.names.index(IDENTITY))
    level = np.where(applied, rows.level[chosen], 0)
    magnitude = np.where(applied, rows.magnitude[chosen], 0.0)
    minus = np.array([each.signed for each in transforms.ops])[op] & (numbers[:, 2] < 0.5)
    signed = np.where(minus, -magnitude, magnitude) + 0.0  # no -0
    columns = (op.T, level.T, signed.T, numbers[:, 3:].transpose(2, 0, 1))
    return Draw(*(torch.from_numpy(np.ascontiguousarray(column)) for column in columns))


AUTOAUGMENT_OPS = TransformSet(
    (
        Op(IDENTITY, ops.identity),
        Op("AutoContrast", ops.auto_contrast),
        Op("Equalize", ops.equalize),
        Op("Rotate", ops.rotate, 0, 30, signed=True),
        Op("Solarize", ops.solarize, 256, 0, whole=True),
        Op("Color", ops.color, 0.1, 1.9),
        Op("Posterize", ops.posterize, 8, 4, whole=True),
        Op("Contrast", ops.contrast, 0.1, 1.9),
        Op("Brightness", ops.brightness, 0.1, 1.9),
        Op("Sharpness", ops.sharpness, 0.1, 1.9),
        Op("ShearX", ops.shear_x, 0, 0.3, signed=True),
        Op("ShearY", ops.shear_y, 0, 0.3, signed=True),
        Op("TranslateX", ops.translate_x, 0, 150 / 331, signed=True, pixels_of="width"),
        Op("TranslateY", ops.translate_y, 0, 150 / 331, signed=True, pixels_of="height"),
        Op("Invert", ops.invert),
    ),
    n_levels=10,
    reference_size=1,
)
"""The operations and ranges of AutoAugment's table 6, in RandAugment's order, with Invert at the end.

Shifts are shares of the image: the table's 150 pixels are of 331. Cutout and SamplePairing are in no published policy.
"""
