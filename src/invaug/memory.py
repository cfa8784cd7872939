"""Chains that go on: the last transformation of every training image and its loss, kept from visit to visit."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from invaug.draws import Draw


class ChainMemory(nn.Module):
    """Where each image's chain stands: 26 bytes an image, 34 for shifts along both axes, saved with the problem.

    Args:
        n_images: How many training images there are.
        n_axes: Numbers in a magnitude of the set: 2 for shifts along both axes.
        age: Visits a chain may stay where it is; then it starts anew, so that no image keeps one view for ever.
    """

    op: Tensor
    level: Tensor
    magnitude: Tensor
    place: Tensor
    loss: Tensor
    stayed: Tensor

    def __init__(self, n_images: int, n_axes: int = 1, age: int = 4) -> None:
        super().__init__()
        if n_images < 1 or age < 1:
            raise ValueError(f"a memory needs images and an age of at least 1, got {n_images} images and age {age}")
        self.age = age
        shape = (n_images,) if n_axes == 1 else (n_images, n_axes)
        self.register_buffer("op", torch.zeros(n_images, dtype=torch.int16))
        self.register_buffer("level", torch.zeros(n_images, dtype=torch.int16))
        self.register_buffer("magnitude", torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("place", torch.full((n_images, 2), 0.5, dtype=torch.float32))
        self.register_buffer("loss", torch.full((n_images,), math.nan))
        self.register_buffer("stayed", torch.zeros(n_images, dtype=torch.int16))

    def recall(self, rows: Tensor) -> tuple[Draw, Tensor]:
        """Return where the chains of some images stand: their draws, on the CPU, and the losses these had.

        The loss is NaN where there is no chain yet, or it stayed too long: a sampler leaves NaN for anything.
        """
        rows = rows.to(self.op.device)
        draw = Draw(self.op[rows].long(), self.level[rows].long(), self.magnitude[rows], self.place[rows].double())
        loss = torch.where(self.stayed[rows] < self.age, self.loss[rows], math.nan)
        return draw.to("cpu"), loss

    @torch.no_grad()
    def keep(self, rows: Tensor, draw: Draw, loss: Tensor, stayed: Tensor) -> None:
        """Note where the chains of some images stand now, and which of them did not move."""
        device = self.op.device
        rows, draw, stayed = rows.to(device), draw.to(device), stayed.to(device)
        self.op[rows], self.level[rows] = draw.op.to(self.op), draw.level.to(self.level)
        self.magnitude[rows], self.place[rows] = draw.magnitude.to(self.magnitude), draw.place.to(self.place)
        self.loss[rows] = loss.detach().to(self.loss)
        self.stayed[rows] = torch.where(stayed, self.stayed[rows] + 1, 0).to(self.stayed)
