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
RATE = 0.06  # how much one loss moves what is known of its bin
EVERY = 4  # steps between those it learns from: the law moves slowly, and the calls cost a small network time
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
        columns = np.append(np.arange(transforms.n_levels) * N_BINS // transforms.n_levels, 0)  # the last for level -1
        self._places = np.arange(len(weights))[:, None] * N_BINS + columns
        self._known: tuple[tuple[int, int], Array] = (0, -1), weights
        self.register_buffer("ratio", torch.ones(len(transforms.ops), N_BINS))
        self.register_buffer("mean", torch.zeros(()))

    def law(self) -> Callable[[Array], tuple[Array, Array]]:
        """Return what `TransformSet.draw` takes: from two uniform numbers an image to its operation and level."""
        state = id(self.ratio), self.ratio._version  # torch counts the changes of a tensor
        if self._known[0] != state:
            hardness = self.ratio.cpu().numpy().astype(np.float64)
            self._known = state, np.cumsum(self._uniform * hardness**self.power)
        ends = self._known[1]

        def pick(uniforms: Array) -> tuple[Array, Array]:
            op, column = np.divmod(ends[:-1].searchsorted(uniforms[0] * ends[-1], side="right"), N_BINS)
            level = self._firsts[column] + (uniforms[1] * self._counts[column]).astype(np.int64)
            return op, np.minimum(level, self.transforms.n_levels - 1)

        return pick

    def tilt(self, draw: Draw) -> Tensor:
        """Return how much likelier this law makes each draw than U(G), up to a constant; float64, on the CPU."""
        return torch.from_numpy(self._hardness(self._cells(draw)) ** self.power)

    @torch.no_grad()
    def learn(self, draw: Draw, losses: Tensor) -> None:
        """Take in the losses of the first draws; what is not finite teaches nothing. All ranks learn the same."""
        seen = losses.detach().cpu().numpy().astype(np.float64)
        known, cells = np.isfinite(seen), self._cells(draw)[:, : len(seen)]
        if not known.all():
            seen, cells = seen[known], cells[:, known]
        before, size = float(self.mean), self.ratio.numel()
        total, n = float(seen.sum()), len(seen)
        errors = seen / max(before or total / max(n, 1), 1e-12) - self._hardness(cells)
        every = cells.ravel()
        sums = np.bincount(every, np.concatenate([errors] * len(cells)), size)
        counts = np.bincount(every, minlength=size)
        if distributed.is_available() and distributed.is_initialized():
            totals = torch.from_numpy(np.concatenate([sums, counts, [total, n]])).to(self.ratio)
            distributed.all_reduce(totals)
            sums, counts, (total, n) = np.split(totals.double().cpu().numpy(), [size, 2 * size])
        if not n:
            return
        moved = (1 - (1 - RATE) ** counts) * sums / np.maximum(counts, 1)
        ratio = self.ratio.cpu().numpy() + moved.reshape(self.ratio.shape)
        self.ratio.copy_(torch.from_numpy(np.minimum(np.maximum(ratio, BOUNDS[0]), BOUNDS[1])))
        self.mean.fill_(total / n if before == 0 else 0.9 * before + 0.1 * total / n)

    def _hardness(self, cells: Array) -> Array:
        hardness: Array = self.ratio.cpu().numpy().ravel()[cells].prod(axis=0, dtype=np.float64)
        return hardness

    def _cells(self, draw: Draw) -> Array:
        """Return the place in the table of each operation of each draw, shape (depth, batch)."""
        found, layer = [], draw
        while layer is not None:
            found.append(self._places[layer.op.cpu().numpy(), layer.level.cpu().numpy()])
            layer = layer.then  # type: ignore[assignment]
        return np.stack(found)
