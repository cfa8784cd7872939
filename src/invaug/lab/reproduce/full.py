"""The cells at full scale, as the paper's text describes them and as the authors' code ran them."""

import math
from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import product
from typing import Any

from invaug.lab.config.build import read, shipped_names
from invaug.lab.reproduce.cells import PUBLISHED, Cell, Settings
from invaug.lab.tune.space import EIGHT, KNOWN

PRESETS = ("paper", "authors-code")
SPACES = ("standard", "wide")
ROWS = (*product(("cifar10", "cifar100"), ("wrn-40-2", "wrn-28-10")), ("svhn", "wrn-28-10"))
"""Datasets and networks of Table 1; svhn is SVHN core."""
LEVELS = {"cifar10": EIGHT, "cifar100": KNOWN["cifar100"]}
FIXED = {"cifar10": 0.8, "cifar100": 2.1}
"""Epsilon of the ablations of sampling steps."""
STEPS = (2, 4, 8, 16)  # printed are 2, 4 and 16
FRACTIONS = (0.01, 0.025, 0.05, 0.1)
VIEWS = (1, 2, 4, 8, 16)
TRUTHS = {"r180": "rotation", "r90": "rotation", "translated": "translation", "scaled": "scale"}
"""Planted symmetries, and the constraint that holds for each."""
PLANTED = tuple(product(("mnist", "fashion-mnist"), ("mlp", "cnn"), TRUTHS))
RULED = [
    (*row, plant)
    for row in (("mnist", "mlp"), ("mnist", "cnn"), ("fashion-mnist", "mlp"))
    for plant in ("translated", "r90", "r180")
]
"""Datasets, networks and planted symmetries of table-epsilon-rule."""
SHIFTS = {"paper": 16.0, "authors-code": 7.0}
"""Pixels of the translation constraint: the 16 of the paper's table push a digit out of the frame."""
TIMED_EPOCHS = 3
DECODERS = 8  # processes that decode the images of ImageNet-100
VANISHED = 0.05  # a gamma whose term no longer counts next to the clean loss


def cells() -> dict[str, list[Cell]]:
    """Return the cells of every experiment."""
    table_1, levels, steps = list(_table_1()), list(_levels()), list(_steps())
    none = [Cell(f"{data}-none", baseline(published(data, "wrn-40-2", "wide", "paper"), "none")) for data in LEVELS]
    uniform = [_changed(c, c.label.replace("constrained", "uniform"), method="uniform") for c in levels]
    short = [cell for cell in levels if cell.settings["data"] == "cifar100"]
    long = [_changed(cell, f"{cell.label}-600-epochs", epochs=600, schedule="cosine-600") for cell in short]
    wide = [_changed(cell, cell.label) for cell in table_1 if cell.label.endswith("28-10-wide-paper-constrained")]
    return {
        "pilot": [],
        "table-1": table_1,
        "table-2": list(_table_2()),
        "figure-epsilon": [*levels, *none],
        "figure-uniform": [*levels, *uniform],
        "figure-steps": steps,
        "figure-steps-dual": steps,
        "table-synthetic": [planted_cell(*name, preset) for name in PLANTED for preset in PRESETS],
        "figure-dual": levels,
        "figure-epochs": [*short, *long],
        "figure-frequency": [*wide, *steps],
        "figure-levels": [cell for cell in steps if cell.label.endswith(("-2-steps", "-16-steps"))],
        "table-runtime": list(_runtime()),
        "table-views": list(_views()),
        "table-bias": list(_bias()),
        "table-epsilon-rule": [cell for name in RULED for cell in _rule_by_published_gammas(*name)],
    }


def _changed(cell: Cell, label: str, **changes: Any) -> Cell:
    """Return a cell with another label and other settings, and no entry of the paper next to it."""
    return Cell(label, {**cell.settings, **changes})


def published(data: str, model: str, space: str, preset: str) -> Settings:
    """Return the published settings of an entry of Table 1; without an epsilon where none is known."""
    names = [f"{data}-{model}-{each}-{preset}" for each in (space, *SPACES)]
    name = next(name for name in names if name in shipped_names())
    settings = read(name)
    if name != names[0]:
        settings.pop("epsilon")
    return {**settings, "set": space}


def baseline(settings: Settings, method: str, **more: Any) -> Settings:
    """Return the same training without a constraint."""
    return {key: value for key, value in settings.items() if key != "epsilon"} | {"method": method, **more}


def deepaa(settings: Settings, data: str, space: str) -> Settings:
    """Return DeepAA's training; its policy is looked for below the data folder, as few were published."""
    return baseline(settings, "deepaa", policy=f"deepaa/{data}-{space}.npz")


def transitions(preset: str, steps: int) -> int:
    """Return n_steps for the paper's "steps": as Algorithm 1 reads; in the authors' code they count proposals."""
    return steps if preset == "paper" else steps - 1


def _table_1() -> Iterator[Cell]:
    """TrivialAugment, DeepAA and the paper's method; TrivialAugment with and without Identity, by preset."""
    for (data, model), space, preset in product(ROWS, SPACES, PRESETS):
        settings = published(data, model, space, preset)
        name, beside = f"{data}-{model}-{space}-{preset}", f"{data} {model} {space}"
        yield Cell(f"{name}-trivial", baseline(settings, "trivial"), f"{beside} trivial")
        if preset == "paper":  # the authors ran DeepAA's own code
            yield Cell(f"{name}-deepaa", deepaa(settings, data, space), f"{beside} deepaa")
        if "epsilon" in settings:
            yield Cell(f"{name}-constrained", settings, f"{beside} constrained")


def _table_2() -> Iterator[Cell]:
    """ImageNet-100 at four sizes."""
    paper = {**read("imagenet100-resnet-50-wide-paper"), "workers": DECODERS}
    presets = {"paper": paper, "authors-code": {**paper, "preset": "authors-code", "subset": "first"}}
    for preset, fraction in product(PRESETS, FRACTIONS):
        settings, name = {**presets[preset], "fraction": fraction}, f"{preset}-{fraction:g}"
        yield Cell(f"{name}-trivial", baseline(settings, "trivial"), f"{fraction:g} trivial")
        yield Cell(f"{name}-constrained", settings, f"{fraction:g} constrained")


def _levels() -> Iterator[Cell]:
    """WRN-40-2 under the wide set at eight levels."""
    for data, preset in product(LEVELS, PRESETS):
        settings = published(data, "wrn-40-2", "wide", preset)
        for level in LEVELS[data]:
            yield Cell(f"{data}-{preset}-constrained-{level:g}", {**settings, "epsilon": level})


def _steps() -> Iterator[Cell]:
    """Chains of several lengths at a fixed level."""
    for data, preset, steps in product(FIXED, PRESETS, STEPS):
        settings = {**published(data, "wrn-40-2", "wide", preset), "epsilon": FIXED[data]}
        yield Cell(f"{data}-{preset}-{steps}-steps", {**settings, "n_steps": transitions(preset, steps)})


def _runtime() -> Iterator[Cell]:
    """A few epochs each, in turn."""
    for preset in PRESETS:
        settings = {**published("cifar10", "wrn-40-2", "wide", preset), "epochs": TIMED_EPOCHS}
        yield Cell(f"{preset}-trivial", baseline(settings, "trivial"), "trivial")
        if preset == "paper":
            yield Cell(f"{preset}-deepaa", deepaa(settings, "cifar10", "wide"), "deepaa")
        for steps in (2, 4):
            chain = {**settings, "n_steps": transitions(preset, steps)}
            yield Cell(f"{preset}-{steps}-steps", chain, f"{steps} steps")


def _views() -> Iterator[Cell]:
    """Several kept views per image."""
    for preset in PRESETS:
        settings = published("cifar100", "wrn-40-2", "wide", preset)
        yield from (Cell(f"{preset}-{m}-views", {**settings, "n_views": m}, str(m)) for m in VIEWS)


def _bias() -> Iterator[Cell]:
    """The wide set at its largest magnitudes: the last level alone, without Identity."""
    settings = published("cifar100", "wrn-40-2", "wide", "paper")
    yield Cell("none", baseline(settings, "none"), "none")
    for method in ("sampled", "identity-mix"):
        yield Cell(method, baseline(settings, method, n_levels=2, identity=False), method)


def families(shift: float) -> dict[str, dict[str, float]]:
    """Return the three constraints of the synthetic experiments."""
    return {"rotation": {"Rotation": math.pi}, "translation": {"Translation": shift}, "scale": {"Scale": 1.5}}


def planted_cell(data: str, model: str, plant: str, preset: str) -> Cell:
    """Return a planted dataset under the constraints of rotation, translation and scale."""
    settings = read(f"{data}-rotations-{model}")
    for key in ("set", "range", "n_steps"):
        settings.pop(key)
    sampling = {"method": "uniform"} if preset == "paper" else {"method": "constrained", "n_steps": 1}
    settings |= {"data": f"{data}+{plant}", "families": families(SHIFTS[preset]), **sampling}
    return Cell(f"{data}-{model}-{plant}-{preset}", settings, f"{data} {model} {plant}")


def rule_pair(cell: Cell, halved: Collection[str]) -> tuple[Cell, Cell]:
    """Return a cell as it is, and by the paper's rule: epsilon halved for some families, doubled for the others."""
    epsilon = cell.settings["epsilon"]
    adjusted = {
        name: {**family, "epsilon": epsilon * (0.5 if name in halved else 2.0)}
        for name, family in cell.settings["families"].items()
    }

    def variant(name: str, **changes: Any) -> Cell:
        settings = {**cell.settings, **changes}
        return replace(cell, label=f"{cell.label}-{name}", settings=settings, beside=f"{cell.beside} {name}")

    return variant("same"), variant("adjusted", families=adjusted)


def vanished(gammas: dict[str, float]) -> set[str]:
    """Return the families whose gamma counts as zero: at most `VANISHED`, or half of the largest."""
    limit = max(VANISHED, max(gammas.values()) / 2)
    return {name for name, gamma in gammas.items() if gamma <= limit}


def _rule_by_published_gammas(data: str, model: str, plant: str) -> tuple[Cell, Cell]:
    cell = planted_cell(data, model, plant, "authors-code")
    numbers = PUBLISHED["table-synthetic"].numbers
    return rule_pair(cell, vanished({name: numbers[cell.beside, f"gamma.{name}"].mean for name in families(1.0)}))
