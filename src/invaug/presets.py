"""The method as published: `PAPER` follows the text, `AUTHORS_CODE` follows the authors' code.

Plain values, so that a command line can list them without importing torch.
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
    "drop_last": True,
    "epochs": 200,
    "crop": 4,
    "flip": "yes",
    "cutout": 16,
    "clip": 5.0,
}
"""How both train on CIFAR: settings of the laboratory, by their short names."""


@dataclass(frozen=True)
class Preset:
    """Everything except data, model and epsilon that two runs must share to use the same method.

    Example:
        >>> (PAPER.n_steps, PAPER.dual_lr, PAPER.scoring)
        (2, 0.001, 'frozen')
    """

    name: str
    n_steps: int
    dual_lr: float
    gamma_init_views: float
    """Initial gamma with several views; with one view it is 0."""
    scoring: str
    scoring_batch: int | None
    identity: bool
    """Whether proposals include Identity and level 0."""
    n_levels: int = 30
    recipe: Mapping[str, Any] = field(default_factory=lambda: RECIPE)

    def wide(self) -> TransformSet:
        """Return the wide set that this preset draws its proposals from.

        Example:
            >>> "Identity" in AUTHORS_CODE.wide().names
            False
        """
        return self._set("wide")

    def standard(self) -> TransformSet:
        """Return the standard set that this preset draws its proposals from.

        Example:
            >>> len(PAPER.standard().ops)
            14
        """
        return self._set("standard")

    def _set(self, name: str) -> TransformSet:
        from invaug.transforms import sets

        make = {"wide": sets.wide, "standard": sets.standard}[name]
        return make(self.n_levels, identity=self.identity, min_level=int(not self.identity))

    def gamma_init(self, n_views: int) -> float:
        """Return the initial gamma.

        Example:
            >>> AUTHORS_CODE.gamma_init(n_views=1), AUTHORS_CODE.gamma_init(n_views=2)
            (0.0, 1.0)
        """
        return self.gamma_init_views if n_views > 1 else 0.0

    def problem(self, *constraints: Constraint, n_views: int = 1, **others: Any) -> InvarianceConstrained:
        """Return the constrained problem; other keyword arguments (finish, seed, dual_lr, …) are passed on.

        Example:
            >>> from invaug import Constraint
            >>> AUTHORS_CODE.problem(Constraint(AUTHORS_CODE.wide(), epsilon=0.8)).n_steps
            1
        """
        from invaug.problem import InvarianceConstrained
        from invaug.views import apart

        settings = {name: getattr(self, name) for name in ("n_steps", "dual_lr", "scoring", "scoring_batch")}
        settings |= {"gamma_init": self.gamma_init(n_views), "views": apart, **others}
        return InvarianceConstrained(*constraints, n_views=n_views, **settings)


PAPER = Preset("paper", 2, 1e-3, 0.0, scoring="frozen", scoring_batch=256, identity=True)
# "steps: 2" in that code means two proposals, which is one transition; scoring updates BatchNorm, all proposals at once
AUTHORS_CODE = Preset("authors-code", 1, 1e-4, 1.0, scoring="train", scoring_batch=None, identity=False)

PRESETS = {preset.name: preset for preset in (PAPER, AUTHORS_CODE)}
