"""Runs that differ in their seed alone belong together: which settings differ, and what a group is called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from invaug.lab.config.methods import is_constrained, label
from invaug.lab.report.intervals import Estimate, estimate
from invaug.lab.report.read import Run, short
from invaug.lab.terminal import plain

NOT_THE_METHOD = {
    "seed", "workers", "data_dir", "threads", "log", "device", "devices", "scoring_batch", "checkpoint_minutes",
    "checkpoint_steps", "on_nan", "on_bad", "val_fold",
}  # fmt: skip
"""Settings that two runs of the same experiment may differ in."""
FIRST = ("method", "set", "epsilon", "n_steps")  # what a label begins with
ONLY_CONSTRAINED = {
    "epsilon", "n_steps", "n_views", "views", "dual_lr", "gamma_init", "scoring", "families", "ranges", "share",
    "depth",
}  # fmt: skip
PLAINEST = ("trivial", "none", "uniform")
"""Which method others are compared with, if it is there: the paper's own baseline first."""


@dataclass(frozen=True)
class Group:
    """Runs of the same experiment; `indices` are their places among all runs."""

    label: str
    runs: tuple[Run, ...]
    indices: tuple[int, ...]
    colour: int = 0

    @property
    def method(self) -> str:
        """What decided the augmentation."""
        return self.runs[0].text("method")

    def estimate(self, value: Callable[[Run], float | None]) -> Estimate | None:
        """Return the mean over seeds of what a run says, and its interval."""
        found = [number for run in self.runs if run.epochs and (number := value(run)) is not None]
        return estimate(found) if found else None


def grouped(runs: Sequence[Run]) -> list[Group]:
    """Return the runs by experiment, in the order given."""
    keys = _decisive(runs)
    members: dict[tuple[str, ...], list[int]] = {}
    for i, run in enumerate(runs):
        members.setdefault((run.dataset, *(_said(run, key) for key in keys)), []).append(i)
    several = len({run.dataset for run in runs}) > 1
    labels = _distinct([_label(values[0] if several else "", keys, values[1:]) for values in members])
    return [
        Group(label, tuple(runs[i] for i in places), tuple(places), colour)
        for colour, (label, places) in enumerate(zip(labels, members.values(), strict=True))
    ]


def _distinct(labels: Sequence[str]) -> list[str]:
    """Return the labels, numbered where what differs was cut off."""
    return [
        f"{label} ({labels[: i + 1].count(label)})" if labels.count(label) > 1 else label
        for i, label in enumerate(labels)
    ]


def _decisive(runs: Sequence[Run]) -> list[str]:
    """Return the settings that tell these runs apart, the method first."""
    keys = dict.fromkeys([*FIRST, *(key for run in runs for key in run.settings)])
    candidates = [key for key in keys if key not in NOT_THE_METHOD and key != "data"]
    # a setting that has no say in some methods does not set them apart
    return [key for key in candidates if len({said for run in runs if (said := _said(run, key))}) > 1]


def _said(run: Run, key: str) -> str:
    """Return a setting as text, nothing where it has no say in the run's method."""
    method = run.text("method")
    if (key in ONLY_CONSTRAINED and not is_constrained(method)) or (key == "n_steps" and method == "uniform"):
        return ""
    value = run.settings.get(key)
    return "" if value is None else f"{value:g}" if isinstance(value, float) else plain(str(value))


def _label(dataset: str, keys: Sequence[str], values: Sequence[str]) -> str:
    pairs = [(key, value) for key, value in zip(keys, values, strict=True) if value]
    names = dict(pairs)
    # families that differ in name need no ranges to tell them apart
    said = [(key, short(value, 40)) for key, value in pairs if key != "ranges" or "families" not in names]
    parts = [label(value) if key == "method" else f"{key} {value}" for key, value in said]
    return short(", ".join(filter(None, [dataset, *parts])) or "all runs")


def baseline_of(groups: Sequence[Group]) -> Group:
    """Return the group others are compared with: the plainest method, else the first."""
    ranked = [group for method in PLAINEST for group in groups if group.method == method and any(_trained(group))]
    return (ranked or [group for group in groups if any(_trained(group))] or list(groups))[0]


def _trained(group: Group) -> list[bool]:
    return [bool(run.epochs) for run in group.runs]


def test_accuracy(run: Run) -> float | None:
    """Return the accuracy on test images after the last epoch, never the best one; on held-out ones without these."""
    return run.last.val_accuracy if is_held_out(run) else run.last.test_accuracy


def is_held_out(run: Run) -> bool:
    """Whether a run was measured on held-out training images, and read no test image."""
    return run.last.test_accuracy is None and run.last.val_accuracy is not None


def seconds_per_epoch(run: Run) -> float | None:
    """Return the median time of an epoch; the first one, which also warms up, hardly counts."""
    times = sorted(epoch.seconds for epoch in run.epochs if epoch.seconds is not None)
    return times[len(times) // 2] if times else None


def total_seconds(run: Run) -> float | None:
    """Return the time all epochs took."""
    times = [epoch.seconds for epoch in run.epochs if epoch.seconds is not None]
    return sum(times) if times else None


def total_of(key: str) -> Callable[[Run], float | None]:
    """Return what reads the sum of all constraints' numbers in the last epoch."""

    def read(run: Run) -> float | None:
        values = getattr(run.last, key)
        return sum(values) if values and None not in values else None

    return read


def mean_of(key: str) -> Callable[[Run], float | None]:
    """Return what reads the mean of all constraints' numbers in the last epoch."""

    def read(run: Run) -> float | None:
        total = total_of(key)(run)
        return None if total is None else total / len(getattr(run.last, key))

    return read
