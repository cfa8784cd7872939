"""The same problem at the cost of plain training: one view an image, clean or transformed, in the right proportion."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from invaug.constraint import Chosen, Constraint, Step
from invaug.images import doubles
from invaug.problem import InvarianceConstrained
from invaug.samplers import chain_probabilities, metropolis_hastings
from invaug.scoring import Model


class InvarianceMixture(InvarianceConstrained):
    """InvarianceConstrained with one gradient pass over as many images as the batch has.

    loss + Σ γ_k · loss_k is (1 + Σ γ) times the loss under a mixture: the clean image with probability 1 / (1 + Σ γ),
    constraint k's with γ_k / (1 + Σ γ). Each image is given one of these, the numbers of each as near to their
    expectation as whole numbers allow, and the loss is scaled, so that the gradient has the same mean. Proposals are
    scored only for the images a constraint was given, and for as many more as `watched` asks.

    The slack is the mean, over the images a constraint looked at, of the loss its sampler keeps: for chains the exact
    expectation over their accept/reject draws, from the scores there are anyway.

    Args:
        watched: Least share of the batch each constraint looks at, so that gamma can rise from zero.
    """

    def __init__(self, *constraints: Constraint, watched: float = 0.25, **settings: Any) -> None:
        super().__init__(*constraints, **settings)
        if not 0 < watched <= 1:
            raise ValueError(f"watched must be above 0 and at most 1, got {watched}")
        if self.n_views > 1 or not self.clean or any(constraint.share < 1 for constraint in constraints):
            raise ValueError("a mixture has one view an image: leave out n_views, clean and share")
        self.watched = watched

    def _step(
        self, model: Model, images: Tensor, targets: Tensor, indices: Tensor | None, generator: torch.Generator
    ) -> Step:
        """Return what the batch says: share the images out, draw, score, sample λ_c, evaluate."""
        if not any(constraint.active for constraint in self.constraints):
            return super()._step(model, images, targets, indices, generator)  # plain training, bit for bit
        gammas = [g if c.active else 0.0 for g, c in zip(self.gamma.tolist(), self.constraints, strict=True)]
        first, *rest = shared_out(len(images), [1.0, *gammas], generator, images.device)
        chosen = [
            self._look(k, part, [*rest, first], model, images, targets, generator, indices)
            if self.constraints[k].active
            else None
            for k, part in enumerate(rest)
        ]
        outputs, (losses,) = self._losses(model, [self._views(images, first, rest, chosen)], [targets])
        if not isinstance(outputs, Tensor):
            raise TypeError(f"a mixture needs a model that returns a tensor, got {type(outputs).__name__}")
        trained = [losses.detach()[part] for part in rest]
        stale = self._note(chosen, [mine for c, mine in zip(chosen, trained, strict=True) if c])
        kept = [self._kept(c, mine, model, generator) for c, mine in zip(chosen, trained, strict=True) if c]
        levels = self.epsilons
        level = sum(g * level for g, c, level in zip(gammas, self.constraints, levels, strict=True) if c.active)
        draws, chains = (tuple(getattr(c, name) if c else None for c in chosen) for name in ("draw", "chain"))
        total = 1.0 + sum(gammas)
        lagrangian = losses.mean() - level / total if self.normalized else total * losses.mean() - level
        slack, epsilon = self._slack(kept, levels), self.gamma.new_tensor(levels)
        return Step(lagrangian, losses.detach().mean(), slack, draws, chains, outputs, epsilon, stale)

    def _views(self, images: Tensor, first: Tensor, rest: list[Tensor], chosen: list[Chosen | None]) -> Tensor:
        """Return what the model sees of each image, in the order of the batch."""
        given = [(part, each.inputs[: len(part)]) for part, each in zip(rest, chosen, strict=True) if each]
        if self.n_steps == 0:  # uniform draws are finished with the clean images, in one call
            views = images.clone()
            for part, changed in given:
                views.index_copy_(0, part, changed)
            return self.finish(views)
        given += [(first, self.finish(images[first]))] if len(first) else []
        order, inputs = (torch.cat(parts) for parts in zip(*((p, x) for p, x in given if len(p)), strict=True))
        # not by an index, which would lose the order of memory that convolutions are fastest in
        return torch.empty_like(inputs).index_copy_(0, order, inputs)

    def _look(
        self, k: int, part: Tensor, parts: list[Tensor], model: Model, images: Tensor, targets: Tensor,
        generator: torch.Generator, indices: Tensor | None,
    ) -> Chosen:  # fmt: skip
        """Return what a constraint chose for its images, and after these for the others it looks at."""
        n_more, rows = math.ceil(self.watched * len(images)) - len(part), part
        if n_more > 0:
            mine = torch.zeros(len(images), dtype=torch.bool, device=images.device)
            mine[part] = True
            everyone = torch.cat(parts)
            rows = torch.cat([part, everyone[~mine[everyone]][:n_more]])
        known = None if indices is None else indices[rows.to(indices.device)]
        return self._choose(k, model, images[rows], targets[rows.to(targets.device)], generator, known)

    def _finished(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Return proposals as the model sees them; uniform draws as they are, to be finished with the clean ones."""
        return images if self.n_steps == 0 else super()._finished(images, generator)

    def _kept(self, chosen: Chosen, trained: Tensor, model: Model, generator: torch.Generator) -> Tensor:
        """Return the loss of each image a constraint looked at; the first of them were trained on."""
        if chosen.scores is None:  # uniform draws: those that were trained on have a loss, the others need one
            n = len(trained)
            if n == len(chosen.labels):
                return trained
            inputs = super()._finished(chosen.inputs[n:], generator)
            more = self._score(model, inputs, chosen.labels[n:], generator)
            return torch.cat([doubles(trained), doubles(more)])
        if chosen.rows is not None:  # the first of a remembered chain has the loss of another visit
            return torch.cat([doubles(trained), doubles(chosen.chain.loss.flatten()[len(trained) :])])
        if chosen.sampler is not metropolis_hastings:
            return chosen.chain.loss.flatten()
        scores = doubles(chosen.scores)
        law = chain_probabilities(scores if chosen.judged is None else chosen.judged)
        return torch.where(law > 0, law * scores, 0.0).sum(dim=0).flatten()


def shared_out(
    n: int, weights: Sequence[float], generator: torch.Generator, device: torch.device | None = None
) -> list[Tensor]:
    """Return the rows 0 to n - 1 in parts: each row in part k with probability weights[k] / sum(weights).

    Systematic sampling: how many rows a part gets differs from its expectation by less than one.
    """
    u = torch.rand((), generator=generator, device=generator.device, dtype=torch.float64).item()
    order = torch.randperm(n, generator=generator, device=generator.device).to(device or generator.device)
    ends, total = [0], sum(weights)
    for k in range(1, len(weights)):
        ends.append(min(math.floor(n * sum(weights[:k]) / total + u), n))
    ends.append(n)
    return [order[a:b] for a, b in pairwise(ends)]
