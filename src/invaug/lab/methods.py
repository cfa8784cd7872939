"""Methods are data: each is the same loop with another policy, another sampler or another gamma."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from invaug import Constraint, InvarianceConstrained, InvarianceMixture, TransformSet, metropolis_hastings, sets, worst
from invaug.lab import policies
from invaug.lab.autoaugment import autoaugment
from invaug.lab.config import Config
from invaug.lab.datasets import Dataset
from invaug.lab.deepaa import deepaa
from invaug.lab.errors import UserError
from invaug.lab.finish import Finish
from invaug.lab.tally import finite
from invaug.samplers import Sampler

CPU = torch.device("cpu")
PolicyFactory = Callable[[Config, Dataset], policies.Policy]


@dataclass(frozen=True)
class MethodSpec:
    """How a method differs: whether it constrains, what it samples with, which settings it fixes, which policy."""

    summary: str
    constrains: bool = False
    sampler: Sampler = metropolis_hastings
    settings: dict[str, Any] = field(default_factory=dict)
    policy: PolicyFactory | None = None


METHODS: dict[str, MethodSpec] = {
    "constrained": MethodSpec("loss on λ_c's transformations at most epsilon (the paper)", True),
    "learned": MethodSpec(
        "loss on transformations drawn by how hard they have been at most epsilon", True, settings={"n_steps": 0}
    ),
    "uniform": MethodSpec("loss on uniform transformations at most epsilon", True, settings={"n_steps": 0}),
    "worst": MethodSpec("loss on the worst proposal at most epsilon", True, worst),
    "penalty": MethodSpec("clean loss + gamma_init * loss on λ_c's transformations", True, settings={"dual_lr": 0.0}),
    "identity-mix": MethodSpec(
        "clean and λ_c's images, equally weighted", True, settings={"dual_lr": 0.0, "gamma_init": 1.0}
    ),
    "sampled": MethodSpec("λ_c's images alone", True, settings={"dual_lr": 0.0, "gamma_init": 1.0, "clean": False}),
    "none": MethodSpec("crop, flip, cutout only"),
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
    return " + ".join(config.families) or ("mild" if config.set == "auto" else config.set)


def depth(config: Config) -> int:
    """Return how many operations follow one another in a view of a constraint: a mild set needs several."""
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


Level = float | Literal["auto"]


def usual_epsilon(n_classes: int) -> float:
    """Return about a third of the loss of a guess: 0.8 for ten classes, as in the paper."""
    return round(0.35 * math.log(n_classes), 2)


def epsilon(config: Config, n_classes: int) -> Level:
    """Return the given epsilon, or that of a preset; methods with a fixed gamma have no level to keep."""
    if not METHODS[config.method].settings.get("dual_lr", 1.0):
        return 0.0
    return usual_epsilon(n_classes) if config.epsilon is None else config.epsilon


def epsilons(config: Config, n_classes: int) -> list[Level]:
    """Return the level of each constraint: a family may have one of its own."""
    common = epsilon(config, n_classes)
    if not config.families or not common:
        return [common] * max(len(config.families), 1)
    return [float(f["epsilon"]) if "epsilon" in f else common for f in config.families.values()]  # type: ignore[arg-type]


def ended_on(config: Config, rows: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the epsilon of a run by its record: the given one, or what "auto" was in the last epoch."""
    if config.epsilon != "auto":
        return finite(config.epsilon)
    own = ["epsilon" in family for family in config.families.values()] or [False]
    levels = rows[-1].get("epsilon") or [] if rows else []
    return next((level for level, has_its_own in zip(levels, own, strict=False) if not has_its_own), None)


def policy_file(config: Config) -> str:
    """Return the path of the policy file."""
    return str(config.policy)


def loss_function(config: Config) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the cross-entropy of each sample."""
    return partial(F.cross_entropy, reduction="none", label_smoothing=config.label_smoothing)


def scoring_dtype(config: Config, device: torch.device) -> torch.dtype | None:
    """Return the precision proposals are scored in; by itself a lower one only where there are units for it."""
    units = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    by_itself = config.scoring_precision == "auto" and config.precision == "32-true" and units
    return torch.bfloat16 if by_itself or config.scoring_precision == "bf16" else None


def problem(config: Config, dataset: Dataset, finish: Finish, device: torch.device = CPU) -> InvarianceConstrained:
    """Return the constrained problem the method is; without constraints it is plain training on the policy's images."""
    spec = METHODS[config.method]
    constraints = []
    if spec.constrains:
        pairs = zip(transform_sets(config), epsilons(config, len(dataset.classes)), strict=True)
        in_a_row = depth(config)
        constraints = [
            Constraint(replace(s, depth=in_a_row), level, spec.sampler, config.share) for (_, s), level in pairs
        ]
    names = ("n_steps", "n_views", "dual_lr", "gamma_init", "normalized", "price", "learn")
    settings = {name: getattr(config, name) for name in names} | spec.settings
    kind: type[InvarianceConstrained] = InvarianceConstrained
    if config.mixture and constraints:
        kind, settings = InvarianceMixture, settings | {"watched": config.watched}
    if config.remember and constraints and settings["n_steps"]:
        settings |= {"remember": len(dataset.train), "age": config.remember}
    settings["normalized"] = config.normalized and settings.get("clean", True)
    return kind(
        *constraints, scoring=config.scoring, scoring_batch=config.scoring_batch,
        scoring_dtype=scoring_dtype(config, device), joint=config.joint, seed=config.seed,
        loss_fn=loss_function(config),
        finish=_after(spec.policy(config, dataset), finish) if spec.policy else finish, **settings,
    )  # fmt: skip


def _after(policy: policies.Policy, finish: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Return: transform by the policy, then finish."""
    return lambda images: finish(policy.apply(images, policy.draw(len(images), generator=None)))
