"""What every integration needs: a version check, bytes from images, logits from answers, and one dual step per step."""

import re
from collections.abc import Mapping
from importlib import metadata
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from invaug.checks import check_type
from invaug.problem import InvarianceConstrained

ROUNDING = 1e-3  # of a byte: float32 rounds k/255 by less, normalised images are off by more


def check_version(package: str, lowest: str, below: str, extra: str | None = None) -> None:
    """Raise ImportError unless the package is installed in a version from `lowest` on and below `below`.

    Args:
        package: The name of the distribution, as `pip install` takes it.
        extra: The extra of invaug that installs it; by default of the same name.

    Example:
        >>> check_version("torch", "2.4", "100")
        >>> check_version("torch", "1.0", "1.5", extra="lightning")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ImportError: torch must be at least 1.0 and below 1.5, got 2...: pip install 'invaug[lightning]'
    """
    way = f"pip install 'invaug[{extra or package}]'"
    try:
        found = metadata.version(package)
    except metadata.PackageNotFoundError:
        raise ImportError(f"{package} is not installed: {way}") from None
    if not _numbers(lowest) <= _numbers(found) < _numbers(below):
        raise ImportError(f"{package} must be at least {lowest} and below {below}, got {found}: {way}")


def _numbers(version: str) -> list[int]:
    """Return the numbers of a release, so that versions compare as they should: [2, 10] is above [2, 9, 1]."""
    release = re.match(r"\d+(\.\d+)*", version)
    return [int(number) for number in release[0].split(".")] if release else []


def to_bytes(images: Tensor) -> Tensor:
    """Return images as the bytes they were made of: uint8, floats k / 255, or whole floats from 0 to 255.

    Floats that are no bytes, such as normalised ones, are refused. Reads from the device once, and not for uint8.

    Example:
        >>> to_bytes(torch.tensor([0.0, 51 / 255, 1.0])).tolist()
        [0, 51, 255]
        >>> to_bytes(torch.tensor([0.0, 51.0, 255.0])).tolist()
        [0, 51, 255]
        >>> to_bytes(torch.tensor([-1.2, 0.3]))  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ValueError: images must be bytes (uint8, k / 255, or whole floats 0 to 255), got floats from -1.2 to 0.3 ...
    """
    check_type("images", images, Tensor, "a torch.Tensor")
    if images.dtype == torch.uint8 or not images.numel():
        return images
    rule = "images must be bytes (uint8, k / 255, or whole floats 0 to 255)"
    if not images.is_floating_point():
        raise TypeError(f"{rule}, got {images.dtype}: convert them with .to(torch.uint8)")
    floats = images.detach().float()
    units = floats * 255
    ends = [*floats.aminmax(), *((part - part.round()).abs().max() for part in (units, floats))]
    low, high, off_unit, off_whole = torch.stack(ends).tolist()
    if low >= 0 and high <= 1 and off_unit <= ROUNDING:
        return units.round().to(torch.uint8)
    if low >= 0 and high <= 255 and off_whole == 0:
        return floats.to(torch.uint8)
    way = "move Normalize, and whatever else makes floats, out of the dataset into finish="
    raise ValueError(f"{rule}, got floats from {low:.3g} to {high:.3g} that are not: {way}")


def logits_of(answer: Any) -> Tensor:
    """Return the logits of a model's answer: the answer itself if it is a tensor, its `.logits` or `["logits"]`.

    Example:
        >>> logits_of({"logits": torch.zeros(2, 10)}).shape
        torch.Size([2, 10])
    """
    held = answer.get("logits") if isinstance(answer, Mapping) else getattr(answer, "logits", answer)
    if not isinstance(held, Tensor):
        way = "say with outputs= where they are, for example outputs=operator.itemgetter(0)"
        raise TypeError(f"found no logits in {type(answer).__name__}, the answer of the model: {way}")
    return held


class DualSteps:
    """Averages the slack of accumulated batches, and takes one dual step each time the optimiser takes a step.

    Example:
        >>> from invaug import Constraint, sets
        >>> problem = InvarianceConstrained(Constraint(sets.wide(), epsilon=0.8), dual_lr=0.5)
        >>> optimizer, duals = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))]), DualSteps(problem)
        >>> handle = duals.follow(optimizer)
        >>> for slack in (0.1, 0.3):  # two micro-batches
        ...     duals.add(torch.tensor([slack]))
        >>> optimizer.step()
        >>> round(problem.gamma.item(), 4)
        0.1
    """

    def __init__(self, problem: InvarianceConstrained) -> None:
        self.problem = problem
        self.slacks: list[Tensor] = []
        self._gamma = problem.gamma.clone()
        self._groups: list[dict[str, Any]] = []
        self._rates: list[float] = []

    def add(self, slack: Tensor) -> None:
        """Record the slack of a batch whose gradient was added to the others."""
        if self.slacks and not torch.equal(self.problem.gamma, self._gamma):
            way = "do not call dual_step for each micro-batch, it is called here when the optimiser steps"
            raise RuntimeError(f"gamma has moved between two steps of the optimiser: {way}")
        rates = [float(group["lr"]) for group in self._groups]
        if self.slacks and rates != self._rates:
            way = "call scheduler.step() after optimizer.step(), not for each micro-batch"
            raise RuntimeError(f"the learning rate has moved between two steps of the optimiser: {way}")
        self._gamma, self._rates = self.problem.gamma.clone(), rates
        self.slacks.append(slack)

    def forget(self) -> None:
        """Drop what was recorded: its gradients were thrown away, so no step was taken with them."""
        self.slacks.clear()

    def take(self) -> None:
        """Take the dual step with the average of what was recorded since the last one; without any, do nothing."""
        if self.slacks:
            self.problem.dual_step(self.slacks)
        self.forget()

    def follow(self, optimizer: Optimizer) -> RemovableHandle:
        """Take a dual step after every real step of the optimiser; `remove()` of the result ends this.

        A gradient scaler that finds infinite gradients does not call `step`, or tells a fused optimiser to do nothing.
        """
        inner = getattr(optimizer, "optimizer", optimizer)  # accelerate's wrapper has no hooks
        self._groups = inner.param_groups
        return inner.register_step_post_hook(self._after_step)

    def _after_step(self, optimizer: Optimizer, *_: Any) -> None:
        skipped = getattr(optimizer, "found_inf", None)
        if skipped is not None and float(skipped):
            self.forget()
        self.take()
