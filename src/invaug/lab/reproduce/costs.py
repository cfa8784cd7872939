"""What an experiment costs: passes through the network, times what one takes."""

from __future__ import annotations

from collections.abc import Mapping

from invaug.lab import config as configs
from invaug.lab.config import Config
from invaug.lab.reproduce.cells import Cell, Scale

IMAGES = {
    "cifar10": (50_000, 10_000), "cifar100": (50_000, 10_000), "svhn": (73_257, 26_032), "mnist": (60_000, 10_000),
    "fashion-mnist": (60_000, 10_000), "imagenet100": (127_000, 5_000), "digits": (4_000, 1_000),
}  # fmt: skip
"""Training and test images."""
CLASSES = {"cifar100": 100, "imagenet100": 100}
MICROSECONDS: Mapping[Scale, Mapping[str, float]] = {
    # one RTX 3090: WRN-40-2 from the paper's 12.6 s an epoch, the others from their multiply-adds beside it
    "full": {"wrn-40-2": 84, "wrn-28-10": 670, "resnet-50": 830, "mlp": 5, "cnn": 5},
    # two cores: guessed from a few batches on one busy core and from ResNet-8 in docs/benchmarks.md; replace by runs
    "small": {"wrn-10-1": 500, "mlp": 15, "cnn": 35},
}
"""Of one image through one network, forward; backward counts as two."""
UNKNOWN = 100.0
PER_RUN = 2.0  # seconds to load and save


def passes(config: Config) -> float:
    """Return the passes a training image costs: forward 1, backward 2, a scored proposal 1."""
    if config.method not in ("constrained", "uniform", "worst", "penalty", "identity-mix"):
        return 3.0
    scored = config.n_steps + 1 if config.n_steps and config.method != "uniform" else 0
    return 3 + config.share * max(len(config.families), 1) * config.n_views * (scored + 3)


def images(config: Config) -> tuple[float, float]:
    """Return how many training and test images there are."""
    name = config.data.partition("+")[0]
    train, test = IMAGES.get(name, (1_000, 1_000))
    some = config.per_class * CLASSES.get(name, 10) if config.per_class else train * config.fraction
    return min(some, train), test


def seconds(cell: Cell, scale: Scale) -> float:
    """Return about how long one run of a cell takes."""
    if cell.lacks:
        return 0.0
    config = configs.build(cell.settings)
    train, test = images(config)
    one = MICROSECONDS[scale].get(config.model, UNKNOWN) * 1e-6
    return PER_RUN + one * (train * config.epochs * passes(config) + train + test)
