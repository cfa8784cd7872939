"""Transformations of other libraries as operations.

`per_image` turns a function of one image into a batched function. A random transformation object becomes an operation
whose magnitude is the seed of its randomness: the draw still says everything, and applying it is deterministic. Such
operations run on the CPU, whatever the device of the batch, so that a draw gives the same bytes everywhere.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from invaug.transforms.images import check_output, on_bytes
from invaug.transforms.ops import Op

N_SEEDS = 2**31 - 1
LIBRARIES = ("torchvision", "kornia", "albumentations")

Call = Callable[[Any, Tensor, int], Any]


def per_image(function: Callable[[Tensor, Any], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the batched form of a function of one image, (channels, height, width), and its magnitude, a float.

    Example:
        >>> roll = Op("Roll", per_image(lambda image, pixels: image.roll(int(pixels), dims=2)), 0, 8)
        >>> roll(torch.tensor([[[[1, 2, 3]]]]), torch.tensor([1.0])).tolist()
        [[[[3, 1, 2]]]]
    """
    return partial(_one_by_one, function, getattr(function, "__name__", type(function).__name__))


def torchvision(transform: Any, name: str | None = None) -> Op:
    """Return the operation of a torchvision transform, v1 or v2, which is given uint8 tensors.

    Example:
        >>> from torchvision.transforms import v2  # doctest: +SKIP
        >>> torchvision(v2.RandomPerspective(p=1.0)).name  # doctest: +SKIP
        'RandomPerspective'
    """
    return _seeded_op("torchvision", transform, name, lambda called, image, seed: called(image))


def kornia(transform: Any, name: str | None = None) -> Op:
    """Return the operation of a kornia augmentation, which is given floats in [0, 1]; its output is clipped to them.

    Example:
        >>> import kornia.augmentation as K  # doctest: +SKIP
        >>> kornia(K.RandomGaussianBlur((3, 3), (0.1, 2.0), p=1.0)).name  # doctest: +SKIP
        'RandomGaussianBlur'
    """
    return _seeded_op("kornia", transform, name, _on_floats)


def albumentations(transform: Any, name: str | None = None) -> Op:
    """Return the operation of an albumentations transform or composition, which is given uint8 arrays, channels last.

    Example:
        >>> import albumentations as A  # doctest: +SKIP
        >>> albumentations(A.GridDistortion(p=1.0)).name  # doctest: +SKIP
        'GridDistortion'
    """
    return _seeded_op("albumentations", transform, name, _on_array)


def _seeded_op(library: str, transform: Any, name: str | None, call: Call) -> Op:
    _check_origin(library, transform)
    name = name or type(transform).__name__
    # a copy, because calls change the state of these objects, and the owner may change the original
    return Op(name, partial(_seeded, deepcopy(transform), call, name), 0, N_SEEDS, whole=True, continuous=True)


@torch.no_grad()
def _seeded(transform: Any, call: Call, name: str, images: Tensor, seeds: Tensor) -> Tensor:
    """Return each image under what the random transformation does with its seed."""
    outside = (seeds < 0) | (seeds >= N_SEEDS)
    if outside.any():
        wrong = seeds[outside][0].item()
        raise ValueError(f"the magnitude of {name} is a seed and must lie in [0, {N_SEEDS}), got {wrong:g}")

    def one(image: Tensor, magnitude: float) -> Any:
        seed = int(magnitude)
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would also seed every GPU
        np.random.seed(seed)
        random.seed(seed)
        return call(transform, image, seed)

    # autocast would round what the library computes, so the same draw would give different bytes
    with _global_generators_restored(), torch.autocast("cpu", enabled=False):
        # a clone, because some transformations modify their input
        return on_bytes(images, lambda batch: _one_by_one(one, name, batch.cpu().clone(), seeds).to(batch.device))


def _on_floats(transform: Any, image: Tensor, seed: int) -> Any:
    changed = transform(image.unsqueeze(0).float() / 255)
    return (changed[0].clamp(0, 1) * 255).round().to(torch.uint8)


def _on_array(transform: Any, image: Tensor, seed: int) -> Any:
    # not set_random_seed: it gives every part of a composition the same numbers, so that two flips always agree
    transform.set_random_state(np.random.default_rng(seed), random.Random(seed))  # noqa: S311 - images, not secrets
    changed = transform(image=image.permute(1, 2, 0).contiguous().numpy())["image"]
    return torch.from_numpy(np.atleast_3d(changed)).permute(2, 0, 1)


@contextmanager
def _global_generators_restored() -> Iterator[None]:
    """Restore the global generators of torch, numpy and Python at the end of a block."""
    of_numpy, of_python = np.random.get_state(), random.getstate()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        np.random.set_state(of_numpy)
        random.setstate(of_python)


def _one_by_one(function: Callable[[Tensor, Any], Any], name: str, images: Tensor, magnitudes: Tensor) -> Tensor:
    pairs = zip(images, magnitudes.tolist(), strict=True)
    changed = [check_output(name, image, function(image, magnitude)) for image, magnitude in pairs]
    return torch.stack(changed) if changed else images.clone()


def _check_origin(library: str, transform: Any) -> None:
    """Raise unless the object, or a module inside it, comes from the library; nothing is imported to find out."""
    parts = transform.modules() if isinstance(transform, nn.Module) else [transform]
    origins = {cls.__module__.partition(".")[0] for part in parts for cls in type(part).__mro__}
    others = [f"use adapters.{other}" for other in LIBRARIES if other in origins]
    if library in origins:
        return
    if not others and find_spec(library) is None:
        raise ImportError(f"adapters.{library} needs {library}, which is not installed: pip install 'invaug[peers]'")
    hint = others[0] if others else "for a function of one image use adapters.per_image"
    raise TypeError(f"transform must be an object of {library}, got {type(transform).__name__}: {hint}")
