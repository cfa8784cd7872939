"""What a batch of images must look like, and how float images become bytes and come back."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from invaug.checks import check_type, require
from invaug.kernels.rules import Array

MAX_SIDE = 8192  # coordinates of larger images leave the range of Pillow's 16.16 fixed point


def check_images(images: Tensor) -> None:
    """Raise unless `images` is a uint8 or float batch of shape (batch, channels, height, width).

    Example:
        >>> check_images(torch.zeros(8, 8))
        Traceback (most recent call last):
        ValueError: images must have shape (batch, channels, height, width), got (8, 8)
    """
    check_type("images", images, Tensor, "a torch.Tensor")
    require(images.ndim == 4, f"images must have shape (batch, channels, height, width), got {tuple(images.shape)}")
    if images.dtype != torch.uint8 and not images.is_floating_point():
        raise TypeError(f"images must be uint8, or float in [0, 1], got {images.dtype}: convert with .to(torch.uint8)")
    if images.shape[1] == 0 or not 0 < min(images.shape[2:]) <= max(images.shape[2:]) <= MAX_SIDE:
        raise ValueError(f"images must have channels and sides of 1 to {MAX_SIDE} pixels, got {tuple(images.shape)}")


def check_output(name: str, given: Tensor, made: Any) -> Tensor:
    """Return what an operation made of its input; raise unless it is a tensor of the same shape and dtype.

    Example:
        >>> check_output("Blur", torch.zeros(2, 3), torch.zeros(2))
        Traceback (most recent call last):
        ValueError: Blur must keep the shape (2, 3), got (2,)
    """
    if not isinstance(made, Tensor):
        raise TypeError(f"{name} must return a tensor of shape {tuple(given.shape)}, got {type(made).__name__}")
    require(made.shape == given.shape, f"{name} must keep the shape {tuple(given.shape)}, got {tuple(made.shape)}")
    if made.dtype != given.dtype:
        raise TypeError(f"{name} must keep the dtype {given.dtype}, got {made.dtype}: normalise in `finish`")
    return made


def to_bytes(images: Tensor) -> Tensor:
    """Return float images in [0, 1] as uint8, rounded to the nearest of the 256 values; uint8 images as they are.

    Example:
        >>> to_bytes(torch.tensor([0.0, 0.5, 1.0])).tolist()
        [0, 128, 255]
    """
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
    """Return `function` applied to the images as bytes, in the dtype the images came in.

    Example:
        >>> on_bytes(torch.ones(1, 1, 1, 1), lambda images: 255 - images).item()
        0.0
    """
    check_images(images)
    changed = function(to_bytes(images))
    return changed if images.dtype == torch.uint8 else (changed.float() / 255).to(images.dtype)


def doubles(numbers: Tensor) -> Tensor:
    """Return the numbers as float64 on their own device, or on the CPU where the device has no float64.

    Example:
        >>> doubles(torch.tensor([1, 2])).dtype
        torch.float64
    """
    return numbers.to("cpu" if numbers.device.type == "mps" else numbers.device, torch.float64)


def on_host(numbers: Tensor) -> Array:
    """Return a tensor as a numpy array: a few numbers per image, exact even on devices without float64.

    Example:
        >>> on_host(torch.tensor([1.0, 2.0]))
        array([1., 2.], dtype=float32)
    """
    here = (numbers.detach() if numbers.requires_grad else numbers).cpu()
    # .numpy() goes through the dispatcher of torch, which costs time and which fake tensors intercept
    return here.numpy() if torch.compiler.is_compiling() else np.from_dlpack(here)


def floats_for(images: Tensor, numbers: Tensor) -> Tensor:
    """Return numbers on the device of the images, as float32 where the device has no float64.

    Example:
        >>> floats_for(torch.zeros(1), torch.zeros(3, dtype=torch.float64)).dtype
        torch.float64
    """
    return numbers.to(images.device, torch.float32 if images.device.type == "mps" else numbers.dtype)


def luminance(images: Tensor) -> Tensor:
    """Return the grey value of each pixel, shape (batch, 1, height, width), uint8.

    Three channels are RGB, weighted as Pillow weights them; one channel is grey already; any other number of channels
    has no agreed weights, so the result is their mean, rounded to the nearest.

    Example:
        >>> luminance(torch.tensor([255, 0, 0], dtype=torch.uint8).view(1, 3, 1, 1)).item()
        76
    """
    return grey_levels(images).to(torch.uint8)


def grey_levels(images: Tensor) -> Tensor:
    """Return the luminance in the dtype in which it is computed: int32, or the images themselves if they are grey.

    Example:
        >>> grey_levels(torch.zeros(1, 3, 2, 2, dtype=torch.uint8)).dtype
        torch.int32
    """
    n_channels = images.shape[1]
    if n_channels == 1:
        return images
    weights, total = ((19595, 38470, 7471), 65536) if n_channels == 3 else ((1,) * n_channels, n_channels)
    column = torch.tensor([[[weight]] for weight in weights], dtype=torch.int32, device=images.device)
    return round_half_up((images * column).sum(dim=1, keepdim=True, dtype=torch.int32), total)


def round_half_up(numbers: Tensor, divisor: int) -> Tensor:
    """Return whole numbers divided by a whole number, rounded to the nearest.

    Example:
        >>> round_half_up(torch.tensor([4, 5, 6]), 2).tolist()
        [2, 3, 3]
    """
    return (numbers + divisor // 2) // divisor


def to_unit(images: Tensor) -> Tensor:
    """Return uint8 images as float32 in [0, 1]; any other dtype unchanged.

    Example:
        >>> to_unit(torch.tensor([0, 255], dtype=torch.uint8))
        tensor([0., 1.])
    """
    return images.float().div_(255) if images.dtype == torch.uint8 else images
