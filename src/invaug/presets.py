"""The method as published: `PAPER` as the text has it, `AUTHORS_CODE` as the authors' code runs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from invaug import sets
from invaug.constraint import Constraint
from invaug.problem import InvarianceConstrained
from invaug.transforms import TransformSet


@dataclass(frozen=True)
class Preset:
    """Everything but data, model and epsilon that two runs must share to be the same method."""

    name: str
    n_steps: int
    dual_lr: float
    gamma_init_views: float
    """Where gamma starts with more than one view; with one it starts at 0."""
    scoring: Literal["frozen", "train"]
    scoring_batch: int | None
    identity: bool
    """Whether proposals include Identity."""
    min_level: int

    def wide(self) -> TransformSet:
        """Return the wide set this preset proposes from."""
        return sets.wide(30, identity=self.identity, min_level=self.min_level)

    def standard(self) -> TransformSet:
        """Return the standard set this preset proposes from."""
        return sets.standard(30, identity=self.identity, min_level=self.min_level)

    def problem(self, *constraints: Constraint, n_views: int = 1, **others: Any) -> InvarianceConstrained:
        """Return the constrained problem; keyword arguments it takes (finish, seed, dual_lr, …) may be given."""
        settings = {
            "n_steps": self.n_steps,
            "dual_lr": self.dual_lr,
            "gamma_init": self.gamma_init_views if n_views > 1 else 0.0,
            "scoring": self.scoring,
            "scoring_batch": self.scoring_batch,
            "joint": False,
        }
        return InvarianceConstrained(*constraints, n_views=n_views, **{**settings, **others})


PAPER = Preset(
    "paper", n_steps=2, dual_lr=1e-3, gamma_init_views=0.0, scoring="frozen", scoring_batch=256,
    identity=True, min_level=0,
)  # fmt: skip
# "steps: 2" there means two proposals, which is one transition; scoring moves BatchNorm, all proposals at once
AUTHORS_CODE = Preset(
    "authors-code", n_steps=1, dual_lr=1e-4, gamma_init_views=1.0, scoring="train", scoring_batch=None,
    identity=False, min_level=1,
)  # fmt: skip

PRESETS = {preset.name: preset for preset in (PAPER, AUTHORS_CODE)}
