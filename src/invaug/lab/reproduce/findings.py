"""What the rows of the protocol's experiments say: paired differences, regrets, and verdicts in words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from invaug.lab.report.intervals import Estimate, estimate
from invaug.lab.reproduce.claims import FEWEST_SEEDS
from invaug.lab.reproduce.outcome import Outcome
from invaug.lab.reproduce.proof import TABLE, Variation, label_of

BySeed = Mapping[int, float]
POINTS = 100  # accuracy is measured as a share


@dataclass(frozen=True)
class Difference:
    """The mean of a difference in percentage points, paired by seed, with its interval."""

    of: Estimate
    planned: int
    """How many seeds there will be."""

    @property
    def verdict(self) -> str:
        """Whether it is shown, by the rule of the protocol."""
        ends = self.of.interval
        if self.of.n < min(FEWEST_SEEDS, self.planned) or ends is None:
            return f"not decided yet: {self.of.n} of {self.planned} seeds"
        if ends[0] <= 0 <= ends[1]:
            return "not decided"
        return "shown to be above" if self.of.mean > 0 else "shown to be below"

    @property
    def text(self) -> str:
        """The mean and the half width of the interval."""
        return self.of.text("+.2f")


def difference(ours: BySeed, theirs: BySeed, planned: int, unit: float = POINTS) -> Difference | None:
    """Return ours minus theirs over the seeds that both have; None if they share none.

    Args:
        unit: What turns the numbers into percentage points.
    """
    seeds = sorted(ours.keys() & theirs.keys())
    return Difference(estimate([unit * (ours[s] - theirs[s]) for s in seeds]), planned) if seeds else None


def mean_over(columns: Sequence[BySeed]) -> dict[int, float]:
    """Return the mean of several numbers for each seed that has all of them."""
    seeds = set.intersection(*(set(column) for column in columns)) if columns else set()
    return {seed: fmean(column[seed] for column in columns) for seed in sorted(seeds)}


def accuracy(found: Outcome, *parts: str) -> dict[int, float]:
    """Return the accuracy on new images of each run of a cell, which is named by its parts."""
    label = "-".join(part for part in parts if part)
    return found.by_seed(label, "test_accuracy") or found.by_seed(label, "held_out_accuracy")


@dataclass(frozen=True)
class Regret:
    """How far an arm is below the better of no augmentation and plain augmentation, under one set."""

    task: str
    set_name: str
    by_seed: BySeed
    """In percentage points."""

    @property
    def mean(self) -> float:
        """The mean over seeds."""
        return fmean(self.by_seed.values())


def regrets(found: Outcome, arm: str) -> list[Regret]:
    """Return the regrets of an arm of `safety`, one for each task and set that has runs of all three."""
    entry, known = TABLE[found.experiment.name], []
    for task in entry["tasks"]:
        none = accuracy(found, task, "basic")
        for set_name in entry["sets"]:
            plain, ours = accuracy(found, task, set_name, "plain"), accuracy(found, task, set_name, arm)
            seeds = sorted(none.keys() & plain.keys() & ours.keys())
            if seeds:
                best = max((none, plain), key=lambda column: fmean(column[seed] for seed in seeds))
                known.append(Regret(task, set_name, {seed: POINTS * (best[seed] - ours[seed]) for seed in seeds}))
    return known


def choose(found: Outcome, arm: str) -> dict[str, float]:
    """Return the settings of an arm with the best held-out accuracy, by the mean over the tasks it was tried on."""
    entry = TABLE[found.experiment.name]
    rates = {rate: _held_out(found, arm, {"lr": rate}) for rate in entry["vary"]["lr"]}
    best = {"lr": max(rates, key=lambda rate: rates[rate])}
    strengths = entry.get("more", {}).get(arm, [])
    if strengths:
        key = next(iter(strengths[0]))
        best[key] = max(strengths, key=lambda tried: _held_out(found, arm, tried))[key]
    return best


def _held_out(found: Outcome, arm: str, variation: Variation) -> float:
    entry = TABLE[found.experiment.name]
    (set_name,) = entry.get("sets", [""])
    columns = [accuracy(found, label_of(task, set_name, arm, variation)) for task in entry["tasks"]]
    values = [value for column in columns for value in column.values()]
    return fmean(values) if values else -1.0
