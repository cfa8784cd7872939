"""The door for images: what a batch must look like, and how float images become bytes and come back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from invaug.checks import check_type
from invaug.kernels.rules import Array

MAX_SIDE = 8192  # coordinates of larger images leave the range of Pillow's 16.16 fixed point


def check_images(images: Tensor) -> None:
    """Raise unless `images` is a uint8 or float batch of shape (batch, channels, height, width)."""
    check_type("images", images, Tensor, "a torch.Tensor")
    if images.ndim != 4:
        raise ValueError(f"images must have shape (batch, channels, height, width), got {tuple(images.shape)}")
    if images.dtype != torch.uint8 and not images.is_floating_point():
        raise TypeError(f"images must be uint8, or float in [0, 1], got {images.dtype}: convert with .to(torch.uint8)")
    if images.shape[1] == 0 or not 0 < min(images.shape[2:]) <= max(images.shape[2:]) <= MAX_SIDE:
        raise ValueError(f"images must have channels and sides of 1 to {MAX_SIDE} pixels, got {tuple(images.shape)}")


def check_output(name: str, given: Tensor, made: Any) -> Tensor:
    """Return what an operation made of its input; raise unless it is a tensor of the same shape and dtype."""
    if not isinstance(made, Tensor):
        raise TypeError(f"{name} must return a tensor of shape {tuple(given.shape)}, got {type(made).__name__}")
    if made.shape != given.shape:
        raise ValueError(f"{name} must keep the shape {tuple(given.shape)}, got {tuple(made.shape)}")
    if made.dtype != given.dtype:
        raise TypeError(f"{name} must keep the dtype {given.dtype}, got {made.dtype}: normalise in `finish`")
    return made


def to_bytes(images: Tensor) -> Tensor:
    """Return float images in [0, 1] as uint8, rounded to the nearest of the 256 values; uint8 images as they are."""
    if images.dtype == torch.uint8:
        return images
    images = images.detach().float()
    if images.numel() and not images.is_meta and not torch.compiler.is_compiling():
        low, high = (end.item() for end in images.aminmax())
        if not 0 <= low <= high <= 1:
            found = f"got values from {low:g} to {high:g}: divide bytes by 255"
            raise ValueError(f"float images must lie in [0, 1], {found}")
    return (images * 255).round().to(torch.uint8)


def on_bytes(images: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    """Return `function` of the images as bytes, in the dtype the images came in."""
    check_images(images)
    changed = function(to_bytes(images))
    return changed if images.dtype == torch.uint8 else (changed.float() / 255).to(images.dtype)


def doubles(numbers: Tensor) -> Tensor:
    """Return float64 numbers on their own device, or on the CPU where the device has no doubles."""
    return numbers.to("cpu" if numbers.device.type == "mps" else numbers.device, torch.float64)


def on_host(numbers: Tensor) -> Array:
    """Return numbers in numpy: a few per image, exact on devices without doubles, free of kernels."""
    here = (numbers.detach() if numbers.requires_grad else numbers).cpu()
    # .numpy() is an operation of torch, which counts, and which a mode for fake tensors takes over
    return here.numpy() if torch.compiler.is_compiling() else np.from_dlpack(here)


def floats_for(images: Tensor, numbers: Tensor) -> Tensor:
    """Return numbers on the device of the images, in float64 where the device has it."""
    return numbers.to(images.device, torch.float32 if images.device.type == "mps" else numbers.dtype)


def luminance(images: Tensor) -> Tensor:
    """Return the grey value of each pixel, shape (batch, 1, height, width), uint8.

    Three channels are RGB, weighted as Pillow weighs them; one channel is grey already;
    any other number of channels has no agreed weights, so their mean, rounded to the nearest.
    """
    return grey_levels(images).to(torch.uint8)


def grey_levels(images: Tensor) -> Tensor:
    """Return the luminance, of a dtype that is as it comes."""
    n_channels = images.shape[1]
    if n_channels == 1:
        return images
    weights, total = ((19595, 38470, 7471), 65536) if n_channels == 3 else ((1,) * n_channels, n_channels)
    column = torch.tensor([[[weight]] for weight in weights], dtype=torch.int32, device=images.device)
    return round_half_up((images * column).sum(dim=1, keepdim=True, dtype=torch.int32), total)


def round_half_up(numbers: Tensor, divisor: int) -> Tensor:
    """Return whole numbers divided by a whole number, rounded to the nearest."""
    return (numbers + divisor // 2) // divisor


def to_unit(images: Tensor) -> Tensor:
    """Return uint8 images as float32 in [0, 1]; anything else as it is."""
    return images.float().div_(255) if images.dtype == torch.uint8 else images
