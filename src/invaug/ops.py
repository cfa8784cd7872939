"""The operations: functions of images and magnitudes, byte for byte what Pillow gives.

All are pure functions `(images, magnitudes) -> images` on uint8 batches of shape (batch, channels, height, width), one
magnitude per image. `crop` and `cutout` also take places: two numbers in [0, 1) per image that say where. Float images
in [0, 1] are rounded to bytes and handed back in their own dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from invaug import fused, kernels, rules
from invaug.images import check_images, on_bytes, on_host
from invaug.rules import Actions


@dataclass(frozen=True)
class Rule:
    """A byte operation, known by its code."""

    code: int

    @property
    def geometric(self) -> bool:
        """Whether the operation moves pixels."""
        return self.code in rules.MOVES

    def __call__(self, images: Tensor, magnitudes: Tensor, places: Tensor | None = None) -> Tensor:
        """Return the transformed images; without places, crop and cutout are centred."""
        check_images(images)
        if magnitudes.shape != images.shape[:1]:
            raise ValueError(f"magnitudes must have shape ({len(images)},), got {tuple(magnitudes.shape)}")
        where = torch.full((len(images), 2), 0.5) if places is None else places
        if where.shape != (len(images), 2):
            raise ValueError(f"places must have shape ({len(images)}, 2), got {tuple(where.shape)}")
        codes = np.full(len(images), self.code)
        actions = Actions(codes, on_host(magnitudes.double()), on_host(where.double()), (self.code,))
        return on_bytes(images, lambda batch: transform_bytes(batch, actions))


def transform_bytes(images: Tensor, actions: Actions) -> Tensor:
    """Return new uint8 images: by compiled loops on CPUs with numba, else by torch on their device."""
    return fused.apply(images, actions) if fused.usable(images) else kernels.apply(images, actions)


@dataclass(frozen=True)
class Op:
    """One transformation: a name, a batched function, and how a level becomes a magnitude.

    The magnitude runs evenly from `start` at level 0 to `stop` at the last level. Any pure function
    `(images, magnitudes) -> images` will do, also of signals, volumes and tables: tensors of any shape with a batch
    dimension. `invaug.testing.check_op` tells whether it keeps the contract.
    """

    name: str
    function: Callable[..., Tensor]
    start: float = 0.0
    stop: float = 0.0
    signed: bool = False
    """The magnitude gets a random sign."""
    whole: bool = False
    """Steps are cut to whole numbers, as TrivialAugment cuts degrees, pixels, bits and thresholds."""
    continuous: bool = False
    """The magnitude is drawn from the whole range instead of from levels."""
    n_magnitudes: int = 1
    """How many magnitudes one image takes; the function gets them as (batch,) if one, else as (batch, n)."""
    placed: bool = False
    """The function takes places as a third argument."""
    pixels_of: Literal["width", "height", "side"] | None = None
    """The magnitude counts pixels of this extent, and scales with it in a set that has a reference size."""
    geometric: bool = False
    """The operation moves pixels; known of the operations that come with this package."""

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("name must not be empty")
        if not callable(self.function):
            raise TypeError(f"function of {self.name} must be callable, got {type(self.function).__name__}")
        if not (abs(self.start) < float("inf") and abs(self.stop) < float("inf")):
            raise ValueError(f"the range of {self.name} must be finite, got {self.start} to {self.stop}")
        if self.n_magnitudes < 1:
            raise ValueError(f"n_magnitudes of {self.name} must be at least 1, got {self.n_magnitudes}")
        if self.n_magnitudes > 1 and not self.continuous:
            raise ValueError(
                f"{self.name} takes {self.n_magnitudes} magnitudes, but a level has one: set continuous=True"
            )
        if getattr(self.function, "geometric", False):
            object.__setattr__(self, "geometric", True)

    def magnitude(self, level: Tensor, n_levels: int) -> Tensor:
        """Return the unsigned magnitude at each level of 0 to n_levels - 1, float64."""
        step = level.double() * (self.stop - self.start) / (n_levels - 1)
        return self.start + (step.trunc() if self.whole else step)

    @property
    def has_magnitude(self) -> bool:
        """Whether the magnitude changes anything: it does not for Identity, Equalize and their like."""
        return self.start != self.stop

    def __call__(self, images: Tensor, magnitudes: Tensor, places: Tensor | None = None) -> Tensor:
        """Return the transformed images."""
        return self.function(images, magnitudes, places) if self.placed else self.function(images, magnitudes)


identity = Rule(rules.IDENTITY)
auto_contrast = Rule(rules.AUTO_CONTRAST)
equalize = Rule(rules.EQUALIZE)
rotate = Rule(rules.ROTATE)
solarize = Rule(rules.SOLARIZE)
color = Rule(rules.COLOR)
posterize = Rule(rules.POSTERIZE)
contrast = Rule(rules.CONTRAST)
brightness = Rule(rules.BRIGHTNESS)
sharpness = Rule(rules.SHARPNESS)
shear_x = Rule(rules.SHEAR_X)
shear_y = Rule(rules.SHEAR_Y)
translate_x = Rule(rules.TRANSLATE_X)
translate_y = Rule(rules.TRANSLATE_Y)
invert = Rule(rules.INVERT)
flip_x = Rule(rules.FLIP_X)
flip_y = Rule(rules.FLIP_Y)
crop = Rule(rules.CROP)
cutout = Rule(rules.CUTOUT)
