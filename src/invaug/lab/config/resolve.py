"""The only place where `auto` ends: from what was asked to a config that leaves nothing to decide.

A run writes the resolved config; training, evaluation, reports and a resume read it and decide nothing again. Resolving
a resolved config changes nothing.
"""

import math
from typing import Any, NamedTuple

from invaug.lab.config.levels import table_of_rule
from invaug.lab.config.methods import METHODS
from invaug.lab.config.schema import Config, Model
from invaug.levels import Resilient

LARGE = 64  # pixels: from this side on, images are cropped and resized rather than padded and cropped
RANGES = {"rotations": math.pi, "translations": 7.0, "scalings": math.log(2)}
"""How far continuous sets go when no range is given: radians, pixels, log scale."""
BATCH_SIZES = (128, 64, 32, 16, 8)
FEWEST_PER_EPOCH = 25  # steps
EPOCHS, FEWEST_EPOCHS, MOST_EPOCHS = 30, 10, 100
FEWEST_STEPS, MOST_STEPS = 750, 25_000  # of a training
FINE_TUNING = 0.3  # share of the learning rate that given weights are trained with
SMALLEST_SHARE = 1 / 8  # of a batch that one view per image measures a constraint on


class Facts(NamedTuple):
    """What must be known of a dataset."""

    classes: tuple[str, ...]
    n_train: int
    image_shape: tuple[int, int, int] = (3, 32, 32)  # channels, height and width


class Machine(NamedTuple):
    """What the computer decides."""

    device: str
    threads: int
    n_ranks: int = 1


def resolve(config: Config, data: Facts, machine: Machine | None = None) -> Config:
    """Return the config without a single `auto`, given the dataset and the machine.

    Args:
        machine: None leaves device and threads open, for estimates of what another machine would do.
    """
    decided = {**_of_images(config, data), **_of_method(config, len(data.classes))}
    decided |= _of_amount(config, data.n_train, machine.n_ranks if machine else 1)
    if machine:
        threads = machine.threads if config.run.threads == "auto" else config.run.threads
        decided |= {"device": machine.device, "threads": threads}
    return config.replaced(**decided)


def _of_images(config: Config, data: Facts) -> dict[str, Any]:
    """Return what depends on the images: the network, crops and flips."""
    channels, height, width = data.image_shape
    train, large = config.train, min(height, width) > LARGE
    padding = 4 if channels == 3 and not large else 0
    return {
        "model": config.model.name if config.model.name != "auto" else "cnn-small" if channels == 1 else "resnet-8",
        "weights_sha256": _digest(config.model),
        "crop": padding if train.crop == "auto" else train.crop,
        "flip": _yes_or_no(train.flip, _keeps_label_mirrored(config.data.name, channels)),
        "resized_crop": _yes_or_no(train.resized_crop, large),
    }


def _digest(model: Model) -> str | None:
    """Return the SHA-256 of the weights to start from, so that a resumed run notices another file."""
    if not model.weights or model.weights_sha256:
        return model.weights_sha256
    from invaug.lab.models.weights import digest_of  # here, because it needs torch

    return digest_of(model.weights)


def _keeps_label_mirrored(name: str, channels: int) -> bool:
    """Whether mirror images keep their label: as known of the dataset; of a folder or an .npz, if it has colours."""
    from invaug.lab.data.known import SOURCES  # here, because it needs Pillow

    known, _, planted = name.partition("+")
    return SOURCES[known].mirrored and not planted if known in SOURCES else channels == 3


def _of_amount(config: Config, n_images: int, n_ranks: int) -> dict[str, Any]:
    """Return what depends on the number of training images.

    - Batch size: the largest power of two from 8 to 128 with which an epoch has 25 steps or more.
    - Epochs: 30 if these are 750 to 25,000 steps; more for fewer images, up to 100; fewer for more, down to 10.
    - Learning rate: 0.1 for SGD and 0.001 for Adam with batches of 128 or more; a batch of a quarter has half of it,
      and a training that starts from given weights 0.3 of it.
    - The last incomplete batch is left out, unless it is the only one. Others are left out in each epoch.
    """
    train, together = config.train, n_ranks * config.train.accumulate  # batches per step
    fitting = (size for size in BATCH_SIZES if n_images >= FEWEST_PER_EPOCH * size * together)
    size = next(fitting, BATCH_SIZES[-1]) if train.batch_size == "auto" else train.batch_size
    steps = max(n_images // (size * together), 1)
    few, many = min(math.ceil(FEWEST_STEPS / steps), MOST_EPOCHS), max(MOST_STEPS // steps, FEWEST_EPOCHS)
    epochs = max(few, min(EPOCHS, many))
    return {
        "batch_size": size,
        "epochs": epochs if train.epochs == "auto" else train.epochs,
        "lr": _learning_rate(config, size) if train.lr == "auto" else train.lr,
        "drop_last": n_images >= size * n_ranks if train.drop_last == "auto" else train.drop_last,
    }


def _learning_rate(config: Config, batch_size: int) -> float:
    """Return the rate of the optimiser, in proportion to the square root of smaller batches.

    On 1,000 held-out images of CIFAR-10, with 200 for training in batches of 8 and one seed, the square root was at
    31.1 %, proportion to the batch at 29.7 %, the same rate for all at 28.2 %: a choice between rules that are close.
    """
    usual = 0.1 if config.train.optimizer == "sgd" else 1e-3
    fitted = round(usual * min(math.sqrt(batch_size / BATCH_SIZES[0]), 1.0), 5)
    return round(FINE_TUNING * fitted, 7) if config.model.weights else fitted


def _of_method(config: Config, n_classes: int) -> dict[str, Any]:
    """Return what depends on the method: its set and epsilon."""
    given, row = config.method, METHODS[config.method.name]
    name = row.default_set if given.set == "auto" else given.set
    depth = 2 if name == "mild" and "depth" in row.uses and not config.families else 1
    share = SMALLEST_SHARE if given.views == "one" and row.keeps_clean else 1.0
    return {
        "set": name,
        "depth": depth if given.depth == "auto" else given.depth,
        "range": given.range or RANGES.get(name),
        "share": share if given.share == "auto" else given.share,
        "epsilon": _epsilon(config, n_classes),
        **row.settings,
    }


def _epsilon(config: Config, n_classes: int) -> Any:
    """Return the level: as given, the rule's table, or of a published preset the usual one."""
    row, given = METHODS[config.method.name], config.method.epsilon
    if not row.holds_epsilon:  # a fixed weight holds nothing below a level; plain training has no constraint
        return 0.0 if row.is_constrained else math.inf
    if given is None:
        return round(0.35 * math.log(n_classes), 2)  # 0.8 for ten classes, as in the paper
    return table_of_rule(Resilient()) if given == "auto" else given


def _yes_or_no(asked: str, usually: bool) -> str:
    return asked if asked != "auto" else "yes" if usually else "no"
