"""The only place where `auto` ends: from what was asked to a config that leaves nothing to decide.

A run writes the resolved config; training, evaluation, reports and a resume read it and decide nothing again. Resolving
a resolved config changes nothing.
"""

import math
from typing import Any, NamedTuple

from invaug.lab.config.levels import table_of_rule
from invaug.lab.config.methods import METHODS
from invaug.lab.config.schema import Config
from invaug.levels import Resilient

LARGE = 64  # pixels: from this side on, images are cropped and resized rather than padded and cropped
RANGES = {"rotations": math.pi, "translations": 7.0, "scalings": math.log(2)}
"""How far continuous sets go when no range is given: radians, pixels, log scale."""
SMALLEST_SHARE = 1 / 8  # of a batch that one view per image measures a constraint on


class Facts(NamedTuple):
    """What must be known of a dataset; an estimate needs no more than its name and classes."""

    name: str
    classes: tuple[str, ...]
    image_shape: tuple[int, int, int] = (3, 32, 32)  # channels, height and width


class Machine(NamedTuple):
    """What the computer decides."""

    device: str
    threads: int


def resolve(config: Config, data: Facts, machine: Machine | None = None) -> Config:
    """Return the config without a single `auto`, given the dataset and the machine.

    Args:
        machine: None leaves device and threads open, for estimates of what another machine would do.
    """
    decided = {**_of_images(config, data), **_of_method(config, len(data.classes))}
    if machine:
        threads = machine.threads if config.run.threads == "auto" else config.run.threads
        decided |= {"device": machine.device, "threads": threads}
    return config.replaced(**decided)


def _of_images(config: Config, data: Facts) -> dict[str, Any]:
    """Return what depends on the images: the network, crops and flips."""
    from invaug.lab.data.known import SOURCES  # here, because it needs Pillow

    channels, height, width = data.image_shape
    train, large = config.train, min(height, width) > LARGE
    padding = 4 if channels == 3 and not large else 0
    return {
        "model": config.model.name if config.model.name != "auto" else "cnn-small" if channels == 1 else "resnet-8",
        "crop": padding if train.crop == "auto" else train.crop,
        "flip": _yes_or_no(train.flip, data.name in SOURCES and SOURCES[data.name].mirrored),
        "resized_crop": _yes_or_no(train.resized_crop, large),
    }


def _of_method(config: Config, n_classes: int) -> dict[str, Any]:
    """Return what depends on the method: its set and epsilon."""
    given, row = config.method, METHODS[config.method.name]
    name = row.default_set if given.set == "auto" else given.set
    depth = 2 if name == "mild" and row.is_constrained and not config.families else 1
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
