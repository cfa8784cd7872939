"""What an experiment costs: the passes through the network, times the seconds of one."""

from collections.abc import Mapping
from typing import Any

from invaug.lab.config.build import build
from invaug.lab.config.resolve import Facts, resolve
from invaug.lab.config.schema import Config
from invaug.lab.jobs.measures import passes
from invaug.lab.reproduce.cells import Scale

IMAGES = {
    "cifar10": (50_000, 10_000),
    "cifar100": (50_000, 10_000),
    "svhn": (73_257, 26_032),
    "mnist": (60_000, 10_000),
    "fashion-mnist": (60_000, 10_000),
    "imagenet100": (127_000, 5_000),
    "digits": (4_000, 1_000),
}
"""Training and test images."""
CLASSES = {"cifar100": 100, "imagenet100": 100}  # the others have ten
MICROSECONDS: Mapping[Scale, Mapping[str, float]] = {
    # one RTX 3090: WRN-40-2 from the paper's 12.6 s per epoch, the others in proportion to their multiply-adds
    "full": {"wrn-40-2": 84, "wrn-28-10": 670, "resnet-50": 830, "mlp": 5, "cnn": 5},
    # two cores, from the seconds of the runs in results/: two at a time, batches of 32 (CIFAR) and 250 (MNIST)
    "small": {"wrn-10-1": 450, "resnet-8": 255, "conv-24": 80, "mlp": 13.5, "cnn": 23},
}
"""For one image through one network, forward; backward counts as two."""
UNKNOWN = 100.0
PER_RUN = 2.0  # seconds to load and save


def count_images(config: Config) -> tuple[float, float]:
    """Return how many images a run trains on, and how many it is measured on."""
    data, name = config.data, config.data.name.partition("+")[0]
    train, test = IMAGES.get(name, (1_000, 1_000))
    used = min(data.per_class * CLASSES.get(name, 10) if data.per_class else train * data.fraction, train)
    return (used * (1 - data.val_fraction), used * data.val_fraction) if data.val_fraction else (used, test)


def estimate_seconds(settings: Mapping[str, Any], scale: Scale) -> float:
    """Return about how long a training takes."""
    config = build(settings)
    name = config.data.name.partition("+")[0]
    config = resolve(config, Facts(name, ("",) * CLASSES.get(name, 10)))
    train, test = count_images(config)
    one = MICROSECONDS[scale].get(config.model.name, UNKNOWN) * 1e-6
    return PER_RUN + one * (train * config.train.epochs * passes(config) + train + test)
