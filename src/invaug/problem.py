"""Algorithm 2: learning under the constraint that the loss on transformed images stays below epsilon."""

import math
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, Literal, Self

import torch
from torch import Tensor, distributed, nn

from invaug.checks import check_type, require
from invaug.constraint import Constraint
from invaug.proposals import Finish, Proposer
from invaug.rng import mix, own_randomness
from invaug.scoring import Loss, Model, Outputs, cross_entropy, guess_loss, per_sample, score, unchanged
from invaug.step import Step, lagrangian, measure
from invaug.transforms.images import to_unit
from invaug.views import NAMED, Batch, Given, ViewFunction


class InvarianceConstrained(nn.Module):
    """The constrained problem: holds gamma, evaluates the Lagrangian, takes the dual step.

    Args:
        n_steps: Accept/reject transitions of each chain, so n_steps + 1 proposals are drawn; 0 samples uniformly.
        n_views: Transformed views kept per image and constraint, each from a chain of its own.
        views: "one" view per image, clean or transformed, at about the cost of plain training; "both", as printed in
            the paper; or a function, see `invaug.views`.
        dual_lr: Step size of gamma; 0 makes it a fixed penalty.
        gamma_init: Initial gamma.
        finish: Images -> model input. If it draws from torch's global generators, proposals get a stream of their own
            and the global state is left untouched.
        loss_fn: (outputs, targets) -> one non-negative loss per sample.
        outputs: Which part of the model's answer goes to the loss, for example `operator.attrgetter("logits")`.
        scoring: "frozen" scores in eval mode and leaves no trace; "train" scores as the authors did.
        scoring_batch: Largest number of proposals that are finished and scored at once; None takes all.
        seed: Together with the number of batches seen and the rank, the only source of randomness.

    Example:
        >>> from invaug import sets
        >>> problem = InvarianceConstrained(Constraint(sets.wide()))
        >>> images, targets = torch.randint(256, (8, 3, 32, 32), dtype=torch.uint8), torch.arange(8)
        >>> step = problem(nn.Sequential(nn.Flatten(), nn.Linear(3072, 8)), images, targets)
        >>> step.lagrangian.backward()
        >>> problem.dual_step(step.slack)
    """

    gamma: Tensor
    """One multiplier per constraint, float64, on the CPU."""
    n_batches: Tensor

    def __init__(
        self,
        *constraints: Constraint,
        n_steps: int = 1,
        n_views: int = 1,
        views: Literal["one", "both"] | ViewFunction = "one",
        dual_lr: float = 2e-2,
        gamma_init: float = 0.0,
        finish: Finish = to_unit,
        loss_fn: Loss = cross_entropy,
        outputs: Outputs = unchanged,
        scoring: Literal["frozen", "train"] = "frozen",
        scoring_batch: int | None = 256,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.constraints, self.views = constraints, views
        self.n_steps, self.n_views = n_steps, n_views
        self.dual_lr, self.scoring, self.scoring_batch, self.seed = dual_lr, scoring, scoring_batch, seed
        self.finish, self.loss_fn, self.outputs = finish, loss_fn, outputs
        _check(self, gamma_init)
        self.register_buffer("gamma", torch.full((len(constraints),), float(gamma_init), dtype=torch.float64))
        self.register_buffer("n_batches", torch.zeros((), dtype=torch.long))
        self._caps = torch.tensor([c.level.cap for c in constraints], dtype=torch.float64)

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Self:
        """Move the parts, such as a `finish` with buffers; gamma stays on the CPU, where every step needs it."""
        for child in self.children():
            child._apply(fn)
        return self

    def forward(
        self, model: Model, images: Tensor, targets: Tensor, *, generator: torch.Generator | None = None
    ) -> Step:
        """Return the step of one batch: draw, score, sample λ_c, evaluate the Lagrangian.

        Args:
            images: Any tensor the sets accept, one image per row.
            targets: One row per image.
            generator: See `prepare`.
        """
        batch = self.prepare(model, images, targets, generator=generator)
        sizes = list(batch.passes) or [len(batch.inputs)]
        answers = [self.outputs(model(inputs)) for inputs in batch.inputs.split(sizes)]
        labels = batch.targets.split(sizes)
        losses = [per_sample(self.loss_fn, answer, y) for answer, y in zip(answers, labels, strict=True)]
        return self.evaluate(batch, torch.cat(losses) if len(losses) > 1 else losses[0], answers[0])

    def prepare(
        self, model: Model, images: Tensor, targets: Tensor, *, generator: torch.Generator | None = None
    ) -> Batch:
        """Return what to train on, as `inputs` and `targets`: for loops with a forward pass and a loss of their own.

        Args:
            generator: The source of proposals and chains; by default one seeded by (seed, batch number, rank).

        Example:
            >>> from invaug import sets
            >>> model = nn.Sequential(nn.Flatten(), nn.Linear(64, 4))
            >>> images, targets = torch.zeros(6, 1, 8, 8, dtype=torch.uint8), torch.zeros(6, dtype=torch.long)
            >>> batch = InvarianceConstrained(Constraint(sets.mild())).prepare(model, images, targets)
            >>> batch.inputs.shape, batch.targets.shape
            (torch.Size([6, 1, 8, 8]), torch.Size([6]))
        """
        _check_batch(images, targets)
        if int(self.n_batches) == 0:
            _warn_of_masks(self.constraints, images, targets)
        generator = generator or self._generator()
        self.n_batches += 1
        gammas = [g if c.active else 0.0 for g, c in zip(self.gamma.tolist(), self.constraints, strict=True)]
        score = partial(self._score, model, generator)
        how = Proposer(self.n_steps, self.n_views, self.finish, score, generator, self.scoring_batch)
        view = self.views if callable(self.views) else NAMED[self.views]
        return view(Given(images, targets, self.constraints, gammas, self.finish, how))

    def evaluate(self, batch: Batch, losses: Tensor | None = None, outputs: Any = None) -> Step:
        """Return the step of a prepared batch, given the loss of each of its inputs.

        Without losses there is no Lagrangian, but there are slack and epsilon, from the scores of the proposals: for
        loops that do not give their losses away.

        Args:
            losses: One per row of `batch.inputs`, with gradient.
            outputs: What the model returned; kept for accuracy.

        Example:
            >>> from invaug import sets
            >>> problem = InvarianceConstrained(Constraint(sets.mild()))
            >>> model = nn.Sequential(nn.Flatten(), nn.Linear(64, 4))
            >>> images, targets = torch.zeros(6, 1, 8, 8, dtype=torch.uint8), torch.zeros(6, dtype=torch.long)
            >>> batch = problem.prepare(model, images, targets)
            >>> losses = nn.functional.cross_entropy(model(batch.inputs), batch.targets, reduction="none")
            >>> problem.evaluate(batch, losses).slack.shape
            torch.Size([1])
        """
        if losses is None and batch.kept:
            raise ValueError('without losses only views="one" can be evaluated: its constraints are measured by scores')
        if losses is not None and losses.shape != batch.inputs.shape[:1]:
            rule = f"losses must have shape ({len(batch.inputs)},), one per input"
            raise ValueError(f'{rule}, got {tuple(losses.shape)}: use reduction="none"')
        slack, epsilons = torch.full_like(self.gamma, -math.inf), torch.full_like(self.gamma, math.inf)
        for k, (made, measured) in enumerate(zip(batch.proposals, measure(batch, losses), strict=True)):
            if made and measured:
                kept, clean = measured
                guess = guess_loss(outputs) or made.guess
                epsilons[k] = self.constraints[k].level.epsilon(batch.gammas[k], clean, guess)
                slack[k] = kept - epsilons[k]
        nothing = torch.full((), math.nan, device=batch.inputs.device)
        total, loss = (nothing, nothing) if losses is None else lagrangian(batch, losses, epsilons.tolist())
        n = batch.clean.stop if batch.clean else len(batch.inputs)
        answers = outputs.detach()[:n] if isinstance(outputs, Tensor) else outputs
        return Step(total, loss, slack, epsilons, answers, batch.proposals, len(batch.inputs))

    @torch.no_grad()
    def dual_step(self, slack: Tensor | Sequence[Tensor]) -> None:
        """Set gamma to [gamma + dual_lr * slack], clipped to 0 and its cap; where slack is NaN or +inf, gamma stays.

        Args:
            slack: That of one step, shape (constraints,); or a sequence of them from batches whose gradients were
                accumulated, which are averaged.

        Example:
            >>> from invaug import sets
            >>> problem = InvarianceConstrained(Constraint(sets.wide(), epsilon=0.8), dual_lr=0.5)
            >>> problem.dual_step(torch.tensor([0.2]))
            >>> round(problem.gamma.item(), 4)
            0.1
        """
        slack = slack if isinstance(slack, Tensor) else torch.stack(list(slack)).mean(0)
        if slack.shape != self.gamma.shape:
            raise ValueError(f"slack must have shape {tuple(self.gamma.shape)}, got {tuple(slack.shape)}")
        stepped = self.gamma + self.dual_lr * slack.to(self.gamma)
        self.gamma.copy_(torch.where(stepped < math.inf, stepped.clamp(min=0).minimum(self._caps), self.gamma))

    def _score(
        self, model: Model, generator: torch.Generator, inputs: Tensor, targets: Tensor
    ) -> tuple[Tensor, float | None]:
        """Return the losses of proposals, and the loss of a guess."""
        leaves_no_trace = own_randomness(generator, inputs.device) if self.scoring == "frozen" else nullcontext()
        with leaves_no_trace:  # some models draw random numbers even in eval mode
            return score(model, inputs, targets, self.loss_fn, self.outputs, self.scoring, self.scoring_batch)

    def _generator(self) -> torch.Generator:
        """Return the generator of this batch on this rank: the same after a resume, whatever came before."""
        rank = distributed.get_rank() if distributed.is_available() and distributed.is_initialized() else 0
        return torch.Generator().manual_seed(mix(self.seed, int(self.n_batches), rank))

    def extra_repr(self) -> str:
        """Return the problem in words, one line per constraint, for `print(problem)`.

        Example:
            >>> from invaug import sets
            >>> InvarianceConstrained(Constraint(sets.wide(), 0.8))
            InvarianceConstrained(
              14 operations, epsilon=0.8
              n_steps=1, views=one, dual_lr=0.02
            )
        """
        lines = [f"{len(c.transforms.ops)} operations, epsilon={c.epsilon}" for c in self.constraints]
        views = self.views if isinstance(self.views, str) else getattr(self.views, "__name__", "views")
        return "\n".join([*lines, f"n_steps={self.n_steps}, views={views}, dual_lr={self.dual_lr:g}"])


def _warn_of_masks(constraints: Sequence[Constraint], images: Tensor, targets: Tensor) -> None:
    """Warn that masks stay in place while images are moved."""
    spatial = images.ndim == 4 and targets.ndim >= 3 and targets.shape[-2:] == images.shape[-2:]
    moving = dict.fromkeys(op.name for c in constraints if c.active for op in c.transforms.ops if op.geometric)
    if spatial and moving:
        still = f"targets of shape {tuple(targets.shape)} look like masks, and stay where they are while images move"
        warnings.warn(f"{still}: leave out the operations that move them, without({', '.join(moving)})", stacklevel=4)


def _check_batch(images: Tensor, targets: Tensor) -> None:
    """Refuse anything but a batch with one target per image; what images may look like is for the set to check."""
    check_type("images", images, Tensor, "a torch.Tensor")
    check_type("targets", targets, Tensor, "a torch.Tensor")
    require(images.ndim and len(images), f"images must hold at least one image, got shape {tuple(images.shape)}")
    if targets.ndim == 0 or len(targets) != len(images):
        raise ValueError(f"targets must have one row per image ({len(images)}), got shape {tuple(targets.shape)}")


def _check(problem: InvarianceConstrained, gamma_init: float) -> None:
    """Refuse settings that make no valid problem."""
    for constraint in problem.constraints:
        check_type("constraints", constraint, Constraint, "invaug.Constraint")
    n_steps, n_views, views, chunk = problem.n_steps, problem.n_views, problem.views, problem.scoring_batch
    for name, value in (("n_steps", n_steps), ("n_views", n_views), ("scoring_batch", chunk or 1)):
        require(isinstance(value, int), f"{name} must be a whole number, got {value!r}", TypeError)
    require(n_steps >= 0, f"n_steps must not be negative, got {n_steps} (0 samples uniformly)")
    require(n_views >= 1, f"n_views must be at least 1, got {n_views}")
    require(callable(views) or views in NAMED, f'views must be "one", "both" or a function, got {views!r}')
    several = f'n_views must be 1 with views="one", got {n_views}: several views need views="both"'
    require(n_views == 1 or views not in ("one", NAMED["one"]), several)
    rates = {"dual_lr": (problem.dual_lr, " (0 keeps gamma fixed)"), "gamma_init": (gamma_init, "")}
    for name, (rate, hint) in rates.items():
        require(0 <= rate < math.inf, f"{name} must not be negative or infinite, got {rate}{hint}")
    modes = ("frozen", "train")
    require(problem.scoring in modes, f'scoring must be "frozen" or "train", got {problem.scoring!r}')
    require(chunk is None or chunk >= 1, f"scoring_batch must be at least 1, or None for all at once, got {chunk}")
