"""What the problem is made of: constraints in, a step out, and the checks of both."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from invaug.draws import Draw
from invaug.images import check_images
from invaug.samplers import Chain, Sampler, metropolis_hastings
from invaug.transforms import TransformSet


@dataclass(frozen=True)
class Constraint:
    """A set of transformations and the loss they may cost: E[loss under the sampler's law] <= epsilon."""

    transforms: TransformSet
    epsilon: float | Literal["auto"]
    """The loss allowed; "auto" chooses it while training, at a price (see InvarianceConstrained)."""
    sampler: Sampler = metropolis_hastings
    share: float = 1.0
    """Part of each batch it is evaluated on, drawn anew each time: less work, the same mean, more noise."""

    def __post_init__(self) -> None:
        if not isinstance(self.transforms, TransformSet):
            raise TypeError(f"transforms must be a TransformSet, got {type(self.transforms).__name__}")
        if not self.auto and (isinstance(self.epsilon, bool) or not isinstance(self.epsilon, Real)):
            raise TypeError(f'epsilon must be a number or "auto", got {self.epsilon!r}')
        if not self.auto and not self.epsilon >= 0:
            ways = "0 makes a pure penalty, inf switches the constraint off"
            raise ValueError(f"epsilon must be positive, got {self.epsilon} ({ways})")
        if not 0 < self.share <= 1:
            raise ValueError(f"share must be above 0 and at most 1, got {self.share}")

    @property
    def auto(self) -> bool:
        """Whether epsilon is chosen while training."""
        return isinstance(self.epsilon, str) and self.epsilon == "auto"

    @property
    def active(self) -> bool:
        """Whether the constraint can bind: an infinite epsilon cannot, and costs nothing."""
        return self.auto or math.isfinite(self.epsilon)  # type: ignore[arg-type]


class Step(NamedTuple):
    """What one batch says."""

    lagrangian: Tensor
    """loss + gamma · slack, to call backward on; by 1 + Σ gamma where the problem is normalized."""
    loss: Tensor
    """Mean loss of the clean view, without gradient; of the kept ones where the clean one is left out."""
    slack: Tensor
    """Mean loss of the kept views minus epsilon, one per constraint, averaged over ranks; positive = violated."""
    kept: tuple[Draw | None, ...]
    """The draws each constraint kept, view after view, n_views * (share of the) batch rows; None: epsilon infinite."""
    chains: tuple[Chain | None, ...]
    """How each sampler chose them, in tensors of shape (n_views, batch); None where epsilon is infinite."""
    outputs: Any
    """What the model said of the view of `loss`, without gradient: for accuracy."""
    epsilon: Tensor
    """What the loss of the kept views was held against, one per constraint."""
    staleness: Tensor
    """Mean change of the loss of remembered views since it was noted, one per constraint; NaN where there are none."""

    @property
    def acceptance(self) -> Tensor:
        """Share of accepted transitions, one per constraint; NaN where there were none."""
        shares = [float(c.accepted.float().mean()) if c and c.accepted.numel() else math.nan for c in self.chains]
        return torch.tensor(shares)


class Chosen(NamedTuple):
    """What one constraint has chosen for a batch."""

    inputs: Tensor
    labels: Tensor
    draw: Draw
    chain: Chain
    sampler: Sampler
    scores: Tensor | None = None
    """Of all proposals, shape (n_steps + 1, n_views, batch); None where nothing was scored."""
    rows: Tensor | None = None
    """Which training images they are, where their chains are remembered."""
    judged: Tensor | None = None
    """The scores as the sampler saw them: beside how likely a law that learns made each proposal."""


def to_unit(images: Tensor) -> Tensor:
    """Return uint8 images as float32 in [0, 1]; float images as they are."""
    return images.float().div_(255) if images.dtype == torch.uint8 else images


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the cross-entropy of each sample; targets are classes or probabilities."""
    return F.cross_entropy(outputs, targets, reduction="none")


def repeated(targets: Tensor, n: int) -> Tensor:
    """Return the targets n times over, one batch after the other."""
    return targets if n == 1 else targets.repeat(n, *[1] * (targets.ndim - 1))


def split(outputs: Any, sizes: list[int]) -> list[Tensor]:
    """Return the outputs of one joint forward pass, view by view."""
    if not isinstance(outputs, Tensor):
        raise TypeError(
            f"with joint=True the model must return a tensor, got {type(outputs).__name__}: use joint=False"
        )
    if outputs.ndim == 0 or len(outputs) != sum(sizes):
        shape = tuple(outputs.shape)
        raise ValueError(f"the model must return one output per image ({sum(sizes)}), got shape {shape}")
    return list(outputs.split(sizes))


def check_batch(images: Tensor, targets: Tensor) -> None:
    """Refuse what is not a batch of images with one target each."""
    check_images(images)
    if len(images) == 0:
        raise ValueError("images must hold at least one image, got none")
    if not isinstance(targets, Tensor):
        raise TypeError(f"targets must be a torch.Tensor, got {type(targets).__name__}")
    if targets.ndim == 0 or len(targets) != len(images):
        raise ValueError(f"targets must have one row per image ({len(images)}), got shape {tuple(targets.shape)}")


def check_problem(
    constraints: tuple[Constraint, ...], n_steps: int, n_views: int, dual_lr: float, gamma_init: float, price: float,
    learn: float, scoring: str, scoring_batch: int | None,
) -> None:  # fmt: skip
    """Refuse settings that make no problem."""
    for constraint in constraints:
        if not isinstance(constraint, Constraint):
            raise TypeError(f"constraints must be invaug.Constraint, got {type(constraint).__name__}")
    for name, value in (("n_steps", n_steps), ("n_views", n_views), ("scoring_batch", scoring_batch or 1)):
        if not isinstance(value, int):
            raise TypeError(f"{name} must be a whole number, got {value!r}")
    if n_steps < 0:
        raise ValueError(f"n_steps must not be negative, got {n_steps} (0 samples uniformly)")
    if n_views < 1:
        raise ValueError(f"n_views must be at least 1, got {n_views}")
    if not 0 <= dual_lr < math.inf:
        raise ValueError(f"dual_lr must not be negative or infinite, got {dual_lr} (0 keeps gamma fixed)")
    if not 0 <= gamma_init < math.inf:
        raise ValueError(f"gamma_init must not be negative or infinite, got {gamma_init}")
    if not 0 < price < math.inf:
        raise ValueError(f"price must be above 0 and not infinite, got {price}")
    if not 0 <= learn < math.inf:
        raise ValueError(f"learn must not be negative or infinite, got {learn} (0 proposes uniformly)")
    if scoring not in ("frozen", "train"):
        raise ValueError(f'scoring must be "frozen" or "train", got {scoring!r}')
    if scoring_batch is not None and scoring_batch < 1:
        raise ValueError(f"scoring_batch must be at least 1, or None for all at once, got {scoring_batch}")
