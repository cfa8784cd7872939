"""Past the paper: how augmentation methods compare in the low-data regime, ours by itself with no setting per dataset.

Protocol, in this order: `compare-pilot` fixes our own settings on held-out training images of two of the datasets;
`compare-epsilon` finds the best level of the paper's method on held-out images of every dataset; `compare-auto` puts
the level that is chosen while training beside a grid of fixed ones, again on held-out images. Only then the runs start
whose test images are looked at.
"""

from __future__ import annotations

import math
from typing import Any

from invaug.lab.reproduce.cells import Cell, Plan, Settings

SETTINGS: Settings = {"model": "conv-24", "epochs": 200, "batch_size": 32, "lr": 0.1, "workers": 0}
"""What every method has: a fast network, few images, epochs enough to learn them by heart without augmentation."""
PER_CLASS = {"cifar10": 50, "fashion-mnist": 50, "cifar100": 10, "svhn": 50}
EPOCHS = {"cifar100": 100}
"""Where there are twice the images: as many steps for every dataset."""
CLASSES = {"cifar100": 100}
CHOSEN_ON = ("cifar10", "fashion-mnist")
HELD_OUT = 0.8  # of the images that are read for a choice; as many are left to train on as in the final runs
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
NO_TEST = "measured on training images held out; no test image is read"


def settings(data: str, *, held_out: bool = False, **changes: Any) -> Settings:
    """Return what every method has on a dataset; where images are held out, as many are left to train on."""
    per_class = PER_CLASS[data]
    part = {"per_class": round(per_class / (1 - HELD_OUT)), "val_fraction": HELD_OUT} if held_out else {}
    epochs = {"epochs": EPOCHS[data]} if data in EPOCHS else {}
    return {"data": data, "per_class": per_class, **SETTINGS, **epochs, **part, **changes}


def guess(data: str) -> float:
    """Return the loss of a guess."""
    return math.log(CLASSES.get(data, 10))


def compare_pilot() -> Plan:
    """What was tried for our default, and what it must beat, on two datasets."""
    cells = [
        Cell(f"{data}-{name}", settings(data, held_out=True, **method))
        for data in CHOSEN_ON
        for name, method in PILOT.items()
    ]
    return Plan(tuple(cells), 3, (NO_TEST, "what a step of each costs is in docs/benchmarks.md"))


def compare_epsilon() -> Plan:
    """The paper's two-view constraint at four levels, on every dataset."""
    cells = []
    for data in PER_CLASS:
        for part in LEVELS:
            level = round(part * guess(data), 2)
            method: Settings = {"method": "constrained", "epsilon": level, "n_steps": 1, "dual_lr": 5e-3}
            cells.append(Cell(f"{data}-{part:g}", settings(data, held_out=True, **method)))
    return Plan(tuple(cells), 1, (NO_TEST, "levels in parts of the loss of a guess"))
