"""The table of methods: one row each, read by the config, training, reports, tuning, experiments and `invaug ls`.

A new baseline is a row here and a function in `invaug.lab.baselines`. The table imports nothing heavy, so that reading
a run or printing help never waits for torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from invaug.lab.errors import nearest

Kind = Literal["bounded", "weighted", "policy"]


@dataclass(frozen=True)
class Method:
    """How a method differs from the others."""

    name: str
    """What flags and records call it."""
    summary: str
    kind: Kind = "policy"
    """bounded: holds a loss below epsilon; weighted: adds that loss with a fixed gamma; policy: plain training."""
    label: str = ""
    """What tables and pages call it, if not by its name."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings the method fixes, whatever a preset says."""
    needs: tuple[str, str] | None = None
    """A setting without which it cannot run, and the sentence that says so."""
    default_set: str = "mild"
    sampler: str = "metropolis_hastings"
    """How proposals are kept: a function of `invaug.samplers`."""
    policy: str = ""
    """What transforms the images of plain training: `module.function` of `invaug.lab.baselines`."""
    keeps_clean: bool = True
    """Whether clean images are trained on beside transformed ones."""

    @property
    def is_constrained(self) -> bool:
        """Whether it trains on transformed images with a gamma, adaptive or fixed."""
        return self.kind != "policy"

    @property
    def holds_epsilon(self) -> bool:
        """Whether it holds a loss below epsilon."""
        return self.kind == "bounded"


DEFAULT = "constrained"
FIXED_WEIGHT = {"dual_lr": 0.0, "gamma_init": 1.0}
_ROWS = (
    Method(
        DEFAULT,
        "loss on hard transformed images (drawn by chains) held below epsilon, with a gamma that adapts",
        "bounded",
        label="invaug",
    ),
    Method("uniform", "the same with uniform draws instead of chains (ablation)", "bounded", settings={"n_steps": 0}),
    Method("worst", "the same with the worst proposal instead of the chain's", "bounded", sampler="worst"),
    Method(
        "penalty",
        "clean loss + gamma_init * loss on transformed images",
        "weighted",
        settings={"dual_lr": 0.0},
        needs=("gamma_init", "the weight of the transformed loss: --gamma-init, for example 1"),
    ),
    Method("identity-mix", "clean and transformed images, equally weighted", "weighted", settings=FIXED_WEIGHT),
    Method("sampled", "transformed images alone", "weighted", settings=FIXED_WEIGHT, keeps_clean=False),
    Method("none", "crop and flip only"),
    Method("trivial", "TrivialAugment: one operation per image", policy="policy.trivial_augment", default_set="wide"),
    Method("randaugment", "RandAugment: n_ops operations of one magnitude", policy="policy.rand_augment"),
    Method("autoaugment", "AutoAugment's published policy for the dataset", policy="autoaugment.published_policy"),
    Method(
        "deepaa",
        "a DeepAA policy file",
        policy="deepaa.policy_of_file",
        needs=("policy", "a policy file: --policy FILE.npz"),
    ),
)
METHODS: Mapping[str, Method] = {row.name: row for row in _ROWS}


def label(name: str) -> str:
    """Return what a method is called in tables and on pages; a name we do not know stays as it is."""
    return METHODS[name].label or name if name in METHODS else name


def is_constrained(name: str) -> bool:
    """Whether a method trains on transformed images with a gamma; False for a name we do not know."""
    return name in METHODS and METHODS[name].is_constrained


def holds_epsilon(name: str) -> bool:
    """Whether a method holds a loss below epsilon; False for a name we do not know."""
    return name in METHODS and METHODS[name].holds_epsilon


def check_name(name: str) -> str:
    """Return the name of a method; ValueError with the nearest ones if there is no such method."""
    if name not in METHODS:
        raise ValueError(f"unknown method {name}, {nearest(name, METHODS)}")
    return name
