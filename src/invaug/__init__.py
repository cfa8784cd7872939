"""Automatic data augmentation by invariance-constrained learning."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from invaug import presets, views
    from invaug.constraint import Constraint
    from invaug.levels import Resilient
    from invaug.problem import InvarianceConstrained
    from invaug.samplers import Chain, chain_probabilities, metropolis_hastings, worst
    from invaug.step import Step
    from invaug.transforms import ops, sets
    from invaug.transforms.draw import Draw
    from invaug.transforms.ops import Op
    from invaug.transforms.set import TransformSet

__version__ = "0.1.0"

__all__ = ["Chain", "Constraint", "Draw", "InvarianceConstrained", "Op", "Resilient", "Step", "TransformSet"]
__all__ += ["chain_probabilities", "metropolis_hastings", "ops", "presets", "sets", "views", "worst"]

# where each name is defined; imported on first use, so that --help need not wait for torch
_MODULES = {name: name for name in ("presets", "testing", "views")}
_MODULES |= {name: f"transforms.{name}" for name in ("adapters", "ops", "sets")}
_FILES = {
    "transforms.draw": ("Draw",),
    "transforms.ops": ("Op",),
    "transforms.set": ("TransformSet",),
    "constraint": ("Constraint",),
    "levels": ("Resilient",),
    "samplers": ("Chain", "chain_probabilities", "metropolis_hastings", "worst"),
    "step": ("Step",),
    "problem": ("InvarianceConstrained",),
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"invaug.{_MODULES[name]}")
    for file, names in _FILES.items():
        if name in names:
            globals()[name] = value = getattr(import_module(f"invaug.{file}"), name)
            return value
    raise AttributeError(f"module 'invaug' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
