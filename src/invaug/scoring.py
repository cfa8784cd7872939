"""Scoring proposals: losses without gradient, without a trace in the model, in chunks of bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

Model = Callable[[Tensor], Any]
Loss = Callable[[Any, Tensor], Tensor]


def per_sample(loss_fn: Loss, outputs: Any, targets: Tensor) -> Tensor:
    """Return the loss of each sample, shape (batch,), checked to be one non-negative number each."""
    n = len(targets)
    if isinstance(outputs, Tensor) and (outputs.ndim == 0 or len(outputs) != n):
        raise ValueError(f"the model must return one output per image ({n}), got shape {tuple(outputs.shape)}")
    losses = loss_fn(outputs, targets)
    if not isinstance(losses, Tensor) or losses.shape != (n,):
        shape = tuple(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
        raise ValueError(f'loss_fn must return one loss per sample, shape ({n},), got {shape}: use reduction="none"')
    if (losses < 0).any():
        raise ValueError(
            f"loss_fn must not be negative, got {losses[losses < 0].min().item():g}: add a constant, or choose another"
        )
    return losses


def score(
    model: Model, inputs: Tensor, targets: Tensor, loss_fn: Loss, mode: str, chunk: int | None,
    dtype: torch.dtype | None = None,
) -> Tensor:  # fmt: skip
    """Return the loss of each input without gradient; in mode "frozen" the model is left as it was, bit for bit.

    Args:
        dtype: What autocast computes the model in; the losses are of full precision.
    """
    context = frozen if mode == "frozen" else scoring_trace
    with context(model) as scored:
        parts = zip(inputs.split(chunk or len(inputs)), targets.split(chunk or len(inputs)), strict=True)
        return torch.cat([per_sample(loss_fn, _said(scored, x, dtype), y) for x, y in parts])


def _said(model: Model, inputs: Tensor, dtype: torch.dtype | None) -> Any:
    if dtype is None:
        return model(inputs)
    with torch.autocast(inputs.device.type, dtype):
        outputs = model(inputs)
    return outputs.float() if isinstance(outputs, Tensor) else outputs


def detached(outputs: Any) -> Any:
    """Return outputs without gradient: a tensor, or a dict, list or tuple of them."""
    if isinstance(outputs, Tensor):
        return outputs.detach()
    if isinstance(outputs, dict):
        return {key: detached(value) for key, value in outputs.items()}
    if isinstance(outputs, list | tuple):
        return [detached(value) for value in outputs]
    return outputs


@contextmanager
def scoring_trace(model: Model) -> Iterator[Model]:
    """No gradients; the model stays in its mode, so BatchNorm buffers move and dropout draws (the authors' way)."""
    with torch.no_grad(), _fresh_autocast_cache():
        yield model


@contextmanager
def frozen(model: Model) -> Iterator[Model]:
    """No gradients, every module in eval mode, each back in its own mode afterwards."""
    # DDP would broadcast buffers in every forward, and wait for ranks that score fewer chunks
    inner = model.module if isinstance(model, DistributedDataParallel) else model
    modules = list(inner.modules()) if isinstance(inner, nn.Module) else []
    training = [module for module in modules if module.training]
    try:
        for module in training:
            module.training = False
        with torch.no_grad(), _fresh_autocast_cache():
            yield inner
    finally:
        for module in training:
            module.training = True


@contextmanager
def own_randomness(generator: torch.Generator, device: torch.device) -> Iterator[None]:
    """Let torch's own generators run on a seed from ours, and put them back as they were."""
    seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
    devices, kind = ([], "cuda") if device.type == "cpu" else ([device], device.type)
    with torch.random.fork_rng(devices, device_type=kind):
        seed_own(seed, device)
        yield


def seed_own(seed: int, device: torch.device) -> None:
    """Seed torch's own generators of the CPU and of the device.

    torch.manual_seed would seed every other device too, and where CUDA sleeps it writes down the stack of its caller.
    """
    torch.default_generator.manual_seed(seed)
    if device.type != "cpu":
        library = getattr(torch, device.type)
        with library.device(device) if hasattr(library, "device") else nullcontext():  # mps has one and no choice
            library.manual_seed(seed)


@contextmanager
def _fresh_autocast_cache() -> Iterator[None]:
    """Keep weights that autocast has cast without gradient from being reused in the pass that needs one."""
    torch.clear_autocast_cache()
    try:
        yield
    finally:
        torch.clear_autocast_cache()
