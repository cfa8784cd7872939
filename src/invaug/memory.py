"""Chains that go on: the last transformation of every training image and its loss, kept from visit to visit."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from invaug.draws import Draw

NOTHING = -1.0  # for the loss where no chain is remembered: a number, so that what is saved is finite


class ChainMemory(nn.Module):
    """Where each image's chain stands: 26 bytes an image, 34 for shifts along both axes, saved with the problem.

    Every further operation of a set whose depth is above 1 adds 20 bytes.

    Args:
        n_images: How many training images there are.
        n_axes: Numbers in a magnitude of the set: 2 for shifts along both axes.
        age: Visits a chain may stay where it is; then it starts anew, so that no image keeps one view for ever.
        depth: Operations of a transformation.
    """

    op: Tensor
    level: Tensor
    magnitude: Tensor
    place: Tensor
    loss: Tensor
    stayed: Tensor

    def __init__(self, n_images: int, n_axes: int = 1, age: int = 4, depth: int = 1) -> None:
        super().__init__()
        if n_images < 1 or age < 1:
            raise ValueError(f"a memory needs images and an age of at least 1, got {n_images} images and age {age}")
        self.age = age
        shape = (depth, n_images) if n_axes == 1 else (depth, n_images, n_axes)
        self.register_buffer("op", torch.zeros(depth, n_images, dtype=torch.int16))
        self.register_buffer("level", torch.zeros(depth, n_images, dtype=torch.int16))
        self.register_buffer("magnitude", torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("place", torch.full((depth, n_images, 2), 0.5, dtype=torch.float32))
        self.register_buffer("loss", torch.full((n_images,), NOTHING))
        self.register_buffer("stayed", torch.zeros(n_images, dtype=torch.int16))

    def recall(self, rows: Tensor) -> tuple[Draw, Tensor]:
        """Return where the chains of some images stand: their draws, on the CPU, and the losses these had.

        The loss is NaN where there is no chain yet, or it stayed too long: a sampler leaves NaN for anything.
        """
        rows = rows.to(self.op.device)
        stored = self.loss[rows]
        loss = torch.where((stored >= 0) & (self.stayed[rows] < self.age), stored, math.nan)
        columns = (self.op[:, rows].long(), self.level[:, rows].long(), self.magnitude[:, rows], self.place[:, rows])
        draw: Draw | None = None
        for op, level, magnitude, place in reversed(list(zip(*(column.cpu() for column in columns), strict=True))):
            draw = Draw(op, level, magnitude, place.double(), then=draw)
        return draw, loss  # type: ignore[return-value]  # there is at least one layer

    @torch.no_grad()
    def keep(self, rows: Tensor, draw: Draw, loss: Tensor, stayed: Tensor) -> None:
        """Note where the chains of some images stand now, and which of them did not move."""
        device = self.op.device
        rows, draw, stayed = rows.to(device), draw.to(device), stayed.to(device)
        for i, layer in enumerate(draw.layers):
            self.op[i, rows], self.level[i, rows] = layer.op.to(self.op), layer.level.to(self.level)
            self.magnitude[i, rows], self.place[i, rows] = (
                layer.magnitude.to(self.magnitude),
                layer.place.to(self.place),
            )
        loss = loss.detach().to(self.loss)
        self.loss[rows] = torch.where(loss.isfinite(), loss, NOTHING)
        self.stayed[rows] = torch.where(stayed, self.stayed[rows] + 1, 0).to(self.stayed)

    def copied(self, rows: Tensor) -> list[Tensor]:
        """Return copies of all that is known of some images."""
        return [buffer.index_select(axis, rows.to(buffer.device)) for axis, buffer in self._columns()]

    @torch.no_grad()
    def put_back(self, rows: Tensor, copies: list[Tensor]) -> None:
        """Know of some images what `copied` returned."""
        for (axis, buffer), copy in zip(self._columns(), copies, strict=True):
            buffer.index_copy_(axis, rows.to(buffer.device), copy)

    def _columns(self) -> list[tuple[int, Tensor]]:
        """Return what is kept and along which axis the images are."""
        layered, flat = (self.op, self.level, self.magnitude, self.place), (self.loss, self.stayed)
        return [*((1, buffer) for buffer in layered), *((0, buffer) for buffer in flat)]
