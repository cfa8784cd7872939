"""A small trained network with its images, and ways to score them, for the tests of certificates."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from invaug import Op, TransformSet, ops
from invaug.lab.certify import matrix as scored
from invaug.lab.certify.certificate import Question
from invaug.lab.certify.matrix import Block, Matrix
from invaug.lab.data.batches import Batch
from invaug.lab.run.folder import Predictor
from invaug.lab.train.finish import Finish
from tests.support.images import real_images

MEAN, STD = (0.2, 0.15, 0.1), (0.3, 0.25, 0.2)
CLASSES = ("a", "b", "c")
SMALL = TransformSet(
    (
        Op("Rotate", ops.rotate, 0, 90, signed=True, whole=True),
        Op("Posterize", ops.posterize, 8, 4, whole=True),
        Op("Equalize", ops.equalize),
        Op("TranslateX", ops.translate_x, 0, 20, signed=True, whole=True),
    ),
    n_levels=6,
)
PLACED = TransformSet((Op("Cutout", ops.cutout, 0, 8, whole=True, placed=True),))


def cross_entropy(scores: Tensor, targets: Tensor) -> Tensor:
    """Return the loss of each image."""
    return F.cross_entropy(scores, targets, reduction="none")


def make_sample() -> Batch:
    """Return colour images that a small network is right about now and then."""
    images = real_images(18, 20, 20, 3)
    return Batch(images, torch.arange(18) % 3, torch.arange(18))


def train_predictor(sample: Batch) -> Predictor:
    """Return a small network trained on the sample for a few steps."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 4, 5, 3), nn.ReLU(), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 3))
    finish = Finish(MEAN, STD)
    optimizer = torch.optim.Adam(network.parameters(), 1e-2)
    generator = torch.Generator().manual_seed(0)
    for _ in range(60):
        optimizer.zero_grad()
        changed = SMALL.apply(sample.images, SMALL.draw(18, generator=generator))
        F.cross_entropy(network(finish(changed)), sample.targets).backward()
        optimizer.step()
    network[-1].bias.data[0] += 2.0  # right about most of class a whatever happens to it, and less so about the rest
    return Predictor(network, finish, CLASSES).eval()


def make_question(transforms: TransformSet, targets: Tensor, **changes: Any) -> Question:
    asked = {"confidence": 0.95, "cap": 10.0, "available": len(targets), "epsilon": 0.8, **changes}
    return Question(transforms, targets.numpy(), CLASSES, (3, 20, 20), **asked)


def fill(
    plan: scored.Strategy, predictor: Predictor, sample: Batch, transforms: TransformSet, folder: Path, **key: str
) -> Matrix:
    scorer = lambda block: scored.score_block(predictor, sample, transforms, cross_entropy, block)  # noqa: E731
    return scored.fill_matrix(plan, folder, key, scorer)


@torch.no_grad()
def judge(predictor: Predictor, image: Tensor, target: int) -> tuple[float, bool]:
    """The loss of one image and whether it is right, from the definition, in double precision."""
    mean, std = (torch.tensor(numbers).view(1, 3, 1, 1) for numbers in (MEAN, STD))
    scores = predictor.network((image[None] / 255 - mean) / std)[0].double().tolist()
    top = max(scores)
    return top + math.log(sum(math.exp(s - top) for s in scores)) - scores[target], scores.index(top) == target


def mean(numbers: Any) -> float:
    """Return the mean in plain Python."""
    numbers = list(numbers)
    return sum(numbers) / len(numbers)


class InterruptError(Exception):
    """What a signal raises in these tests."""


def interrupt_after(n_blocks: int) -> Callable[[], None]:
    """Return a check that raises once so many blocks were scored."""
    checks = itertools.count()

    def check() -> None:
        if next(checks) >= n_blocks:
            raise InterruptError

    return check


def biased(shares: np.ndarray) -> Any:
    """Return a scorer of images that are wrong under a known share of the draws: where the place falls."""

    def scorer(block: Block) -> tuple[np.ndarray, np.ndarray]:
        shape = (block.n_rows, len(block.active))
        if block.draw is None:
            return np.zeros(shape, np.float32), np.ones(shape, np.int8)
        wrong = block.draw.place[:, 0, 0].numpy().reshape(shape) < shares[block.active]
        return wrong.astype(np.float32), (~wrong).astype(np.int8)

    return scorer
