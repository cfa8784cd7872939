"""The byte operations in plain torch, on the device of the images, to the last bit what Pillow computes.

Images with the same kind of operation are handled together, so the number of calls does not grow with the batch.
Parameters come from the host (`rules.py`), and nothing is read back from the device. `by_numba.py` does the same work
on CPUs, one image at a time.

Throughout, `images` are uint8 of shape (batch, channels, height, width), `values` are their pixels as int64 of shape
(batch, channels, pixels), and `actions` have one row per image.
"""

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
Parts = dict[int, Part]


def transform(images: Tensor, actions: Actions) -> Tensor:
    """Return a new uint8 batch of the same shape, each image under the operation its code names.

    Example:
        >>> images = torch.tensor([[[[0, 100]]]], dtype=torch.uint8)
        >>> flip = Actions(np.array([rules.FLIP_X]), np.zeros(1), np.zeros((1, 2)), (rules.FLIP_X,))
        >>> transform(images, flip).tolist()
        [[[[100, 0]]]]
    """
    if len(images) == 0 or actions.present == (rules.IDENTITY,):
        return images.clone()
    if torch.compiler.is_compiling():
        return _choose(images, actions, PARTS)
    order = actions.codes.argsort(kind="stable")
    there, back = on_device(np.stack([order, order.argsort()]), images).unbind()
    return _choose(images.index_select(0, there), actions.rows(order), PARTS).index_select(0, back)


def on_device(numbers: Array, images: Tensor) -> Tensor:
    """Return an array of the host as a tensor on the device of the images.

    Example:
        >>> on_device(np.zeros((2, 3)), torch.empty(1, device="meta")).device.type
        'meta'
    """
    return torch.from_numpy(numbers).to(images.device)


def _choose(values: Tensor, actions: Actions, parts: Parts) -> Tensor:
    """Return what the part of each image's code makes of its values; the batch must be sorted by code."""
    if torch.compiler.is_compiling():
        return _choose_densely(values, actions, parts)
    cuts = [*np.searchsorted(actions.codes, list(parts)).tolist(), len(actions.codes)]
    pieces = values.split([stop - start for start, stop in pairwise(cuts)])
    rows = [actions.rows(slice(start, stop)) for start, stop in pairwise(cuts)]
    made = [part(piece, some) for part, piece, some in zip(parts.values(), pieces, rows, strict=True) if len(piece)]
    return made[0] if len(made) == 1 else torch.cat(made)


def _choose_densely(values: Tensor, actions: Actions, parts: Parts) -> Tensor:
    """Do the same by running every part on all images: compiled code cannot ask how many images have which code."""
    present, spans = set(actions.present), zip(parts.values(), pairwise([*parts, rules.BLENDS.stop]), strict=True)
    made = [(span, part(values, actions)) for part, span in spans if not present.isdisjoint(range(*span))]
    (_, chosen), *others = made
    for (start, stop), other in others:
        rows = on_device((actions.codes >= start) & (actions.codes < stop), values)
        chosen = torch.where(rows.view(-1, *[1] * (other.ndim - 1)), other, chosen)
    return chosen


def keep(images: Tensor, actions: Actions) -> Tensor:
    """Return the images themselves: Identity.

    Example:
        >>> images = torch.zeros(1, 3, 4, 4, dtype=torch.uint8)
        >>> keep(images, Actions(np.zeros(1, int), np.zeros(1), np.zeros((1, 2)), (0,))) is images
        True
    """
    return images


def move(images: Tensor, actions: Actions) -> Tensor:
    """Return the images, each read through the map of its operation.

    Example:
        >>> images = torch.tensor([[[[1, 2, 3]]]], dtype=torch.uint8)
        >>> shift = Actions(np.array([rules.TRANSLATE_X]), np.ones(1), np.zeros((1, 2)), (rules.TRANSLATE_X,))
        >>> move(images, shift).tolist()
        [[[[2, 3, 0]]]]
    """
    return affine(images, rules.maps(actions, *images.shape[2:]))


def affine(images: Tensor, maps: Array) -> Tensor:
    """Return images read at (a x + b y + c, d x + e y + f), black outside; `maps` has shape (batch, 6).

    Example:
        >>> images = torch.tensor([[[[1, 2, 3]]]], dtype=torch.uint8)
        >>> affine(images, np.array([[1.0, 0, -1, 0, 1, 0]])).tolist()
        [[[[0, 1, 2]]]]
    """
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
    """Return images with every value replaced by its entry in the table of its image and channel.

    Example:
        >>> images = torch.tensor([[[[0, 100]]]], dtype=torch.uint8)
        >>> posterize = Actions(np.array([rules.POSTERIZE]), np.array([2.0]), np.zeros((1, 2)), (rules.POSTERIZE,))
        >>> look_up(images, posterize).tolist()
        [[[[0, 64]]]]
    """
    values = images.flatten(2).long()
    return _choose(values, actions, TABLES).gather(2, values).view(images.shape)


def rule_tables(values: Tensor, actions: Actions) -> Tensor:
    """Return the tables that do not depend on the image, uint8 of shape (batch, channels, 256).

    Example:
        >>> invert = Actions(np.array([rules.INVERT]), np.zeros(1), np.zeros((1, 2)), (rules.INVERT,))
        >>> rule_tables(torch.zeros(1, 3, 16, dtype=torch.long), invert).shape
        torch.Size([1, 3, 256])
    """
    return on_device(rules.tables(actions)[:, None], values).expand(-1, values.shape[1], -1)


def autocontrast_tables(values: Tensor, actions: Actions) -> Tensor:
    """Return the tables of AutoContrast, which maps the darkest value of each channel to 0 and the brightest to 255.

    Example:
        >>> asked = Actions(np.array([rules.AUTO_CONTRAST]), np.zeros(1), np.zeros((1, 2)), (rules.AUTO_CONTRAST,))
        >>> autocontrast_tables(torch.tensor([[[50, 75, 101]]]), asked)[0, 0, [50, 75, 101]].tolist()
        [0, 125, 255]
    """
    low, high = doubles(values).aminmax(dim=-1, keepdim=True)
    # a tensor divided by a tensor: torch turns 255.0 / tensor into a reciprocal, which is off by one here
    scale = torch.full_like(low, 255.0) / (high - low)
    every = torch.arange(256, dtype=torch.float64, device=low.device)
    # entries below low and above high are not valid bytes, but no pixel has such a value
    return torch.where(high > low, every * scale - low * scale, every).to(values.device, torch.uint8)


def equalize_tables(values: Tensor, actions: Actions) -> Tensor:
    """Return the tables of Equalize, (batch, channels, 256): how many pixels are darker, spread over 0 to 255.

    Example:
        >>> asked = Actions(np.array([rules.EQUALIZE]), np.zeros(1), np.zeros((1, 2)), (rules.EQUALIZE,))
        >>> equalize_tables(torch.tensor([[[7] * 300 + [9]]]), asked)[0, 0, [7, 9]].tolist()
        [0, 255]
    """
    counts = histogram(values)
    darker = counts.cumsum(-1) - counts
    step = darker.gather(-1, values.amax(-1, keepdim=True)) // 255
    spread = ((darker + step // 2) // step.clamp(min=1)).clamp(max=255)
    every = torch.arange(256, device=values.device)
    return torch.where(step > 0, spread, every).to(torch.uint8)


def histogram(values: Tensor) -> Tensor:
    """Return how often each value of 0 to 255 occurs along the last dimension, int64; that dimension becomes 256 long.

    Example:
        >>> histogram(torch.tensor([[3, 3, 5]]))[0, [3, 4, 5]].tolist()
        [2, 0, 1]
    """
    counts = values.new_zeros(*values.shape[:-1], 256)
    return counts.scatter_add_(-1, values, torch.ones_like(values))


def blend(images: Tensor, actions: Actions) -> Tensor:
    """Return images between their degenerate images and themselves, or beyond: Color, Contrast, Sharpness and Cutout.

    Example:
        >>> images = torch.tensor([[[[0]], [[100]], [[200]]]], dtype=torch.uint8)
        >>> grey = Actions(np.array([rules.COLOR]), np.zeros(1), np.zeros((1, 2)), (rules.COLOR,))
        >>> blend(images, grey).flatten().tolist()
        [82, 82, 82]
    """
    factors = on_device(rules.factors(actions)[:, None, None, None], images)
    return mix(images, _choose(images, actions, DEGENERATE), factors)


def mix(images: Tensor, degenerate: Tensor, factors: Tensor) -> Tensor:
    """Return degenerate + factor * (image - degenerate), computed in float32, clipped and truncated to bytes.

    Example:
        >>> mix(torch.tensor([100], dtype=torch.uint8), torch.tensor([50]), torch.tensor([2.0])).tolist()
        [150]
    """
    start = degenerate.float()
    return (images - start).mul_(factors).add_(start).clamp_(0, 255).to(torch.uint8)


def shade(images: Tensor, actions: Actions) -> Tensor:
    """Return the degenerate images of Color (each pixel's luminance) and Contrast (the mean luminance), in any dtype.

    Example:
        >>> images = torch.tensor([[[[0, 100]]]], dtype=torch.uint8)
        >>> asked = Actions(np.array([rules.CONTRAST]), np.ones(1), np.zeros((1, 2)), (rules.CONTRAST,))
        >>> shade(images, asked).flatten().tolist()
        [50, 50]
    """
    return _choose(grey_levels(images), actions, SHADES).expand(images.shape)


def mean(grey: Tensor, actions: Actions) -> Tensor:
    """Return the mean of each image at every pixel, rounded to the nearest: the shape of `grey`, int64.

    Example:
        >>> asked = Actions(np.array([rules.CONTRAST]), np.ones(1), np.zeros((1, 2)), (rules.CONTRAST,))
        >>> mean(torch.tensor([[[[0, 101]]]]), asked).flatten().tolist()
        [51, 51]
    """
    total = grey.sum(dim=(1, 2, 3), keepdim=True, dtype=torch.int64)
    return round_half_up(total, grey.shape[2] * grey.shape[3]).expand(grey.shape)


def smooth(images: Tensor, actions: Actions) -> Tensor:
    """Return Pillow's SMOOTH filter as floats, for Sharpness: weights 1 around 5, over 13; the border stays as it is.

    Example:
        >>> images = torch.full((1, 1, 3, 3), 13, dtype=torch.uint8)
        >>> images[0, 0, 1, 1] = 0
        >>> asked = Actions(np.array([rules.SHARPNESS]), np.zeros(1), np.zeros((1, 2)), (rules.SHARPNESS,))
        >>> smooth(images, asked)[0, 0, 1].tolist()
        [13.0, 8.0, 13.0]
    """
    wide = images.float()
    # n / 13 + 1/2 is never closer than 1/26 to a whole number it does not equal: single precision is enough
    filtered = F.avg_pool2d(wide, 3, stride=1, padding=1, divisor_override=13).add_(wide, alpha=4 / 13).add_(0.5)
    return torch.where(on_device(rules.interior(*images.shape[2:]), images), filtered.floor_(), wide)


def cut_out(images: Tensor, actions: Actions) -> Tensor:
    """Return images with a black box that reaches half a size around the place: Cutout.

    Example:
        >>> images = torch.full((1, 1, 1, 4), 9, dtype=torch.uint8)
        >>> box = Actions(np.array([rules.CUTOUT]), np.array([2.0]), np.array([[0.5, 0.5]]), (rules.CUTOUT,))
        >>> cut_out(images, box).flatten().tolist()
        [9, 0, 0, 9]
    """
    left_out = [on_device(edges, images) for edges in rules.outside(actions, *images.shape[2:])]
    return images * torch.logical_or(*left_out)


# each part serves the codes from its own up to the next one's, in the order of the codes
PARTS: Parts = {rules.IDENTITY: keep, rules.ROTATE: move, rules.SOLARIZE: look_up, rules.COLOR: blend}
TABLES: Parts = {rules.SOLARIZE: rule_tables, rules.AUTO_CONTRAST: autocontrast_tables, rules.EQUALIZE: equalize_tables}
DEGENERATE: Parts = {rules.COLOR: shade, rules.SHARPNESS: smooth, rules.CUTOUT: cut_out}
SHADES: Parts = {rules.COLOR: keep, rules.CONTRAST: mean}
