"""The method as published: `PAPER` as the text has it, `AUTHORS_CODE` as the authors' code runs it.

Plain values, so that a command line can list them without waiting for torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from invaug.constraint import Constraint
    from invaug.problem import InvarianceConstrained
    from invaug.transforms.set import TransformSet

RECIPE: dict[str, Any] = {
    "optimizer": "sgd",
    "lr": 0.1,
    "weight_decay": 5e-4,
    "batch_size": 128,
    "epochs": 200,
    "crop": 4,
    "flip": "yes",
    "cutout": 16,
    "clip": 5.0,
}
"""How both train on CIFAR."""


@dataclass(frozen=True)
class Preset:
    """Everything but data, model and epsilon that two runs must share to be the same method."""

    name: str
    n_steps: int
    dual_lr: float
    gamma_init_views: float
    """Where gamma starts with more than one view; with one it starts at 0."""
    scoring: str
    scoring_batch: int | None
    identity: bool
    """Whether proposals include Identity and level 0."""
    n_levels: int = 30
    recipe: Mapping[str, Any] = field(default_factory=lambda: RECIPE)

    def wide(self) -> TransformSet:
        """Return the wide set this preset proposes from."""
        return self._set("wide")

    def standard(self) -> TransformSet:
        """Return the standard set this preset proposes from."""
        return self._set("standard")

    def _set(self, name: str) -> TransformSet:
        from invaug.transforms import sets

        make = {"wide": sets.wide, "standard": sets.standard}[name]
        return make(self.n_levels, identity=self.identity, min_level=int(not self.identity))

    def gamma_init(self, n_views: int) -> float:
        """Return where gamma starts."""
        return self.gamma_init_views if n_views > 1 else 0.0

    def problem(self, *constraints: Constraint, n_views: int = 1, **others: Any) -> InvarianceConstrained:
        """Return the constrained problem; keyword arguments it takes (finish, seed, dual_lr, …) may be given."""
        from invaug.problem import InvarianceConstrained
        from invaug.views import apart

        settings = {name: getattr(self, name) for name in ("n_steps", "dual_lr", "scoring", "scoring_batch")}
        settings |= {"gamma_init": self.gamma_init(n_views), "views": apart, **others}
        return InvarianceConstrained(*constraints, n_views=n_views, **settings)


PAPER = Preset("paper", 2, 1e-3, 0.0, scoring="frozen", scoring_batch=256, identity=True)
# "steps: 2" there means two proposals, which is one transition; scoring moves BatchNorm, all proposals at once
AUTHORS_CODE = Preset("authors-code", 1, 1e-4, 1.0, scoring="train", scoring_batch=None, identity=False)

PRESETS = {preset.name: preset for preset in (PAPER, AUTHORS_CODE)}
