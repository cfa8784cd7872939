"""The operations: each says which table, which six numbers or which degenerate image, and a kernel does the work.

All are pure functions `(images, magnitudes) -> images` on uint8 batches of shape (batch, channels, height, width), one
magnitude per image, byte for byte what Pillow gives. `crop` and `cutout` also take places: two numbers in [0, 1) per
image that say where. Float images in [0, 1] are rounded to bytes and handed back in their own dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from invaug import fused, kernels
from invaug.images import check_images, doubles, luminance, on_bytes

Parameters = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, ...]]


@dataclass(frozen=True)
class Rule:
    """A byte operation: a kernel, and its parameters as a function of images, magnitudes and places."""

    kernel: Callable[..., Tensor]
    parameters: Parameters
    code: int
    """Which branch of the fused CPU kernel does the same."""

    def __call__(self, images: Tensor, magnitudes: Tensor, places: Tensor | None = None) -> Tensor:
        """Return the transformed images; without places, crop and cutout are centred."""
        check_images(images)
        if magnitudes.shape != images.shape[:1]:
            raise ValueError(f"magnitudes must have shape ({len(images)},), got {tuple(magnitudes.shape)}")
        where = torch.full((len(images), 2), 0.5) if places is None else places
        if where.shape != (len(images), 2):
            raise ValueError(f"places must have shape ({len(images)}, 2), got {tuple(where.shape)}")
        if fused.usable(images):
            codes = torch.full((len(images),), self.code)
            return on_bytes(images, lambda batch: fused.apply(batch, codes, _host(magnitudes), _host(where)))
        return on_bytes(images, lambda batch: self.kernel(batch, *self.parameters(batch, magnitudes, where)))


@dataclass(frozen=True)
class Op:
    """One transformation: a name, a batched function, and how a level becomes a magnitude.

    The magnitude runs evenly from `start` at level 0 to `stop` at the last level. Any pure function
    `(images, magnitudes) -> images` will do; `invaug.testing.check_op` tells whether it keeps the contract.
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
    """How many magnitudes one image takes: 2 for a shift along both axes."""
    placed: bool = False
    """The function takes places as a third argument."""
    pixels_of: Literal["width", "height", "side"] | None = None
    """The magnitude counts pixels of this extent, and scales with it in a set that has a reference size."""

    geometric: bool = False
    """The operation moves what is in the image."""

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("name must not be empty")
        if not callable(self.function):
            raise TypeError(f"function of {self.name} must be callable, got {type(self.function).__name__}")
        if not (abs(self.start) < float("inf") and abs(self.stop) < float("inf")):
            raise ValueError(f"the range of {self.name} must be finite, got {self.start} to {self.stop}")
        if self.n_magnitudes not in (1, 2):
            raise ValueError(f"n_magnitudes of {self.name} must be 1 or 2, got {self.n_magnitudes}")
        if self.n_magnitudes == 2 and not self.continuous:
            raise ValueError(f"{self.name} takes two magnitudes, so it must be continuous: levels count one")

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


def _six(
    like: Tensor, a: float | Tensor, b: float | Tensor, c: float | Tensor, d: float | Tensor, e: float | Tensor,
    f: float | Tensor,
) -> tuple[Tensor]:  # fmt: skip
    """Return (a, b, c, d, e, f) as one row per image: output (x, y) reads input (ax + by + c, dx + ey + f)."""
    return (torch.stack([torch.as_tensor(v, dtype=torch.float64).expand(len(like)) for v in (a, b, c, d, e, f)], -1),)


def _host(numbers: Tensor) -> Tensor:
    """Return numbers as float64 on the CPU: a few per image, exact on devices without doubles, free of kernels."""
    return numbers.detach().to("cpu", torch.float64)


def _rotation(images: Tensor, magnitudes: Tensor, _: Tensor) -> tuple[Tensor]:
    height, width = images.shape[2:]
    angle = -torch.deg2rad(_host(magnitudes) % 360.0)
    # Pillow rounds to 15 digits, so that quarter turns are exact
    cos, sin = angle.cos().round(decimals=15), angle.sin().round(decimals=15)
    x, y = width / 2, height / 2
    return _six(images, cos, sin, x - cos * x - sin * y, -sin, cos, y + sin * x - cos * y)


def _shear_x(images: Tensor, magnitudes: Tensor, _: Tensor) -> tuple[Tensor]:
    return _six(images, 1, _within(magnitudes), 0, 0, 1, 0)


def _shear_y(images: Tensor, magnitudes: Tensor, _: Tensor) -> tuple[Tensor]:
    return _six(images, 1, 0, 0, _within(magnitudes), 1, 0)


def _shift_x(images: Tensor, magnitudes: Tensor, _: Tensor) -> tuple[Tensor]:
    return _six(images, 1, 0, _nearest(magnitudes), 0, 1, 0)


def _shift_y(images: Tensor, magnitudes: Tensor, _: Tensor) -> tuple[Tensor]:
    return _six(images, 1, 0, 0, 0, 1, _nearest(magnitudes))


def _nearest(pixels: Tensor) -> Tensor:
    """Return whole pixels: Pillow moves pure shifts in doubles, not in fixed point, so halves are decided here."""
    return (_within(pixels) + 0.5).floor()


def _within(magnitudes: Tensor) -> Tensor:
    """Return the magnitudes within what fixed point can hold; beyond it everything is outside the image anyway."""
    return _host(magnitudes).clamp(-fused.FAR, fused.FAR)


def _mirror_x(images: Tensor, magnitudes: Tensor, _: Tensor) -> tuple[Tensor]:
    return _six(images, -1, 0, images.shape[3], 0, 1, 0)


def _mirror_y(images: Tensor, magnitudes: Tensor, _: Tensor) -> tuple[Tensor]:
    return _six(images, 1, 0, 0, 0, -1, images.shape[2])


def _window(images: Tensor, magnitudes: Tensor, places: Tensor) -> tuple[Tensor]:
    """Pad by the magnitude, cut the old size out again: one of (2 m + 1)² whole shifts."""
    padding = _host(magnitudes).trunc().view(-1, 1)
    x, y = ((_host(places) * (2 * padding + 1)).floor() - padding).unbind(dim=1)
    return _six(images, 1, 0, x, 0, 1, y)


def _values(images: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.arange(256, dtype=dtype, device=images.device)


def _table(images: Tensor, values: Tensor) -> tuple[Tensor]:
    """Return values as tables of bytes, shape (batch, channels, 256)."""
    return (values.to(torch.uint8).expand(*images.shape[:2], 256),)


def _unchanged(images: Tensor, magnitudes: Tensor, _: Tensor) -> tuple[Tensor]:
    return _table(images, _values(images, torch.uint8))


def _inverted(images: Tensor, magnitudes: Tensor, _: Tensor) -> tuple[Tensor]:
    return _table(images, 255 - _values(images, torch.uint8))


def _solarized(images: Tensor, magnitudes: Tensor, _: Tensor) -> tuple[Tensor]:
    values = torch.arange(256)
    return _table(images, torch.where(values < _host(magnitudes).view(-1, 1, 1), values, 255 - values))


def _posterized(images: Tensor, magnitudes: Tensor, _: Tensor) -> tuple[Tensor]:
    dropped = 8 - _host(magnitudes).trunc().long().clamp(0, 8).view(-1, 1, 1)
    return _table(images, (torch.arange(256) >> dropped) << dropped)


def _stretched(images: Tensor, magnitudes: Tensor, _: Tensor) -> tuple[Tensor]:
    """AutoContrast: the darkest value of each channel to 0, the brightest to 255."""
    planes = images.flatten(2)
    low, high = doubles(planes.amin(-1, keepdim=True)), doubles(planes.amax(-1, keepdim=True))
    # a tensor divided by a tensor: torch turns 255.0 / tensor into a reciprocal, which is off by one here
    scale = torch.full_like(low, 255.0) / (high - low)
    values = torch.arange(256, dtype=torch.float64, device=low.device)
    stretched = (values * scale + -low * scale).nan_to_num(0.0, 0.0, 0.0).clamp(0, 255).trunc()
    return _table(images, torch.where(high > low, stretched, values))


def _equalized(images: Tensor, magnitudes: Tensor, _: Tensor) -> tuple[Tensor]:
    """Equalize: a value becomes the share of darker pixels, in steps of the pixels below the brightest / 255."""
    counts = kernels.histogram(images)
    brightest = counts.gather(2, images.flatten(2).amax(-1, keepdim=True).long())
    step = (images.shape[2] * images.shape[3] - brightest) // 255
    darker = counts.cumsum(-1) - counts
    spread = ((darker + step // 2) // step.clamp(min=1)).clamp(max=255)
    return _table(images, torch.where(step > 0, spread, _values(images, torch.int64)))


def _black(images: Tensor, factors: Tensor, _: Tensor) -> tuple[Tensor, Tensor]:
    return torch.zeros_like(images), factors


def _mean(images: Tensor, factors: Tensor, _: Tensor) -> tuple[Tensor, Tensor]:
    """Every pixel the mean luminance of its image, rounded to the nearest."""
    n_pixels = images.shape[2] * images.shape[3]
    total = luminance(images).sum(dim=(1, 2, 3), dtype=torch.int64)
    mean = (2 * total + n_pixels) // (2 * n_pixels)
    return mean.to(torch.uint8).view(-1, 1, 1, 1).expand(images.shape), factors


def _grey(images: Tensor, factors: Tensor, _: Tensor) -> tuple[Tensor, Tensor]:
    return luminance(images).expand(images.shape), factors


def _smooth(images: Tensor, factors: Tensor, _: Tensor) -> tuple[Tensor, Tensor]:
    return kernels.smooth(images), factors


def _box(images: Tensor, sizes: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
    """Blend with a copy that has a black box, wholly: the pixels within half a size of the place."""
    extents = torch.tensor([images.shape[3], images.shape[2]])
    centres = (_host(places) * extents).floor()
    half = torch.div(_host(sizes), 2, rounding_mode="floor").view(-1, 1)
    (x0, y0), (x1, y1) = (
        edge.to(images.device).unbind(1) for edge in ((centres - half).long(), (centres + half).long())
    )
    x = torch.arange(images.shape[3], device=images.device)
    y = torch.arange(images.shape[2], device=images.device)
    in_x = (x >= x0.view(-1, 1)) & (x < x1.view(-1, 1))
    in_y = (y >= y0.view(-1, 1)) & (y < y1.view(-1, 1))
    outside = ~(in_y.unsqueeze(2) & in_x.unsqueeze(1)).unsqueeze(1)
    return images * outside, torch.zeros(len(images))


identity = Rule(kernels.lookup, _unchanged, fused.IDENTITY)
auto_contrast = Rule(kernels.lookup, _stretched, fused.AUTO_CONTRAST)
equalize = Rule(kernels.lookup, _equalized, fused.EQUALIZE)
rotate = Rule(kernels.affine, _rotation, fused.ROTATE)
solarize = Rule(kernels.lookup, _solarized, fused.SOLARIZE)
color = Rule(kernels.blend, _grey, fused.COLOR)
posterize = Rule(kernels.lookup, _posterized, fused.POSTERIZE)
contrast = Rule(kernels.blend, _mean, fused.CONTRAST)
brightness = Rule(kernels.blend, _black, fused.BRIGHTNESS)
sharpness = Rule(kernels.blend, _smooth, fused.SHARPNESS)
shear_x = Rule(kernels.affine, _shear_x, fused.SHEAR_X)
shear_y = Rule(kernels.affine, _shear_y, fused.SHEAR_Y)
translate_x = Rule(kernels.affine, _shift_x, fused.TRANSLATE_X)
translate_y = Rule(kernels.affine, _shift_y, fused.TRANSLATE_Y)
invert = Rule(kernels.lookup, _inverted, fused.INVERT)
flip_x = Rule(kernels.affine, _mirror_x, fused.FLIP_X)
flip_y = Rule(kernels.affine, _mirror_y, fused.FLIP_Y)
crop = Rule(kernels.affine, _window, fused.CROP)
cutout = Rule(kernels.blend, _box, fused.CUTOUT)
