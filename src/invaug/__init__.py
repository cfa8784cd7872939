"""Automatic data augmentation by invariance-constrained learning."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from invaug import ops, presets, sets, views
    from invaug.constraint import Constraint
    from invaug.draws import Draw
    from invaug.levels import Resilient
    from invaug.ops import Op
    from invaug.problem import InvarianceConstrained
    from invaug.samplers import Chain, chain_probabilities, metropolis_hastings, worst
    from invaug.step import Step
    from invaug.transforms import TransformSet

__version__ = "0.1.0"

__all__ = ["Chain", "Constraint", "Draw", "InvarianceConstrained", "Op", "Resilient", "Step", "TransformSet"]
__all__ += ["chain_probabilities", "metropolis_hastings", "ops", "presets", "sets", "views", "worst"]

# looked up on first use, so that the command line can answer --help without waiting for torch
_MODULES = ("adapters", "ops", "presets", "sets", "testing", "views")
_FILES = ("levels", "draws", "ops", "samplers", "transforms", "constraint", "step", "problem")
"""Where the other names are defined; each file comes after those it imports from."""


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"invaug.{name}")
    if name in __all__:
        files = (import_module(f"invaug.{file}") for file in _FILES)
        globals()[name] = value = next(getattr(file, name) for file in files if hasattr(file, name))
        return value
    raise AttributeError(f"module 'invaug' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
