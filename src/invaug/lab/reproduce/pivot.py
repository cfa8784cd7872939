"""The comparison as one table: a row for each method, a column for each dataset, and what an epoch costs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, median, stdev

from invaug.lab.report.intervals import Estimate, estimate
from invaug.lab.report.tables import Cell as Text
from invaug.lab.report.tables import Table
from invaug.lab.reproduce.beyond import AUTO, BUDGETS, FASTEST, FRESH, FRONT, GRID
from invaug.lab.reproduce.outcome import DONE, Outcome

NAMES = {
    "none": "none", "basic": "flips, crop, cutout", "trivial": "TrivialAugment (wide)", "randaugment": "RandAugment",
    "autoaugment": "AutoAugment's policy", "uniform": "uniform constraint, two views, best epsilon",
    "paper": "the paper's, two views, best epsilon", "invaug": "invaug (default)",
}  # fmt: skip
DATA = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "svhn": "SVHN", "fashion-mnist": "Fashion-MNIST"}
REFERENCE, OURS, ACCURACY = "trivial", "invaug", "test_accuracy"
UNCUT = "compare-uncut"
PIVOTED = ("compare", UNCUT, "compare-time")
Seeds = Mapping[int, float]


def title(found: Outcome, name: str) -> str:
    """Return what a method is called in a comparison."""
    return NAMES[name].replace(", cutout", "") if found.experiment.name == UNCUT else NAMES[name]


def methods(found: Outcome) -> list[str]:
    """Return the methods that have rows, in the order of the table."""
    there = {row.cell for row in found.rows if row.status == DONE}
    return [name for name in NAMES if any(f"{data}-{name}" in there for data in DATA)]


def by_seed(found: Outcome, cell: str, number: str) -> Seeds:
    """Return a number of a cell, seed by seed."""
    return {row.seed: row.numbers[number] for row in found.rows if row.cell == cell and row.status == DONE}


def mean_by_seed(found: Outcome, name: str, number: str) -> Seeds:
    """Return the mean over all datasets, for the seeds that every dataset has."""
    columns = [by_seed(found, f"{data}-{name}", number) for data in DATA]
    shared = set.intersection(*(set(column) for column in columns))
    return {seed: fmean(column[seed] for column in columns) for seed in sorted(shared)}


def cost(found: Outcome, name: str) -> float | None:
    """Return the time of an epoch beside TrivialAugment's, the mean over datasets."""
    pairs = [(_seconds(found, data, name), _seconds(found, data, REFERENCE)) for data in DATA]
    ratios = [ours / theirs for ours, theirs in pairs if ours and theirs]
    return fmean(ratios) if len(ratios) == len(DATA) else None


def _seconds(found: Outcome, data: str, name: str) -> float | None:
    """Return the seconds of the fastest epoch, the median over seeds."""
    values = found.values(f"{data}-{name}", FASTEST)
    return median(values) if values else None


def table(found: Outcome, timed: Outcome | None = None, costs: Outcome | None = None) -> Table:
    """Return accuracies in per cent with their intervals, the mean over datasets, and the time of an epoch.

    Args:
        timed: The same methods for equal time, whose mean becomes a column.
        costs: Where the time of an epoch was measured; by default in the same runs.
    """
    rows: list[tuple[Text, ...]] = []
    for name in methods(found):
        each = [_text([*by_seed(found, f"{data}-{name}", ACCURACY).values()]) for data in DATA]
        means = [_text([*mean_by_seed(each_way, name, ACCURACY).values()]) for each_way in (found, timed) if each_way]
        rows.append((title(found, name), *each, *means, _epoch(costs or found, name)))
    means_of = ["mean", *(["mean, equal time"] if timed else [])]
    return Table(found.experiment.title, ("method", *DATA.values(), *means_of, "seconds an epoch"), tuple(rows))


def _epoch(found: Outcome, name: str) -> str | None:
    """Return how long an epoch takes, the mean over datasets, and beside TrivialAugment."""
    ratio, seconds = cost(found, name), [_seconds(found, data, name) for data in DATA]
    there = [each for each in seconds if each is not None]
    return None if ratio is None or not there else f"{fmean(there):.2f} ({ratio:.2f} ×)"


def completed(found: Outcome, whole: Outcome | None) -> Outcome:
    """Return an outcome with what it lacks of another comparison, for its own seeds: methods it left as they are."""
    own, seeds = {row.cell for row in found.rows}, {row.seed for row in found.rows}
    more = [row for row in whole.rows if row.cell not in own and row.seed in seeds] if whole else []
    return Outcome(found.experiment, found.scale, [*found.rows, *more], found.seeds)


def differences(found: Outcome, first: int = 0) -> dict[str, Estimate]:
    """Return by how much our mean over datasets is above each other method's, run by run of the same seed.

    Args:
        first: The seed to begin with.
    """
    mine = {seed: mean for seed, mean in mean_by_seed(found, OURS, ACCURACY).items() if seed >= first}
    others = {name: mean_by_seed(found, name, ACCURACY) for name in methods(found) if name != OURS}
    return {name: _gap(mine, theirs) for name, theirs in others.items() if set(mine) & set(theirs)}


def words(found: Outcome) -> list[str]:
    """Return how the default stands: on each dataset and in the mean."""
    lines = []
    for data, called in DATA.items():
        means = {name: found.mean(f"{data}-{name}", ACCURACY) for name in methods(found)}
        there = {name: mean for name, mean in means.items() if mean is not None}
        if OURS not in there:
            continue
        best = max(there, key=lambda name: there[name])
        if best == OURS:
            lines.append(f"{called}: the default is first")
            continue
        gap = _gap(by_seed(found, f"{data}-{best}", ACCURACY), by_seed(found, f"{data}-{OURS}", ACCURACY))
        tied = "tied with the first" if gap.interval is None or gap.interval[0] <= 0 else "not first"
        lines.append(
            f"{called}: the default is {tied}, {title(found, best)}, which is {gap.text('+.1f', 100)} points above"
        )
    lines += [
        f"mean over datasets: the default minus {title(found, name)} is {gap.text('+.1f', 100)} points"
        for name, gap in differences(found).items()
    ]
    fresh = [f"{NAMES[name]} {gap.text('+.1f', 100)}" for name, gap in differences(found, FRESH).items()]
    if fresh:
        lines.append(f"the same on seeds from {FRESH} alone, run when every setting was fixed: {'; '.join(fresh)}")
    return lines


def front_words(found: Outcome) -> list[str]:
    """Return by how much the best of our ways is above the best of the others, for each budget."""
    lines = []
    for budget in BUDGETS:
        means = {name: found.mean(f"{budget}-{name}", ACCURACY) for name in FRONT}
        there = {name: mean for name, mean in means.items() if mean is not None}
        ours, others = ([name for name in there if name.startswith(OURS) == mine] for mine in (True, False))
        if not ours or not others:
            continue
        best, other = (max(names, key=lambda name: there[name]) for names in (ours, others))
        gap = _gap(by_seed(found, f"{budget}-{best}", ACCURACY), by_seed(found, f"{budget}-{other}", ACCURACY))
        lines.append(
            f"{budget} epochs of TrivialAugment: the best of ours, {NAMES[best]}, {100 * there[best]:.1f} %, is "
            f"{gap.text('+.1f', 100)} points above the best of the others, {NAMES[other]}"
        )
    return lines


def auto_words(found: Outcome) -> list[str]:
    """Return how far the level that is chosen while training is from the best of the grid, on each dataset."""
    lines = []
    for data, called in DATA.items():
        levels = {name: by_seed(found, f"{data}-{name}", "held_out_accuracy") for name in (*GRID, *AUTO)}
        means = {name: fmean(seeds.values()) for name, seeds in levels.items() if len(seeds) > 1}
        if not means.keys() >= GRID.keys():
            continue
        best = max(GRID, key=lambda name: means[name])
        spread = stdev(levels[best].values()) / math.sqrt(len(levels[best]))
        for name in (name for name in AUTO if name in means):
            word = "met" if means[best] - means[name] <= spread else "NOT met"
            lines.append(
                f"{called}: {name} {100 * means[name]:.1f} %, "
                f"best of the grid ({best} log C) {100 * means[best]:.1f} %, its standard error {100 * spread:.1f}; "
                f"within one standard error: {word}"
            )
    return lines


def _gap(above: Seeds, below: Seeds) -> Estimate:
    return estimate([above[seed] - below[seed] for seed in above if seed in below])


def _text(values: Sequence[float]) -> str | None:
    return estimate(values).text(".1f", 100) if values else None


WORDS = {
    "compare": words,
    UNCUT: words,
    "compare-time": words,
    "compare-auto": auto_words,
    "compare-front": front_words,
}
