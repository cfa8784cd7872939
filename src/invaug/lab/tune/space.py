"""What to search: keys of the config, each with a list of values or a range."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from pydantic import TypeAdapter, ValidationError

from invaug.lab.config import methods
from invaug.lab.config.build import build
from invaug.lab.config.schema import PLACES
from invaug.lab.errors import UserError, nearest

MANY = 10  # ranges whose ends are this many times apart are searched by their logarithm
FIXED = ("data", "data_dir", "families", "val_fraction", "val_fold", "seed", "device", "devices", "log", "workers")
"""Keys that cannot be searched."""
EIGHT = (0.2, 0.5, 0.8, 1.1, 1.4, 1.7, 2.0, 2.3)
"""The levels of the paper's search on CIFAR-10: ten classes, where guessing has a loss of 2.3."""
# printed is "8 evenly spaced levels in [0.3, 2.7]"; the text names 2.1, which only steps of 0.3 from 0.3 reach
KNOWN = {"cifar100": (0.3, 0.6, 0.9, 1.2, 1.5, 1.8, 2.1, 2.4)}


@dataclass(frozen=True)
class Range:
    """All numbers between two."""

    low: float
    high: float
    whole: bool = False

    @property
    def is_logarithmic(self) -> bool:
        """Whether to search it by its logarithm."""
        return self.low > 0 and self.high / self.low >= MANY


Space = Mapping[str, tuple[Any, ...] | Range]
"""A list to choose from, or a range, for each key."""


def usual_levels(data: str, n_classes: int) -> tuple[float, ...]:
    """Return the levels of the paper's search, in proportion to the loss of guessing among the classes."""
    factor = math.log(n_classes) / math.log(10)
    return KNOWN.get(data, tuple(round(factor * level, 2) for level in EIGHT))


def parse(texts: Sequence[str], settings: Mapping[str, Any]) -> Space:
    """Return what `--search KEY=A,B,C` and `--search KEY=LOW:HIGH` ask for."""
    space: dict[str, tuple[Any, ...] | Range] = {}
    for text in texts:
        key, equals, rest = text.partition("=")
        key = key.strip().replace("-", "_")
        if not equals or not rest.strip(" ,"):
            raise UserError(f"cannot search {text}: write KEY=A,B,C or KEY=LOW:HIGH, for example lr=0.01:0.3")
        if key not in PLACES:
            raise UserError(f"unknown key {key} in --search, {nearest(key, PLACES)}")
        if key in FIXED or key in space:
            raise UserError(f"{key} cannot be searched{' twice' if key in space else ''}: got {text}")
        if key in settings:
            raise UserError(f"{key} is both given ({settings[key]}) and searched ({rest}): leave one out")
        if ":" in rest:
            space[key] = _range(key, rest)
        else:
            space[key] = tuple(_value(key, part) for part in rest.split(",") if part.strip())
    for key, found in space.items():
        for value in (found.low, found.high) if isinstance(found, Range) else found:
            needs = {"gamma_init": 1.0} if key == "method" else {}  # which some methods want
            build({**settings, **needs, key: value})  # a wrong value is named before anything runs
    method = str(settings.get("method", methods.DEFAULT))
    if unused := [key for key in space if "method" not in space and not methods.is_used(method, key)]:
        raise UserError(
            f"method {method} does not use {unused[0]}: leave it out of --search, or choose another --method"
        )
    return space


def _range(key: str, text: str) -> Range:
    ends = [_value(key, part) for part in text.split(":")]
    numbers = [end for end in ends if type(end) in (int, float)]
    if len(ends) != 2 or len(numbers) != 2 or not numbers[0] < numbers[1]:
        raise UserError(f"cannot search {key}={text}: a range is LOW:HIGH, two numbers, the smaller first")
    return Range(numbers[0], numbers[1], all(type(end) is int for end in numbers))


def _value(key: str, text: str) -> Any:
    """Return a value as the setting's type; one that is none stays text, which the config then refuses by name."""
    kind: Any = PLACES[key].info.annotation
    try:
        return TypeAdapter(kind).validate_python(text.strip())
    except ValidationError:
        return text.strip()


def defaults(space: Space, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the searched keys are where nothing is searched."""
    usual = build(settings).flat()
    return {key: usual[key] for key in space}


def grid(space: Space) -> list[dict[str, Any]]:
    """Return all combinations, the last key fastest; none if a key has a range."""
    lists = [found for found in space.values() if not isinstance(found, Range)]
    return [dict(zip(space, values, strict=True)) for values in product(*lists)] if len(lists) == len(space) else []
