"""The transformations a resolved config names, as sets."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from invaug import TransformSet, sets
from invaug.lab.config.resolve import RANGES
from invaug.lab.config.schema import Config
from invaug.lab.errors import UserError


def set_name(config: Config) -> str:
    """Return what the transformations are called: the set, or the families joined."""
    return " + ".join(config.families) or config.method.set


def transform_sets(config: Config) -> tuple[tuple[str, TransformSet], ...]:
    """Return the set of each constraint, with its name; operations are drawn one at a time."""
    if not config.families:
        return ((set_name(config), transform_set(config)),)
    return tuple((name, _family(config, name, _ranges(family))) for name, family in config.families.items())


def transform_set(config: Config) -> TransformSet:
    """Return the set the config names, narrowed as it says; with families, the operations of all of them."""
    if config.families:
        every = {op: limits for family in config.families.values() for op, limits in _ranges(family).items()}
        return _family(config, "all", every)
    method = config.method
    make: Callable[..., TransformSet] = getattr(sets, method.set)
    if method.set in RANGES:
        return make(method.range)
    options = {"identity": method.identity, "min_level": int(not method.identity), "relative_to": method.relative_to}
    transforms = replace(make(method.n_levels, **options), depth=1)
    try:
        transforms = transforms.only(*method.only) if method.only else transforms
        return transforms.without(*method.without) if method.without else transforms
    except ValueError as error:
        raise UserError(str(error)) from None


def _ranges(family: Mapping[str, sets.Range]) -> dict[str, sets.Range]:
    """Return the operations of a family: all its entries but epsilon."""
    return {op: limits for op, limits in family.items() if op != "epsilon"}


def _family(config: Config, name: str, ranges: Mapping[str, sets.Range]) -> TransformSet:
    try:
        return sets.of(ranges, config.method.n_levels, relative_to=config.method.relative_to)
    except (ValueError, TypeError) as error:
        raise UserError(f"family {name}: {error}") from None
