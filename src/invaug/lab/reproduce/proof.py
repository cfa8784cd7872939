"""The experiments of the protocol, from `proof.toml`: cells are the product of tasks, sets, arms and variations."""

import math
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from invaug.lab.reproduce.cells import Cell, Experiment, Scale, ScalePlan, Settings, read_table

TABLE = read_table("proof")
NAMES = [name for name, entry in TABLE.items() if "question" in entry]
NO_FULL = "it has one size, the small one"
Variation = Mapping[str, Any]


def experiments() -> Iterator[Experiment]:
    """Return the experiments of the protocol, in the order in which they are run."""
    for name in NAMES:
        entry = TABLE[name]
        plan = ScalePlan(list(cells(entry)), entry["seeds"], entry.get("notes", ()))
        plans: dict[Scale, ScalePlan] = {"small": plan, "full": ScalePlan([], 1, lacks=NO_FULL)}
        yield Experiment(name, entry["title"], entry["question"], entry["measures"], plans)


def cells(entry: Mapping[str, Any]) -> Iterator[Cell]:
    """Return the cells of an experiment."""
    for task, set_name, arm in product(entry["tasks"], entry.get("sets", [""]), entry["arms"]):
        if task in entry.get("only_on", {}).get(arm, [task]):
            yield from (cell(entry, task, set_name, arm, each) for each in variations(entry, arm))


def variations(entry: Mapping[str, Any], arm: str) -> list[Variation]:
    """Return the settings in which the cells of an arm differ: all combinations of `vary`, and then `more`."""
    keys, values = list(entry.get("vary", {})), entry.get("vary", {}).values()
    grid = [dict(zip(keys, chosen, strict=True)) for chosen in product(*values)]
    return [*grid, *entry.get("more", {}).get(arm, [])]


def cell(entry: Mapping[str, Any], task: str, set_name: str, arm: str, variation: Variation) -> Cell:
    """Return one cell; its label lists what it is made of."""
    data = task.partition(":")[0]
    rates: Mapping[str, float] = entry.get("rates", {})
    settings = {
        **TABLE["shared"],
        "data": data,
        **entry.get("base", {}),
        **entry["tasks"][task],
        **({"lr": rates[arm]} if arm in rates else {}),
        **TABLE["arms"][arm],
        **TABLE["sets"].get(set_name, {}),
        **entry.get("chosen", {}).get(arm, {}),
        **variation,
    }
    words = [f"{key}-{value:g}" for key, value in variation.items()]
    return Cell("-".join([task, *([set_name] if set_name else []), arm, *words]), with_level(settings, data))


def with_level(settings: Settings, data: str) -> Settings:
    """Return the settings with epsilon in place of the share of log C that it is given as."""
    found = dict(settings)
    level = found.pop("level", None)
    return {**found, "epsilon": round(level * math.log(TABLE["classes"][data]), 4)} if level else found
