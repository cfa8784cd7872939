"""The operations: functions of images and magnitudes that give byte for byte what Pillow gives.

All are pure functions `(images, magnitudes) -> images` on uint8 batches of shape (batch, channels, height, width), with
one magnitude per image. `crop` and `cutout` also take places: two numbers in [0, 1) per image. Float images in [0, 1]
are rounded to bytes and returned in their own dtype.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from invaug.checks import require
from invaug.kernels import dispatch, rules
from invaug.kernels.rules import Actions
from invaug.transforms.images import check_images, on_bytes, on_host


@dataclass(frozen=True)
class Rule:
    """A byte operation, identified by its code in `kernels/rules.py`.

    Example:
        >>> images = torch.tensor([[[[0, 100]]]], dtype=torch.uint8)
        >>> invert(images, torch.zeros(1)).tolist()
        [[[[255, 155]]]]
        >>> rotate.geometric, invert.geometric
        (True, False)
    """

    code: int

    @property
    def geometric(self) -> bool:
        """Whether the operation moves pixels."""
        return self.code in rules.MOVES

    def __call__(self, images: Tensor, magnitudes: Tensor, places: Tensor | None = None) -> Tensor:
        """Return the transformed images; without places, crop and cutout are centred.

        Args:
            magnitudes: Shape (batch,).
            places: Shape (batch, 2).
        """
        check_images(images)
        n = len(images)
        where = torch.full((n, 2), 0.5) if places is None else places
        for name, numbers, shape in (("magnitudes", magnitudes, (n,)), ("places", where, (n, 2))):
            if numbers.shape != shape:
                raise ValueError(f"{name} must have shape {shape}, got {tuple(numbers.shape)}")
        codes = np.full(n, self.code)
        actions = Actions(codes, on_host(magnitudes.double()), on_host(where.double()), (self.code,))
        return on_bytes(images, lambda batch: dispatch.transform(batch, actions))


@dataclass(frozen=True)
class Op:
    """One transformation: a name, a batched function, and how a level becomes a magnitude.

    The magnitude runs evenly from `start` at level 0 to `stop` at the last level. Any pure function
    `(images, magnitudes) -> images` will do, also on signals, volumes and tables: tensors of any shape with a batch
    dimension. `invaug.testing.check_op` checks whether it keeps the contract.

    Example:
        >>> gain = Op("Gain", lambda signals, gains: signals * gains.view(-1, 1), 0.5, 1.5)
        >>> gain(torch.ones(2, 3), torch.tensor([0.5, 1.5])).tolist()
        [[0.5, 0.5, 0.5], [1.5, 1.5, 1.5]]
    """

    name: str
    function: Callable[..., Tensor]
    start: float = 0.0
    stop: float = 0.0
    signed: bool = False
    """The magnitude gets a random sign."""
    whole: bool = False
    """Steps are truncated to whole numbers, as in TrivialAugment for degrees, pixels, bits and thresholds."""
    continuous: bool = False
    """The magnitude is drawn from the whole range instead of from levels."""
    n_magnitudes: int = 1
    """How many magnitudes one image takes; the function gets them as (batch,) if one, else as (batch, n)."""
    placed: bool = False
    """The function takes places as a third argument."""
    pixels_of: Literal["width", "height", "side"] | None = None
    """The magnitude counts pixels of this extent, and scales with it in a set that has a reference size."""
    geometric: bool = False
    """The operation moves pixels; set automatically for the operations of this package."""

    def __post_init__(self) -> None:
        require(self.name, "name must not be empty")
        kind, n = type(self.function).__name__, self.n_magnitudes
        require(callable(self.function), f"function of {self.name} must be callable, got {kind}", TypeError)
        finite = math.isfinite(self.start) and math.isfinite(self.stop)
        require(finite, f"the range of {self.name} must be finite, got {self.start} to {self.stop}")
        require(n >= 1, f"n_magnitudes of {self.name} must be at least 1, got {n}")
        levels = f"{self.name} takes {n} magnitudes, but a level has one: set continuous=True"
        require(n == 1 or self.continuous, levels)
        if getattr(self.function, "geometric", False):
            object.__setattr__(self, "geometric", True)

    def magnitude(self, level: Tensor, n_levels: int) -> Tensor:
        """Return the unsigned magnitude at each level of 0 to n_levels - 1: the shape of `level`, float64.

        Example:
            >>> Op("Rotate", rotate, 0, 135, whole=True).magnitude(torch.tensor([0, 1, 30]), n_levels=31).tolist()
            [0.0, 4.0, 135.0]
        """
        step = level.double() * (self.stop - self.start) / (n_levels - 1)
        return self.start + (step.trunc() if self.whole else step)

    @property
    def has_magnitude(self) -> bool:
        """Whether the magnitude changes anything; for Identity, Equalize and the like it does not."""
        return self.start != self.stop

    def __call__(self, images: Tensor, magnitudes: Tensor, places: Tensor | None = None) -> Tensor:
        """Return the transformed images."""
        return self.function(images, magnitudes, places) if self.placed else self.function(images, magnitudes)


# in the order of the codes
identity = Rule(rules.IDENTITY)
rotate, shear_x, shear_y, translate_x, translate_y, flip_x, flip_y, crop = map(Rule, rules.MOVES)
solarize, posterize, invert, brightness, auto_contrast, equalize = map(Rule, rules.TABLES)
color, contrast, sharpness, cutout = map(Rule, rules.BLENDS)

EXTRA: tuple[Op, ...] = (
    Op("Invert", invert),
    Op("FlipX", flip_x),
    Op("FlipY", flip_y),
    Op("Cutout", cutout, 0, 16, whole=True, placed=True, pixels_of="side"),
    Op("Crop", crop, 0, 4, whole=True, placed=True, pixels_of="side"),
)
"""Operations from other augmentation methods; the named sets do not contain them."""
