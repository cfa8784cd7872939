"""Methods are data: each is the same loop with another policy, another sampler or another gamma."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from invaug import Constraint, InvarianceConstrained, TransformSet, metropolis_hastings, sets, views, worst
from invaug.lab.baselines import policy as policies
from invaug.lab.baselines.autoaugment import autoaugment
from invaug.lab.baselines.deepaa import deepaa
from invaug.lab.config.schema import CONSTRAINED, DEFAULT_SET, FIXED_GAMMA, Config, is_rule, rule_of
from invaug.lab.data.load import Dataset
from invaug.lab.errors import UserError
from invaug.lab.train.finish import Finish
from invaug.lab.train.tally import finite
from invaug.levels import Resilient
from invaug.samplers import Sampler

PolicyFactory = Callable[[Config, Dataset], policies.Policy]


@dataclass(frozen=True)
class MethodSpec:
    """How a method differs: what it samples with, which settings it fixes, which policy it trains on."""

    summary: str
    sampler: Sampler = metropolis_hastings
    settings: dict[str, Any] = field(default_factory=dict)
    policy: PolicyFactory | None = None


METHODS: dict[str, MethodSpec] = {
    "constrained": MethodSpec("invaug: loss on λ_c's transformations at most epsilon, a gamma that adapts"),
    "uniform": MethodSpec("the same with uniform draws instead of chains (ablation)"),
    "worst": MethodSpec("the same with the worst proposal instead of λ_c's", worst),
    "penalty": MethodSpec("clean loss + gamma_init * loss on λ_c's transformations", settings={"dual_lr": 0.0}),
    "identity-mix": MethodSpec(
        "clean and λ_c's images, equally weighted", settings={"dual_lr": 0.0, "gamma_init": 1.0}
    ),
    "sampled": MethodSpec("λ_c's images alone", settings={"dual_lr": 0.0, "gamma_init": 1.0, "views": views.kept_only}),
    "none": MethodSpec("crop and flip only"),
    "trivial": MethodSpec(
        "TrivialAugment: one operation per image", policy=lambda config, _: policies.trivial(trivial_set(config))
    ),
    "randaugment": MethodSpec(
        "RandAugment: n_ops operations of one magnitude",
        policy=lambda config, _: policies.randaugment(config.n_ops, config.magnitude),
    ),
    "autoaugment": MethodSpec(
        "AutoAugment's published policy for the dataset", policy=lambda _, dataset: autoaugment(dataset.name)
    ),
    "deepaa": MethodSpec("a DeepAA policy file", policy=lambda config, _: deepaa(policy_file(config))),
}

CONTINUOUS: dict[str, tuple[Callable[[float], TransformSet], float]] = {
    "rotations": (sets.rotations, math.pi),
    "translations": (sets.translations, 7.0),
    "scalings": (sets.scalings, math.log(2)),
}
"""Continuous sets and their range when none is given."""


def transform_sets(config: Config) -> tuple[tuple[str, TransformSet], ...]:
    """Return the set of each constraint, with its name."""
    if not config.families:
        return ((set_name(config), transform_set(config)),)
    return tuple((name, _family(config, name, _ranges(family))) for name, family in config.families.items())


def set_name(config: Config) -> str:
    """Return what the transformations are called."""
    return " + ".join(config.families) or (DEFAULT_SET if config.set == "auto" else config.set)


def depth(config: Config) -> int:
    """Return how many operations are applied in sequence: a mild set needs several."""
    return config.depth or (2 if set_name(config) == "mild" else 1)


def _ranges(family: Mapping[str, sets.Range]) -> dict[str, sets.Range]:
    """Return the operations of a family: all it says but its epsilon."""
    return {op: limits for op, limits in family.items() if op != "epsilon"}


def _family(config: Config, name: str, ranges: Mapping[str, sets.Range]) -> TransformSet:
    try:
        return sets.of(ranges, config.n_levels, relative_to=config.relative_to)
    except (ValueError, TypeError) as error:
        raise UserError(f"family {name}: {error}") from None


def transform_set(config: Config) -> TransformSet:
    """Return the set the config names, narrowed as it says; of families, all their operations; each by itself."""
    if config.families:
        every = {op: limits for family in config.families.values() for op, limits in _ranges(family).items()}
        return _family(config, "all", every)
    name = set_name(config)
    if name in CONTINUOUS:
        make, default = CONTINUOUS[name]
        return make(config.range or default)
    options = {"identity": config.identity, "min_level": int(not config.identity), "relative_to": config.relative_to}
    transforms: TransformSet = replace(getattr(sets, name)(config.n_levels, **options), depth=1)
    try:
        transforms = transforms.only(*config.only) if config.only else transforms
        return transforms.without(*config.without) if config.without else transforms
    except ValueError as error:
        raise UserError(str(error)) from None


def trivial_set(config: Config) -> TransformSet:
    """Return what TrivialAugment draws from: its wide set, unless another is named."""
    return transform_set(config.model_copy(update={"set": "wide"}) if config.set == "auto" else config)


def usual_epsilon(n_classes: int) -> float:
    """Return about a third of the loss of a guess: 0.8 for ten classes, as in the paper."""
    return round(0.35 * math.log(n_classes), 2)


Level = float | Resilient


def epsilon(config: Config, n_classes: int) -> Level:
    """Return the level that is given, or that of a preset; methods with a fixed gamma have no level to keep."""
    if config.method in FIXED_GAMMA:
        return 0.0
    if config.epsilon is None:
        return usual_epsilon(n_classes)
    if isinstance(config.epsilon, float):
        return config.epsilon
    return rule_of(config.epsilon) if isinstance(config.epsilon, dict) else Resilient()


def epsilons(config: Config, n_classes: int) -> list[Level]:
    """Return the level of each constraint: a family may have one of its own."""
    common = epsilon(config, n_classes)
    if not config.families or not common:
        return [common] * max(len(config.families), 1)
    return [float(f["epsilon"]) if "epsilon" in f else common for f in config.families.values()]  # type: ignore[arg-type]


def ended_on(config: Config, rows: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the epsilon of a run by its record: the given one, or what its rule had set in the last epoch."""
    if not is_rule(config.epsilon):
        return finite(config.epsilon)  # type: ignore[arg-type]  # a number, or none
    own = ["epsilon" in family for family in config.families.values()] or [False]
    levels = rows[-1].get("epsilon") or [] if rows else []
    return next((level for level, has_its_own in zip(levels, own, strict=False) if not has_its_own), None)


def policy_file(config: Config) -> str:
    """Return the path of the policy file."""
    return str(config.policy)


def loss_function(config: Config) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the cross-entropy of each sample."""
    return partial(F.cross_entropy, reduction="none", label_smoothing=config.label_smoothing)


VIEWS: Mapping[str, Any] = {"one": "one", "both": "both", "apart": views.apart}


def constraints(config: Config, n_classes: int) -> list[Constraint]:
    """Return the constraints of the method, none where it has none."""
    if config.method not in CONSTRAINED:
        return []
    pairs = zip(transform_sets(config), epsilons(config, n_classes), strict=True)
    sampler, n_ops = METHODS[config.method].sampler, depth(config)
    return [Constraint(replace(each, depth=n_ops), level, sampler, config.share) for (_, each), level in pairs]


def problem(config: Config, dataset: Dataset, finish: Finish) -> InvarianceConstrained:
    """Return the constrained problem the method is; without constraints it is plain training on the policy's images."""
    spec = METHODS[config.method]
    names = ("n_steps", "n_views", "dual_lr", "gamma_init", "scoring", "scoring_batch", "seed")
    settings = {name: getattr(config, name) for name in names} | {"views": VIEWS[config.views]} | spec.settings
    finished = _after(spec.policy(config, dataset), finish) if spec.policy else finish
    bound = constraints(config, len(dataset.classes))
    return InvarianceConstrained(*bound, loss_fn=loss_function(config), finish=finished, **settings)


def _after(policy: policies.Policy, finish: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Return: transform by the policy, then finish."""
    return lambda images: finish(policy.apply(images, policy.draw(len(images), generator=None)))
