"""The three kernels behind every byte operation: a table per channel, a nearest-neighbour map, a blend.

Plain torch, on the device of the batch, one row of parameters per image. Each follows the arithmetic of Pillow to the
last bit. `fused.py` does the same work on CPUs, one image at a time.
"""

from __future__ import annotations

import torch
from torch import Tensor


def lookup(images: Tensor, tables: Tensor) -> Tensor:
    """Return `images` with every value replaced by its entry in `tables`, shape (batch, channels, 256)."""
    entries = images + _plane_offsets(images, 256)
    return tables.to(images.device).reshape(-1).index_select(0, entries.reshape(-1)).view(images.shape)


def affine(images: Tensor, matrices: Tensor) -> Tensor:
    """Return `images` read at (a x + b y + c, d x + e y + f), black outside; `matrices` holds the six per image.

    Pillow's nearest-neighbour map: pixel centres, 16.16 fixed point, floor.
    """
    height, width = images.shape[2:]
    a, b, c, d, e, f = fixed_point(matrices).to(images.device).view(-1, 6, 1, 1).unbind(dim=1)
    x = torch.arange(width, device=images.device)
    y = torch.arange(height, device=images.device).view(-1, 1)
    source_x = (a * x + b * y + c) >> 16
    source_y = (d * x + e * y + f) >> 16
    inside = (source_x >= 0) & (source_x < width) & (source_y >= 0) & (source_y < height)
    planes = _plane_offsets(images, height * width)
    pixels = torch.where(inside, source_y * width + source_x, 0).to(planes.dtype).unsqueeze(1)
    found = images.reshape(-1).index_select(0, (pixels + planes).reshape(-1))
    return found.view(images.shape) * inside.unsqueeze(1)


def _plane_offsets(images: Tensor, step: int) -> Tensor:
    """Return where each channel of each image starts in a flat array of planes `step` long."""
    n_images, n_channels = images.shape[:2]
    # int32 while it can count them: indices are most of the memory traffic
    dtype = torch.int32 if n_images * n_channels * step < 2**31 else torch.int64
    starts = torch.arange(n_images * n_channels, dtype=dtype, device=images.device) * step
    return starts.view(n_images, n_channels, 1, 1)


def fixed_point(matrices: Tensor) -> Tensor:
    """Return the six numbers as 16.16 integers, the offsets taken at the centre of the first pixel."""
    a, b, c, d, e, f = matrices.double().unbind(dim=-1)
    at_centre = torch.stack([a, b, c + a * 0.5 + b * 0.5, d, e, f + d * 0.5 + e * 0.5], dim=-1)
    return (at_centre * 65536.0 + 0.5).floor().long()


def blend(images: Tensor, degenerates: Tensor, factors: Tensor) -> Tensor:
    """Return degenerate + factor * (image - degenerate) in float32, clipped and truncated to bytes."""
    start = degenerates.float()
    change = factors.to(images.device, torch.float32).view(-1, 1, 1, 1) * (images.float() - start)
    return (start + change).clamp_(0, 255).to(torch.uint8)


def smooth(images: Tensor) -> Tensor:
    """Return Pillow's SMOOTH filter: weights 1 around 5, over 13, rounded; the border is left as it is."""
    if min(images.shape[2:]) < 3:
        return images
    wide = images.to(torch.int32)
    rows = wide[:, :, :-2] + wide[:, :, 1:-1] + wide[:, :, 2:]
    total = rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:] + 4 * wide[:, :, 1:-1, 1:-1]
    filtered = images.clone()
    filtered[:, :, 1:-1, 1:-1] = ((2 * total + 13) // 26).to(torch.uint8)
    return filtered


def histogram(images: Tensor) -> Tensor:
    """Return how often each channel holds each value, int64, shape (batch, channels, 256)."""
    n_images, n_channels = images.shape[:2]
    entries = images + _plane_offsets(images, 256)
    return torch.bincount(entries.reshape(-1), minlength=n_images * n_channels * 256).view(n_images, n_channels, 256)
