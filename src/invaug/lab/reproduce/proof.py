"""The experiments of the protocol, from `proof.toml`: cells are the product of tasks, sets, arms and variations."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

from invaug.lab.config.levels import table_of_rule
from invaug.lab.reproduce.cells import Cell, Experiment, Scale, ScalePlan, Settings, read_table
from invaug.levels import Resilient

TABLE = read_table("proof")
NAMES = [name for name, entry in TABLE.items() if "question" in entry]
ONE_SIZE = "leave out --scale full"
EQUAL_PASSES = "equal-passes"
"""The end of the labels of cells with as many epochs as cost what plain training costs."""
RULE = ("alpha", "cap")
"""Settings of the resilient rule."""
Entry = Mapping[str, Any]
Variation = Mapping[str, float | str]
"""The settings in which two cells of an arm differ."""


def experiments() -> Iterator[Experiment]:
    """Return the experiments of the protocol, in the order in which they are run."""
    for name in NAMES:
        entry = TABLE[name]
        plan = ScalePlan(list(cells(entry)), entry["seeds"], entry.get("notes", ()))
        plans: dict[Scale, ScalePlan] = {"small": plan, "full": ScalePlan([], 1, lacks=ONE_SIZE)}
        yield Experiment(name, entry["title"], entry["question"], entry["measures"], plans)


def cells(entry: Entry) -> Iterator[Cell]:
    """Return the cells of an experiment."""
    sets = entry.get("sets", [""])
    for task, set_name, arm in product(entry["tasks"], sets, entry["arms"]):
        in_use = task in entry.get("only_on", {}).get(arm, [task])
        if in_use and (set_name == sets[0] or arm not in entry.get("once", [])):
            named = "" if arm in entry.get("once", []) else set_name
            yield from (cell(entry, task, named, arm, each) for each in variations(entry, arm))
    for task, arm in product(entry["tasks"], entry.get("equal_passes", [])):
        if task in entry.get("only_on", {}).get(arm, [task]):
            yield shortened(cell(entry, task, "", arm, {}), TABLE["ratios"][arm])


def variations(entry: Entry, arm: str) -> list[Variation]:
    """Return the settings in which the cells of an arm differ: all combinations of `vary`, and then `more`."""
    varied, more = entry.get("vary", {}), entry.get("more", {}).get(arm, [])
    grid = [dict(zip(varied, chosen, strict=True)) for chosen in product(*varied.values())]
    return [*more] if more and not varied else [*grid, *more]


def cell(entry: Entry, task: str, set_name: str, arm: str, variation: Variation) -> Cell:
    """Return one cell."""
    settings = {
        **TABLE["shared"],
        "data": task,
        **entry.get("base", {}),
        **entry["tasks"][task],
        **TABLE["arms"][arm],
        **TABLE["sets"].get(set_name, {}),
        **chosen(entry, arm),
        **variation,
    }
    return Cell(label_of(task, set_name, arm, variation), _settled(settings))


def label_of(task: str, set_name: str, arm: str, variation: Variation) -> str:
    """Return the label of a cell: what it is made of.

    >>> label_of("cifar10", "", "plain", {"lr": 0.1})
    'cifar10-plain-lr-0.1'
    """
    words = [f"{key}-{in_a_word(value)}" for key, value in variation.items()]
    return "-".join([task, *([set_name] if set_name else []), arm, *words])


def in_a_word(value: float | str) -> str:
    """Return a value as labels and tables have it: 0.1, 60, conv-24."""
    return value if isinstance(value, str) else f"{value:g}"


def chosen(entry: Entry, arm: str) -> Settings:
    """Return what the experiment before this one has chosen for an arm."""
    found: Settings = TABLE["chosen"].get(entry.get("chosen_by"), {})
    return dict(found.get(entry.get("chosen_as", {}).get(arm, arm), {}))


def shortened(whole: Cell, ratio: float) -> Cell:
    """Return a cell with so many epochs that its passes are those of plain training."""
    epochs = math.floor(whole.settings["epochs"] / ratio)
    return Cell(f"{whole.label}-{EQUAL_PASSES}", {**whole.settings, "epochs": epochs})


def _settled(settings: Settings) -> Settings:
    """Return the settings with epsilon in place of its share of log C or of its rule, and "all" left out."""
    rule = {key: settings[key] for key in RULE if key in settings}
    found = {key: value for key, value in settings.items() if key not in ("level", *RULE) and value != "all"}
    if "level" in settings:
        found["epsilon"] = round(settings["level"] * math.log(TABLE["classes"][settings["data"]]), 4)
    if rule:
        found["epsilon"] = table_of_rule(replace(Resilient(), **rule))
    return found
