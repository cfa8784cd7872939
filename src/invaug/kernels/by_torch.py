"""The byte operations in plain torch, on the device of the images, to the last bit what Pillow computes.

Images of one kind of operation are handled together, so that the number of calls does not grow with the batch.
Parameters come from the host (`rules.py`), and nothing is read back from the device. `fused.py` does the same work on
CPUs, one image at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from invaug.kernels import rules
from invaug.kernels.rules import Actions, Array
from invaug.transforms.images import doubles, grey_levels, round_half_up

Part = Callable[[Tensor, Actions], Tensor]
Parts = tuple[tuple[range, Part], ...]


def apply(images: Tensor, actions: Actions) -> Tensor:
    """Return a new uint8 batch, each image under the operation its code names."""
    if len(images) == 0 or actions.present == (rules.IDENTITY,):
        return images.clone()
    if torch.compiler.is_compiling():
        return _choose(images, actions, PARTS)
    order = actions.codes.argsort(kind="stable")
    there, back = on_device(np.stack([order, order.argsort()]), images).unbind()
    return _choose(images.index_select(0, there), actions.rows(order), PARTS).index_select(0, back)


def on_device(numbers: Array, images: Tensor) -> Tensor:
    """Return numbers of the host where the images are."""
    return torch.from_numpy(numbers).to(images.device)


def _choose(values: Tensor, actions: Actions, parts: Parts) -> Tensor:
    """Return what the part of each image's code makes of its values; the batch is sorted by code."""
    if torch.compiler.is_compiling():
        return _choose_densely(values, actions, parts)
    cuts = np.searchsorted(actions.codes, [*(codes.start for codes, _ in parts), parts[-1][0].stop]).tolist()
    pieces = values.split([stop - start for start, stop in pairwise(cuts)])
    made = [
        part(piece, actions.rows(slice(start, stop)))
        for (_, part), piece, (start, stop) in zip(parts, pieces, pairwise(cuts), strict=True)
        if stop > start
    ]
    return made[0] if len(made) == 1 else torch.cat(made)


def _choose_densely(values: Tensor, actions: Actions, parts: Parts) -> Tensor:
    """Do the same without asking how many images have which code, which compiled code cannot."""
    made = [(codes, part(values, actions)) for codes, part in parts if not set(actions.present).isdisjoint(codes)]
    (_, chosen), *others = made
    for codes, other in others:
        rows = on_device((actions.codes >= codes.start) & (actions.codes < codes.stop), values)
        chosen = torch.where(rows.view(-1, *[1] * (other.ndim - 1)), other, chosen)
    return chosen


def keep(images: Tensor, actions: Actions) -> Tensor:
    """Return the images themselves."""
    return images


def move(images: Tensor, actions: Actions) -> Tensor:
    """Return images read through the maps of their operations."""
    return affine(images, rules.maps(actions, *images.shape[2:]))


def affine(images: Tensor, maps: Array) -> Tensor:
    """Return images read at (a x + b y + c, d x + e y + f), black outside; `maps` holds the six per image."""
    n_images, n_channels, height, width = images.shape
    by_x, by_y, start = on_device(rules.fixed_point(maps).reshape(n_images, 2, 3, 1, 1), images).unbind(2)
    x = torch.arange(width, device=images.device)
    y = torch.arange(height, device=images.device).unsqueeze(1)
    read_x, read_y = (torch.addcmul(torch.addcmul(start, by_y, y), by_x, x) >> 16).split(1, dim=1)
    near_x, near_y = read_x.clamp(0, width - 1), read_y.clamp(0, height - 1)
    inside = (near_x == read_x) & (near_y == read_y)
    pixels = torch.add(near_x, near_y, alpha=width).flatten(2)
    found = images.flatten(2).gather(2, pixels.expand(-1, n_channels, -1))
    return found.view(images.shape).mul_(inside)


def look_up(images: Tensor, actions: Actions) -> Tensor:
    """Return images with every value replaced by its entry in the table of its image and channel."""
    values = images.flatten(2).long()
    return _choose(values, actions, TABLES).gather(2, values).view(images.shape)


def known(values: Tensor, actions: Actions) -> Tensor:
    """Return the tables that do not depend on the image."""
    return on_device(rules.tables(actions)[:, None], values).expand(-1, values.shape[1], -1)


def stretched(values: Tensor, actions: Actions) -> Tensor:
    """Return the tables of AutoContrast: the darkest value of each channel to 0, the brightest to 255."""
    low, high = doubles(values).aminmax(dim=-1, keepdim=True)
    # a tensor divided by a tensor: torch turns 255.0 / tensor into a reciprocal, which is off by one here
    scale = torch.full_like(low, 255.0) / (high - low)
    every = torch.arange(256, dtype=torch.float64, device=low.device)
    # entries below low and above high are no bytes, and are not looked up
    return torch.where(high > low, every * scale - low * scale, every).to(values.device, torch.uint8)


def equalized(values: Tensor, actions: Actions) -> Tensor:
    """Return the tables of Equalize: the share of darker pixels, in steps of the pixels below the brightest / 255."""
    counts = histogram(values)
    darker = counts.cumsum(-1) - counts
    step = darker.gather(-1, values.amax(-1, keepdim=True)) // 255
    spread = ((darker + step // 2) // step.clamp(min=1)).clamp(max=255)
    every = torch.arange(256, device=values.device)
    return torch.where(step > 0, spread, every).to(torch.uint8)


def histogram(values: Tensor) -> Tensor:
    """Return how often each of the last dimension's values, int64 in 0 to 255, occurs."""
    counts = values.new_zeros(*values.shape[:-1], 256)
    return counts.scatter_add_(-1, values, torch.ones_like(values))


def blend(images: Tensor, actions: Actions) -> Tensor:
    """Return images between, or beyond, their degenerate images and themselves."""
    factors = on_device(rules.factors(actions)[:, None, None, None], images)
    return mix(images, _choose(images, actions, DEGENERATE), factors)


def mix(images: Tensor, degenerate: Tensor, factors: Tensor) -> Tensor:
    """Return degenerate + factor * (image - degenerate) in float32, clipped and cut to bytes."""
    start = degenerate.float()
    return (images - start).mul_(factors).add_(start).clamp_(0, 255).to(torch.uint8)


def shade(images: Tensor, actions: Actions) -> Tensor:
    """Return each pixel's luminance, for Color, or the mean luminance of each image, for Contrast."""
    return _choose(grey_levels(images), actions, SHADES).expand(images.shape)


def mean(grey: Tensor, actions: Actions) -> Tensor:
    """Return the mean of each image, rounded to the nearest."""
    total = grey.sum(dim=(1, 2, 3), keepdim=True, dtype=torch.int64)
    return round_half_up(total, grey.shape[2] * grey.shape[3]).expand(grey.shape)


def smooth(images: Tensor, actions: Actions) -> Tensor:
    """Return Pillow's SMOOTH filter, for Sharpness: weights 1 around 5, over 13, rounded; the border as it is."""
    wide = images.float()
    # a whole number over 13, plus a half, is at least 1/26 away from the next: single precision is enough
    filtered = F.avg_pool2d(wide, 3, stride=1, padding=1, divisor_override=13).add_(wide, alpha=4 / 13).add_(0.5)
    return torch.where(on_device(rules.interior(*images.shape[2:]), images), filtered.floor_(), wide)


def cut(images: Tensor, actions: Actions) -> Tensor:
    """Return images with a black box within half a size of the place, for Cutout."""
    left_out = [on_device(edges, images) for edges in rules.outside(actions, *images.shape[2:])]
    return images * torch.logical_or(*left_out)


# in the order of the codes
PARTS: Parts = (
    (range(rules.IDENTITY, rules.ROTATE), keep),
    (rules.MOVES, move),
    (rules.TABLES, look_up),
    (rules.BLENDS, blend),
)
TABLES: Parts = (
    (rules.KNOWN, known),
    (range(rules.AUTO_CONTRAST, rules.EQUALIZE), stretched),
    (range(rules.EQUALIZE, rules.COLOR), equalized),
)
DEGENERATE: Parts = (
    (range(rules.COLOR, rules.SHARPNESS), shade),
    (range(rules.SHARPNESS, rules.CUTOUT), smooth),
    (range(rules.CUTOUT, rules.BLENDS.stop), cut),
)
SHADES: Parts = ((range(rules.COLOR, rules.CONTRAST), keep), (range(rules.CONTRAST, rules.SHARPNESS), mean))
