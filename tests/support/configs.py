"""Configs for tests: built, or resolved for a dataset that is described and never loaded."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

from invaug.lab.config.build import build
from invaug.lab.config.resolve import Machine, resolve
from invaug.lab.config.schema import Config


class Facts(NamedTuple):
    """What resolving must know of a dataset."""

    classes: tuple[str, ...] = tuple("0123456789")
    n_train: int = 4000
    image_shape: tuple[int, int, int] = (1, 28, 28)


def resolved(facts: Facts | None = None, n_ranks: int = 1, **given: Any) -> Config:
    return resolve(build(given), facts or Facts(), Machine("cpu", 1, n_ranks))


def flat(config: Config) -> SimpleNamespace:
    """Return the settings by their short names, as attributes."""
    return SimpleNamespace(**config.flat())
