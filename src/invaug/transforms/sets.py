"""The named sets: TrivialAugment's two, a mild one, and the continuous families of the synthetic experiments."""

import math
from collections.abc import Mapping
from dataclasses import replace

from invaug.checks import check_known, require
from invaug.transforms import continuous, ops
from invaug.transforms.ops import EXTRA as EXTRA  # sets.EXTRA is the public name
from invaug.transforms.ops import Op
from invaug.transforms.set import TransformSet

Range = bool | float | tuple[float, float]


def standard(
    n_levels: int = 31, *, identity: bool = True, min_level: int = 0, relative_to: int | None = None
) -> TransformSet:
    """Return TrivialAugment's standard set: 14 operations with the ranges of AutoAugment.

    Args:
        identity: Whether to include Identity; the authors' proposals leave it out, and level 0 too (`min_level=1`).
        relative_to: If given, shifts are in pixels of an image this large and grow with the image.

    Example:
        >>> standard(identity=False, min_level=1).names[:3]
        ('AutoContrast', 'Equalize', 'Rotate')
    """
    table = _trivial_augment(30, 0.3, 10, 4, 0.1, 1.9)
    return TransformSet(table if identity else table[1:], n_levels, min_level, reference_size=relative_to)


def wide(
    n_levels: int = 31, *, identity: bool = True, min_level: int = 0, relative_to: int | None = None
) -> TransformSet:
    """Return TrivialAugment's wide set: the same 14 operations, up to 135 degrees and 32 pixels.

    Args:
        identity: Whether to include Identity; the authors' proposals leave it out, and level 0 too (`min_level=1`).
        relative_to: If given, shifts are in pixels of an image this large and grow with the image.

    Example:
        >>> wide().ops[3].name, wide().ops[3].stop
        ('Rotate', 135)
    """
    table = _trivial_augment(135, 0.99, 32, 2, 0.01, 2.0)
    return TransformSet(table if identity else table[1:], n_levels, min_level, reference_size=relative_to)


def mild(
    n_levels: int = 31, *, identity: bool = True, min_level: int = 0, relative_to: int | None = None, depth: int = 2
) -> TransformSet:
    """Return the same 14 operations with three fifths of standard's ranges, two in sequence; the set of `invaug train`.

    Args:
        identity: Whether to include Identity; leave out level 0 as well with `min_level=1`.
        relative_to: If given, shifts are in pixels of an image this large and grow with the image.
        depth: How many operations are applied in sequence.

    Example:
        >>> mild().depth, mild().ops[3].stop
        (2, 18)
    """
    table = _trivial_augment(18, 0.18, 6, 6, 0.46, 1.54, darkest=102)
    return TransformSet(table if identity else table[1:], n_levels, min_level, reference_size=relative_to, depth=depth)


def rotations(max_radians: float) -> TransformSet:
    """Return rotations by an angle uniform in ±max_radians, bilinear.

    Example:
        >>> rotations(math.pi).describe(rotations(math.pi).draw(1))[0].startswith("Rotation")
        True
    """
    return _continuous("Rotation", continuous.turn, "max_radians", max_radians)


def translations(max_pixels: float) -> TransformSet:
    """Return shifts uniform in ±max_pixels along each axis, bilinear; a draw has two magnitudes per image.

    Example:
        >>> translations(7).draw(4).magnitude.shape
        torch.Size([4, 1, 2])
    """
    return _continuous("Translation", continuous.shift, "max_pixels", max_pixels, n=2)


def scalings(max_log: float) -> TransformSet:
    """Return enlargements by exp(s) with s uniform in ±max_log, bilinear.

    Example:
        >>> scalings(math.log(2)).names
        ('Scale',)
    """
    return _continuous("Scale", continuous.zoom, "max_log", max_log)


def of(ranges: Mapping[str, Range], n_levels: int = 31, *, relative_to: int | None = None) -> TransformSet:
    """Return a set of known operations with ranges of your own.

    Args:
        ranges: By operation, one of: True for its range in the wide set; the largest magnitude (for Color, Contrast,
            Brightness and Sharpness, the distance from 1); or the first and the last magnitude.

    Example:
        >>> mine = of({"Rotate": 90, "FlipX": True, "Color": 0.5})
        >>> [(op.name, op.start, op.stop) for op in mine.ops]
        [('Rotate', 0.0, 90.0), ('FlipX', 0.0, 0.0), ('Color', 0.5, 1.5)]
    """
    return TransformSet(tuple(_with_range(name, ranges[name]) for name in ranges), n_levels, reference_size=relative_to)


def _with_range(name: str, given: Range) -> Op:
    known = {op.name: op for op in KNOWN}
    check_known([name], known)
    op = known[name]
    if given is True:
        return op
    require(op.has_magnitude, f"{name} has no magnitude: its range must be true, got {given!r}")
    numbers = list(given) if isinstance(given, tuple | list) else [given]
    fits = len(numbers) in (1, 2) and all(map(_is_number, numbers))
    require(fits, f"the range of {name} must be true, a number or two, got {given!r}")
    start, stop = numbers if len(numbers) == 2 else _range_up_to(op, numbers[0])
    fits = 0 <= start < stop if op.signed else start != stop
    require(fits, f"the range of {name} must be positive and not empty, got {given!r}")
    return replace(op, start=float(start), stop=float(stop))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _range_up_to(op: Op, most: float) -> tuple[float, float]:
    """Return the range that ends at a magnitude: on both sides of 1 for operations that blend, else from the start."""
    return (1 - most, 1 + most) if 0 < op.start < 1 < op.stop else (op.start, most)


def _continuous(name: str, function: continuous.Warp, argument: str, most: float, n: int = 1) -> TransformSet:
    require(0 < most < math.inf, f"{argument} must be positive and finite, got {most}")
    op = Op(name, function, 0, most, signed=True, continuous=True, n_magnitudes=n, geometric=True)
    return TransformSet((op,))


def _trivial_augment(
    degrees: float, shear: float, pixels: float, min_bits: float, dullest: float, strongest: float, darkest: float = 0
) -> tuple[Op, ...]:
    return (
        Op("Identity", ops.identity),
        Op("AutoContrast", ops.auto_contrast),
        Op("Equalize", ops.equalize),
        Op("Rotate", ops.rotate, 0, degrees, signed=True, whole=True),
        Op("Solarize", ops.solarize, 256, darkest, whole=True),
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


_CONTINUOUS = (rotations(math.pi), translations(7), scalings(math.log(2)))
KNOWN: tuple[Op, ...] = (*wide().ops, *EXTRA, *(op for each in _CONTINUOUS for op in each.ops))
"""Every operation of the package at its widest range; the continuous ones as in the synthetic experiments."""
