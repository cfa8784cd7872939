"""The experiments at full scale, as the paper's text has them and as the authors' code ran them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from invaug.lab.config import build as configs
from invaug.lab.reproduce.cells import Cell, Plan, Settings
from invaug.lab.reproduce.paper import PUBLISHED

PRESETS = ("paper", "authors-code")
ROWS = (
    ("cifar10", "wrn-40-2"), ("cifar10", "wrn-28-10"), ("cifar100", "wrn-40-2"), ("cifar100", "wrn-28-10"),
    ("svhn", "wrn-28-10"),
)  # fmt: skip
"""Datasets and networks of Table 1; svhn is SVHN core."""
SPACES = ("standard", "wide")
LEVELS = {
    "cifar10": (0.2, 0.5, 0.8, 1.1, 1.4, 1.7, 2.0, 2.3),
    # printed is "8 evenly spaced levels in [0.3, 2.7]"; the text names 2.1, which only steps of 0.3 from 0.3 reach
    "cifar100": (0.3, 0.6, 0.9, 1.2, 1.5, 1.8, 2.1, 2.4),
}
FIXED = {"cifar10": 0.8, "cifar100": 2.1}
"""Epsilon of the ablations of sampling steps."""
STEPS = (2, 4, 8, 16)  # printed are 2, 4 and 16
FRACTIONS = (0.01, 0.025, 0.05, 0.1)
VIEWS = (1, 2, 4, 8, 16)
PLANTS = ("r180", "r90", "translated", "scaled")
SHIFTS = {"paper": 16.0, "authors-code": 7.0}
"""Pixels of the translation constraint: 16 in the paper's table push a digit out of the frame."""
TIMED_EPOCHS = 3


def published(data: str, model: str, space: str, preset: str) -> Settings:
    """Return the published settings of an entry of Table 1; without an epsilon where none is known."""
    names = [f"{data}-{model}-{each}-{preset}" for each in (space, *SPACES)]
    name = next(name for name in names if name in configs.shipped_names())
    settings = configs.read(name)
    if name != names[0]:
        settings.pop("epsilon")
    return {**settings, "set": space}


def baseline(settings: Settings, method: str, **more: Any) -> Settings:
    """Return the same training without a constraint."""
    return {key: value for key, value in settings.items() if key != "epsilon"} | {"method": method, **more}


def transitions(preset: str, steps: int) -> int:
    """Return n_steps for the paper's "steps": as Algorithm 1 reads; in the authors' code they count proposals."""
    return steps if preset == "paper" else steps - 1


def policy(data: str, space: str) -> str:
    """Return where a DeepAA policy is looked for below the data folder: the authors published none for most entries."""
    return f"deepaa/{data}-{space}.npz"


def pilot() -> Plan:
    """Nothing: the levels are published."""
    return Plan((), 1, lacks="at full scale the levels are the published ones; invaug tune chooses others")


def table_1() -> Plan:
    """TrivialAugment, DeepAA and the paper's method; TrivialAugment with and without Identity, by preset."""
    entries = [(*row, space) for row in ROWS for space in SPACES]
    cells = [cell for entry in entries for preset in PRESETS for cell in _entry(*entry, preset)]
    return Plan(tuple(cells), 5, ("DeepAA's policies are files of yours: DATA-DIR/deepaa/DATASET-SET.npz",))


def _entry(data: str, model: str, space: str, preset: str) -> Iterable[Cell]:
    settings, name = published(data, model, space, preset), f"{data}-{model}-{space}-{preset}"
    beside = f"{data} {model} {space}"
    yield Cell(f"{name}-trivial", baseline(settings, "trivial"), f"{beside} trivial")
    if preset == "paper":  # the authors ran DeepAA's own code
        deepaa = baseline(settings, "deepaa", policy=policy(data, space))
        yield Cell(f"{name}-deepaa", deepaa, f"{beside} deepaa")
    if "epsilon" in settings:
        yield Cell(f"{name}-constrained", settings, f"{beside} constrained")


def table_2() -> Plan:
    """ImageNet-100 at four sizes."""
    settings = configs.read("imagenet100-resnet-50-wide-paper")
    presets = {"paper": settings, "authors-code": {**settings, "preset": "authors-code", "subset": "first"}}
    cells = []
    for preset, fraction in [(preset, fraction) for preset in PRESETS for fraction in FRACTIONS]:
        some, name = {**presets[preset], "fraction": fraction}, f"{preset}-{fraction:g}"
        cells.append(Cell(f"{name}-trivial", baseline(some, "trivial"), f"{fraction:g} trivial"))
        cells.append(Cell(f"{name}-constrained", some, f"{fraction:g} constrained"))
    return Plan(
        tuple(cells), 3, ("paper: random images of each class; authors-code: the first by name, as its code does",)
    )


def constrained_at(data: str, preset: str, level: float) -> Cell:
    """Return WRN-40-2 under the wide set at a level."""
    settings = {**published(data, "wrn-40-2", "wide", preset), "epsilon": level}
    return Cell(f"{data}-{preset}-constrained-{level:g}", settings)


def figure_epsilon() -> Plan:
    """Eight levels and plain training."""
    pairs = [(data, preset) for data in LEVELS for preset in PRESETS]
    cells = [constrained_at(data, preset, level) for data, preset in pairs for level in LEVELS[data]]
    plain = {data: baseline(published(data, "wrn-40-2", "wide", "paper"), "none") for data in LEVELS}
    return Plan((*cells, *(Cell(f"{data}-none", settings) for data, settings in plain.items())), 5)


def figure_uniform() -> Plan:
    """The same levels under λ_c and under uniform draws."""
    cells = [cell for cell in figure_epsilon().cells if "epsilon" in cell.settings]
    uniform = [
        Cell(cell.label.replace("constrained", "uniform"), {**cell.settings, "method": "uniform"}) for cell in cells
    ]
    return Plan((*cells, *uniform), 5)


def figure_steps() -> Plan:
    """Chains of several lengths at a fixed level."""
    cells = []
    for data, preset in [(data, preset) for data in FIXED for preset in PRESETS]:
        for steps in STEPS:
            settings = constrained_at(data, preset, FIXED[data]).settings | {"n_steps": transitions(preset, steps)}
            cells.append(Cell(f"{data}-{preset}-{steps}-steps", settings))
    return Plan(tuple(cells), 4, ("which steps the figures have is not printed, beyond 2, 4 and 16",))


def table_synthetic() -> Plan:
    """Four planted symmetries under three constraints at once."""
    names = [(d, m, p) for d in ("mnist", "fashion-mnist") for m in ("mlp", "cnn") for p in PLANTS]
    cells = [synthetic(*name, preset) for name in names for preset in PRESETS]
    notes = (
        "paper: uniform draws, shifts to 16 px, as the appendix says; authors-code: a chain of 2, shifts to 7 px",
        "how many runs is not said: 3",
    )
    return Plan(tuple(cells), 3, notes)


def synthetic(data: str, model: str, plant: str, preset: str) -> Cell:
    """Return a planted dataset under rotation, translation and scale."""
    settings = configs.read(f"{data}-rotations-{model}")
    for key in ("set", "range", "n_steps"):
        settings.pop(key)
    sampling = {"method": "uniform"} if preset == "paper" else {"method": "constrained", "n_steps": 1}
    settings |= {"data": f"{data}+{plant}", "families": families(SHIFTS[preset]), **sampling}
    return Cell(f"{data}-{model}-{plant}-{preset}", settings, f"{data} {model} {plant}", unit_inputs=True)


def families(shift: float) -> dict[str, dict[str, float]]:
    """Return the three constraints of the synthetic experiments."""
    return {"rotation": {"Rotation": math.pi}, "translation": {"Translation": shift}, "scale": {"Scale": 1.5}}


def figure_dual() -> Plan:
    """The levels of figure-epsilon."""
    return Plan(tuple(cell for cell in figure_epsilon().cells if "epsilon" in cell.settings), 5)


def figure_epochs() -> Plan:
    """200 epochs, and 600 with the schedule that slows down."""
    short = [constrained_at("cifar100", preset, level) for preset in PRESETS for level in LEVELS["cifar100"]]
    long = [
        Cell(f"{cell.label}-600-epochs", {**cell.settings, "epochs": 600, "schedule": "cosine-600"}) for cell in short
    ]
    return Plan((*short, *long), 3, ("which levels, and how many runs, is not printed",))


def figure_frequency() -> Plan:
    """WRN-28-10 on three datasets with two steps, and WRN-40-2 with more."""
    there = [cell for cell in table_1().cells if cell.label.endswith("28-10-wide-paper-constrained")]
    wide = [Cell(cell.label, cell.settings) for cell in there]
    return Plan((*wide, *figure_steps().cells), 4)


def figure_levels() -> Plan:
    """2 and 16 steps."""
    cells = [cell for cell in figure_steps().cells if cell.label.endswith(("-2-steps", "-16-steps"))]
    return Plan(tuple(cells), 4)


def table_runtime() -> Plan:
    """A few epochs each, in turn."""
    cells = []
    for preset in PRESETS:
        settings = {**published("cifar10", "wrn-40-2", "wide", preset), "epochs": TIMED_EPOCHS}
        cells.append(Cell(f"{preset}-trivial", baseline(settings, "trivial"), "trivial"))
        if preset == "paper":
            deepaa = baseline(settings, "deepaa", policy=policy("cifar10", "wide"))
            cells.append(Cell(f"{preset}-deepaa", deepaa, "deepaa"))
        for steps in (2, 4):
            chain = {**settings, "n_steps": transitions(preset, steps)}
            cells.append(Cell(f"{preset}-{steps}-steps", chain, f"{steps} steps"))
    notes = (f"{TIMED_EPOCHS} epochs each, the first not counted",)
    return Plan(tuple(cells), 3, notes)


def table_views() -> Plan:
    """Several kept views an image."""
    cells = []
    for preset in PRESETS:
        settings = published("cifar100", "wrn-40-2", "wide", preset)
        cells += [Cell(f"{preset}-{m}-views", {**settings, "n_views": m}, str(m)) for m in VIEWS]
    return Plan(tuple(cells), 3, ("how many runs is not said: 3; epsilon is Table 1's",))


def bias_cells(settings: Settings, plain: Settings) -> tuple[Cell, ...]:
    """Return the three columns of the table of biases: the last level alone, no Identity."""
    strongest = {"n_levels": 2, "identity": False}
    sampled, mixed = (baseline(settings, method, **strongest) for method in ("sampled", "identity-mix"))
    return (
        Cell("none", plain, "none"),
        Cell("sampled", sampled, "sampled"),
        Cell("identity-mix", mixed, "identity-mix"),
    )


def table_bias() -> Plan:
    """The wide set at its largest magnitudes."""
    settings = published("cifar100", "wrn-40-2", "wide", "paper")
    return Plan(bias_cells(settings, baseline(settings, "none")), 5)


RULED = (("mnist", "mlp"), ("mnist", "cnn"), ("fashion-mnist", "mlp"))
RULED_PLANTS = ("translated", "r90", "r180")
VANISHED = 0.05  # a gamma whose term no longer counts beside the clean loss
RULE = (
    f"epsilon is halved where gamma is at most {VANISHED:g} or half of the largest, and doubled elsewhere; what counts "
    "as zero is not said in the paper"
)


def vanished(gammas: Mapping[str, float]) -> float:
    """Return up to which gamma a family counts as free."""
    return max(VANISHED, max(gammas.values()) / 2)


def adjusted(settings: Settings, gammas: Mapping[str, float], limit: float) -> Settings:
    """Return the settings with the paper's rule: epsilon halved up to a gamma, doubled above it."""
    families = {
        name: {**family, "epsilon": settings["epsilon"] * (0.5 if gammas[name] <= limit else 2.0)}
        for name, family in settings["families"].items()
    }
    return {**settings, "families": families}


def rule_cells(
    cells: Iterable[Cell],
    gammas: Callable[[str], Mapping[str, float]],
    limit: Callable[[Mapping[str, float]], float] = vanished,
) -> tuple[Cell, ...]:
    """Return each planted dataset with one epsilon for all families, and with those its gammas ask for."""
    found = []
    for cell in cells:
        found.append(Cell(f"{cell.label}-same", cell.settings, f"{cell.beside} same", cell.unit_inputs))
        prices = gammas(cell.beside)
        changed = adjusted(cell.settings, prices, limit(prices))
        found.append(Cell(f"{cell.label}-adjusted", changed, f"{cell.beside} adjusted", cell.unit_inputs))
    return tuple(found)


def published_gammas(beside: str) -> dict[str, float]:
    """Return the gammas of the paper's table of planted symmetries."""
    numbers = PUBLISHED["table-synthetic"].numbers
    return {family: numbers[beside, f"gamma.{family}"].mean for family in families(1.0)}


def table_epsilon_rule() -> Plan:
    """The constraints of table-synthetic, then with epsilon halved or doubled by gamma."""
    names = [(*pair, plant) for pair in RULED for plant in RULED_PLANTS]
    cells = rule_cells((synthetic(*name, "authors-code") for name in names), published_gammas)
    return Plan(cells, 3, (RULE, "by the gammas of the paper's Table 3"))
