"""Past the paper: how augmentation methods compare in the low-data regime, ours by itself with no setting per dataset.

Protocol, in this order: `compare-pilot` and `compare-samplers` fix our own settings on held-out training images of two
of the datasets; `compare-epsilon` finds the best level of the paper's method on held-out images of every dataset;
`compare-auto` puts the level that is chosen while training beside a grid of fixed ones, again on held-out images. Only
then the runs start whose test images are looked at.
"""

from __future__ import annotations

import math
from typing import Any

from invaug.lab.reproduce.cells import Cell, Plan, Settings

N_EPOCHS = 100
SETTINGS: Settings = {"model": "conv-24", "epochs": N_EPOCHS, "batch_size": 32, "lr": 0.1, "workers": 0}
"""What every method has: a fast network and few images."""
PER_CLASS = {"cifar10": 50, "fashion-mnist": 50, "cifar100": 10, "svhn": 50}
EPOCHS = {"cifar100": 50}
"""Where there are twice the images: as many steps for every dataset."""
CLASSES = {"cifar100": 100}
CHOSEN_ON = ("cifar10", "fashion-mnist")
CUT = ("cifar10", "cifar100")
"""Where recipes cut boxes out of images."""
HELD_OUT = {"cifar10": 0.9, "fashion-mnist": 0.9, "cifar100": 0.8, "svhn": 0.9}
"""Of the images that are read for a choice; as many are left to train on as in the final runs."""
LEVELS = (0.2, 0.4, 0.6, 0.8)
"""Of the grids of epsilon, in parts of the loss of a guess."""
MIXTURE: Settings = {"method": "uniform", "mixture": True, "normalized": True, "epsilon": "auto", "dual_lr": 5e-3}
PILOT: dict[str, Settings] = {
    "none": {"method": "none", "crop": 0, "flip": "no", "cutout": 0},
    "basic": {"method": "none"},
    "trivial": {"method": "trivial"},
    "two-view": {**MIXTURE, "mixture": False, "price": 1.0},
    "price-1": {**MIXTURE, "price": 1.0},
    "price-3": {**MIXTURE, "price": 3.0},
    "price-3-slow": {**MIXTURE, "price": 3.0, "dual_lr": 5e-4},
    "price-3-chain": {**MIXTURE, "method": "constrained", "n_steps": 1, "price": 3.0},
    "price-3-remembered": {**MIXTURE, "method": "constrained", "n_steps": 1, "price": 3.0, "remember": 4},
    "price-10": {**MIXTURE, "price": 10.0},
}
FACTOR = (0.46, 1.54)
FAMILIES = {
    "geometry": {"Rotate": 18.0, "ShearX": 0.18, "ShearY": 0.18, "TranslateX": 6.0, "TranslateY": 6.0},
    "colour": {
        "AutoContrast": True, "Equalize": True, "Solarize": (256.0, 102.0), "Color": FACTOR, "Posterize": (8.0, 6.0),
        "Contrast": FACTOR, "Brightness": FACTOR, "Sharpness": FACTOR,
    },
}  # fmt: skip
"""The mild set in two groups, a gamma each."""
SAMPLERS: dict[str, Settings] = {
    "uniform": {"method": "uniform"},
    "learned": {"method": "learned"},
    "learned-squared": {"method": "learned", "learn": 2.0},
    "chains": {"method": "constrained"},
    "chains-fresh": {"method": "constrained", "remember": 0},
    "chains-learned": {"method": "constrained", "learn": 1.0},
    "worst-of-2": {"method": "worst", "n_steps": 1, "mixture": True},
    "normalized": {"normalized": True},
    "two-groups": {"method": "learned", "families": FAMILIES, "depth": 2},
    "two-views": {"mixture": False, "cutout": 0},
    "cutout": {"cutout": 16},
    "standard": {"set": "standard"},
}
"""Ways to draw, and other things the default could have been; all else as `invaug train` has it."""
TWO_VIEW: dict[str, Settings] = {
    "uniform": {"method": "uniform", "dual_lr": 5e-3},
    "paper": {"method": "constrained", "n_steps": 1, "dual_lr": 5e-3},
}
"""The constraint as the paper has it: the clean and the transformed view of every image, and a fixed level."""
LOOKED = "test images, looked at once, when a run is done"
NO_TEST = "measured on training images held out; no test image is read"


PEERS: dict[str, Settings] = {
    "none": PILOT["none"], "basic": PILOT["basic"], "trivial": PILOT["trivial"],
    "randaugment": {"method": "randaugment"}, "autoaugment": {"method": "autoaugment"},
}  # fmt: skip
OURS: dict[str, Settings] = {"invaug": {"preset": "default"}}
"""What `invaug train` does when nothing is said: no setting per dataset."""
BEST: dict[str, dict[str, float]] = {
    "cifar10": {"uniform": 0.2, "paper": 0.8}, "fashion-mnist": {"uniform": 0.2, "paper": 0.2},
    "cifar100": {"uniform": 0.6, "paper": 0.6}, "svhn": {"uniform": 0.2, "paper": 0.6},
}  # fmt: skip
"""By compare-epsilon, in parts of the loss of a guess."""
GRID = {f"{part:g}": part for part in LEVELS}
AUTO: dict[str, Settings] = {
    "auto": {"epsilon": "auto"}, "auto-normalized": {"epsilon": "auto", "normalized": True},
}  # fmt: skip
"""The default, and the same with the steps of a fixed level."""
COST = {
    "none": 1.0, "basic": 1.0, "trivial": 1.0, "randaugment": 1.0, "autoaugment": 1.0, "uniform": 1.62, "paper": 2.08,
    "invaug": 1.0,
}  # fmt: skip
"""Time of an epoch beside TrivialAugment's by `compare-cost`, whose sessions differ by up to a tenth; up to 1.05 counts
as equal."""
COST_EPOCHS = 12
FASTEST = "seconds_fastest_epoch"
"""Of a run: what other programs beside it change least."""
BUDGETS = (25, 50, 100, 200)
"""Of the front: epochs of TrivialAugment."""
FRONT = ("trivial", "uniform", "paper", "invaug")
N_SEEDS = 10
FRESH = 5
"""Of the final runs, the first seed no test result of which had been seen when the last setting was fixed."""


def settings(data: str, *, held_out: float = 0.0, **changes: Any) -> Settings:
    """Return what every method has on a dataset; where images are held out, as many are left to train on."""
    per_class = PER_CLASS[data]
    part = {"per_class": round(per_class / (1 - held_out)), "val_fraction": held_out} if held_out else {}
    epochs = {"epochs": EPOCHS[data]} if data in EPOCHS else {}
    return {"data": data, "per_class": per_class, **SETTINGS, **epochs, **part, **changes}


def guess(data: str) -> float:
    """Return the loss of a guess."""
    return math.log(CLASSES.get(data, 10))


def compare_pilot() -> Plan:
    """What was tried for our default, and what it must beat, on two datasets."""
    cells = [
        Cell(f"{data}-{name}", settings(data, held_out=0.8, epochs=200, **method))
        for data in CHOSEN_ON
        for name, method in PILOT.items()
    ]
    return Plan(tuple(cells), 3, (NO_TEST, "what a step of each costs is in docs/benchmarks.md"))


def compare_samplers() -> Plan:
    """Ways to draw the transformed views: uniformly, by what was learned, by chains, the worst, by groups."""
    cells = [
        Cell(f"{data}-{name}", settings(data, held_out=HELD_OUT[data], **{"preset": "default", **method}))
        for data in CHOSEN_ON
        for name, method in SAMPLERS.items()
    ]
    return Plan(tuple(cells), 3, (NO_TEST,))


def compare_epsilon() -> Plan:
    """The paper's two-view constraint, with its sampler and with uniform draws, at four levels on every dataset."""
    cells = []
    for data in PER_CLASS:
        for name, method in TWO_VIEW.items():
            for part in LEVELS:
                level = round(part * guess(data), 2)
                cells.append(
                    Cell(f"{data}-{name}-{part:g}", settings(data, held_out=HELD_OUT[data], **method, epsilon=level))
                )
    return Plan(tuple(cells), 1, (NO_TEST, "levels in parts of the loss of a guess"))


def compare_auto() -> Plan:
    """The level that is chosen while training, and each of a grid of fixed ones."""
    cells = []
    for data in PER_CLASS:
        levels: dict[str, Settings] = {name: {"epsilon": round(part * guess(data), 2)} for name, part in GRID.items()}
        for name, level in {**levels, **AUTO}.items():
            cells.append(Cell(f"{data}-{name}", settings(data, held_out=HELD_OUT[data], preset="default", **level)))
    notes = ("levels in parts of the loss of a guess, each as `--epsilon` takes it: steps are normalised",)
    return Plan(tuple(cells), 5, (NO_TEST, *notes))


def constraints(data: str) -> dict[str, Settings]:
    """Return the paper's two ways, each at its best level for the dataset."""
    return {name: {**method, "epsilon": round(BEST[data][name] * guess(data), 2)} for name, method in TWO_VIEW.items()}


def everyone(data: str) -> dict[str, Settings]:
    """Return every method of the comparison."""
    return {**PEERS, **constraints(data), **OURS}


def compare() -> Plan:
    """Every method for as many epochs."""
    cells = [
        Cell(f"{data}-{name}", settings(data, **method))
        for data in PER_CLASS
        for name, method in everyone(data).items()
    ]
    return Plan(tuple(cells), N_SEEDS, (LOOKED,))


def compare_uncut() -> Plan:
    """The others without cutout, which their recipes have and ours has not, where it is used at all."""
    cells = [
        Cell(f"{data}-{name}", settings(data, **{**method, "cutout": 0}))
        for data in CUT
        for name, method in everyone(data).items()
        if name not in ("none", *OURS)
    ]
    return Plan(tuple(cells), FRESH, (LOOKED,))


def compare_cost() -> Plan:
    """What an epoch of each method takes, in turn."""
    cells = [
        Cell(f"{data}-{name}", settings(data, **{**method, "epochs": COST_EPOCHS}))
        for data in PER_CLASS
        for name, method in everyone(data).items()
    ]
    return Plan(tuple(cells), 5, ("methods in turn, seed by seed; the accuracies of so few epochs say nothing",))


def in_time(data: str, name: str, epochs: int) -> Settings:
    """Return a method for as many epochs as it makes while TrivialAugment makes so many."""
    return settings(data, **everyone(data)[name], epochs=max(round(epochs / COST[name]), 1))


def compare_time() -> Plan:
    """Every method for as long as TrivialAugment takes."""
    cells = [
        Cell(f"{data}-{name}", in_time(data, name, EPOCHS.get(data, N_EPOCHS))) for data in PER_CLASS for name in COST
    ]
    return Plan(tuple(cells), N_SEEDS, (LOOKED, "epochs by the times of `compare-cost`"))


def compare_front() -> Plan:
    """Accuracy against time, for several budgets."""
    cells = [Cell(f"{budget}-{name}", in_time("cifar10", name, budget)) for budget in BUDGETS for name in FRONT]
    return Plan(tuple(cells), 5, (LOOKED, "CIFAR-10; budgets are epochs of TrivialAugment"))
