"""What a search has found: the trials, the best, how it compares with the default, and how all of it is shown."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from invaug.lab.jobs.job import Job
from invaug.lab.report import tables
from invaug.lab.report.document import Table
from invaug.lab.report.intervals import Estimate, estimate

MEASURES = {
    "held_out_accuracy": ("held-out accuracy (%)", ".2f", 100.0),
    "held_out_loss": ("held-out loss", ".3f", 1.0),
    "gamma": ("γ", ".3f", 1.0),
}
"""The numbers of a fold: title, format and factor of their columns."""


@dataclass
class Trial:
    """One combination of values, trained once for each fold."""

    params: dict[str, Any]
    jobs: list[Job]

    @property
    def name(self) -> str:
        """The combination in words."""
        return " ".join(f"{key}={format_value(value)}" for key, value in self.params.items())

    def numbers(self, key: str) -> list[float]:
        """Return a number of each fold that is done."""
        outcomes = [job.found() for job in self.jobs]
        return [found["numbers"][key] for found in outcomes if found and key in found["numbers"]]

    def estimate(self, key: str) -> Estimate | None:
        """Return mean and interval over folds."""
        values = self.numbers(key)
        return estimate(values) if values else None

    def mean(self, key: str, missing: float) -> float:
        """Return the mean over folds, or a value for trials that have none."""
        found = self.estimate(key)
        return found.mean if found else missing

    @property
    def is_complete(self) -> bool:
        """Whether every fold is done."""
        return len(self.numbers("held_out_accuracy")) == len(self.jobs)

    @property
    def failures(self) -> list[str]:
        """Why folds failed."""
        return [reason for job in self.jobs if (reason := job.failure()) and job.found() is None]


def format_value(value: Any) -> str:
    """Return a value as short as it can be read; None is a level that the preset decides."""
    if value is None:
        return "default"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def find_best(trials: list[Trial]) -> Trial | None:
    """Return the trial with the highest mean accuracy on held-out images; of equal ones the lower loss."""
    complete = [trial for trial in trials if trial.is_complete]
    return min(complete, key=lambda t: (-t.mean("held_out_accuracy", 0.0), t.mean("held_out_loss", 0.0)), default=None)


def gain_over_default(trials: Sequence[Trial], best: Trial) -> Estimate | None:
    """Return how much more accurate the best is than the default, paired over folds; None if a fold is missing."""
    mine, usual = (trial.numbers("held_out_accuracy") for trial in (best, trials[0]))
    is_paired = best.is_complete and trials[0].is_complete
    return estimate([a - b for a, b in zip(mine, usual, strict=True)]) if is_paired else None


def verdict(trials: Sequence[Trial], best: Trial) -> str:
    """Return whether the best is better than the default: only where the interval of the difference is above zero."""
    gain = gain_over_default(trials, best)
    if best is trials[0]:
        return "no combination is better than the default"
    if gain is None:
        return "not compared with the default, which has not finished all its folds"
    points = f"{gain.text('+.2f', 100)} points"
    if gain.interval is None:
        return f"{points} over the default, on one set of held-out images: no interval over folds"
    over = f"({points}, 95 % interval, paired over {gain.n} folds)"
    return f"better than the default {over}" if gain.interval[0] > 0 else f"level with the default {over}"


def as_table(trials: Sequence[Trial], best: Trial | None) -> Table:
    """Return every combination, the most accurate first."""
    rows = []
    for trial in sorted(trials, key=lambda trial: -trial.mean("held_out_accuracy", -1.0)):
        estimates = [(trial.estimate(key), form, factor) for key, (_, form, factor) in MEASURES.items()]
        numbers = [found.text(form, factor) if found else None for found, form, factor in estimates]
        counts = (len(trial.numbers("held_out_accuracy")), len(trial.failures))
        remarks = [word for word, one in (("best", best), ("default", trials[0])) if trial is one]
        rows.append((*map(format_value, trial.params.values()), *numbers, *counts, ", ".join(remarks)))
    titles = (*(title for title, *_ in MEASURES.values()), "folds", "failed", "")
    title = "Cross-validation on training images: mean ± 95 % interval over folds"
    return Table(title, (*(trials[0].params if trials else ()), *titles), tuple(rows))


def as_json(trials: Sequence[Trial], best: Trial | None) -> dict[str, Any]:
    """Return everything as plain values."""
    every = [
        {"params": trial.params, **{key: trial.numbers(key) for key in MEASURES}, "failed": trial.failures}
        for trial in trials
    ]
    gain = gain_over_default(trials, best) if best else None
    compared = {"difference": gain.mean, "interval": gain.interval, "folds": gain.n} if gain else None
    found = {"best": best.params if best else None, "default": trials[0].params if trials else None}
    return {
        **found,
        "best_minus_default": compared,
        "verdict": verdict(trials, best) if best else None,
        "trials": every,
    }


def summary_lines(
    trials: Sequence[Trial], best: Trial | None, data: str, config: Path, page: str | None
) -> Iterator[str]:
    """Return the table in columns, the best combination, how to train with it, and where the report is."""
    yield from tables.in_columns(as_table(trials, best))
    if best and (accuracy := best.estimate("held_out_accuracy")):
        yield f"best: {best.name}, {accuracy.text('.2f', 100)} % of held-out images classified correctly"
        yield verdict(trials, best)
        words = ["invaug", "train", *([] if data == "digits" else [data]), "--config", str(config)]
        yield f"train with: {shlex.join(words)}"
    if page:
        yield f"report: {page}"
