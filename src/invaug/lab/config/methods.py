"""The table of methods, methods.toml: read by the config, training, reports, tuning, experiments and `invaug ls`.

A new baseline is a table there and a function in `invaug.lab.baselines`. Nothing heavy is imported, so that reading a
run or printing help never waits for torch.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from invaug.lab.errors import nearest

DEFAULT = "constrained"
OF_CONSTRAINTS = (
    *("set", "range", "only", "without", "n_levels", "identity", "relative_to", "families", "ranges", "depth"),
    *("share", "n_steps", "n_views", "views", "gamma_init", "scoring", "scoring_batch"),
)
"""Settings that every method with a gamma reads."""
OF_LEVELS = ("epsilon", "dual_lr")
OF_CLEAN_IMAGES = ("share", "views")


@dataclass(frozen=True)
class Method:
    """How a method differs from the others."""

    name: str
    """What flags and records call it."""
    summary: str
    kind: Literal["bounded", "weighted", "policy"] = "policy"
    """bounded: holds a loss below epsilon; weighted: adds that loss with a fixed gamma; policy: plain training."""
    label: str = ""
    """What tables call it, if not by its name."""
    title: str = ""
    """What a page calls it, in words for readers who do not know the names."""
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
    own: tuple[str, ...] = ()
    """Settings that the policy of plain training reads."""

    @property
    def is_constrained(self) -> bool:
        """Whether it trains on transformed images with a gamma, adaptive or fixed."""
        return self.kind != "policy"

    @property
    def holds_epsilon(self) -> bool:
        """Whether it holds a loss below epsilon."""
        return self.kind == "bounded"

    @property
    def uses(self) -> frozenset[str]:
        """The settings that have an effect on it and that it does not fix, of those that not every method reads."""
        found = {
            *self.own,
            *(OF_CONSTRAINTS if self.is_constrained else ()),
            *(OF_LEVELS if self.holds_epsilon else ()),
        }
        return frozenset(found - {*self.settings} - {*(() if self.keeps_clean else OF_CLEAN_IMAGES)})


_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
METHODS: Mapping[str, Method] = {name: Method(name, **table) for name, table in _TABLES.items()}
OF_SOME = frozenset[str]().union(*(row.uses for row in METHODS.values()))
"""Settings that some methods use and others do not."""


def label(name: str) -> str:
    """Return what a method is called in tables; a name we do not know stays as it is."""
    return METHODS[name].label or name if name in METHODS else name


def title(name: str) -> str:
    """Return what a method is called on a page."""
    return (METHODS[name].title if name in METHODS else "") or label(name)


def is_constrained(name: str) -> bool:
    """Whether a method trains on transformed images with a gamma; False for a name we do not know."""
    return name in METHODS and METHODS[name].is_constrained


def holds_epsilon(name: str) -> bool:
    """Whether a method holds a loss below epsilon; False for a name we do not know."""
    return name in METHODS and METHODS[name].holds_epsilon


def is_used(name: str, key: str) -> bool:
    """Whether a setting has an effect on a method; True for a name we do not know.

    Example:
        >>> is_used("trivial", "epsilon"), is_used("trivial", "set"), is_used("trivial", "lr")
        (False, True, True)
    """
    return name not in METHODS or key not in OF_SOME or key in METHODS[name].uses


def check_name(name: str) -> str:
    """Return the name of a method; ValueError with the nearest ones if there is no such method."""
    if name not in METHODS:
        raise ValueError(f"unknown method {name}, {nearest(name, METHODS)}")
    return name
