"""Continuous transformations: bilinear, black outside, differentiable in the image and in the magnitude.

Images are uint8 or float, of shape (batch, channels, height, width). uint8 images are rounded back to uint8; float
images keep their dtype and their gradient.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from invaug.transforms.images import check_images


def warp(images: Tensor, matrices: Tensor) -> Tensor:
    """Return images read bilinearly at M (x, y, 1), in pixels from the centre; `matrices` has shape (batch, 2, 3).

    Example:
        >>> right = torch.tensor([[[1.0, 0.0, -0.5], [0.0, 1.0, 0.0]]])  # half a pixel to the right
        >>> warp(torch.tensor([[[[0.0, 1.0, 0.0]]]]), right).flatten()
        tensor([0.0000, 0.5000, 0.5000])
    """
    check_images(images)
    if len(images) == 0:  # affine_grid needs at least one
        return images.clone()
    height, width = images.shape[2:]
    half = torch.tensor([width / 2, height / 2, 1.0], dtype=matrices.dtype, device=matrices.device)
    # pixels from the centre to the [-1, 1] of grid_sample and back
    scaled = matrices * half / half[:2].view(2, 1)
    # grid_sample has no half precision on CPUs, and bytes have no fractions
    work = images if images.dtype in (torch.float32, torch.float64) else images.float()
    with _without_autocast(images.device.type):  # the same pixels whatever the model's precision
        grid = F.affine_grid(scaled.to(work.dtype), list(images.shape), align_corners=False)
        read = F.grid_sample(work, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
    return read.round().to(torch.uint8) if images.dtype == torch.uint8 else read.to(images.dtype)


Warp = Callable[[Tensor, Tensor], Tensor]


def _without_autocast(device: str) -> AbstractContextManager[Any]:
    return torch.autocast(device, enabled=False) if torch.amp.is_autocast_available(device) else nullcontext()


def _rows(*entries: Tensor) -> Tensor:
    return torch.stack(entries, dim=-1).view(-1, 2, 3)


def turn(images: Tensor, radians: Tensor) -> Tensor:
    """Return images rotated counter-clockwise about the centre by radians, shape (batch,).

    Example:
        >>> turn(torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]]), torch.tensor([torch.pi / 2])).round().flatten().tolist()
        [2.0, 4.0, 1.0, 3.0]
    """
    cos, sin, zero = radians.cos(), radians.sin(), torch.zeros_like(radians)
    return warp(images, _rows(cos, -sin, zero, sin, cos, zero))


def shift(images: Tensor, pixels: Tensor) -> Tensor:
    """Return images moved right and down by pixels, shape (batch, 2).

    Example:
        >>> shift(torch.tensor([[[[1.0, 2.0, 3.0]]]]), torch.tensor([[1.0, 0.0]])).flatten().tolist()
        [0.0, 1.0, 2.0]
    """
    x, y = pixels.unbind(dim=1)
    one, zero = torch.ones_like(x), torch.zeros_like(x)
    return warp(images, _rows(one, zero, -x, zero, one, -y))


def zoom(images: Tensor, log_scale: Tensor) -> Tensor:
    """Return images enlarged about the centre by exp(log_scale), shape (batch,); negative values shrink.

    Example:
        >>> zoom(torch.ones(1, 1, 4, 4), torch.tensor([-torch.tensor(2.0).log()])).sum().item()
        4.0
    """
    scale, zero = (-log_scale).exp(), torch.zeros_like(log_scale)
    return warp(images, _rows(scale, zero, zero, zero, scale, zero))
