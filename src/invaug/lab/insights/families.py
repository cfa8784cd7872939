"""Families: the operations that belong to one symmetry, how far they go, and what they do to given images."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from invaug import sets
from invaug.lab.errors import UserError
from invaug.transforms.ops import Op

Ranges = dict[str, bool | tuple[float, float]]
"""Operations and their ranges: True for those without a magnitude, else the first and the last one."""

UNITS = {"Rotate": "°", "Rotation": " rad", "TranslateX": " px", "TranslateY": " px", "Translation": " px"}
N_SEEN = 256  # images that show what a family does
ALMOST_ALL = 0.99


def usual_families(height: int, width: int) -> dict[str, Ranges]:
    """Return the families people ask about, at ranges that suit the size of the images."""
    side = min(height, width)
    given: dict[str, dict[str, sets.Range]] = {
        "rotation": {"Rotate": 180},
        "horizontal flip": {"FlipX": True},
        "vertical flip": {"FlipY": True},
        "translation": {"TranslateX": width // 4, "TranslateY": height // 4},
        "scale": {"Scale": math.log(2)},
        "shear": {"ShearX": 0.5, "ShearY": 0.5},
        "colour": {"Color": 0.99},
        "brightness and contrast": {"Brightness": 0.9, "Contrast": 0.9},
        "sharpness": {"Sharpness": 0.99},
        "tone": {"Posterize": 2, "Solarize": 0, "AutoContrast": True, "Equalize": True},
        "inversion": {"Invert": True},
        "cutout": {"Cutout": side // 2},
    }
    if side < 8:
        raise UserError(f"images of {height} x {width} pixels are too small for the usual families: give your own")
    return {name: explicit_ranges(name, ranges) for name, ranges in given.items()}


def explicit_ranges(name: str, ranges: Mapping[str, sets.Range]) -> Ranges:
    """Return the ranges as pairs of magnitudes."""
    try:
        ops = sets.of(ranges).ops
    except (ValueError, TypeError) as error:
        raise UserError(f"family {name}: {error}") from None
    return {op.name: (round(op.start, 4), round(op.stop, 4)) if op.has_magnitude else True for op in ops}


def is_graded(ranges: Ranges) -> bool:
    """Whether the family can go less far: a flip cannot."""
    return any(pair is not True for pair in ranges.values())


def scale_ranges(ranges: Ranges, factor: float) -> Ranges:
    """Return the family going only a part as far from doing nothing; operations without a magnitude drop out.

    >>> scale_ranges({"Rotate": (0.0, 180.0), "Invert": True}, 0.5)
    {'Rotate': (0.0, 90.0)}
    """
    if factor == 1:
        return dict(ranges)
    pairs = {name: pair for name, pair in ranges.items() if not isinstance(pair, bool)}
    return {name: _towards_nothing(*pair, factor) for name, pair in pairs.items()} or dict(ranges)


def _towards_nothing(start: float, stop: float, factor: float) -> tuple[float, float]:
    nothing = 1.0 if 0 < start < 1 < stop else start  # blends do nothing at 1, others at their start
    return tuple(round(nothing + factor * (end - nothing), 4) for end in (start, stop))  # type: ignore[return-value]


def in_words(ranges: Ranges) -> str:
    """Return how far a family goes, such as `Rotate ±180°`."""
    return ", ".join(_range_in_words(op, ranges[op.name]) for op in sets.of(ranges).ops)


def _range_in_words(op: Op, pair: bool | tuple[float, float]) -> str:
    if isinstance(pair, bool):
        return op.name
    unit = UNITS.get(op.name, "")
    if op.name == "Scale":
        return f"Scale ×{math.exp(-pair[1]):.2g} to ×{math.exp(pair[1]):.2g}"
    return f"{op.name} ±{pair[1]:.3g}{unit}" if op.signed else f"{op.name} {pair[0]:.3g} to {pair[1]:.3g}{unit}"


def describe_magnitude(op: Op, magnitude: float) -> str:
    """Return one magnitude of an operation, such as `Rotate -45°`."""
    if not op.has_magnitude:
        return op.name
    size = f"×{math.exp(magnitude):.2g}" if op.name == "Scale" else f"{magnitude:.3g}{UNITS.get(op.name, '')}"
    return f"{op.name} {size}"


def measure_effect(images: Tensor, ranges: Ranges) -> tuple[float, float]:
    """Return the share of the first few images that a family leaves unchanged, and that it leaves nothing of."""
    some = images[:N_SEEN]
    transforms = sets.of(ranges)
    changed = transforms.apply(some, transforms.draw(len(some), generator=torch.Generator().manual_seed(0)))
    unchanged = (changed == some).flatten(1).all(1)
    had_something, has_nothing = ~_is_blank(some), _is_blank(changed)
    destroyed = (had_something & has_nothing).sum() / had_something.sum().clamp(min=1)
    return float(unchanged.float().mean()), float(destroyed)


def _is_blank(images: Tensor) -> Tensor:
    """Return which images have a single value in every channel."""
    pixels = images.flatten(2)
    return (pixels.amax(2) == pixels.amin(2)).all(1)


def leave_out_idle(families: Mapping[str, Ranges], images: Tensor) -> tuple[dict[str, Ranges], list[str]]:
    """Return the families that change the images, and the names of the others; refuse one that destroys every image."""
    kept, idle = {}, []
    for name, ranges in families.items():
        unchanged, destroyed = measure_effect(images, ranges)
        if destroyed > ALMOST_ALL:
            raise UserError(f"family {name} leaves nothing of the images ({in_words(ranges)}): give it a smaller range")
        if unchanged > ALMOST_ALL:
            idle.append(name)
        else:
            kept[name] = ranges
    return kept, idle
