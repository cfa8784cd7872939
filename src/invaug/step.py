"""The step of one batch: the Lagrangian, and how far each constraint is from its level."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, distributed

from invaug.proposals import Proposals
from invaug.samplers import Chain
from invaug.transforms.draw import Draw
from invaug.transforms.images import doubles
from invaug.views import Batch


@dataclass(frozen=True)
class Step:
    """What one batch says about the problem; `InvarianceConstrained` returns it.

    Example:
        >>> from invaug import Constraint, InvarianceConstrained, sets
        >>> problem = InvarianceConstrained(Constraint(sets.wide(), epsilon=0.8), views="both")
        >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 4))
        >>> step = problem(model, torch.zeros(6, 1, 8, 8, dtype=torch.uint8), torch.zeros(6, dtype=torch.long))
        >>> step.slack.shape, len(step.kept[0]), step.chains[0].state.shape, step.acceptance.shape
        (torch.Size([1]), 6, torch.Size([1, 6]), torch.Size([1]))
    """

    lagrangian: Tensor
    """loss + gamma · slack, to call backward on; divided by 1 + Σ gamma with one view per image."""
    loss: Tensor
    """Mean loss of the first term, without gradient: of the clean views, or with one view per image of all rows."""
    slack: Tensor
    """Mean loss of the kept views minus epsilon, one per constraint, averaged over ranks; positive = violated."""
    epsilon: Tensor
    """The level that the loss of the kept views was compared with, one per constraint."""
    outputs: Any
    """The model's outputs for the rows of `loss`, without gradient: for accuracy."""
    proposals: Sequence[Proposals | None]
    """What each constraint drew, scored and kept; None where epsilon is infinite."""
    n_inputs: int
    """How many inputs the model is trained on: rows of a forward and a backward pass."""

    @property
    def n_passes(self) -> int:
        """What the batch costs, in passes of one image through the model: forward 1, backward 2, a score 1."""
        return 3 * self.n_inputs + sum(made.n_scored for made in self.proposals if made)

    @property
    def kept(self) -> tuple[Draw | None, ...]:
        """The draws that each constraint kept, one view after another; reads from the device."""
        return tuple(each.kept if each else None for each in self.proposals)

    @property
    def chains(self) -> tuple[Chain | None, ...]:
        """How each sampler chose them, in tensors of shape (n_views, images)."""
        return tuple(each.chain if each else None for each in self.proposals)

    @property
    def acceptance(self) -> Tensor:
        """Share of accepted transitions per constraint; NaN where there were none; reads from the device."""
        shares = [float(c.accepted.float().mean()) if c and c.accepted.numel() else math.nan for c in self.chains]
        return torch.tensor(shares)


def lagrangian(batch: Batch, losses: Tensor, epsilons: Sequence[float]) -> tuple[Tensor, Tensor]:
    """Return the Lagrangian of a batch, and the mean loss of its first term without gradient; both are scalars.

    Args:
        losses: One per row of `batch.inputs`.
        epsilons: One per constraint.

    Example:
        >>> halves = [(slice(0, 2), 1.0), (slice(2, 4), 0.5)]  # clean rows, and rows of a constraint with gamma 0.5
        >>> batch = Batch(torch.zeros(4, 1), torch.zeros(4), halves, [None], [0.5])
        >>> lagrangian(batch, torch.tensor([1.0, 1.0, 3.0, 3.0]), [2.0])  # 1 + 0.5 (3 - 2)
        (tensor(1.5000), tensor(1.))
    """
    means = [losses[rows].mean() for rows, _ in batch.terms]
    terms = [mean if weight == 1 else weight * mean for mean, (_, weight) in zip(means, batch.terms, strict=True)]
    total = sum(terms[1:], terms[0])
    held = sum(gamma * epsilon for gamma, epsilon in zip(batch.gammas, epsilons, strict=True) if gamma)
    return total - held / batch.scale if held else total, means[0].detach()


@torch.no_grad()
def measure(batch: Batch, losses: Tensor | None) -> list[tuple[float, float] | None]:
    """Return per constraint the mean loss of its kept views and that of the clean images, over all ranks.

    Both come from one pass in one mode: the gradient pass if clean and kept views are both in it, otherwise the scores.
    Scores exist for a few clean images only, which stand for all: the difference between their kept views and all kept
    views is subtracted. This is the only time a step reads from the device, and the values are checked on the way.

    Args:
        losses: One per row of `batch.inputs`; None uses the scores.

    Example:
        >>> measure(Batch(torch.zeros(2, 1), torch.zeros(2), [(slice(2), 1.0)], [None], [0.0]), torch.ones(2))
        [None]
    """
    columns = [column for k, made in enumerate(batch.proposals) if made for column in _columns(batch, k, made, losses)]
    seen = columns if losses is None else [*columns, losses]
    if not seen:
        return [None] * len(batch.proposals)
    negative = sum((doubles((part < 0).sum()) for part in seen), start=doubles(seen[0].new_zeros(())))
    sums = torch.stack([negative, *(doubles(part).sum() for part in columns)])
    sizes = sums.new_tensor([1.0, *(float(len(part)) for part in columns)])
    numbers = torch.stack([sums, sizes])
    if distributed.is_available() and distributed.is_initialized():
        distributed.all_reduce(numbers)
    (wrong, *totals), (_, *counts) = read_from_device(numbers)
    if wrong > 0:
        raise ValueError("loss_fn must not be negative, got losses below 0: add a constant, or choose another")
    means = iter([total / count if count else math.nan for total, count in zip(totals, counts, strict=True)])
    triples = ((next(means), next(means), next(means)) if proposals else None for proposals in batch.proposals)
    return [(each[0], each[2] + each[0] - each[1]) if each else None for each in triples]


def _columns(batch: Batch, k: int, made: Proposals, losses: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return the losses of the views a constraint kept, of those with a clean view beside them, and of these."""
    if losses is not None and batch.kept:
        kept = losses[batch.kept[k]]
        return kept, kept, losses[batch.clean] if batch.clean else kept[:0]
    kept = made.losses.flatten()
    return kept, kept[: len(made.clean)], made.clean


def read_from_device(numbers: Tensor) -> Any:
    """Return the numbers of a tensor as nested lists: a function of its own, so that tests can count the calls.

    Example:
        >>> read_from_device(torch.tensor([1.0, 2.0]))
        [1.0, 2.0]
    """
    return numbers.tolist()
