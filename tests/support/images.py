"""Real images for tests, the torch path beside the fused one, torchvision on machines without a GPU."""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from invaug import Draw, TransformSet
from invaug.kernels import dispatch
from invaug.lab.data.readers import read_digits

MakeImages = Callable[..., Tensor]
Apply = Callable[[TransformSet, Tensor, Draw], Tensor]


@cache
def load_sorted_digits() -> tuple[np.ndarray, np.ndarray]:
    """Return 5000 handwritten digits, uint8, shape (5000, 28, 28), and their labels, class by class."""
    digits = read_digits(())
    return digits.x_train[:, 0], digits.y_train.astype(np.int64)


@cache
def load_labelled_digits() -> tuple[np.ndarray, np.ndarray]:
    """Return the digits of `load_sorted_digits` in a fixed mixed order."""
    pixels, labels = load_sorted_digits()
    order = np.random.default_rng(0).permutation(len(pixels))
    return pixels[order], labels[order]


def load_digits() -> np.ndarray:
    """Return the images of `load_labelled_digits`."""
    return load_labelled_digits()[0]


@cache
def load_photographs() -> np.ndarray | None:
    """Return CIFAR-10 from the folder INVAUG_DATA, uint8, shape (n, 32, 32, 3); None where there is no such folder."""
    folder = os.environ.get("INVAUG_DATA")
    if not folder:
        return None
    with np.load(Path(folder) / "cifar10.npz", allow_pickle=False) as arrays:
        return arrays["x_train"][:5000]


def resized(image: np.ndarray, height: int, width: int) -> np.ndarray:
    return np.asarray(Image.fromarray(image).resize((width, height), Image.Resampling.BICUBIC))


def coloured(digits: np.ndarray, i: int, height: int, width: int) -> np.ndarray:
    """Return three digits as red, green and blue, over gradients and noise, so that every value occurs."""
    noise = np.random.default_rng(i).integers(-40, 40, (height, width, 3))
    across, down = np.linspace(0, 200, width)[None, :, None], np.linspace(0, 200, height)[:, None, None]
    gradients = np.concatenate([across + 0 * down, down + 0 * across, 200 - (across + down) / 2], axis=2)
    strokes = np.stack([resized(digits[(3 * i + c) % len(digits)], height, width) for c in range(3)], axis=2)
    return np.where(strokes > 64, strokes, gradients + noise).clip(0, 255).astype(np.uint8)


def real_images(n: int, height: int, width: int, n_channels: int = 1) -> Tensor:
    """Return n real images, uint8, shape (n, channels, height, width): digits, or photographs or painted digits."""
    if n_channels == 1:
        grey = [resized(digit, height, width) for digit in load_digits()[:n]]
        return torch.from_numpy(np.stack(grey)).unsqueeze(1)
    photographs = load_photographs()
    if photographs is not None:
        colour = [resized(photograph, height, width) for photograph in photographs[:n]]
    else:
        colour = [coloured(load_digits(), i, height, width) for i in range(n)]
    return torch.from_numpy(np.stack(colour)).permute(0, 3, 1, 2).contiguous()


def random_bytes(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def by_torch(transforms: TransformSet, images: Tensor, draw: Draw) -> Tensor:
    """Return what `apply` gives on GPUs and where numba is not installed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dispatch, "has_numba", lambda: False)
        return transforms.apply(images, draw)


@cache
def import_torchvision() -> tuple[ModuleType, object]:
    """Return torchvision and what must stay alive with it.

    Next to a CPU torch its CUDA build fails on two operators it only declares in compiled code; declaring them is
    enough for transforms and models.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about image codecs we do not use
        try:
            return importlib.import_module("torchvision"), None
        except RuntimeError as error:
            if "torchvision::nms does not exist" not in str(error):
                raise
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        return importlib.import_module("torchvision"), library
