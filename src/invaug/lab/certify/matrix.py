"""Losses of many images under many transformations: scored block by block, kept on disk, resumable.

What to score next is a pure function of what was scored before, so an interrupted matrix and an uninterrupted one are
the same. Rows are scored whole: the first is the untransformed images, each other one is one transformation of every
image, or one random transformation for each image that is still undecided.
"""

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors.torch
import torch
from numpy.typing import NDArray
from torch import Tensor

from invaug import Draw, TransformSet
from invaug.lab.certify.bounds import log_evidence
from invaug.lab.data.batches import Batch, batches
from invaug.lab.data.load import MAX_RESIDENT
from invaug.lab.data.splits import Split, random_order
from invaug.lab.errors import UserError
from invaug.lab.run import checkpoint
from invaug.lab.run.folder import Predictor, shapes_of
from invaug.lab.terminal import say
from invaug.scoring import Loss, frozen, per_sample

BATCH = {"cpu": 128}  # inputs per forward pass: activations of more leave a processor's cache
LARGE_BATCH = 1024
FLUSH = 2.0  # seconds of work a crash may cost
CHOICE, DRAWS = 11, 12  # purposes, each with random numbers of its own
N_FIRST, N_ROUND, N_MOST = 32, 8, 512  # draws for every image, draws between decisions, most draws for one image
TOLERANCE = 0.05  # share of the draws an image may be wrong under and still count as right under nearly all
MISTAKE = 0.001  # probability that an image is decided wrongly, whenever its draws stop
DRAW_RULE = f"{N_FIRST} {N_ROUND} {N_MOST} {TOLERANCE} {MISTAKE}"


class Matrix(NamedTuple):
    """Losses and whether the prediction was right: one row per transformation, one column per image."""

    losses: NDArray[np.float32]
    correct: NDArray[np.int8]
    """1, 0, or -1 where nothing was scored."""

    def first(self, n_rows: int) -> "Matrix":
        """Return the first rows, in the same memory."""
        return Matrix(self.losses[:n_rows], self.correct[:n_rows])

    def tensors(self) -> dict[str, Tensor]:
        """Return both as tensors by name, in the same memory."""
        return {name: torch.from_numpy(values) for name, values in self._asdict().items()}


class Block(NamedTuple):
    """What to score next: some rows, for some images."""

    n_rows: int
    active: NDArray[np.int64]
    draw: Draw | None
    """A transformation for each row and active image, rows first; None leaves the images untransformed."""


@dataclass(frozen=True)
class Exhaustive:
    """Every transformation of a finite set on every image."""

    draws: Draw
    n_images: int

    @property
    def max_rows(self) -> int:
        """One row for the untransformed images, and one per transformation."""
        return 1 + len(self.draws)

    def next_block(self, so_far: Matrix) -> Block | None:
        """Return the next transformations, as many as fill a batch if there are few images; None at the end."""
        done, everyone = len(so_far.losses), np.arange(self.n_images)
        if done == 0:
            return Block(1, everyone, None)
        stop = min(done - 1 + max(1, BATCH["cpu"] // self.n_images), len(self.draws))
        rows = torch.arange(done - 1, stop).repeat_interleave(self.n_images)
        return Block(stop - done + 1, everyone, self.draws[rows]) if stop > done - 1 else None


@dataclass(frozen=True)
class Adaptive:
    """Random transformations of each image, until it is known whether it is right under nearly all of them.

    An image stops when the evidence against TOLERANCE, which is valid at any stopping time, has decided it.
    """

    transforms: TransformSet
    n_images: int
    seed: int = 0
    n_steps: int = 0
    """Transitions of the chains that are made of the first draws; a chain takes n_steps + 1 of them."""

    @property
    def n_first(self) -> int:
        """Draws that every image gets: enough for one chain, in whole rounds."""
        return max(N_FIRST, -(-(self.n_steps + 1) // N_ROUND) * N_ROUND)

    @property
    def max_rows(self) -> int:
        """One row for the untransformed images, and one per draw."""
        return 1 + max(N_MOST, self.n_first)

    def next_block(self, so_far: Matrix) -> Block | None:
        """Return some draws for each undecided image; an image's draws do not depend on which others are left."""
        done = len(so_far.losses)
        if done == 0:
            return Block(1, np.arange(self.n_images), None)
        active = np.arange(self.n_images) if done <= self.n_first else np.flatnonzero(decide_images(so_far) == 0)
        if done >= self.max_rows or not len(active):
            return None
        rows = (np.arange(N_ROUND)[:, None] * self.n_images + active).reshape(-1)
        return Block(N_ROUND, active, self._draw_round(done)[torch.from_numpy(rows)])

    def _draw_round(self, done: int) -> Draw:
        """Return the draws of all images that follow after `done` rows."""
        raw = np.random.Philox(np.random.SeedSequence(self.seed, spawn_key=(DRAWS, done))).random_raw()
        generator = torch.Generator().manual_seed(int(raw) >> 1)
        return self.transforms.draw(N_ROUND * self.n_images, generator=generator)

    def first_draws(self) -> Draw:
        """Return the draws that every image gets, rows first."""
        return Draw.cat([self._draw_round(1 + done) for done in range(0, self.n_first, N_ROUND)])


Strategy = Exhaustive | Adaptive


def decide_images(matrix: Matrix) -> NDArray[np.int8]:
    """Return 1 for images shown to be wrong under at most TOLERANCE of the draws, -1 for more, 0 for undecided."""
    drawn = matrix.correct[1:]
    n_drawn, n_wrong = (drawn >= 0).sum(axis=0), (drawn == 0).sum(axis=0)
    sure = log_evidence(n_wrong, n_drawn, TOLERANCE) >= -np.log(MISTAKE)
    decided: NDArray[np.int8] = np.where(sure, np.where(n_wrong > TOLERANCE * n_drawn, -1, 1), 0).astype(np.int8)
    return decided


def choose_sample(split: Split, n_images: int, workers: int, device: torch.device | str = "cpu") -> Batch:
    """Return random images of a split, whatever their class; the same ones every time."""
    shape = split.shape or tuple(split.images.shape[1:])  # type: ignore[union-attr]  # it has one or the other
    size = int(np.prod(shape))
    if n_images * size > MAX_RESIDENT:
        shown, most = " x ".join(map(str, shape)), MAX_RESIDENT // size
        raise UserError(f"{n_images:,} images of {shown} do not fit in memory: use --images {most} or fewer")
    rows = random_order(len(split), 0, CHOICE)[:n_images]
    found = list(batches(split.take(rows), 1024, epoch=0, seed=0, shuffle=False, device="cpu", workers=workers))
    images, targets = (torch.cat([batch[k] for batch in found]).to(device) for k in (0, 1))
    return Batch(images, targets, torch.from_numpy(rows))


@torch.inference_mode()
def score_block(
    predictor: Predictor, sample: Batch, transforms: TransformSet, loss_fn: Loss, block: Block
) -> tuple[NDArray[np.float32], NDArray[np.int8]]:
    """Return losses and correctness of a block; a loss that is NaN counts as infinite, and the prediction as wrong."""
    device = sample.images.device
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
    shape = (block.n_rows, len(block.active))
    return torch.cat(losses).numpy().reshape(shape), torch.cat(right).numpy().reshape(shape)


def fill_matrix(
    strategy: Strategy,
    folder: Path,
    key: Mapping[str, str],
    score: Callable[[Block], tuple[Any, Any]],
    progress: Callable[[int, int], None] = lambda *_: None,
    check_stop: Callable[[], None] = lambda: None,
) -> Matrix:
    """Return the whole matrix, from the checkpoints in a folder as far as they go.

    Args:
        key: What the scores depend on, each under the word for it in a message.
        check_stop: Called before each block; whatever it raises, all rows so far are kept.
    """
    shape = (strategy.max_rows, strategy.n_images)
    matrix = Matrix(np.full(shape, np.nan, np.float32), np.full(shape, -1, np.int8))
    done = kept = _restore(matrix, folder, key)
    since = time.monotonic()
    try:
        while (block := strategy.next_block(matrix.first(done))) is not None:
            check_stop()
            rows = slice(done, done + block.n_rows)
            matrix.losses[rows, block.active], matrix.correct[rows, block.active] = score(block)
            done += block.n_rows
            progress(done, strategy.max_rows)
            if time.monotonic() - since > FLUSH:
                _keep(matrix.first(done), folder, key)
                kept, since = done, time.monotonic()
    finally:
        if done > kept:
            _keep(matrix.first(done), folder, key)
    return matrix.first(done)


def _keep(rows: Matrix, folder: Path, key: Mapping[str, str]) -> None:
    """Write all rows so far; a matrix of 512 images under 470 transformations takes about a megabyte."""
    checkpoint.save(folder, rows.tensors(), step=len(rows.losses), epoch=0, meta=key)


def _restore(matrix: Matrix, folder: Path, key: Mapping[str, str]) -> int:
    """Fill in the rows on disk and return how many; damaged ones, and those of something else, are not used."""
    try:
        saved = checkpoint.load(folder)
    except checkpoint.AllDamagedError as error:
        say(f"{error}: scoring again from the start")
        return 0
    if saved is None:
        return 0
    for message in saved.skipped:
        say(message)
    rows = matrix.first(saved.step).tensors()
    changed = [name for name in key if saved.meta.get(name) != key[name]]
    if changed or shapes_of(saved.state) != shapes_of(rows):
        other = " and ".join(changed) or "images"
        say(f"the scores in {folder} belong to other {other}: scoring again from the start")
        return 0
    for name, tensor in rows.items():
        tensor.copy_(saved.state[name])
    return saved.step


def digest_tensors(tensors: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of tensors and their names."""
    alone = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    return hashlib.sha256(safetensors.torch.save(alone)).hexdigest()


def describe_set(transforms: TransformSet) -> str:
    """Return a text that differs wherever two sets do; a function is known by its code or its name."""
    names = [getattr(op.function, "code", getattr(op.function, "__qualname__", "")) for op in transforms.ops]
    ops = [vars(op) | {"function": name} for op, name in zip(transforms.ops, names, strict=True)]
    return repr((ops, transforms.n_levels, transforms.min_level, transforms.reference_size, transforms.depth))
