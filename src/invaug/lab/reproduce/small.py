"""The experiments at a scale that two cores finish: subsets of real data, a Wide ResNet of depth 10 for table-1 and a
ResNet of depth 8 for the others, every method with the same images, epochs and seeds.

Protocol, in this order: `pilot` trains at a few levels on part of the training images and is measured on other training
images; the best of them is written into EPSILON below; only then the runs start whose test images are looked at. The
methods without a level have nothing to choose; uniform draws get the level of the constraint, as in the paper.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from invaug.lab.config import build as configs
from invaug.lab.reproduce import full
from invaug.lab.reproduce.cells import Cell, Plan, Settings

BASE: Settings = {"batch_size": 32, "lr": 0.05, "n_steps": 1, "dual_lr": 5e-3, "workers": 0}
SHAPES: dict[str, Settings] = {
    "cifar10": {"per_class": 50, "epochs": 40},
    "cifar100": {"per_class": 10, "epochs": 25},
}
"""How many images, how often: few images often, so that there is something to overfit. With twice the CIFAR-10 images
half as often, plain training was above every augmentation on held-out images (44 % against 41 and 35 %)."""
WIDE: Settings = {"model": "wrn-10-1"}
PLAIN: Settings = {"model": "resnet-8"}
TRIED = {"cifar10": (1.2, 1.6, 2.0), "cifar100": (3.0, 3.5, 4.0)}
"""Levels of the pilot."""
EPSILON = {"cifar10": 2.0, "cifar100": 4.0}
"""What the pilot found best (a test compares)."""
FIXED = 1.2
"""Of the ablations, as the paper fixes 0.8 and 2.1: a level at which gamma does not vanish."""
LEVELS = (0.4, 0.8, 1.2, 1.6, 2.0)
UNIFORM_LEVELS = (0.8, 1.2, 1.6)
LONG_LEVELS = (1.2,)
STEPS = (0, 1, 3, 7)
SIZES = (10, 20, 40, 80)
SIZE_EPOCHS = 40
VIEWS_PER_CLASS, VIEWS_EPOCHS = 20, 20
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
    found = {"data": data, **SHAPES[data], **BASE, **PLAIN, **changes}
    return {key: value for key, value in found.items() if (key, found.get("method")) != ("n_steps", "uniform")}


def constrained(data: str = "cifar10", level: float | None = None, **changes: Any) -> Settings:
    """Return the settings of the paper's method."""
    return settings(data, **{"method": "constrained", "epsilon": level or EPSILON[data], **changes})


def pilot() -> Plan:
    """A third of some training images to train on, the rest to choose epsilon by."""
    cells = []
    for data, levels in TRIED.items():
        shape: Settings = {**WIDE, "per_class": 3 * SHAPES[data]["per_class"], "val_fraction": 0.6667}
        for name in ("none", "trivial"):
            cells.append(Cell(f"{data}-{name}", settings(data, **METHODS[name], **shape)))
        cells += [Cell(f"{data}-constrained-{level:g}", constrained(data, level, **shape)) for level in levels]
    return Plan(tuple(cells), 1, ("measured on training images held out; no test image is read",))


def table_1() -> Plan:
    """Six methods on two datasets."""
    cells = []
    for data, (name, method) in [(data, item) for data in SHAPES for item in METHODS.items()]:
        level = {"epsilon": EPSILON[data]} if name in ("uniform", "constrained") else {}
        beside = f"{data} wrn-40-2 wide {BESIDE[name]}" if name in BESIDE else ""
        cells.append(Cell(f"{data}-{name}", settings(data, **WIDE, **method, **level), beside))
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
    there = [Cell(f"constrained-{level:g}", constrained(level=level)) for level in UNIFORM_LEVELS]
    uniform = [Cell(f"uniform-{level:g}", constrained(level=level, method="uniform")) for level in UNIFORM_LEVELS]
    return Plan((*there, *uniform), SEEDS)


def figure_steps() -> Plan:
    """Chains of 0 (uniform), 1, 3 and 7 transitions: 1, 2, 4 and 8 proposals."""
    cells = [Cell(f"{n}-transitions", chain(n)) for n in STEPS]
    return Plan(tuple(cells), SEEDS, ("the paper's 2, 4 and 16 steps are 1, 3 and 15 transitions; ours end at 7",))


def chain(n_steps: int, **changes: Any) -> Settings:
    """Return a constrained training with a chain of that length."""
    method = "constrained" if n_steps else "uniform"
    return constrained(**{"method": method, "n_steps": n_steps or 1, "level": FIXED, **changes})


def table_synthetic() -> Plan:
    """All images, fewer epochs; the step of gamma grows as the number of steps falls, so that gammas compare."""
    cells = [cell for cell in full.table_synthetic().cells if cell.label.endswith("-paper")]
    epochs, batch_size = 3, 250
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
        "3 epochs of 60,000 images, shifts to 7 px as in the authors' code, uniform draws as in the paper's appendix",
        "each constraint looks at a third of each batch",
    )
    return Plan(tuple(small), SEEDS, notes)


def figure_dual() -> Plan:
    """The levels of figure-epsilon."""
    return Plan(figure_epsilon().cells[: len(LEVELS)], SEEDS)


def figure_epochs() -> Plan:
    """Three times as many epochs with the schedule that slows down."""
    short = [Cell(f"constrained-{level:g}", constrained(level=level)) for level in LONG_LEVELS]
    longer = {"epochs": 3 * SHAPES["cifar10"]["epochs"], "schedule": "cosine-600"}
    long = [Cell(f"constrained-{level:g}-long", constrained(level=level, **longer)) for level in LONG_LEVELS]
    return Plan((*short, *long), SEEDS, ("CIFAR-10, not CIFAR-100; 40 and 120 epochs",))


def figure_frequency() -> Plan:
    """The chains of figure-steps."""
    return figure_steps()


def figure_levels() -> Plan:
    """2 and 8 proposals."""
    cells = [cell for cell in figure_steps().cells if cell.label in ("1-transitions", "7-transitions")]
    return Plan(tuple(cells), SEEDS, ("8 proposals beside the paper's 16",))


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
    few: Settings = {"per_class": VIEWS_PER_CLASS, "epochs": VIEWS_EPOCHS, "level": FIXED}
    cells = [Cell(f"{m}-views", constrained(n_views=m, **few), str(m)) for m in full.VIEWS]
    return Plan(tuple(cells), SEEDS, (OTHER_TASK,))


def table_bias() -> Plan:
    """The wide set at its largest magnitudes, CIFAR-10."""
    return Plan(full.bias_cells(settings(), settings(method="none")), SEEDS, (OTHER_TASK,))


GAMMAS: dict[str, tuple[float, float, float]] = {
    "mnist mlp r180": (6.134, 14.962, 13.941),
    "mnist mlp r90": (5.331, 12.267, 10.676),
    "mnist mlp translated": (16.031, 11.003, 16.638),
    "mnist cnn r180": (5.691, 15.283, 14.515),
    "mnist cnn r90": (5.010, 12.113, 11.228),
    "mnist cnn translated": (18.453, 13.677, 17.854),
    "fashion-mnist mlp r180": (6.168, 12.358, 12.413),
    "fashion-mnist mlp r90": (6.069, 10.619, 10.428),
    "fashion-mnist mlp translated": (13.330, 7.805, 11.026),
}
"""Of rotation, translation and scale, from results/table-synthetic/small.jsonl (a test compares)."""
SMALL_RULE = "epsilon is halved where gamma is smallest, and doubled elsewhere: in three epochs no gamma vanishes"


def table_epsilon_rule() -> Plan:
    """As at full scale, with the trainings of table-synthetic."""
    wanted = {f"{data}-{model}-{plant}" for data, model in full.RULED for plant in full.RULED_PLANTS}
    cells = [cell for cell in table_synthetic().cells if cell.label in wanted]

    def gammas(beside: str) -> dict[str, float]:
        return dict(zip(full.families(1.0), GAMMAS[beside], strict=True))

    smallest = full.rule_cells(cells, gammas, lambda prices: min(prices.values()))
    return Plan(smallest, SEEDS, (SMALL_RULE, "by the gammas of table-synthetic, small scale"))
