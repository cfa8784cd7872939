"""Automatic data augmentation by invariance-constrained learning."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from invaug import ops as ops
    from invaug import presets as presets
    from invaug import sets as sets
    from invaug import views as views
    from invaug.constraint import Constraint as Constraint
    from invaug.draws import Draw as Draw
    from invaug.levels import Resilient as Resilient
    from invaug.ops import Op as Op
    from invaug.problem import InvarianceConstrained as InvarianceConstrained
    from invaug.samplers import Chain as Chain
    from invaug.samplers import chain_probabilities as chain_probabilities
    from invaug.samplers import metropolis_hastings as metropolis_hastings
    from invaug.samplers import worst as worst
    from invaug.step import Step as Step
    from invaug.transforms import TransformSet as TransformSet

__version__ = "0.1.0"

# looked up on first use, so that the command line can answer --help without waiting for torch
_MODULE_OF = {
    "Chain": "samplers",
    "Constraint": "constraint",
    "Draw": "draws",
    "InvarianceConstrained": "problem",
    "Op": "ops",
    "Resilient": "levels",
    "Step": "step",
    "TransformSet": "transforms",
    "chain_probabilities": "samplers",
    "metropolis_hastings": "samplers",
    "worst": "samplers",
}
_MODULES = ("adapters", "ops", "presets", "sets", "testing", "views")

__all__ = [*_MODULE_OF, "ops", "presets", "sets", "views"]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"invaug.{name}")
    if name in _MODULE_OF:
        value = getattr(import_module(f"invaug.{_MODULE_OF[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'invaug' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
