"""A law that learns: operations and strengths are drawn by how high the loss under them has been."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, distributed, nn

from invaug.draws import Draw
from invaug.transforms import TransformSet

Array = np.ndarray[Any, Any]

N_BINS = 8  # of strength: levels next to each other share what is learned of them
RATE = 0.03  # how much one loss moves what is known of its bin
BOUNDS = 0.1, 10.0  # of a ratio, so that nothing is ever ruled out


class LossTable(nn.Module):
    """The loss under each operation and strength beside the mean loss; 32 bytes an operation, saved with the problem.

    A transformation of several operations in a row is taken to be as hard as the product of its parts. Draws follow
    U(G) times the hardness to a power: at power 1 this is λ_c for the loss averaged over images, without a chain.

    Args:
        transforms: What is drawn from.
        power: Of the hardness; 0 leaves U(G).
    """

    ratio: Tensor
    mean: Tensor

    def __init__(self, transforms: TransformSet, power: float) -> None:
        super().__init__()
        self.transforms, self.power = transforms, power
        firsts = -(-np.arange(N_BINS + 1) * transforms.n_levels // N_BINS)
        self._firsts = np.maximum(firsts, transforms.min_level)
        self._counts = np.diff(self._firsts)
        weights = np.array(transforms.weights or [1.0] * len(transforms.ops))
        by_level = np.array([not op.continuous for op in transforms.ops])[:, None]
        # a continuous magnitude has no level, so its operation has one bin
        shares = np.where(by_level, self._counts / self._counts.sum(), np.eye(1, N_BINS))
        self._uniform = weights[:, None] * shares
        self.register_buffer("ratio", torch.ones(len(transforms.ops), N_BINS))
        self.register_buffer("mean", torch.zeros(()))

    def law(self) -> Callable[[Array], tuple[Array, Array]]:
        """Return what `TransformSet.draw` takes: from two uniform numbers an image to its operation and level."""
        ends = np.cumsum(self._uniform * self.ratio.cpu().numpy().astype(np.float64) ** self.power)

        def pick(uniforms: Array) -> tuple[Array, Array]:
            op, column = np.divmod(ends[:-1].searchsorted(uniforms[0] * ends[-1], side="right"), N_BINS)
            level = self._firsts[column] + (uniforms[1] * self._counts[column]).astype(np.int64)
            return op, np.minimum(level, self.transforms.n_levels - 1)

        return pick

    def tilt(self, draw: Draw) -> Tensor:
        """Return how much likelier this law makes each draw than U(G), up to a constant; float64, on the CPU."""
        return torch.from_numpy(self._hardness(draw) ** self.power)

    @torch.no_grad()
    def learn(self, draw: Draw, losses: Tensor) -> None:
        """Take in the losses of some draws; what is not finite teaches nothing. All ranks learn the same."""
        seen = losses.detach().double().cpu().numpy()
        known = np.isfinite(seen)
        mean = float(self.mean) or (float(seen[known].mean()) if known.any() else 0.0)
        errors = np.where(known, np.nan_to_num(seen) / max(mean, 1e-12) - self._hardness(draw), 0.0)
        sums = np.zeros((3, self.ratio.numel()))
        for layer in draw.layers:
            cells = self._cells(layer)
            sums[0] += np.bincount(cells, errors, sums.shape[1])
            sums[1] += np.bincount(cells, known, sums.shape[1])
        sums[2, :2] = seen[known].sum(), known.sum()
        if distributed.is_available() and distributed.is_initialized():
            totals = torch.from_numpy(sums).to(self.ratio)
            distributed.all_reduce(totals)
            sums = totals.double().cpu().numpy()
        if not sums[2, 1]:
            return
        counts = sums[1]
        moved = (1 - (1 - RATE) ** counts) * sums[0] / np.maximum(counts, 1)
        ratio = self.ratio.cpu().numpy() + moved.reshape(self.ratio.shape)
        self.ratio.copy_(torch.from_numpy(ratio.clip(*BOUNDS)))
        now = sums[2, 0] / sums[2, 1]
        self.mean.fill_(now if float(self.mean) == 0 else 0.9 * float(self.mean) + 0.1 * now)

    def _hardness(self, draw: Draw) -> Array:
        ratio = self.ratio.cpu().numpy().astype(np.float64).ravel()
        hardness: Array = np.prod([ratio[self._cells(layer)] for layer in draw.layers], axis=0)
        return hardness

    def _cells(self, layer: Draw) -> Array:
        level = layer.level.cpu().numpy().clip(min=0)
        cells: Array = layer.op.cpu().numpy() * N_BINS + level * N_BINS // self.transforms.n_levels
        return cells
