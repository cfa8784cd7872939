"""Algorithm 2: learning under the constraint that the loss on transformed images stays below epsilon."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, distributed, nn
from torch.nn import functional as F

from invaug.draws import Draw
from invaug.images import check_images, doubles
from invaug.samplers import Chain, Sampler, metropolis_hastings
from invaug.scoring import Loss, Model, detached, own_randomness, per_sample, score
from invaug.transforms import TransformSet

HORIZON = 10  # batches the running mean of epsilon="auto" looks back
STIFFNESS = 2.0  # how far epsilon="auto" is from the loss that is reached, per unit of gamma beside the price


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

    @property
    def acceptance(self) -> Tensor:
        """Share of accepted transitions, one per constraint; NaN where there were none."""
        shares = [float(chain.accepted.float().mean()) if chain else math.nan for chain in self.chains]
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


def to_unit(images: Tensor) -> Tensor:
    """Return uint8 images as float32 in [0, 1]; float images as they are."""
    return images.float().div_(255) if images.dtype == torch.uint8 else images


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the cross-entropy of each sample; targets are classes or probabilities."""
    return F.cross_entropy(outputs, targets, reduction="none")


class InvarianceConstrained(nn.Module):
    """The constrained problem: holds gamma, evaluates the Lagrangian, takes the dual step.

    Constraints with epsilon="auto" share one level that is chosen with the weights: minimise loss + price · epsilon,
    each of their losses at most epsilon. At the optimum their gammas add up to the price, and epsilon is the loss of
    the worst of them. So epsilon follows the loss that is reached, above it where the gammas are above the price,
    below it where they are below: it cannot be out of reach, and gamma cannot grow for ever.

    Args:
        n_steps: Accept/reject transitions of each chain; n_steps + 1 proposals are drawn. 0 is uniform sampling.
        n_views: Transformed views kept per image and constraint, each from a chain of its own.
        dual_lr: Step size of gamma; 0 makes it a fixed penalty.
        gamma_init: Where gamma starts.
        normalized: Whether the Lagrangian is divided by 1 + Σ gamma: a mean of clean and transformed losses, so that
            gamma does not change the size of a step.
        price: What a unit of epsilon="auto" is worth, in units of the clean loss: what its gammas settle at.
        finish: uint8 images -> model input. Whatever it draws from torch's own generators for proposals is taken
            from a stream of ours and leaves theirs untouched.
        loss_fn: (outputs, targets) -> one non-negative loss per sample.
        scoring: "frozen" scores in eval mode and leaves no trace; "train" scores as the authors did.
        scoring_batch: Largest number of proposals scored at once; None scores all at once.
        joint: Clean and kept views in one forward pass, so BatchNorm sees them together; False makes one pass each.
        clean: False leaves the clean view out: gamma times the kept ones' slack is all there is.
        seed: With the number of batches seen and the rank, the only source of randomness.
    """

    gamma: Tensor
    n_batches: Tensor
    reached: Tensor
    """Running mean of the loss under the constraints with epsilon="auto"; only where there are such."""

    def __init__(
        self,
        *constraints: Constraint,
        n_steps: int = 1,
        n_views: int = 1,
        dual_lr: float = 1e-3,
        gamma_init: float = 0.0,
        normalized: bool = False,
        price: float = 1.0,
        finish: Callable[[Tensor], Tensor] = to_unit,
        loss_fn: Loss = cross_entropy,
        scoring: Literal["frozen", "train"] = "frozen",
        scoring_batch: int | None = 256,
        joint: bool = True,
        clean: bool = True,
        seed: int = 0,
    ) -> None:
        super().__init__()
        _check_problem(constraints, n_steps, n_views, dual_lr, gamma_init, price, scoring, scoring_batch)
        if not clean and ([c.active and c.share == 1 for c in constraints] != [True] or n_views > 1):
            raise ValueError("clean=False needs one constraint and one view of whole batches: all there is to learn")
        if normalized and not clean:
            raise ValueError("normalized=True needs the clean view: leave out clean=False")
        self.constraints = constraints
        self.n_steps, self.n_views = n_steps, n_views
        self.dual_lr, self.normalized, self.price = dual_lr, normalized, price
        self.finish = finish
        self.loss_fn = loss_fn
        self.scoring, self.scoring_batch = scoring, scoring_batch
        self.joint, self.clean = joint, clean
        self.seed = seed
        self.register_buffer("gamma", torch.full((len(constraints),), float(gamma_init)))
        self.register_buffer("n_batches", torch.zeros((), dtype=torch.long))
        self._auto = [i for i, constraint in enumerate(constraints) if constraint.auto]
        if self._auto:
            self.register_buffer("reached", torch.tensor(math.nan))

    @property
    def epsilons(self) -> list[float]:
        """The level of each constraint now."""
        level = 0.0
        if self._auto and not self.reached.isnan():
            excess = float(self.gamma[self._auto].sum()) - self.price
            level = max(float(self.reached) + STIFFNESS * excess, 0.0)
        return [level if constraint.auto else float(constraint.epsilon) for constraint in self.constraints]

    def forward(
        self, model: Model, images: Tensor, targets: Tensor, *, generator: torch.Generator | None = None
    ) -> Step:
        """Return the Lagrangian of one batch: draw, score, sample λ_c, evaluate.

        Args:
            generator: Where proposals and chains come from; by default a generator of (seed, batch number, rank).
        """
        check_batch(images, targets)
        generator = generator or self._generator()
        self.n_batches += 1
        views = [(self.finish(images), targets)] if self.clean else []
        n_clean = len(views)
        chosen = [self._choose(c, model, images, targets, generator) if c.active else None for c in self.constraints]
        views += [(c.inputs, c.labels) for c in chosen if c]
        outputs, losses = self._losses(model, *map(list, zip(*views, strict=True)))
        means = [view_losses.mean() for view_losses in losses]
        lagrangian = means[0] if self.clean else torch.zeros_like(means[0])
        kept = iter(means[n_clean:])
        for gamma, constraint, level in zip(self.gamma.clone(), self.constraints, self.epsilons, strict=True):
            if constraint.active:
                lagrangian = lagrangian + gamma * (next(kept) - level)
        draws = tuple(c.draw if c else None for c in chosen)
        chains = tuple(c.chain if c else None for c in chosen)
        slack, lagrangian = self._slack(losses[n_clean:]), self._scaled(lagrangian)
        return Step(lagrangian, means[0].detach(), slack, draws, chains, outputs, self.gamma.new_tensor(self.epsilons))

    @torch.no_grad()
    def dual_step(self, slack: Tensor) -> None:
        """Set gamma to [gamma + dual_lr * slack]_+ in place; where slack is NaN or +inf, gamma stays as it is.

        Then epsilon="auto" follows the loss that the slack tells.
        """
        if slack.shape != self.gamma.shape:
            raise ValueError(f"slack must have shape {tuple(self.gamma.shape)}, got {tuple(slack.shape)}")
        loss = self._auto_loss(slack)
        stepped = self.gamma + self.dual_lr * slack.to(self.gamma)
        self.gamma.copy_(torch.where(stepped < math.inf, stepped.clamp(min=0), self.gamma))
        if math.isfinite(loss):
            self.reached.copy_(self.reached.lerp(self.reached.new_tensor(loss), 1 / HORIZON).nan_to_num(loss))

    def _auto_loss(self, slack: Tensor) -> float:
        """Return the mean loss of the constraints with epsilon="auto", by their gammas; NaN without them."""
        if not self._auto:
            return math.nan
        gammas, levels = self.gamma[self._auto].double(), self.epsilons
        losses = slack[self._auto].to(gammas) + levels[self._auto[0]]
        weights = gammas / gammas.sum() if gammas.sum() > 0 else torch.full_like(gammas, 1 / len(gammas))
        return float((weights * losses).sum())

    def _choose(
        self, constraint: Constraint, model: Model, images: Tensor, targets: Tensor, generator: torch.Generator
    ) -> Chosen:
        """Return n_views transformed inputs per image, their draws, and the chains that chose them (Algorithm 1)."""
        if constraint.share < 1:
            some = torch.randperm(len(images), generator=generator, device=generator.device)
            some = some[: math.ceil(constraint.share * len(images))].to(images.device)
            images, targets = images[some], targets[some.to(targets.device)]
        labels = repeated(targets, self.n_views)
        shape = (self.n_steps + 1, self.n_views, len(images))
        n_chains = self.n_views * len(images)
        n_repeats = shape[0] * shape[1]
        draw = constraint.transforms.draw(n_repeats * len(images), generator=generator)
        with own_randomness(generator, images.device):
            inputs = self.finish(constraint.transforms.apply(images.repeat(n_repeats, 1, 1, 1), draw))
        if self.n_steps == 0:  # one proposal each: nothing to score, nothing to choose
            return Chosen(inputs, labels, draw, Chain.of_one(shape[1:], inputs.device), constraint.sampler)
        leaves_no_trace = own_randomness(generator, images.device) if self.scoring == "frozen" else nullcontext()
        with leaves_no_trace:  # some models draw in eval mode too
            all_labels = repeated(targets, n_repeats)
            losses = score(model, inputs, all_labels, self.loss_fn, self.scoring, self.scoring_batch)
        scores = losses.view(shape)
        chain = constraint.sampler(scores, generator=generator)
        kept = chain.state.view(-1) * n_chains + torch.arange(n_chains, device=chain.state.device)
        return Chosen(inputs[kept], labels, draw[kept.cpu()], chain, constraint.sampler, scores)

    def _losses(self, model: Model, views: list[Tensor], labels: list[Tensor]) -> tuple[Any, list[Tensor]]:
        """Return the outputs of the first view, and the losses of each sample of each view."""
        if self.joint and len(views) > 1:
            outputs = split(model(torch.cat(views)), [len(view) for view in views])
        else:
            outputs = [model(view) for view in views]
        losses = [per_sample(self.loss_fn, o, y) for o, y in zip(outputs, labels, strict=True)]
        return detached(outputs[0]), losses

    def _scaled(self, lagrangian: Tensor) -> Tensor:
        if not self.normalized:
            return lagrangian
        active = [i for i, constraint in enumerate(self.constraints) if constraint.active]
        return lagrangian / (1 + self.gamma[active].sum())

    @torch.no_grad()
    def _slack(self, kept: list[Tensor]) -> Tensor:
        """Return mean kept loss minus epsilon, over the samples of all ranks; -inf where epsilon is infinite."""
        slack = torch.full_like(self.gamma, -math.inf)
        if not kept:
            return slack
        sums = torch.stack([doubles(losses).sum() for losses in kept])
        totals = torch.stack([sums, sums.new_tensor([len(losses) for losses in kept])])
        if distributed.is_available() and distributed.is_initialized():
            distributed.all_reduce(totals)
        active = [i for i, constraint in enumerate(self.constraints) if constraint.active]
        epsilons = totals.new_tensor([self.epsilons[i] for i in active])
        slack[active] = (totals[0] / totals[1] - epsilons).to(slack)
        return slack

    def _generator(self) -> torch.Generator:
        """Return the generator of this batch on this rank: the same after a resume, whatever came before."""
        rank = distributed.get_rank() if distributed.is_available() and distributed.is_initialized() else 0
        return torch.Generator().manual_seed(_mixed(self.seed, int(self.n_batches), rank))

    def extra_repr(self) -> str:
        """Say what the problem is in one line per constraint."""
        lines = [f"{len(c.transforms.ops)} operations, epsilon={c.epsilon}" for c in self.constraints]
        return "\n".join([*lines, f"n_steps={self.n_steps}, n_views={self.n_views}, dual_lr={self.dual_lr:g}"])


def repeated(targets: Tensor, n: int) -> Tensor:
    """Return the targets n times over, one batch after the other."""
    return targets.repeat(n, *[1] * (targets.ndim - 1))


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


def _mixed(*numbers: int) -> int:
    """Return one seed from several numbers, far apart for neighbours."""
    return int(np.random.SeedSequence([number % 2**64 for number in numbers]).generate_state(1, np.uint64)[0] >> 1)


def check_batch(images: Tensor, targets: Tensor) -> None:
    """Refuse what is not a batch of images with one target each."""
    check_images(images)
    if len(images) == 0:
        raise ValueError("images must hold at least one image, got none")
    if not isinstance(targets, Tensor):
        raise TypeError(f"targets must be a torch.Tensor, got {type(targets).__name__}")
    if targets.ndim == 0 or len(targets) != len(images):
        raise ValueError(f"targets must have one row per image ({len(images)}), got shape {tuple(targets.shape)}")


def _check_problem(constraints: tuple[Constraint, ...], n_steps: int, n_views: int, dual_lr: float,
                   gamma_init: float, price: float, scoring: str, scoring_batch: int | None) -> None:  # fmt: skip
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
    if scoring not in ("frozen", "train"):
        raise ValueError(f'scoring must be "frozen" or "train", got {scoring!r}')
    if scoring_batch is not None and scoring_batch < 1:
        raise ValueError(f"scoring_batch must be at least 1, or None for all at once, got {scoring_batch}")
