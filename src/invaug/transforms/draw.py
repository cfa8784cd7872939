"""A draw is data: the operation, level, magnitudes and place of each image, for each layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from os import PathLike
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Draw:
    """The transformations of a batch, as tensors: log them, save them, replay them to the same bytes.

    Each image has `depth` operations, applied in order. Dimensions of length one may be left out when a draw is made:
    three vectors are one operation per image, with one magnitude each.

    Example:
        >>> draw = Draw(op=torch.tensor([3, 0]), level=torch.tensor([30, 5]), magnitude=torch.tensor([135.0, 0.0]))
        >>> len(draw), draw.depth, draw[0].magnitude.tolist()
        (2, 1, [[[135.0]]])
    """

    op: Tensor
    """Index into the operations of the set, int64, shape (batch, depth)."""
    level: Tensor
    """Index of the magnitude, int64, shape (batch, depth); -1 where the magnitude is continuous."""
    magnitude: Tensor
    """Signed, float64, shape (batch, depth, k) for operations that take k magnitudes."""
    place: Tensor = None  # type: ignore[assignment]  # filled in below, so that every draw has one
    """Where a crop or cutout falls, in [0, 1), float64, shape (batch, depth, 2); the centre if left out."""

    def __post_init__(self) -> None:
        for name in ("op", "level"):
            values = getattr(self, name)
            if values.is_floating_point() or values.ndim == 0:
                raise ValueError(f"{name} must be whole numbers of shape (batch, depth), got {_describe(values)}")
        if not self.magnitude.is_floating_point():
            raise ValueError(f"magnitude must be floats, got {_describe(self.magnitude)}")
        op, inner = _with_layers(self.op, 2).long(), self.magnitude
        if inner.ndim == 1 or (inner.ndim == 2 and self.op.ndim == 2):  # one magnitude per operation
            inner = inner.unsqueeze(-1)
        place = op.new_full((*op.shape, 2), 0.5, dtype=torch.float64) if self.place is None else self.place
        magnitude, place = (_with_layers(values, 3).double() for values in (inner, place))
        for name, values, wanted in (
            ("op", op, op.shape[:2]),
            ("level", _with_layers(self.level, 2).long(), op.shape),
            ("magnitude", magnitude, (*op.shape, *magnitude.shape[2:3])),
            ("place", place, (*op.shape, 2)),
        ):
            if values.shape != wanted:
                rule = f"one row per image and one column per layer, so shape {tuple(wanted)}"
                raise ValueError(f"{name} must have {rule}, got {tuple(values.shape)}")
            object.__setattr__(self, name, values)  # the dataclass is frozen

    def __len__(self) -> int:
        return len(self.op)

    @property
    def depth(self) -> int:
        """How many operations each image has."""
        return self.op.shape[1]

    def __getitem__(self, rows: Any) -> Draw:
        """Return the draw of some images: a slice, a mask or indices; an integer gives a draw of one image."""
        if isinstance(rows, int):
            rows = [rows]
        return self._map(lambda value: value[rows])

    def layer(self, i: int) -> Draw:
        """Return the operations applied i-th, counted from 0, as a draw of depth 1.

        Example:
            >>> from invaug import sets
            >>> sets.mild().draw(4).layer(1).op.shape
            torch.Size([4, 1])
        """
        return self._map(lambda value: value[:, i].unsqueeze(1))

    def to(self, device: torch.device | str) -> Draw:
        """Return the draw with its tensors on a device.

        Example:
            >>> from invaug import sets
            >>> sets.wide().draw(4).to("meta").op.device.type
            'meta'
        """
        return self._map(lambda value: value.to(device))

    def save(self, path: str | PathLike[str]) -> None:
        """Write the draw to one .npz file.

        Example:
            >>> from invaug import sets
            >>> from tempfile import TemporaryDirectory
            >>> draw = sets.wide().draw(4)
            >>> with TemporaryDirectory() as folder:
            ...     draw.save(f"{folder}/draw.npz")
            ...     again = Draw.load(f"{folder}/draw.npz")
            >>> torch.equal(again.magnitude, draw.magnitude)
            True
        """
        arrays: dict[str, Any] = {name: value.detach().cpu().numpy() for name, value in self._tensors().items()}
        with open(path, "wb") as file:  # noqa: PTH123 - numpy adds .npz to names, not to files
            np.savez(file, **arrays)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Draw:
        """Return the draw that `save` wrote; pickled files are refused."""
        names = [each.name for each in fields(cls)]
        try:
            with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:  # noqa: PTH123
                return cls(**{name: torch.from_numpy(arrays[name]) for name in names})
        except (ValueError, TypeError, KeyError, AttributeError, IndexError, EOFError, BadZipFile) as error:
            raise ValueError(f"{path} is not a saved draw, which holds {', '.join(names)}: {error}") from None

    @classmethod
    def cat(cls, draws: list[Draw]) -> Draw:
        """Return the draws of several batches as one, in order.

        Example:
            >>> from invaug import sets
            >>> len(Draw.cat([sets.wide().draw(4), sets.wide().draw(2)]))
            6
        """
        return cls(**{name: torch.cat([getattr(draw, name) for draw in draws]) for name in draws[0]._tensors()})

    def _map(self, change: Callable[[Tensor], Tensor]) -> Draw:
        return Draw(**{name: change(value) for name, value in self._tensors().items()})

    def _tensors(self) -> dict[str, Tensor]:
        return {each.name: getattr(self, each.name) for each in fields(self)}


def _with_layers(values: Tensor, ndim: int) -> Tensor:
    """Return the values with a dimension for layers, adding one of length one if it is missing."""
    return values.unsqueeze(1) if values.ndim == ndim - 1 else values


def _describe(numbers: Tensor) -> str:
    return f"{numbers.dtype} of shape {tuple(numbers.shape)}"
