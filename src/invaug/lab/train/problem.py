"""The constrained problem that a resolved config describes: the same loop for every method, with other values."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from invaug import Constraint, InvarianceConstrained, samplers, views
from invaug.lab.baselines.policy import Memory, Policy
from invaug.lab.config.levels import Level, level_of
from invaug.lab.config.methods import METHODS, Method
from invaug.lab.config.schema import Config
from invaug.lab.data.load import Dataset
from invaug.lab.train.finish import Finish
from invaug.lab.train.sets import transform_sets
from invaug.lab.train.tally import finite_or_none
from invaug.samplers import Sampler

VIEWS: Mapping[str, Any] = {"one": "one", "both": "both", "apart": views.apart}
PROBLEM_SETTINGS = ("n_steps", "n_views", "dual_lr", "gamma_init", "scoring", "scoring_batch")


def build_problem(config: Config, dataset: Dataset, finish: Finish) -> InvarianceConstrained:
    """Return the problem of a method; without constraints it is plain training on the images of a policy."""
    row = METHODS[config.method.name]
    settings = {name: getattr(config.method, name) for name in PROBLEM_SETTINGS}
    return InvarianceConstrained(
        *constraints(config),
        loss_fn=loss_function(config),
        finish=AfterPolicy(policy_of(row)(config, dataset), finish) if row.policy else finish,
        views=VIEWS[config.method.views] if row.keeps_clean else views.kept_only,
        seed=config.run.seed,
        **settings,
    )


def loss_function(config: Config) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the cross-entropy of each sample."""
    return partial(F.cross_entropy, reduction="none", label_smoothing=config.train.label_smoothing)


def constraints(config: Config) -> list[Constraint]:
    """Return the constraints of the method, none for plain training."""
    row, method = METHODS[config.method.name], config.method
    if not row.is_constrained:
        return []
    pairs = zip(transform_sets(config), epsilons(config), strict=True)
    depth, share = int(method.depth), float(method.share)
    return [Constraint(replace(each, depth=depth), level, sampler_of(row), share) for (_, each), level in pairs]


def epsilons(config: Config) -> list[Level]:
    """Return the level of each constraint: a family may have its own."""
    common = level_of(config.method.epsilon)
    if not METHODS[config.method.name].holds_epsilon or not config.families:
        return [common] * max(len(config.families), 1)
    return [level_of(family.get("epsilon", config.method.epsilon)) for family in config.families.values()]


def final_epsilon(config: Config, rows: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the epsilon of a run by its record: the given one, or what its rule had set in the last epoch."""
    if isinstance(config.method.epsilon, float):
        return finite_or_none(config.method.epsilon)
    own = ["epsilon" in family for family in config.families.values()] or [False]
    levels = rows[-1].get("epsilon") or [] if rows else []
    return next((level for level, has_its_own in zip(levels, own, strict=False) if not has_its_own), None)


def sampler_of(row: Method) -> Sampler:
    """Return the function that says which proposals are kept."""
    sampler: Sampler = getattr(samplers, row.sampler)
    return sampler


def policy_of(row: Method) -> Callable[[Config, Dataset], Policy]:
    """Return the function that makes the policy of a baseline; its module is imported only when it is used."""
    module, _, name = row.policy.partition(".")
    make: Callable[[Config, Dataset], Policy] = getattr(import_module(f"invaug.lab.baselines.{module}"), name)
    return make


class AfterPolicy(nn.Module):
    """Transforms images by a policy, then finishes them, with the random numbers of one generator."""

    def __init__(self, policy: Policy, finish: Finish) -> None:
        super().__init__()
        self.policy, self.memory, self.finish = policy, policy.memory, finish

    def forward(self, images: Tensor) -> Tensor:
        """Return the images as a model sees them in training."""
        policy, generator = self.policy, self.finish.generator
        transformed: Tensor = self.finish(policy.apply(images, policy.draw(len(images), generator=generator)))
        return transformed


def memory_of(problem: InvarianceConstrained) -> Memory:
    """Return what the policy of a problem remembers of the images; without a policy, nothing."""
    return problem.finish.memory if isinstance(problem.finish, AfterPolicy) else Memory()
