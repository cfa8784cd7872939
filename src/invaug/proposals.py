"""Algorithm 1 for a batch: draw transformations, apply them, score them, and keep one per image and view."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from invaug.constraint import Constraint
from invaug.rng import own_randomness
from invaug.samplers import Chain
from invaug.transforms.draw import Draw

Finish = Callable[[Tensor], Tensor]
Score = Callable[[Tensor, Tensor], tuple[Tensor, float | None]]


class Proposals(NamedTuple):
    """What one constraint proposed for some images, and what its sampler kept.

    Example:
        >>> from invaug import sets
        >>> how = Proposer(1, 1, Tensor.float, lambda x, y: (x.sum((1, 2, 3)), None), torch.Generator().manual_seed(0))
        >>> images, targets = torch.full((2, 1, 4, 4), 9, dtype=torch.uint8), torch.tensor([0, 1])
        >>> made = propose(Constraint(sets.wide().only("Identity"), 0.5), images, targets, how)
        >>> made.losses.tolist(), len(made.draw), len(made.kept)
        ([[144.0, 144.0]], 4, 2)
    """

    inputs: Tensor
    """The kept views as model input, one view after another: n_views * images rows."""
    targets: Tensor
    draw: Draw
    """All proposals, in the order (n_steps + 1, n_views, images)."""
    chain: Chain
    """How the sampler chose, in tensors of shape (n_views, images)."""
    losses: Tensor
    """The scores of the kept views, shape (n_views, images); without chains, of the first images only."""
    clean: Tensor
    """The scores of the clean views of the first images; empty if none were requested."""
    guess: float | None
    """The loss of a guess; None if nothing was scored or the outputs have no classes."""
    n_scored: int
    """How many inputs were scored, clean views included."""

    @property
    def kept(self) -> Draw:
        """The draws of the kept views, one view after another; reads from the device."""
        return self.draw[_places_of(self.chain.state).cpu()]


class Proposer(NamedTuple):
    """What drawing and scoring need besides the images.

    Example:
        >>> how = Proposer(1, 1, Tensor.float, lambda inputs, targets: (inputs.mean(1), None), torch.Generator())
        >>> how.scoring_batch is None
        True
    """

    n_steps: int
    n_views: int
    finish: Finish
    score: Score
    generator: torch.Generator
    scoring_batch: int | None = None


def propose(
    constraint: Constraint, images: Tensor, targets: Tensor, how: Proposer, n_measured: int = 0, n_clean: int = 0
) -> Proposals:
    """Return n_views transformed inputs per image, each the end of a chain of its own.

    Images are processed in chunks, all proposals of an image in the same one, so that at most `scoring_batch` inputs
    exist at a time; only the kept ones stay in memory.

    Args:
        images: Shape (images, channels, height, width), or whatever the set accepts.
        targets: One row per image.
        n_measured: How many images need the loss of their kept view; with chains all have it.
        n_clean: How many also need the loss of their clean view, which is scored in the same pass.

    Example:
        >>> from invaug import sets
        >>> how = Proposer(2, 3, Tensor.float, lambda x, y: (x.mean((1, 2, 3)), None), torch.Generator().manual_seed(0))
        >>> images, targets = torch.full((4, 1, 8, 8), 9, dtype=torch.uint8), torch.arange(4)
        >>> propose(Constraint(sets.wide(), 0.5), images, targets, how).inputs.shape  # three views of four images
        torch.Size([12, 1, 8, 8])
    """
    n_repeats = (how.n_steps + 1) * how.n_views
    draw = constraint.transforms.draw(n_repeats * len(images), generator=how.generator)
    rows = torch.arange(len(draw)).view(n_repeats, -1)
    size = len(images) if how.scoring_batch is None else max(how.scoring_batch // (n_repeats + bool(n_clean)), 1)
    parts = []
    for start in range(0, len(images), size):
        chunk, needed = slice(start, start + size), (max(n_measured - start, 0), max(n_clean - start, 0))
        some = draw[rows[..., chunk].flatten()]
        parts.append(_propose_chunk(constraint, some, images[chunk], targets[chunk], how, *needed))
    if len(parts) == 1:
        return parts[0]._replace(draw=draw)
    views = [torch.cat(view) for view in zip(*(part.inputs.chunk(how.n_views) for part in parts), strict=True)]
    chain = Chain(*(torch.cat(tensors, -1) for tensors in zip(*(part.chain for part in parts), strict=True)))
    losses, clean = (torch.cat([getattr(part, name) for part in parts], -1) for name in ("losses", "clean"))
    labels, n_scored = repeat(targets, how.n_views), sum(part.n_scored for part in parts)
    return Proposals(torch.cat(views), labels, draw, chain, losses, clean, parts[0].guess, n_scored)


def _propose_chunk(
    constraint: Constraint, draw: Draw, images: Tensor, targets: Tensor, how: Proposer, n_measured: int, n_clean: int
) -> Proposals:
    n, n_repeats = len(images), (how.n_steps + 1) * how.n_views
    proposed = constraint.transforms.apply(repeat(images, n_repeats), draw)
    with own_randomness(how.generator, images.device):
        inputs = how.finish(proposed)
        clean = how.finish(images[:n_clean]) if n_clean else inputs[:0]
    n_scored = n_repeats * n if how.n_steps else min(n_measured, n)
    if n_scored:
        labels = torch.cat([repeat(targets, n_repeats)[:n_scored], targets[:n_clean]])
        scores, guess = how.score(torch.cat([inputs[:n_scored], clean]), labels)
    else:
        scores, guess = torch.empty(0, device=images.device), None
    n_all, scores, clean_scores = len(scores), scores[:n_scored], scores[n_scored:]
    labels = repeat(targets, how.n_views)
    if how.n_steps == 0:  # one proposal per image: nothing to choose
        chain = Chain.of_one((how.n_views, n), inputs.device)
        return Proposals(inputs, labels, draw, chain, scores[None], clean_scores, guess, n_all)
    scores = scores.view(-1, how.n_views, n)
    chain = constraint.sampler(scores, generator=how.generator)
    losses = scores.gather(0, chain.state[None]).squeeze(0)  # not chain.loss, which any sampler may fill
    kept = take(inputs, _places_of(chain.state))
    return Proposals(kept, labels, draw, chain, losses, clean_scores, guess, n_all)


def _places_of(state: Tensor) -> Tensor:
    """Return the index of each chain's state among all proposals in order."""
    return state.flatten() * state.numel() + torch.arange(state.numel(), device=state.device)


def repeat(tensor: Tensor, n: int) -> Tensor:
    """Return n copies of a batch, one after another; the batch itself for n = 1.

    Example:
        >>> repeat(torch.tensor([[1], [2]]), 2).flatten().tolist()
        [1, 2, 1, 2]
    """
    return tensor if n == 1 else tensor.repeat(n, *[1] * (tensor.ndim - 1))


def take(inputs: Tensor, rows: Tensor) -> Tensor:
    """Return some rows in the memory layout of the inputs; an index alone would lose the one that convolutions prefer.

    Example:
        >>> images = torch.zeros(4, 3, 8, 8).contiguous(memory_format=torch.channels_last)
        >>> take(images, torch.tensor([2, 0])).is_contiguous(memory_format=torch.channels_last)
        True
    """
    return empty_rows(inputs, len(rows)).copy_(inputs[rows])


def empty_rows(like: Tensor, n: int) -> Tensor:
    """Return an uninitialised tensor of n rows with the shape, dtype, device and memory layout of another.

    Example:
        >>> empty_rows(torch.zeros(4, 3, 8, 8), 2).shape
        torch.Size([2, 3, 8, 8])
    """
    last = like.ndim == 4 and like.is_contiguous(memory_format=torch.channels_last) and not like.is_contiguous()
    order = torch.channels_last if last else torch.contiguous_format
    return torch.empty((n, *like.shape[1:]), dtype=like.dtype, device=like.device, memory_format=order)
