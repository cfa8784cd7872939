"""From bytes to model input: crop, flip, cutout, normalise, batched on the device of the images."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from invaug import ops
from invaug.kernels import dispatch


@dataclass(frozen=True)
class Randomness:
    """What is drawn anew for every image; by default nothing."""

    crop: int = 0
    flip: bool = False
    cutout: int = 0
    resized_crop: bool = False


class Finish(nn.Module):
    """uint8 images -> normalised float images; random crops, flips and boxes come from `generator`, seeded outside."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...], randomness: Randomness | None = None) -> None:
        super().__init__()
        self.randomness = randomness or Randomness()
        self.generator = torch.Generator()
        self._tables: dict[int, np.ndarray[Any, Any]] = {}
        self.register_buffer("mean", torch.tensor(mean).view(1, -1, 1, 1) * 255)
        self.register_buffer("std", torch.tensor(std).view(1, -1, 1, 1) * 255)

    def forward(self, images: Tensor) -> Tensor:
        """Return the images as a model sees them in training."""
        n, random = len(images), self.randomness
        if random.resized_crop:
            images = resized_crop(images, torch.rand(4, n, generator=self.generator))
        elif random.crop:
            images = ops.crop(images, torch.full((n,), float(random.crop)), torch.rand(n, 2, generator=self.generator))
        mirrored = torch.rand(n, generator=self.generator) < 0.5 if random.flip else None
        boxes = draw_boxes(images, random.cutout, self.generator) if random.cutout else None
        if dispatch.can_run_compiled(images) and images.dtype == torch.uint8:
            return self._in_one_pass(images, mirrored, boxes)
        floats = self.plain(images if mirrored is None else flip(images, mirrored))
        # the box goes in after normalising, so that it is the mean colour, as in the authors' pipeline
        return floats if boxes is None else cut(floats, boxes)

    def _in_one_pass(self, images: Tensor, mirrored: Tensor | None, boxes: Tensor | None) -> Tensor:
        """Return what torch makes in three passes, the same bits, several times as fast on a CPU."""
        from invaug.lab.train import finish_loop  # here, because numba takes half a second to import

        n = len(images)
        target = torch.empty(images.shape, memory_format=_layout(images))
        mirrored = torch.zeros(n, dtype=torch.bool) if mirrored is None else mirrored
        boxes = torch.zeros(n, 4, dtype=torch.long) if boxes is None else boxes
        arrays = [t.numpy() for t in (images.contiguous(), target.permute(0, 2, 3, 1), mirrored, boxes)]
        dispatch.run_in_threads(partial(finish_loop.finish_all, table=self._table(images.shape[1])), arrays)
        return target

    def _table(self, channels: int) -> np.ndarray[Any, Any]:
        """Return what each byte becomes in each channel, made once."""
        if channels not in self._tables:
            every_byte = torch.arange(256, dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, channels, -1, -1)
            self._tables[channels] = self.plain(every_byte).view(256, channels).t().contiguous().numpy()
        return self._tables[channels]

    def plain(self, images: Tensor) -> Tensor:
        """Return the images as a model sees them in evaluation: normalised and nothing else."""
        return ((images.float() - self.mean) / self.std).contiguous(memory_format=_layout(images))


def _layout(images: Tensor) -> torch.memory_format:
    """Return the order of memory convolutions are fastest in."""
    return torch.channels_last if images.shape[1] > 1 else torch.contiguous_format


def flip(images: Tensor, chosen: Tensor) -> Tensor:
    """Return the images with the chosen ones mirrored left to right."""
    return torch.where(chosen.to(images.device).view(-1, 1, 1, 1), images.flip(3), images)


def draw_boxes(images: Tensor, size: int, generator: torch.Generator | None = None) -> Tensor:
    """Return the top, bottom, left and right of a box within half a size of a random pixel of each image."""
    extent = torch.tensor(images.shape[2:])
    centres = (torch.rand(len(images), 2, generator=generator) * extent).long()  # floor: they are not negative
    first, end = (centres - size // 2).clamp(min=0), torch.minimum(centres + size // 2, extent)
    return torch.stack([first[:, 0], end[:, 0], first[:, 1], end[:, 1]], 1)


def cut(images: Tensor, boxes: Tensor) -> Tensor:
    """Return the images with zeros in their boxes, filled in place: a copy would lose the order of memory."""
    top, bottom, left, right = boxes.to(images.device).unsqueeze(2).unbind(1)
    rows, columns = (torch.arange(extent, device=images.device) for extent in images.shape[2:])
    in_y, in_x = (rows >= top) & (rows < bottom), (columns >= left) & (columns < right)
    return images.masked_fill_((in_y.unsqueeze(2) & in_x.unsqueeze(1)).unsqueeze(1), 0.0)


def resized_crop(images: Tensor, numbers: Tensor) -> Tensor:
    """Return a window of 8 to 100 % of each image, of ratio 3/4 to 4/3, resized bilinearly to the whole.

    Args:
        numbers: Four in [0, 1) per image, shape (4, batch): area, ratio, and where the window is.
    """
    n, (height, width) = len(images), images.shape[2:]
    area, ratio, x, y = numbers.unbind(0)
    area = 0.08 + 0.92 * area
    ratio = torch.exp((2 * ratio - 1) * torch.log(torch.tensor(4 / 3)))
    wide, tall = (area * ratio).sqrt().clamp(max=1), (area / ratio).sqrt().clamp(max=1)
    zero = torch.zeros(n)
    theta = torch.stack([wide, zero, (2 * x - 1) * (1 - wide), zero, tall, (2 * y - 1) * (1 - tall)], 1).view(n, 2, 3)
    grid = F.affine_grid(theta.to(images.device), [n, images.shape[1], height, width], align_corners=False)
    read = F.grid_sample(images.float(), grid, mode="bilinear", padding_mode="border", align_corners=False)
    return read.round().to(torch.uint8)
