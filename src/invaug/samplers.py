"""Samplers: pure functions that take a matrix of losses and return which proposal each image keeps.

Proposals of an independent chain do not depend on its state, so all of them are scored first, and a sampler never sees
an image, a model or a transformation. The first dimension of `losses` counts proposals, `n_steps + 1` of them; the
others (views, batch) are chains that run side by side.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from invaug.transforms.images import doubles


class Chain(NamedTuple):
    """Where chains ended, and how they got there.

    Example:
        >>> chain = worst(torch.tensor([[1.0, 3.0], [2.0, 2.0]]))
        >>> chain.state.tolist(), chain.loss.tolist(), chain.accepted.tolist()
        ([1, 0], [2.0, 3.0], [[True, False]])
    """

    state: Tensor
    """Index of the proposal each chain ends on, int64, shape (batch,)."""
    loss: Tensor
    """The loss it was scored with, shape (batch,)."""
    accepted: Tensor
    """Whether each transition was accepted, bool, shape (n_steps, batch)."""

    @classmethod
    def of_one(cls, shape: tuple[int, ...], device: torch.device) -> Chain:
        """Return chains with a single, unscored proposal: state 0, loss NaN, no transition.

        Example:
            >>> Chain.of_one((2,), torch.device("cpu")).state.tolist()
            [0, 0]
        """
        state = torch.zeros(shape, dtype=torch.long, device=device)
        return cls(state, torch.full(shape, torch.nan, device=device), state.new_zeros((0, *shape), dtype=torch.bool))


class Sampler(Protocol):
    """What a constraint calls: losses of shape (n_steps + 1, batch) in, a Chain out.

    Example:
        >>> def first(losses: Tensor, *, generator: torch.Generator | None = None) -> Chain:
        ...     return Chain.of_one(tuple(losses.shape[1:]), losses.device)
        >>> sampler: Sampler = first
    """

    def __call__(self, losses: Tensor, *, generator: torch.Generator | None = None) -> Chain:
        """Return the chain; all randomness comes from the generator."""


def metropolis_hastings(losses: Tensor, *, generator: torch.Generator | None = None) -> Chain:
    """Return independent Metropolis–Hastings chains through the proposals in order (Algorithm 1).

    A proposal is accepted with probability min(1, proposed / current), so a long chain ends on a draw of λ_c ∝ loss.
    A chain leaves a state of zero loss for any positive one and never enters one from there; it never enters NaN and
    leaves it for anything else; it never leaves infinity.

    Args:
        losses: Non-negative floats of shape (n_steps + 1, batch), or with more dimensions in place of batch.

    Example:
        >>> losses = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
        >>> metropolis_hastings(losses, generator=torch.Generator().manual_seed(0)).state.tolist()
        [1, 0]
    """
    _check_losses(losses)
    uniforms = _uniforms(losses[1:], generator)

    def accept(t: int, current: Tensor, proposed: Tensor) -> Tensor:
        # a product, not a ratio, so that 0/0 rejects and x/0 accepts; the second term is for equal, very small losses
        return (uniforms[t] * current < proposed) | ((current == proposed) & (current > 0) & current.isfinite())

    return _run(losses, accept)


def worst(losses: Tensor, *, generator: torch.Generator | None = None) -> Chain:
    """Return chains that move whenever the loss rises: they end on the highest loss, the first of equals.

    Example:
        >>> worst(torch.tensor([[1.0, 5.0], [2.0, 5.0]])).state.tolist()
        [1, 0]
    """
    _check_losses(losses)
    return _run(losses, lambda t, current, proposed: current < proposed)


def chain_probabilities(losses: Tensor) -> Tensor:
    """Return the exact probability that `metropolis_hastings` ends on each proposal: the shape of `losses`, float64.

    The O(K²) recursion: step t takes from every earlier state its probability of accepting proposal t.

    Example:
        >>> chain_probabilities(torch.tensor([[4.0], [1.0]])).flatten().tolist()
        [0.75, 0.25]
    """
    _check_losses(losses)
    losses = doubles(losses.detach())
    law = torch.zeros_like(losses)
    law[0] = 1.0
    for t in range(1, len(losses)):
        moved = law[:t] * _acceptance(losses[:t], losses[t])
        law[:t] -= moved
        law[t] = moved.sum(dim=0)
    return law


def _run(losses: Tensor, accept: Callable[[int, Tensor, Tensor], Tensor]) -> Chain:
    losses = losses.detach()
    losses = losses if losses.dtype == torch.float64 else losses.float()
    loss, state, accepted = losses[0], torch.zeros_like(losses[0], dtype=torch.long), []
    for t, proposed in enumerate(losses[1:]):
        # comparisons with NaN are false, so a chain never enters NaN; the second term lets it leave
        moves = accept(t, loss, proposed) | (loss.isnan() & ~proposed.isnan())
        loss = torch.where(moves, proposed, loss)
        state = torch.where(moves, t + 1, state)
        accepted.append(moves)
    return Chain(state, loss, torch.stack(accepted) if accepted else torch.zeros_like(losses[1:], dtype=torch.bool))


def _acceptance(current: Tensor, proposed: Tensor) -> Tensor:
    """Return P(u * current < proposed or the current loss is NaN), u uniform on [0, 1)."""
    ratio = (proposed / current).clamp(max=1.0)
    stays = proposed.isnan() | (proposed == 0) | (current == float("inf"))
    return torch.where(stays, 0.0, ratio).masked_fill(current.isnan() & ~proposed.isnan(), 1.0)


def _uniforms(like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Return uniform numbers drawn on the device of the generator: the same on every device."""
    dtype = torch.float64 if like.dtype == torch.float64 else torch.float32
    device = "cpu" if generator is None else generator.device
    return torch.rand(like.shape, dtype=dtype, generator=generator, device=device).to(like.device)


def _check_losses(losses: Tensor) -> None:
    if not isinstance(losses, Tensor) or not losses.is_floating_point():
        raise TypeError(f"losses must be a float tensor, got {getattr(losses, 'dtype', type(losses).__name__)}")
    if losses.ndim < 1 or len(losses) == 0:
        raise ValueError(f"losses must have shape (n_steps + 1, batch), got {tuple(losses.shape)}")
    # values on a device are not read here: the problem checks them with its one read per step
    if losses.device.type == "cpu" and (losses < 0).any():
        raise ValueError(f"losses must not be negative, got {losses[losses < 0].min().item():g}")
