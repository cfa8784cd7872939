"""A draw is data: which operation, which level, which magnitude for each image."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from os import PathLike
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch
from torch import Tensor

THEN = "then."  # before the names of what follows, in a file


@dataclass(frozen=True)
class Draw:
    """One transformation per image, as tensors: log it, save it, replay it to the same bytes."""

    op: Tensor
    """Index into the operations of the set, int64, shape (batch,)."""
    level: Tensor
    """Index of the magnitude, int64, shape (batch,); -1 where the magnitude is continuous."""
    magnitude: Tensor
    """Signed, float64, shape (batch,); (batch, 2) for shifts along both axes."""
    place: Tensor = None  # type: ignore[assignment]  # filled in below, so that every draw has one
    """Where a crop or cutout falls, in [0, 1), float64, shape (batch, 2); the centre if left out."""
    then: Draw | None = field(default=None, kw_only=True)
    """What follows on the same images, of a set whose depth is above 1."""

    def __post_init__(self) -> None:
        if self.place is None:
            object.__setattr__(self, "place", torch.full((len(self.op), 2), 0.5, dtype=torch.float64))
        n = len(self.op)
        if not n == self.level.shape[0] == self.magnitude.shape[0] == self.place.shape[0]:
            lengths = {name: len(value) for name, value in self._tensors().items()}
            raise ValueError(f"op, level, magnitude and place must have one row per image, got {lengths}")
        if self.op.ndim != 1 or self.op.is_floating_point():
            raise ValueError(f"op must be whole numbers of shape ({n},), got {_form(self.op)}")
        if self.level.ndim != 1 or self.level.is_floating_point():
            raise ValueError(f"level must be whole numbers of shape ({n},), got {_form(self.level)}")
        if self.magnitude.ndim > 2 or not self.magnitude.is_floating_point():
            raise ValueError(f"magnitude must be floats of shape ({n},), got {_form(self.magnitude)}")
        if self.place.shape != (n, 2):
            raise ValueError(f"place must have shape ({n}, 2), got {_form(self.place)}")
        if self.then is not None and len(self.then) != n:
            raise ValueError(f"then must have one row per image ({n}), got {len(self.then)}")

    def __len__(self) -> int:
        return len(self.op)

    def __getitem__(self, rows: Any) -> Draw:
        """Return the draw of some images: a slice, a mask or indices; an integer gives a draw of one image."""
        if isinstance(rows, int):
            rows = [rows]
        return self._each(lambda value: value[rows])

    def to(self, device: torch.device | str) -> Draw:
        """Return the draw on a device."""
        return self._each(lambda value: value.to(device))

    def save(self, path: str | PathLike[str]) -> None:
        """Write the draw to one .npz file."""
        with open(path, "wb") as file:  # noqa: PTH123 - numpy adds .npz to names, not to files
            arrays: dict[str, Any] = {
                f"{THEN * depth}{name}": value.cpu().numpy()
                for depth, layer in enumerate(self.layers)
                for name, value in layer._tensors().items()
            }
            np.savez(file, **arrays)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Draw:
        """Return the draw that `save` wrote."""
        names = [each.name for each in fields(cls) if each.name != "then"]
        try:
            with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:  # noqa: PTH123
                depth, then = max(name.count(THEN) for name in arrays), None
                for prefix in (THEN * i for i in range(depth, -1, -1)):
                    then = cls(**{name: torch.from_numpy(arrays[f"{prefix}{name}"]) for name in names}, then=then)
                return then  # type: ignore[return-value]
        except (ValueError, TypeError, KeyError, AttributeError, EOFError, BadZipFile) as error:
            raise ValueError(f"{path} is not a saved draw, which holds {', '.join(names)}: {error}") from None

    @classmethod
    def cat(cls, draws: list[Draw]) -> Draw:
        """Return several draws as one, in order."""
        joined = {name: torch.cat([getattr(draw, name) for draw in draws]) for name in draws[0]._tensors()}
        rest = [draw.then for draw in draws if draw.then is not None]
        return cls(**joined, then=cls.cat(rest) if rest else None)

    @property
    def layers(self) -> list[Draw]:
        """This draw and those that follow on the same images, in order, each without the next."""
        return [replace(self, then=None), *(self.then.layers if self.then is not None else [])]

    def _each(self, change: Callable[[Tensor], Tensor]) -> Draw:
        tensors = {name: change(value) for name, value in self._tensors().items()}
        return Draw(**tensors, then=self.then._each(change) if self.then is not None else None)

    def _tensors(self) -> dict[str, Tensor]:
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name != "then"}


def _form(numbers: Tensor) -> str:
    return f"{numbers.dtype} of shape {tuple(numbers.shape)}"
