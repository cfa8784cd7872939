"""Policies: what other methods do to every image before training on it, in layers of one operation each.

A policy draws first, as data, one `Draw` with its layers, and applies it with invaug's own exact operations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from invaug import ops
from invaug.lab.config.schema import Config
from invaug.lab.data.load import Dataset
from invaug.lab.errors import UserError
from invaug.lab.train.sets import transform_set
from invaug.transforms.draw import Draw
from invaug.transforms.ops import Op
from invaug.transforms.set import TransformSet

Array = np.ndarray[Any, Any]
Law = Callable[[int, torch.Generator | None], Draw]
Step = Callable[[TransformSet, Tensor, Draw], Tensor]

IDENTITY = "Identity"
UNIFORMS = 5  # numbers per image and layer: row, whether it applies, sign, two for the place


@dataclass(frozen=True)
class Policy:
    """A set of operations, the law of the draws, and how one layer is applied."""

    transforms: TransformSet
    law: Law
    n_layers: int = 1
    step: Step = TransformSet.apply

    def draw(self, n: int, *, generator: torch.Generator | None = None) -> Draw:
        """Return n transformations of `n_layers` operations each, from the generator (or torch's own)."""
        if n < 0:
            raise ValueError(f"n must not be negative, got {n}")
        return self.law(n, generator)

    def apply(self, images: Tensor, draw: Draw) -> Tensor:
        """Return new images, each under its transformations, layer after layer; the same draw gives the same bytes."""
        self._check(draw)
        for i in range(draw.depth):
            images = self.step(self.transforms, images, draw.layer(i))
        return images

    def describe(self, draw: Draw) -> list[str]:
        """Return what happens to each image, in words: `Rotate -9, Equalize`."""
        self._check(draw)
        layers = [self.transforms.describe(draw.layer(i)) for i in range(draw.depth)]
        changes = [[words for words in image if words != IDENTITY] for image in zip(*layers, strict=True)]
        return [", ".join(words) or IDENTITY for words in changes]

    def _check(self, draw: Draw) -> None:
        if draw.depth != self.n_layers:
            raise ValueError(f"draw must have one layer per layer of the policy ({self.n_layers}), got {draw.depth}")


def trivial(transforms: TransformSet) -> Policy:
    """Return TrivialAugment: one operation of the set per image, at a uniform level."""
    return Policy(transforms, lambda n, generator: transforms.draw(n, generator=generator), transforms.depth)


def trivial_augment(config: Config, _: Dataset) -> Policy:
    """Return the policy of --method trivial."""
    return trivial(transform_set(config))


def rand_augment(config: Config, _: Dataset) -> Policy:
    """Return the policy of --method randaugment."""
    return randaugment(config.method.n_ops, config.method.magnitude)


def randaugment(n_ops: int = 2, magnitude: int = 9, max_magnitude: int = 30) -> Policy:
    """Return RandAugment (Cubuk et al. 2020): n_ops operations per image, uniform over 14, all at one magnitude.

    Its 14 operations with AutoAugment's ranges, strength growing with the magnitude, a random sign for the geometric.

    Args:
        max_magnitude: The magnitude at which a range ends. The paper explores 0 to 30 on CIFAR, and torchvision and
            others take 30 for the end; in the paper's text and its ImageNet code the range ends at 10.
    """
    if n_ops < 1:
        raise UserError(f"n_ops must be at least 1, got {n_ops}")
    if not 0 <= magnitude <= max_magnitude or max_magnitude < 1:
        raise UserError(f"magnitude must lie in 0 to max_magnitude ({max_magnitude}), got {magnitude}")
    transforms = replace(AUTOAUGMENT_OPS.without("Invert"), n_levels=max_magnitude + 1)
    op = np.arange(len(transforms.ops))
    rows = Rows.of(transforms, np.tile(op, (n_ops, 1)), np.full((n_ops, len(op)), magnitude))
    return layered(transforms, rows)


@dataclass(frozen=True, eq=False)
class Rows:
    """What each layer may do, in arrays of shape (n_layers, n_rows): an image draws one row per layer."""

    op: Array
    level: Array
    magnitude: Array
    """Before the random sign that signed operations get."""
    probability: Array
    """How likely the row's operation is to be applied; else the image stays as it is in this layer."""
    weight: Array
    """How often the row is drawn, relative to the others of its layer."""
    joint: bool = False
    """One row for all layers of an image, as AutoAugment draws a pair of operations."""

    @classmethod
    def of(
        cls, transforms: TransformSet, op: Array, level: Array, probability: Array | float = 1.0, **others: Any
    ) -> Rows:
        """Return equally likely rows, their magnitudes those of the set's levels."""
        levels = torch.arange(transforms.n_levels)
        magnitudes = np.stack([each.magnitude(levels, transforms.n_levels).numpy() for each in transforms.ops])
        certain = np.broadcast_to(probability, op.shape)
        return cls(op, level, magnitudes[op, level], certain, np.ones(op.shape), **others)

    @cached_property
    def shares(self) -> Array:
        """The cumulative shares of each layer's rows, but the last."""
        shares: Array = np.cumsum(self.weight, axis=1)[:, :-1] / self.weight.sum(axis=1, keepdims=True)
        return shares


def layered(transforms: TransformSet, rows: Rows, step: Step = TransformSet.apply) -> Policy:
    """Return the policy that draws rows; the set's Identity stands for operations that are not applied."""
    return Policy(transforms, partial(_draw_rows, transforms, rows), len(rows.op), step)


def _draw_rows(transforms: TransformSet, rows: Rows, n: int, generator: torch.Generator | None) -> Draw:
    numbers = uniforms(generator, len(rows.op), UNIFORMS, n)
    if rows.joint:
        numbers[:, 0] = numbers[0, 0]
    layers = [_draw_layer(transforms, rows, layer, numbers[layer]) for layer in range(len(rows.op))]
    return Draw(*(torch.from_numpy(np.stack(column, axis=1)) for column in zip(*layers, strict=True)))


def _draw_layer(transforms: TransformSet, rows: Rows, layer: int, numbers: Array) -> tuple[Array, Array, Array, Array]:
    """Return operation, level, magnitude and place of every image in a layer."""
    row = rows.shares[layer].searchsorted(numbers[0], side="right")
    applied = numbers[1] < rows.probability[layer, row]
    op = np.where(applied, rows.op[layer, row], transforms.names.index(IDENTITY))
    level = np.where(applied, rows.level[layer, row], 0)
    magnitude = np.where(applied, rows.magnitude[layer, row], 0.0)
    minus = np.array([each.signed for each in transforms.ops])[op] & (numbers[2] < 0.5)
    signed = np.where(minus, -magnitude, magnitude) + 0.0  # no -0
    return op, level, signed, numbers[3:].T


def uniforms(generator: torch.Generator | None, *shape: int) -> Array:
    """Return numbers in [0, 1), float64."""
    device = None if generator is None else generator.device
    numbers: Array = torch.rand(shape, dtype=torch.float64, generator=generator, device=device).cpu().numpy()
    return numbers


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
