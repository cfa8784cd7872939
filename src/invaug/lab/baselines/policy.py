"""Policies: what other methods do to every image before training on it, in layers of one operation each.

A policy draws first, as data, one `Draw` with its layers, and applies it with invaug's own exact operations.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from invaug import ops, sets
from invaug.lab.config.schema import Config
from invaug.lab.data.load import Dataset
from invaug.lab.train.sets import transform_set
from invaug.transforms.draw import Draw
from invaug.transforms.ops import Op
from invaug.transforms.set import TransformSet

Array = np.ndarray[Any, Any]

IDENTITY = "Identity"
UNIFORMS = 5  # numbers per image and layer: row, whether it applies, sign, two for the place


class Memory(nn.Module):
    """What a policy remembers of the training images, in buffers that a checkpoint saves; this one nothing."""

    def begin(self, rows: Tensor) -> None:
        """Note which images are drawn for next."""

    def learn(self, rows: Tensor, outputs: Tensor) -> None:
        """Take note of the network's outputs for some images, after a step."""


@dataclass(frozen=True)
class Policy:
    """A set of operations, how they are drawn, and how a draw is applied."""

    transforms: TransformSet
    draw: Callable[..., Draw]
    """`draw(n, generator=g)` returns a transformation for each of n images, from the generator (or torch's own)."""
    apply: Callable[[Tensor, Draw], Tensor]
    """Returns new images, each under its transformations, layer after layer; the same draw gives the same bytes."""
    memory: Memory = field(default_factory=Memory)


def whole_set(config: Config, _: Dataset) -> Policy:
    """Return the policy of --method plain and trivial: every image under `depth` operations of the set."""
    return uniform_policy(replace(transform_set(config), depth=int(config.method.depth)))


def rand_augment(config: Config, _: Dataset) -> Policy:
    """Return the policy of --method randaugment."""
    return randaugment(config.method.n_ops, config.method.magnitude)


def uniform_policy(transforms: TransformSet) -> Policy:
    """Return the policy that draws operations and levels of a set uniformly; of the wide set it is TrivialAugment."""
    return Policy(transforms, transforms.draw, transforms.apply)


def randaugment(n_ops: int = 2, magnitude: int = 9) -> Policy:
    """Return RandAugment (Cubuk et al. 2020): n_ops operations per image, uniform over 14, all at one magnitude.

    The 14 operations have AutoAugment's ranges; strength grows with the magnitude, geometric operations get a random
    sign. A range ends at magnitude 30: the paper explores 0 to 30 on CIFAR, and torchvision and others take 30 for the
    end; in the paper's text and its ImageNet code the range ends at 10.
    """
    transforms = replace(AUTOAUGMENT_OPS.without("Invert"), n_levels=31)
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


def policy_of_rows(transforms: TransformSet, rows: Rows) -> Policy:
    """Return the policy that draws rows; the set's Identity stands for operations that are not applied."""
    return Policy(transforms, partial(_draw_rows, transforms, rows), transforms.apply)


def _draw_rows(transforms: TransformSet, rows: Rows, n: int, generator: torch.Generator | None = None) -> Draw:
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


SHIFT: dict[str, Any] = {"whole": False, "stop": 150 / 331}
DIFFERENCES = {"Rotate": {"whole": False}, "TranslateX": SHIFT, "TranslateY": SHIFT}
AUTOAUGMENT_OPS = TransformSet(
    (*(replace(op, **DIFFERENCES.get(op.name, {})) for op in sets.standard().ops), Op("Invert", ops.invert)),
    n_levels=10,
    reference_size=1,
)
"""The operations and ranges of AutoAugment's table 6, in RandAugment's order, with Invert at the end.

TrivialAugment's standard set has the same, but whole angles and shifts by up to 10 whole pixels. Here shifts are shares
of the image: the table's 150 pixels are of 331. Cutout and SamplePairing are in no published policy.
"""
