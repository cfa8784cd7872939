"""The named sets: TrivialAugment's two, and the continuous families of the synthetic experiments."""

from __future__ import annotations

from invaug import continuous, ops
from invaug.ops import Op
from invaug.transforms import TransformSet

EXTRA: tuple[Op, ...] = (
    Op("Invert", ops.invert),
    Op("FlipX", ops.flip_x),
    Op("FlipY", ops.flip_y),
    Op("Cutout", ops.cutout, 0, 16, whole=True, placed=True, pixels_of="side"),
    Op("Crop", ops.crop, 0, 4, whole=True, placed=True, pixels_of="side"),
)
"""Operations of other augmentation lists; the named sets stay TrivialAugment's."""


def standard(
    n_levels: int = 31, *, identity: bool = True, min_level: int = 0, relative_to: int | None = None
) -> TransformSet:
    """Return TrivialAugment's standard set: 14 operations with the ranges of AutoAugment.

    Args:
        identity: Whether Identity is one of them; the authors' proposals leave it out, and level 0 (`min_level=1`).
        relative_to: If given, shifts are pixels of an image this large and grow with the image.
    """
    table = _trivial_augment(30, 0.3, 10, 4, 0.1, 1.9)
    return TransformSet(table if identity else table[1:], n_levels, min_level, reference_size=relative_to)


def wide(
    n_levels: int = 31, *, identity: bool = True, min_level: int = 0, relative_to: int | None = None
) -> TransformSet:
    """Return TrivialAugment's wide set: the same 14 operations, up to 135 degrees and 32 pixels.

    Args:
        identity: Whether Identity is one of them; the authors' proposals leave it out, and level 0 (`min_level=1`).
        relative_to: If given, shifts are pixels of an image this large and grow with the image.
    """
    table = _trivial_augment(135, 0.99, 32, 2, 0.01, 2.0)
    return TransformSet(table if identity else table[1:], n_levels, min_level, reference_size=relative_to)


def rotations(max_radians: float) -> TransformSet:
    """Return rotations by an angle uniform in ±max_radians, bilinear."""
    return _continuous("Rotation", continuous.turn, "max_radians", max_radians)


def translations(max_pixels: float) -> TransformSet:
    """Return shifts uniform in ±max_pixels along each axis, bilinear; a draw has two magnitudes per image."""
    return _continuous("Translation", continuous.shift, "max_pixels", max_pixels, n_magnitudes=2)


def scalings(max_log: float) -> TransformSet:
    """Return enlargements by exp(s), s uniform in ±max_log, bilinear."""
    return _continuous("Scale", continuous.zoom, "max_log", max_log)


def _continuous(
    name: str, function: continuous.Warp, argument: str, most: float, n_magnitudes: int = 1
) -> TransformSet:
    if not 0 < most < float("inf"):
        raise ValueError(f"{argument} must be positive and finite, got {most}")
    return TransformSet((Op(name, function, 0.0, most, signed=True, continuous=True, n_magnitudes=n_magnitudes),))


def _trivial_augment(
    degrees: float, shear: float, pixels: float, min_bits: float, dullest: float, strongest: float
) -> tuple[Op, ...]:
    return (
        Op("Identity", ops.identity),
        Op("AutoContrast", ops.auto_contrast),
        Op("Equalize", ops.equalize),
        Op("Rotate", ops.rotate, 0, degrees, signed=True, whole=True),
        Op("Solarize", ops.solarize, 256, 0, whole=True),
        Op("Color", ops.color, dullest, strongest),
        Op("Posterize", ops.posterize, 8, min_bits, whole=True),
        Op("Contrast", ops.contrast, dullest, strongest),
        Op("Brightness", ops.brightness, dullest, strongest),
        Op("Sharpness", ops.sharpness, dullest, strongest),
        Op("ShearX", ops.shear_x, 0, shear, signed=True),
        Op("ShearY", ops.shear_y, 0, shear, signed=True),
        Op("TranslateX", ops.translate_x, 0, pixels, signed=True, whole=True, pixels_of="width"),
        Op("TranslateY", ops.translate_y, 0, pixels, signed=True, whole=True, pixels_of="height"),
    )
