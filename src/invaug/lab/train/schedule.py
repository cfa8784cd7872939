"""Learning rates as pure functions of the step: nothing to save, nothing to restore."""

import math
from collections.abc import Callable

Schedule = Callable[[float, float], float]
"""(epochs done, as a fraction; epochs in all) -> share of the highest learning rate."""


def cosine(epoch: float, epochs: float) -> float:
    """Half a cosine from 1 to 0."""
    return 0.5 * (1 + math.cos(math.pi * min(epoch / epochs, 1.0)))


def constant(epoch: float, epochs: float) -> float:
    """1 throughout."""
    return 1.0


def cosine_600(epoch: float, epochs: float) -> float:
    """The 600-epoch ablation: a cosine of length 200 whose clock slows down after epoch 180.

    It ticks every epoch to 180, then once in 10 epochs to 185, in 20 to 195, in 40 to 200; other lengths are scaled.
    """
    at = epoch * 600 / epochs
    if at < 180:
        return cosine(at, 200)
    if at < 230:
        return cosine(180 + (at - 180) // 10, 200)
    if at < 430:
        return cosine(185 + (at - 230) // 20, 200)
    return cosine(195 + (at - 430) // 40, 200)


SCHEDULES: dict[str, Schedule] = {"cosine": cosine, "constant": constant, "cosine-600": cosine_600}


def learning_rate(name: str, epoch: float, epochs: int, lr: float, min_lr: float, warmup: float) -> float:
    """Return the learning rate after so many epochs, warm-up first."""
    if epoch < warmup:
        return lr * epoch / warmup if epoch else lr / max(warmup * 100, 1)
    return min_lr + (lr - min_lr) * SCHEDULES[name](epoch - warmup, max(epochs - warmup, 1))
