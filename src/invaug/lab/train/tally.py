"""The statistics of an epoch: means over batches, and how often each transformation was kept."""

import math
from typing import Any

import numpy as np
import torch

from invaug import Draw, InvarianceConstrained, Step, TransformSet
from invaug.lab.data.batches import Batch
from invaug.lab.run.expect import require
from invaug.transforms.images import doubles

BINS = 20  # of a continuous magnitude
N_SIMULATED = 400  # simulated epochs of uniform draws, for the range of their entropy
Array = np.ndarray[Any, Any]
MAX_COUNT = 2**40  # of images, passes or kept transformations in an epoch
AT_ONCE = 64  # batches whose draws are counted together: one by one, the calls would dominate


class Tally:
    """Sums over the batches of an epoch, on the device until the epoch ends."""

    def __init__(self, problem: InvarianceConstrained) -> None:
        self.problem = problem
        self.n_images = self.n_batches = self.n_passes = 0
        self.loss = self.correct = torch.zeros((), dtype=torch.float64)
        self.slack, self.level = torch.zeros_like(problem.gamma), torch.zeros_like(problem.gamma)
        self.acceptance = torch.zeros(len(problem.constraints), dtype=torch.float64)
        self._counts = [torch.zeros(shape_of(c.transforms), dtype=torch.long) for c in problem.constraints]
        self._uncounted: list[tuple[Draw | None, ...]] = []

    def add(self, step: Step, batch: Batch) -> None:
        """Count one batch."""
        n = len(batch.targets)
        self.n_images += n
        self.n_batches += 1
        self.n_passes += step.n_passes
        loss = doubles(step.loss) * n
        self.loss = self.loss.to(loss.device) + loss
        self.slack, self.level = self.slack + step.slack * n, self.level + step.epsilon * n
        self.acceptance = self.acceptance + step.acceptance
        right = (step.outputs.argmax(1) == batch.targets).sum()
        self.correct = self.correct.to(loss.device) + right.to(loss.device)
        self._uncounted.append(step.kept)
        if len(self._uncounted) >= AT_ONCE:
            self._count()

    @property
    def counts(self) -> list[torch.Tensor]:
        """How often each operation was kept at each level, for each constraint."""
        self._count()
        return self._counts

    def _count(self) -> None:
        for k, draws in enumerate(zip(*self._uncounted, strict=True)):
            kept = [draw for draw in draws if draw is not None]
            if kept:
                self._counts[k] += histogram(self.problem.constraints[k].transforms, Draw.cat(kept))
        self._uncounted.clear()

    def vector(self) -> torch.Tensor:
        """Return all sums as one vector of doubles on the CPU, which represents each of them exactly."""
        sizes = torch.tensor([self.n_images, self.n_batches, self.n_passes])
        parts = [sizes, self.loss, self.correct, self.slack, self.level, self.acceptance, *self.counts]
        return torch.cat([part.detach().cpu().double().reshape(-1) for part in parts])

    def restore(self, vector: torch.Tensor) -> None:
        """Take the sums from a vector: those of this tally after a resume, or those of all ranks added up."""
        self._uncounted.clear()
        parts, shapes = self._split(vector), [counts.shape for counts in self._counts]
        self.n_images, self.n_batches, self.n_passes = (int(size) for size in parts[0])
        self.loss, self.correct = (part.view(()).to(self.loss) for part in parts[1:3])
        self.slack, self.level = parts[3].to(self.slack), parts[4].to(self.level)
        self.acceptance = parts[5].to(self.acceptance)
        self._counts = [part.long().view(shape) for part, shape in zip(parts[6:], shapes, strict=True)]

    def check(self, vector: torch.Tensor, n_batches: int, where: str) -> None:
        """Raise MisfitError unless a vector of the right length can be the sums over so many batches."""
        sizes, loss, correct, _, _, _, *counts = self._split(vector)
        require(float(sizes[1]) == n_batches, f"{where}/1", float(sizes[1]), f"{n_batches}, the batches counted so far")
        require(bool(loss.isfinite().all()), f"{where}/3", float(loss), "a finite sum of losses")
        whole = torch.cat([sizes, correct, *counts])
        fits = (whole >= 0) & (whole <= MAX_COUNT) & (whole == whole.floor())
        odd = whole[~fits].tolist()
        require(not odd, where, odd[0] if odd else None, f"whole numbers from 0 to {MAX_COUNT} as its counts")

    def _split(self, vector: torch.Tensor) -> tuple[torch.Tensor, ...]:
        k = len(self._counts)
        sizes = [3, 1, 1, k, k, k, *(counts.numel() for counts in self._counts)]
        return torch.split(vector, sizes)

    def row(self) -> dict[str, Any]:
        """Return the record line of the epoch: plain names, plain units."""
        slack, level = (sums / max(self.n_images, 1) for sums in (self.slack, self.level))
        counts = self.counts
        kept = list(zip((c.transforms.names for c in self.problem.constraints), counts, strict=True))
        return {
            "train_loss": float(self.loss / max(self.n_images, 1)),
            "train_accuracy": float(self.correct / max(self.n_images, 1)),
            "slack": [finite_or_none(s) for s in slack.tolist()],
            "constraint_loss": [finite_or_none(loss) for loss in (slack + level).tolist()],
            "epsilon": [finite_or_none(each) for each in level.tolist()],
            "gamma": self.problem.gamma.tolist(),
            "acceptance": [finite_or_none(share) for share in (self.acceptance / max(self.n_batches, 1)).tolist()],
            "passes": self.n_passes,
            "entropy": [entropy(n) for n in counts],
            "entropy_uniform": [entropy_of_uniform(len(names), int(n.sum())) for names, n in kept],
            "kept": [dict(zip(names, n.tolist(), strict=True)) for names, n in kept],
        }


def finite_or_none(number: float | None) -> float | None:
    """Return the number, or None if it is not finite, which JSON cannot hold: a slack without a bound, for example."""
    return number if number is not None and math.isfinite(number) else None


def shape_of(transforms: TransformSet) -> tuple[int, int]:
    """Return the shape of a set's histogram: operations by levels, or by bins of a continuous magnitude."""
    return len(transforms.ops), max(BINS if op.continuous else transforms.n_levels for op in transforms.ops)


def histogram(transforms: TransformSet, draw: Draw) -> torch.Tensor:
    """Return how often each operation was kept at each level; operations applied in sequence all count."""
    n_ops, n_columns = shape_of(transforms)
    op, column = draw.op.flatten().cpu(), draw.level.flatten().cpu()
    if any(each.continuous for each in transforms.ops):  # such a magnitude has no level
        size = draw.magnitude.reshape(len(op), -1)[:, 0].cpu()  # the first axis stands for all
        limits = torch.tensor([(-each.stop if each.signed else each.start, each.stop) for each in transforms.ops])
        low, high = limits[op].T
        binned = ((size - low) / (high - low) * BINS).nan_to_num().long().clamp(0, BINS - 1)
        column = torch.where(column < 0, binned, column)
    cells = op.numpy() * n_columns + column.numpy()
    return torch.from_numpy(np.bincount(cells, minlength=n_ops * n_columns)).view(n_ops, n_columns)


def entropy(counts: torch.Tensor) -> float:
    """Return the entropy of the kept operations, in nats."""
    return float(entropies(counts.sum(1).double().numpy()[None])[0])


def entropies(counts: Array) -> Array:
    """Return the entropy of each row of counts, in nats."""
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    found: Array = -(shares * np.log(np.maximum(shares, 1e-300))).sum(1)
    return found


def entropy_of_uniform(n_ops: int, n: int) -> list[float]:
    """Return the 2.5 and 97.5 % quantiles of the entropy of n uniform draws of operations, simulated with a fixed seed.

    Few draws have a lower entropy than their law, so the entropy of kept operations is read against this range.
    """
    simulated = entropies(np.random.default_rng(0).multinomial(n, [1 / n_ops] * n_ops, N_SIMULATED))
    return [float(quantile) for quantile in np.quantile(simulated, [0.025, 0.975])]
