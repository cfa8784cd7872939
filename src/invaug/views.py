"""Which views of a batch are trained on, and how their losses make up the Lagrangian.

A view function takes a `Given` and returns a `Batch`. `one` and `both` have names of their own; `apart` and `kept_only`
are for ablations; pass your own as `InvarianceConstrained(..., views=function)`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from invaug.checks import require
from invaug.constraint import Constraint
from invaug.proposals import Finish, Proposals, Proposer, empty_rows, propose

LEAST_SHARE = 1 / 8  # of a batch, on which a constraint is measured with one view per image


class Given(NamedTuple):
    """What a view function is given.

    Example:
        >>> def clean_only(given: Given) -> Batch:
        ...     n = len(given.images)
        ...     nothing = [None] * len(given.constraints)
        ...     return Batch(given.finish(given.images), given.targets, [(slice(n), 1.0)], nothing, given.gammas)
        >>> from invaug import InvarianceConstrained
        >>> InvarianceConstrained(views=clean_only).views is clean_only
        True
    """

    images: Tensor
    targets: Tensor
    constraints: tuple[Constraint, ...]
    gammas: list[float]
    """One per constraint, 0 where it cannot bind."""
    finish: Finish
    how: Proposer

    @property
    def active(self) -> list[int]:
        """The indices of the constraints that can bind."""
        return [k for k, constraint in enumerate(self.constraints) if constraint.active]


@dataclass(frozen=True)
class Batch:
    """What to train on, and how much each loss counts.

    Example:
        >>> batch = Batch(torch.zeros(4, 3), torch.zeros(4), terms=[(slice(4), 1.0)], proposals=[], gammas=[])
        >>> batch.scale
        1.0
    """

    inputs: Tensor
    targets: Tensor
    terms: Sequence[tuple[slice, float]]
    """The Lagrangian is Σ weight · mean loss of the rows, for these pairs, minus gamma · epsilon / scale."""
    proposals: Sequence[Proposals | None]
    """Those of each constraint; None where it cannot bind."""
    gammas: Sequence[float]
    scale: float = 1.0
    kept: Sequence[slice | None] = ()
    """The rows of each constraint's kept views; empty if constraints are measured by scores."""
    clean: slice | None = None
    """The rows of the clean views, if the batch has kept views too."""
    passes: Sequence[int] = ()
    """How many rows each forward pass has; empty for one pass."""


def one(given: Given) -> Batch:
    """Return one view per image, clean or transformed: an unbiased estimate of L̂ / (1 + Σ gamma) in one gradient pass.

    loss + Σ γ_k · loss_k is (1 + Σ γ) times the loss under a mixture: the clean image with probability 1 / (1 + Σ γ),
    constraint k's with probability γ_k / (1 + Σ γ). Each constraint is measured by the scores of its images, and of as
    many more as its share asks for, so that gamma can leave zero.

    Example:
        >>> from invaug import InvarianceConstrained, sets
        >>> problem = InvarianceConstrained(Constraint(sets.wide()), views=one)
        >>> network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 4))
        >>> images, targets = torch.zeros(6, 1, 8, 8, dtype=torch.uint8), torch.zeros(6, dtype=torch.long)
        >>> len(problem.prepare(network, images, targets).inputs)
        6
    """
    n, total = len(given.images), 1.0 + sum(given.gammas)
    clean, *parts = systematic_assignment(n, [1.0, *given.gammas], given.how.generator, given.images.device)
    proposals: list[Proposals | None] = [None] * len(parts)
    # if all are clean they keep their order, so that plain training is reproduced exactly
    untouched = given.images if len(clean) == n else given.images[clean]
    views = [(clean, given.finish(untouched))] if len(clean) else []
    for k in given.active:
        least = math.ceil((given.constraints[k].share or LEAST_SHARE) * n)
        rows = torch.cat([*parts[k:], clean, *parts[:k]])[: max(least, len(parts[k]))]
        n_clean = least if given.constraints[k].level.base == "clean" else 0
        made = propose(given.constraints[k], given.images[rows], given.targets[rows], given.how, least, n_clean)
        proposals[k] = made
        views.append((parts[k], made.inputs[: len(parts[k])]))
    inputs = views[0][1] if len(clean) == n else _restore_order(views, n)
    return Batch(inputs, given.targets, [(slice(n), 1.0)], proposals, given.gammas, scale=total)


def _restore_order(views: list[tuple[Tensor, Tensor]], n: int) -> Tensor:
    """Return the views in the order of the batch, each at its own rows."""
    inputs = empty_rows(views[0][1], n)
    for rows, part in views:
        inputs.index_copy_(0, rows, part)
    return inputs


def both(given: Given) -> Batch:
    """Return the clean view of every image and all views the constraints keep, in one pass: L̂ as printed.

    Example:
        >>> from invaug import InvarianceConstrained, sets
        >>> problem = InvarianceConstrained(Constraint(sets.wide(), epsilon=0.8), views=both, n_views=2)
        >>> network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 4))
        >>> images, targets = torch.zeros(6, 1, 8, 8, dtype=torch.uint8), torch.zeros(6, dtype=torch.long)
        >>> len(problem.prepare(network, images, targets).inputs)
        18
    """
    clean = given.finish(given.images)
    proposals = [_propose(given, k) if constraint.active else None for k, constraint in enumerate(given.constraints)]
    made = [each for each in proposals if each]
    ends = list(accumulate([len(clean), *(len(each.inputs) for each in made)], initial=0))
    first, *rest = (slice(a, b) for a, b in pairwise(ends))
    places = iter(rest)
    kept = [next(places) if each else None for each in proposals]
    weighed = [(rows, gamma) for rows, gamma in zip(kept, given.gammas, strict=True) if rows]
    inputs = torch.cat([clean, *(each.inputs for each in made)]) if made else clean
    targets = torch.cat([given.targets, *(each.targets for each in made)]) if made else given.targets
    return Batch(inputs, targets, [(first, 1.0), *weighed], proposals, given.gammas, kept=kept, clean=first)


def _propose(given: Given, k: int) -> Proposals:
    constraint, images, targets = given.constraints[k], given.images, given.targets
    if constraint.share and constraint.share < 1:
        generator = given.how.generator
        order = torch.randperm(len(images), generator=generator, device=generator.device).to(images.device)
        rows = order[: math.ceil(constraint.share * len(images))]
        images, targets = images[rows], targets[rows]
    return propose(constraint, images, targets, given.how)


def apart(given: Given) -> Batch:
    """Return what `both` returns, with clean and kept views in separate forward passes: BatchNorm sees them apart.

    Example:
        >>> from invaug import InvarianceConstrained, sets
        >>> problem = InvarianceConstrained(Constraint(sets.wide(), epsilon=0.8), views=apart)
        >>> network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 4))
        >>> images, targets = torch.zeros(6, 1, 8, 8, dtype=torch.uint8), torch.zeros(6, dtype=torch.long)
        >>> problem.prepare(network, images, targets).passes
        [6, 6]
    """
    batch = both(given)
    return replace(batch, passes=[rows.stop - rows.start for rows, _ in batch.terms])


def kept_only(given: Given) -> Batch:
    """Return only the views that the one constraint keeps, without clean ones: training on λ_c alone.

    Example:
        >>> from invaug import InvarianceConstrained, sets
        >>> problem = InvarianceConstrained(Constraint(sets.wide(), epsilon=0.8), views=kept_only)
        >>> network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 4))
        >>> images, targets = torch.zeros(6, 1, 8, 8, dtype=torch.uint8), torch.zeros(6, dtype=torch.long)
        >>> problem.prepare(network, images, targets).clean is None
        True
    """
    n_active = len(given.active)
    require(n_active == 1, f"views.kept_only needs one constraint with a finite epsilon, got {n_active}")
    (k,) = given.active
    whole = given.how.n_views == 1 and given.constraints[k].share in (None, 1)
    require(whole, "views.kept_only needs one view of whole batches: leave out n_views and share")
    fixed = given.constraints[k].level.base != "clean"
    require(fixed, 'views.kept_only has no clean loss to go by: give epsilon as a number, not "auto"')
    made, rows = (
        _propose(given, k),
        [slice(None) if constraint.active else None for constraint in given.constraints],
    )
    proposals = [made if each else None for each in rows]
    return Batch(made.inputs, made.targets, [(slice(None), 1.0)], proposals, given.gammas, given.gammas[k] or 1.0, rows)


ViewFunction = Callable[[Given], Batch]
NAMED: dict[str, ViewFunction] = {"one": one, "both": both}


def systematic_assignment(
    n: int, weights: Sequence[float], generator: torch.Generator, device: torch.device | None = None
) -> list[Tensor]:
    """Return the rows 0 to n - 1 in parts, int64; each row is in part k with probability weights[k] / sum(weights).

    Systematic sampling: the size of a part differs from its expectation by less than one.

    Example:
        >>> parts = systematic_assignment(8, [1.0, 3.0], torch.Generator().manual_seed(0))
        >>> [len(part) for part in parts]
        [2, 6]
    """
    u = torch.rand((), generator=generator, device=generator.device, dtype=torch.float64).item()
    order = torch.randperm(n, generator=generator, device=generator.device).to(device or generator.device)
    total = sum(weights)
    ends = [min(math.floor(n * part / total + u), n) for part in accumulate(weights[:-1])]
    return [order[a:b] for a, b in pairwise([0, *ends, n])]
