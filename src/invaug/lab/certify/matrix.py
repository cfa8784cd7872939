"""Losses of many images under many transformations: scored block by block, kept on disk, gone on with after a stop.

What to score next is a pure function of what was scored before, so an interrupted matrix and an uninterrupted one are
the same. Rows are scored whole: the first is the images as they are, each other one a transformation of every image,
or one random transformation for each image that is still undecided.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from invaug import Draw, TransformSet
from invaug.lab.certify.bounds import log_evidence
from invaug.lab.certify.matrix_files import Cache
from invaug.lab.data.batches import batches
from invaug.lab.data.load import MAX_RESIDENT
from invaug.lab.data.splits import Split, random_order
from invaug.lab.errors import UserError
from invaug.lab.run.folder import Predictor
from invaug.scoring import Loss, frozen, per_sample

BATCH = {"cpu": 128}  # inputs per forward pass: activations of more leave a processor's cache
LARGE_BATCH = 1024
FLUSH = 2.0  # seconds of work a crash may cost
CHOICE, DRAWS = 11, 12  # purposes, each with random numbers of its own
N_FIRST, N_ROUND, N_MOST = 32, 8, 512  # draws every image gets, draws between looks, draws one image gets at most
TOLERANCE = 0.05  # share of the draws an image may be wrong under and still count as right under nearly all
MISTAKE = 0.001  # probability that an image is judged wrongly, whenever its draws stop


class Sample(NamedTuple):
    """The images a certificate is about."""

    images: Tensor
    targets: Tensor
    indices: NDArray[np.int64]


class Matrix(NamedTuple):
    """Losses and whether the answer was right, one row a transformation, one column an image."""

    losses: NDArray[np.float32]
    correct: NDArray[np.int8]
    """1, 0, or -1 where nothing was scored."""


class Block(NamedTuple):
    """What to score next: some rows, for some images."""

    n_rows: int
    active: NDArray[np.int64]
    draw: Draw | None
    """A transformation for each row and active image, rows first; None leaves the images as they are."""


class Plan(Protocol):
    """How a matrix is filled."""

    @property
    def most_rows(self) -> int:
        """How many rows there can be."""

    @property
    def identity(self) -> str:
        """A text that differs wherever the plan does."""

    def next(self, so_far: Matrix) -> Block | None:
        """Return what comes after these rows; None at the end."""


@dataclass(frozen=True)
class Exhaustive:
    """Every transformation of a finite set on every image."""

    draws: Draw
    n_images: int
    identity = "every transformation"

    @property
    def most_rows(self) -> int:
        """The images as they are, and a row a transformation."""
        return 1 + len(self.draws)

    def next(self, so_far: Matrix) -> Block | None:
        """Return the next transformations, as many as fill a batch of few images."""
        done, everyone = len(so_far.losses), np.arange(self.n_images)
        if done == 0:
            return Block(1, everyone, None)
        stop = min(done - 1 + max(1, BATCH["cpu"] // self.n_images), len(self.draws))
        rows = torch.arange(done - 1, stop).repeat_interleave(self.n_images)
        return Block(stop - done + 1, everyone, self.draws[rows]) if stop > done - 1 else None


@dataclass(frozen=True)
class Adaptive:
    """Random transformations of each image, until it is known whether it is right under nearly all of them.

    An image stops when the evidence against TOLERANCE, which holds at the moment of stopping, has decided it.
    """

    transforms: TransformSet
    n_images: int
    seed: int = 0
    most_rows = 1 + N_MOST

    @property
    def identity(self) -> str:
        """The numbers that decide which draws are made."""
        return f"draws {N_FIRST} {N_ROUND} {N_MOST} {TOLERANCE} {MISTAKE} {self.seed}"

    def next(self, so_far: Matrix) -> Block | None:
        """Return some draws for each image that is not decided; the same draws whoever else is."""
        done = len(so_far.losses)
        if done == 0:
            return Block(1, np.arange(self.n_images), None)
        active = np.arange(self.n_images) if done <= N_FIRST else np.flatnonzero(decided(so_far) == 0)
        if done >= self.most_rows or not len(active):
            return None
        rows = (np.arange(N_ROUND)[:, None] * self.n_images + active).reshape(-1)
        return Block(N_ROUND, active, self._round(done)[torch.from_numpy(rows)])

    def _round(self, done: int) -> Draw:
        """Return the draws of all images after so many rows."""
        raw = np.random.Philox(np.random.SeedSequence(self.seed, spawn_key=(DRAWS, done))).random_raw()
        generator = torch.Generator().manual_seed(int(raw) >> 1)
        return self.transforms.draw(N_ROUND * self.n_images, generator=generator)

    def first(self) -> Draw:
        """Return the draws that every image gets, rows first."""
        return Draw.cat([self._round(1 + done) for done in range(0, N_FIRST, N_ROUND)])


def decided(matrix: Matrix) -> NDArray[np.int8]:
    """Return 1 for images shown to be wrong under at most TOLERANCE of the draws, -1 for more, 0 if not shown."""
    drawn = matrix.correct[1:]
    n_drawn, n_wrong = (drawn >= 0).sum(axis=0), (drawn == 0).sum(axis=0)
    sure = log_evidence(n_wrong, n_drawn, TOLERANCE) >= -np.log(MISTAKE)
    found: NDArray[np.int8] = np.where(sure, np.where(n_wrong > TOLERANCE * n_drawn, -1, 1), 0).astype(np.int8)
    return found


def choose(split: Split, n_images: int, workers: int, device: torch.device | str = "cpu") -> Sample:
    """Return images of a split drawn at random without regard to their class, always the same ones."""
    shape = split.shape or tuple(split.images.shape[1:])  # type: ignore[union-attr]  # it has one or the other
    if n_images * int(np.prod(shape)) > MAX_RESIDENT:
        most = MAX_RESIDENT // int(np.prod(shape))
        raise UserError(f"{n_images:,} images of {' x '.join(map(str, shape))} do not fit: --images {most} or fewer do")
    rows = random_order(len(split), 0, CHOICE)[:n_images]
    found = list(batches(split.take(rows), 1024, epoch=0, seed=0, shuffle=False, device="cpu", workers=workers))
    images, targets = (torch.cat([batch[k] for batch in found]).to(device) for k in (0, 1))
    return Sample(images, targets, rows)


@torch.inference_mode()
def score(
    predictor: Predictor, sample: Sample, block: Block, transforms: TransformSet, loss_fn: Loss,
) -> tuple[NDArray[np.float32], NDArray[np.int8]]:  # fmt: skip
    """Return losses and right answers of a block; a loss that is not a number counts as infinite, and as wrong."""
    n, device = len(block.active), sample.images.device
    size = BATCH.get(device.type, LARGE_BATCH)
    columns = torch.from_numpy(np.tile(block.active, block.n_rows))
    losses, right = [], []
    with frozen(predictor.network) as network:
        for first in range(0, len(columns), size):
            chosen = columns[first : first + size].to(device)
            images, targets = sample.images.index_select(0, chosen), sample.targets[chosen]
            if block.draw is not None:
                images = transforms.apply(images, block.draw[slice(first, first + size)])
            scores = network(predictor.finish(images)).float()
            loss = per_sample(loss_fn, scores, targets).nan_to_num(nan=torch.inf, posinf=torch.inf)
            losses.append(loss.cpu())
            right.append(((scores.argmax(1) == targets) & loss.isfinite()).to(torch.int8).cpu())
    shape = (block.n_rows, n)
    return torch.cat(losses).numpy().reshape(shape), torch.cat(right).numpy().reshape(shape)


def fill(
    plan: Plan, n_images: int, cache: Cache, scorer: Callable[[Block], tuple[Any, Any]],
    progress: Callable[[int, int], None] | None = None, stop: Callable[[], bool] = lambda: False,
) -> Matrix | None:  # fmt: skip
    """Return the whole matrix, from the cache as far as it goes; None if it was asked to stop, with all of it kept."""
    losses = np.full((plan.most_rows, n_images), np.nan, np.float32)
    correct = np.full((plan.most_rows, n_images), -1, np.int8)
    done = kept = cache.read(losses, correct)
    since = time.monotonic()
    while (block := plan.next(Matrix(losses[:done], correct[:done]))) is not None:
        if stop():
            cache.append(kept, losses[kept:done], correct[kept:done])
            return None
        rows = slice(done, done + block.n_rows)
        losses[rows, block.active], correct[rows, block.active] = scorer(block)
        done += block.n_rows
        if time.monotonic() - since > FLUSH:
            cache.append(kept, losses[kept:done], correct[kept:done])
            kept, since = done, time.monotonic()
        if progress:
            progress(done, plan.most_rows)
    cache.append(kept, losses[kept:done], correct[kept:done])
    return Matrix(losses[:done], correct[:done])


def digest(*parts: bytes | str) -> str:
    """Return the SHA-256 of some parts, each told from the next."""
    total = hashlib.sha256()
    for part in parts:
        raw = part.encode() if isinstance(part, str) else part
        total.update(len(raw).to_bytes(8, "little") + raw)
    return total.hexdigest()


def digest_of(tensors: dict[str, Tensor]) -> str:
    """Return the SHA-256 of tensors and their names."""
    parts = []
    for name, tensor in sorted(tensors.items()):
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        content = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
        parts += [f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode(), content]
    return digest(*parts)


def describe(transforms: TransformSet) -> str:
    """Return a text that differs wherever two sets do."""
    ops = [
        (op.name, getattr(op.function, "code", getattr(op.function, "__qualname__", "")), op.start, op.stop, op.signed,
         op.whole, op.continuous, op.n_magnitudes, op.placed, op.pixels_of)
        for op in transforms.ops
    ]  # fmt: skip
    return repr((ops, transforms.n_levels, transforms.min_level, transforms.reference_size))
