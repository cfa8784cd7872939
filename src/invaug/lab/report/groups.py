"""Runs that differ in their seed alone belong together: which settings differ, and what a group is called."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, median_high
from typing import NamedTuple

from invaug.lab.config import methods
from invaug.lab.report.intervals import Estimate, estimate
from invaug.lab.report.runs import Run
from invaug.lab.report.values import short
from invaug.lab.terminal import plain

REPEATS = ("seed", "val_fold")
"""Settings in which repeats of one experiment differ."""
OF_THE_MACHINE = (
    *("workers", "data_dir", "threads", "log", "device", "devices", "scoring_batch"),
    *("checkpoint_minutes", "checkpoint_steps", "on_nan", "on_bad", "max_bad"),
)
"""Settings that do not change what is learned; those that name places on a disk are among them."""
FIRST = ("method", "set", "epsilon", "n_steps")  # what a label begins with
PLAINEST = ("trivial", "none", "uniform")
"""Which method others are compared with, if it is there: the paper's own baseline first."""
Value = Callable[[Run], float | None]


@dataclass(frozen=True)
class Group:
    """Runs of the same experiment."""

    label: str
    runs: tuple[Run, ...]
    colour: int

    def estimate(self, value: Value) -> Estimate | None:
        """Return the mean over seeds of a number that a run ended with, and its interval."""
        found = [number for run in self.runs if run.epochs and (number := value(run)) is not None]
        return estimate(found) if found else None

    def differences_to(self, base: "Group") -> list[float]:
        """Return the differences of test accuracy at the seeds (and folds) both groups have."""
        known = {_repeat(run): run.test_accuracy for run in base.runs}
        found = [(run.test_accuracy, known.get(_repeat(run))) for run in self.runs]
        return [mine - theirs for mine, theirs in found if mine is not None and theirs is not None]


class Member(NamedTuple):
    """A run with the colour and the label of its group; its own where there is one group."""

    run: Run
    colour: int
    label: str


def members(runs: Sequence[Run], groups: Sequence[Group]) -> list[Member]:
    """Return the runs, in their order, with what their groups say."""
    if len(groups) == 1:
        return [Member(run, i, run.name) for i, run in enumerate(runs)]
    owners = [next(group for group in groups if run in group.runs) for run in runs]
    return [Member(run, group.colour, group.label) for run, group in zip(runs, owners, strict=True)]


def group_runs(runs: Sequence[Run]) -> list[Group]:
    """Return the runs by experiment, in the order given."""
    keys = _decisive(runs)
    alike: dict[tuple[str, ...], list[Run]] = {}
    for run in runs:
        alike.setdefault((run.dataset, *(_effective(run, key) for key in keys)), []).append(run)
    several = len({run.dataset for run in runs}) > 1
    made = [found[0].label for found in alike.values()]
    if several or len(set(made)) < len(made):  # a method that is there once needs no settings to tell it apart
        made = [_label(values[0] if several else "", keys, values[1:]) for values in alike]
    labels = _distinct(made)
    return [Group(label, tuple(found), i) for i, (label, found) in enumerate(zip(labels, alike.values(), strict=True))]


def _distinct(labels: Sequence[str]) -> list[str]:
    """Return the labels, numbered where what differs was cut off."""
    counts = [(label, labels[: i + 1].count(label)) for i, label in enumerate(labels)]
    return [f"{label} ({count})" if labels.count(label) > 1 else label for label, count in counts]


def _decisive(runs: Sequence[Run]) -> list[str]:
    """Return the settings that tell these runs apart, the method first."""
    keys = dict.fromkeys([*FIRST, *(key for run in runs for key in run.settings)])
    candidates = [key for key in keys if key not in (*REPEATS, *OF_THE_MACHINE, "data")]
    # a setting without effect on some methods does not set them apart
    return [key for key in candidates if len({text for run in runs if (text := _effective(run, key))}) > 1]


def _effective(run: Run, key: str) -> str:
    """Return a setting as text, nothing where it has no effect on the run's method."""
    value = run.settings.get(key) if methods.is_used(run.method, key) else None
    return "" if value is None else f"{value:g}" if isinstance(value, float) else plain(str(value))


def _label(dataset: str, keys: Sequence[str], values: Sequence[str]) -> str:
    pairs = {key: short(value, 40) for key, value in zip(keys, values, strict=True) if value}
    if "families" in pairs:
        pairs.pop("ranges", None)  # families that differ in name need no ranges to tell them apart
    parts = [methods.title(value) if key == "method" else f"{key} {value}" for key, value in pairs.items()]
    return short(", ".join(filter(None, [dataset, *parts])) or "all runs")


def baseline_of(groups: Sequence[Group]) -> Group:
    """Return the group others are compared with: the plainest method, else the first; only trained ones count."""
    trained = [group for group in groups if any(run.epochs for run in group.runs)] or list(groups)
    ranked = [group for method in PLAINEST for group in trained if group.runs[0].method == method]
    return (ranked or trained)[0]


def _repeat(run: Run) -> tuple[str, ...]:
    return tuple(run.text(key) for key in REPEATS)


def seconds_per_epoch(run: Run) -> float | None:
    """Return the median time of an epoch; the first one, which also warms up, hardly counts."""
    return median_high(run.seconds) if run.seconds else None


def total_seconds(run: Run) -> float | None:
    """Return the time all epochs took."""
    return sum(run.seconds) if run.seconds else None


def combined(key: str, combine: Callable[[Sequence[float]], float] = fmean) -> Value:
    """Return a function that reads the mean, or the sum, of all constraints' numbers in the last epoch."""

    def read(run: Run) -> float | None:
        values = run.last.by_constraint[key]
        known = [value for value in values if value is not None]
        return combine(known) if known and len(known) == len(values) else None

    return read
