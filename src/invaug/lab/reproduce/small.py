"""The experiments at a scale that two cores finish: subsets of real data, a Wide ResNet of depth 10, every method with
the same images, epochs and seeds.

Epsilon is fixed here, before the runs whose test images are looked at. The values are first guesses until a pilot on
held-out training images (val_fraction) replaces them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from invaug.lab import config as configs
from invaug.lab.reproduce import full
from invaug.lab.reproduce.cells import Cell, Plan, Settings

BASE: Settings = {
    "model": "wrn-10-1", "epochs": 30, "batch_size": 32, "lr": 0.05, "n_steps": 1, "dual_lr": 5e-3, "workers": 0,
}  # fmt: skip
PER_CLASS = {"cifar10": 100, "cifar100": 10}
EPSILON = {"cifar10": 1.2, "cifar100": 3.0}
LEVELS = (0.4, 0.8, 1.2, 1.6, 2.0)
LONG_LEVELS = (0.8, 1.6)
STEPS = (0, 1, 3, 15)
SIZES = (12, 25, 50, 100)
SIZE_EPOCHS = 60
VIEWS_PER_CLASS = 30
SEEDS = 3
METHODS: dict[str, Settings] = {
    "none": {"method": "none"},
    "trivial": {"method": "trivial"},
    "trivial-no-identity": {"method": "trivial", "identity": False},
    "randaugment": {"method": "randaugment", "n_ops": 2, "magnitude": 9},
    "uniform": {"method": "uniform"},
    "constrained": {"method": "constrained"},
}
BESIDE = {"trivial": "trivial", "trivial-no-identity": "trivial", "constrained": "constrained"}
OTHER_TASK = "the paper's numbers are of the whole datasets and WRN-40-2, wide set: another task, the same order?"


def settings(data: str = "cifar10", **changes: Any) -> Settings:
    """Return the settings all methods share; epsilon only where there is a constraint."""
    return {"data": data, "per_class": PER_CLASS[data], **BASE, **changes}


def constrained(data: str = "cifar10", level: float | None = None, **changes: Any) -> Settings:
    """Return the settings of the paper's method."""
    return settings(data, **{"method": "constrained", "epsilon": level or EPSILON[data], **changes})


def table_1() -> Plan:
    """Six methods on two datasets."""
    cells = []
    for data, (name, method) in [(data, item) for data in PER_CLASS for item in METHODS.items()]:
        level = {"epsilon": EPSILON[data]} if name in ("uniform", "constrained") else {}
        beside = f"{data} wrn-40-2 wide {BESIDE[name]}" if name in BESIDE else ""
        cells.append(Cell(f"{data}-{name}", settings(data, **method, **level), beside))
    return Plan(tuple(cells), SEEDS, (OTHER_TASK,))


def table_2() -> Plan:
    """CIFAR-10 at four sizes, for the fractions of ImageNet-100."""
    cells = []
    for size, fraction in zip(SIZES, full.FRACTIONS, strict=True):
        shape: Settings = {"per_class": size, "epochs": SIZE_EPOCHS}
        beside = f"{fraction:g}"
        cells.append(Cell(f"{size}-trivial", settings(method="trivial", **shape), f"{beside} trivial"))
        cells.append(Cell(f"{size}-constrained", constrained(**shape), f"{beside} constrained"))
    note = "CIFAR-10 with so many images a class stands beside ImageNet-100 at the paper's fractions, smallest first"
    return Plan(tuple(cells), SEEDS, (note,))


def figure_epsilon() -> Plan:
    """Five levels and plain training, CIFAR-10."""
    cells = [Cell(f"constrained-{level:g}", constrained(level=level)) for level in LEVELS]
    return Plan((*cells, Cell("none", settings(method="none"))), SEEDS)


def figure_uniform() -> Plan:
    """The same levels under λ_c and under uniform draws."""
    there = [Cell(f"constrained-{level:g}", constrained(level=level)) for level in LEVELS]
    uniform = [Cell(f"uniform-{level:g}", constrained(level=level, method="uniform")) for level in LEVELS]
    return Plan((*there, *uniform), SEEDS)


def figure_steps() -> Plan:
    """Chains of 0 (uniform), 1, 3 and 15 transitions: 1, 2, 4 and 16 proposals."""
    cells = [Cell(f"{n}-transitions", chain(n)) for n in STEPS]
    return Plan(tuple(cells), SEEDS, ("the paper's 2, 4 and 16 steps are 1, 3 and 15 transitions",))


def chain(n_steps: int, **changes: Any) -> Settings:
    """Return a constrained training with a chain of that length."""
    return constrained(**{"method": "constrained" if n_steps else "uniform", "n_steps": n_steps or 1, **changes})


def table_synthetic() -> Plan:
    """All images, fewer epochs; the step of gamma grows as the number of steps falls, so that gammas compare."""
    cells = [cell for cell in full.table_synthetic().cells if cell.label.endswith("-paper")]
    epochs, batch_size = 5, 250
    steps = epochs * 60_000 // batch_size
    published = configs.read("mnist-rotations-mlp")
    dual_lr = published["dual_lr"] * published["epochs"] * 60_000 / published["batch_size"] / steps
    changes = {
        "families": full.families(full.SHIFTS["authors-code"]), "epochs": epochs, "batch_size": batch_size,
        "share": 0.34, "dual_lr": round(dual_lr, 6), "workers": 0,
    }  # fmt: skip
    small = [
        replace(cell, label=cell.label.removesuffix("-paper"), settings={**cell.settings, **changes}) for cell in cells
    ]
    notes = (
        "5 epochs of 60,000 images, shifts to 7 px as in the authors' code, uniform draws as in the paper's appendix",
        "each constraint looks at a third of each batch",
    )
    return Plan(tuple(small), SEEDS, notes)


def figure_dual() -> Plan:
    """The levels of figure-epsilon."""
    return Plan(figure_epsilon().cells[: len(LEVELS)], SEEDS)


def figure_epochs() -> Plan:
    """Three times as many epochs with the schedule that slows down."""
    short = [Cell(f"constrained-{level:g}", constrained(level=level)) for level in LONG_LEVELS]
    longer = {"epochs": 3 * BASE["epochs"], "schedule": "cosine-600"}
    long = [Cell(f"constrained-{level:g}-long", constrained(level=level, **longer)) for level in LONG_LEVELS]
    return Plan((*short, *long), SEEDS, ("CIFAR-10, not CIFAR-100; 30 and 90 epochs",))


def figure_frequency() -> Plan:
    """The chains of figure-steps."""
    return figure_steps()


def figure_levels() -> Plan:
    """2 and 16 proposals."""
    return Plan(
        tuple(cell for cell in figure_steps().cells if cell.label in ("1-transitions", "15-transitions")), SEEDS
    )


def table_runtime() -> Plan:
    """Three epochs of 1,000 images, the methods in turn."""
    three: Settings = {"epochs": 3, "batch_size": 128}
    cells = (
        Cell("trivial", settings(method="trivial", **three), "trivial"),
        Cell("2-steps", chain(1, **three), "2 steps"),
        Cell("4-steps", chain(3, **three), "4 steps"),
    )
    notes = (
        "ratios on this machine, the first epoch not counted; DeepAA is left out: it needs a policy file of yours",
    )
    return Plan(cells, 5, notes)


def table_views() -> Plan:
    """Several kept views an image, CIFAR-10."""
    few: Settings = {"per_class": VIEWS_PER_CLASS}
    cells = [Cell(f"{m}-views", constrained(n_views=m, **few), str(m)) for m in full.VIEWS]
    return Plan(tuple(cells), SEEDS, (OTHER_TASK,))


def table_bias() -> Plan:
    """The wide set at its largest magnitudes, CIFAR-10."""
    return Plan(full.bias_cells(settings(), settings(method="none")), SEEDS, (OTHER_TASK,))


def table_epsilon_rule() -> Plan:
    """As at full scale, with the epochs of table-synthetic."""
    return Plan((), SEEDS, lacks=full.NO_EPSILONS)
