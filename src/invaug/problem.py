"""Algorithm 2: learning under the constraint that the loss on transformed images stays below epsilon."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, distributed, nn

from invaug.constraint import (
    Chosen,
    Constraint,
    Step,
    check_batch,
    check_problem,
    cross_entropy,
    repeated,
    split,
    to_unit,
)
from invaug.draws import Draw
from invaug.images import doubles
from invaug.learned import EVERY, LossTable
from invaug.memory import ChainMemory
from invaug.samplers import Chain, metropolis_hastings
from invaug.scoring import Loss, Model, detached, own_randomness, per_sample, score

HORIZON = 10  # batches the running mean of epsilon="auto" looks back
STIFFNESS = 2.0  # how far epsilon="auto" is from the loss that is reached, per unit of gamma beside the price


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
        scoring_dtype: Precision proposals are scored in, by autocast: torch.bfloat16 where the device is faster for it;
            None scores as it trains.
        joint: Clean and kept views in one forward pass, so BatchNorm sees them together; False makes one pass each.
        clean: False leaves the clean view out: gamma times the kept ones' slack is all there is.
        remember: Number of training images whose chains go on from visit to visit (give `indices` with each batch): one
            view each is remembered with its loss, so a chain of n_steps transitions scores n_steps proposals, not one
            more; on one device. 0 starts every chain anew.
        age: Visits a remembered view may stay; then its chain starts anew.
        learn: Power of a law that learns: operations and strengths are proposed in proportion to the loss under them so
            far, to this power. Metropolis–Hastings chains correct for it, and end on the same law; 0 proposes by U(G).
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
        scoring_dtype: torch.dtype | None = None,
        joint: bool = True,
        clean: bool = True,
        remember: int = 0,
        age: int = 4,
        learn: float = 0.0,
        seed: int = 0,
    ) -> None:
        super().__init__()
        check_problem(constraints, n_steps, n_views, dual_lr, gamma_init, price, learn, scoring, scoring_batch)
        if scoring_dtype not in (None, torch.bfloat16, torch.float16):
            raise ValueError(f"scoring_dtype must be torch.bfloat16, torch.float16 or None, got {scoring_dtype}")
        if not clean and ([c.active and c.share == 1 for c in constraints] != [True] or n_views > 1):
            raise ValueError("clean=False needs one constraint and one view of whole batches: all there is to learn")
        if normalized and not clean:
            raise ValueError("normalized=True needs the clean view: leave out clean=False")
        self.constraints = constraints
        self.n_steps, self.n_views = n_steps, n_views
        self.dual_lr, self.normalized, self.price = dual_lr, normalized, price
        self.finish = finish
        self.loss_fn = loss_fn
        self.scoring, self.scoring_batch, self.scoring_dtype = scoring, scoring_batch, scoring_dtype
        self.joint, self.clean = joint, clean
        self.seed = seed
        self.register_buffer("gamma", torch.full((len(constraints),), float(gamma_init)))
        self.register_buffer("n_batches", torch.zeros((), dtype=torch.long))
        if remember and (n_steps == 0 or n_views > 1 or any(constraint.share < 1 for constraint in constraints)):
            raise ValueError("remember needs chains of one view an image: n_steps >= 1, no n_views, no share")
        n_memories = len(constraints) if remember else 0
        self.memories = nn.ModuleList(
            ChainMemory(remember, constraint.transforms.ops[0].n_magnitudes, age, constraint.transforms.depth)
            for constraint in constraints[:n_memories]
        )
        self.tables = nn.ModuleList(
            LossTable(c.transforms, learn) for c in constraints[: len(constraints) * bool(learn)]
        )
        self._auto = [i for i, constraint in enumerate(constraints) if constraint.auto]
        if self._auto:
            self.register_buffer("reached", torch.tensor(math.nan))

    @property
    def _learns(self) -> bool:
        """Whether a law that learns takes in the losses of this step."""
        return len(self.tables) > 0 and int(self.n_batches) % EVERY == 0

    @property
    def epsilons(self) -> list[float]:
        """The level of each constraint now."""
        level, reached = 0.0, float(self.reached) if self._auto else math.nan
        if not math.isnan(reached):
            gammas = self.gamma.tolist()
            level = max(reached + STIFFNESS * (sum(gammas[i] for i in self._auto) - self.price), 0.0)
        return [level if constraint.auto else float(constraint.epsilon) for constraint in self.constraints]

    def forward(
        self, model: Model, images: Tensor, targets: Tensor, *, indices: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Step:  # fmt: skip
        """Return the Lagrangian of one batch: draw, score, sample λ_c, evaluate.

        Args:
            indices: Which training images they are; needed where chains are remembered.
            generator: Where proposals and chains come from; by default a generator of (seed, batch number, rank).
        """
        check_batch(images, targets)
        self._check_indices(indices, len(images))
        generator = generator or self._generator()
        self.n_batches += 1
        return self._step(model, images, targets, indices, generator)

    def _step(
        self, model: Model, images: Tensor, targets: Tensor, indices: Tensor | None, generator: torch.Generator
    ) -> Step:
        """Return what the batch says: here the clean view of every image, and those each constraint keeps."""
        views = [(self.finish(images), targets)] if self.clean else []
        n_clean = len(views)
        chosen = [
            self._choose(k, model, images, targets, generator, indices) if constraint.active else None
            for k, constraint in enumerate(self.constraints)
        ]
        views += [(c.inputs, c.labels) for c in chosen if c]
        outputs, losses = self._losses(model, *map(list, zip(*views, strict=True)))
        means = [view_losses.mean() for view_losses in losses]
        lagrangian = means[0] if self.clean else torch.zeros_like(means[0])
        kept = iter(means[n_clean:])
        levels = self.epsilons
        for gamma, constraint, level in zip(self.gamma.clone(), self.constraints, levels, strict=True):
            if constraint.active:
                lagrangian = lagrangian + gamma * (next(kept) - level)
        draws = tuple(c.draw if c else None for c in chosen)
        chains = tuple(c.chain if c else None for c in chosen)
        slack, lagrangian = self._slack(losses[n_clean:], levels), self._scaled(lagrangian)
        epsilon, stale = self.gamma.new_tensor(levels), self._note(chosen, losses[n_clean:])
        return Step(lagrangian, means[0].detach(), slack, draws, chains, outputs, epsilon, stale)

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
            reached = float(self.reached)
            self.reached.fill_(loss if math.isnan(reached) else reached + (loss - reached) / HORIZON)

    def _auto_loss(self, slack: Tensor) -> float:
        """Return the mean loss of the constraints with epsilon="auto", by their gammas; NaN without them."""
        if not self._auto:
            return math.nan
        # plain numbers: for so few of them the calls of torch are the cost
        gammas, slacks = ([numbers[i] for i in self._auto] for numbers in (self.gamma.tolist(), slack.tolist()))
        weights = gammas if sum(gammas) > 0 else [1.0] * len(gammas)
        mean = sum(weight * each for weight, each in zip(weights, slacks, strict=True)) / sum(weights)
        return float(mean) + self.epsilons[self._auto[0]]

    def _choose(
        self, k: int, model: Model, images: Tensor, targets: Tensor, generator: torch.Generator,
        rows: Tensor | None = None,
    ) -> Chosen:  # fmt: skip
        """Return n_views transformed inputs per image, their draws, and the chains that chose them (Algorithm 1)."""
        constraint = self.constraints[k]
        if constraint.share < 1:
            some = torch.randperm(len(images), generator=generator, device=generator.device)
            some = some[: math.ceil(constraint.share * len(images))].to(images.device)
            images, targets = images[some], targets[some.to(targets.device)]
        remembers = bool(self.memories) and rows is not None
        labels = repeated(targets, self.n_views)
        shape = (self.n_steps + 1, self.n_views, len(images))
        n_chains = self.n_views * len(images)
        n_repeats = shape[0] * shape[1]
        law = {"law": self.tables[k].law()} if self.tables else {}  # type: ignore[operator]
        draw = constraint.transforms.draw((n_repeats - remembers) * len(images), generator=generator, **law)
        if remembers:  # the first of the proposals is where the last visit left the chain, which nobody scores again
            old, stored = self.memories[k].recall(rows)  # type: ignore[operator]
            draw = Draw.cat([old, draw])
        inputs = self._finished(constraint.transforms.apply(_times(images, n_repeats), draw), generator)
        if self.n_steps == 0:  # one proposal each: nothing to score, nothing to choose
            return Chosen(inputs, labels, draw, Chain.of_one(shape[1:], inputs.device), constraint.sampler)
        n_old = n_chains * remembers
        scores = self._score(model, inputs[n_old:], repeated(targets, n_repeats - remembers), generator)
        scores = (torch.cat([stored.to(scores), scores]) if remembers else scores).view(shape)
        judged = self._judged(k, draw, scores, n_old)
        chain = constraint.sampler(judged, generator=generator)
        if judged is not scores:
            chain = chain._replace(loss=scores.gather(0, chain.state[None]).squeeze(0))
        kept = chain.state.view(-1) * n_chains + torch.arange(n_chains, device=chain.state.device)
        known = rows if remembers else None
        return Chosen(inputs[kept], labels, draw[kept.cpu()], chain, constraint.sampler, scores, known, judged)

    def _judged(self, k: int, draw: Draw, scores: Tensor, n_old: int) -> Tensor:
        """Return what the sampler sees: the scores, beside how likely a law that learns made them; it is told them."""
        if not self.tables:
            return scores
        tilt: Tensor = self.tables[k].tilt(draw)  # type: ignore[operator]
        if self._learns:
            self.tables[k].learn(draw[n_old:], scores.flatten()[n_old:])  # type: ignore[operator]
        corrects = self.constraints[k].sampler is metropolis_hastings
        return scores / tilt.to(scores).view(scores.shape) if corrects else scores

    def _finished(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Return proposals as the model sees them."""
        with own_randomness(generator, images.device):
            return self.finish(images)

    def _score(self, model: Model, inputs: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
        """Return the losses of proposals."""
        leaves_no_trace = own_randomness(generator, inputs.device) if self.scoring == "frozen" else nullcontext()
        with leaves_no_trace:  # some models draw in eval mode too
            return score(model, inputs, labels, self.loss_fn, self.scoring, self.scoring_batch, self.scoring_dtype)

    @torch.no_grad()
    def _note(self, chosen: list[Chosen | None], losses: list[Tensor]) -> Tensor:
        """Remember where chains stand, with the losses of their views; return how far those of old views had moved."""
        stale, there = torch.full_like(self.gamma, math.nan), iter(losses)
        if not self.memories and not self.tables:
            return stale
        for k, each in enumerate(chosen):
            if each is None:
                continue
            mine = next(there).detach()
            if self._learns and each.scores is None:
                self.tables[k].learn(each.draw, mine)  # type: ignore[operator]
            if each.rows is None or each.scores is None:
                continue
            stayed = each.chain.state.view(-1) == 0
            now = torch.cat([mine, each.chain.loss.view(-1)[len(mine) :].to(mine)])  # those that were only looked at
            trained = stayed[: len(mine)]
            if trained.any():
                before = each.scores[0].view(-1)[: len(mine)].to(mine)
                stale[k] = (mine - before)[trained].abs().nanmean().to(stale)
            self.memories[k].keep(each.rows, each.draw, now, stayed)  # type: ignore[operator]
        return stale

    def _check_indices(self, indices: Tensor | None, n: int) -> None:
        if not self.memories:
            return
        if indices is None or indices.shape != (n,):
            got = "none" if indices is None else f"shape {tuple(indices.shape)}"
            raise ValueError(f"remembered chains need the index of each training image, shape ({n},), got {got}")
        if distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
            raise ValueError("chains are remembered on one device: leave out remember, or train on one")

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
    def _slack(self, kept: list[Tensor], levels: list[float]) -> Tensor:
        """Return mean kept loss minus epsilon, over the samples of all ranks; -inf where epsilon is infinite."""
        sums = [doubles(losses).sum().item() for losses in kept]
        sizes = [float(len(losses)) for losses in kept]
        if kept and distributed.is_available() and distributed.is_initialized():
            totals = doubles(kept[0]).new_tensor([sums, sizes])
            distributed.all_reduce(totals)
            sums, sizes = totals.tolist()
        means = (total / size for total, size in zip(sums, sizes, strict=True))
        pairs = zip(self.constraints, levels, strict=True)
        return self.gamma.new_tensor([next(means) - level if each.active else -math.inf for each, level in pairs])

    def _generator(self) -> torch.Generator:
        """Return the generator of this batch on this rank: the same after a resume, whatever came before."""
        rank = distributed.get_rank() if distributed.is_available() and distributed.is_initialized() else 0
        return torch.Generator().manual_seed(_mixed(self.seed, int(self.n_batches), rank))

    def extra_repr(self) -> str:
        """Say what the problem is in one line per constraint."""
        lines = [f"{len(c.transforms.ops)} operations, epsilon={c.epsilon}" for c in self.constraints]
        return "\n".join([*lines, f"n_steps={self.n_steps}, n_views={self.n_views}, dual_lr={self.dual_lr:g}"])


def _times(images: Tensor, n: int) -> Tensor:
    """Return the images n times over; once is no copy."""
    return images if n == 1 else images.repeat(n, 1, 1, 1)


def _mixed(*numbers: int) -> int:
    """Return one seed from several numbers, far apart for neighbours."""
    return int(np.random.SeedSequence([number % 2**64 for number in numbers]).generate_state(1, np.uint64)[0] >> 1)
