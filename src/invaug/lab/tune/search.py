"""What to try next: every combination of a grid, or what Optuna asks for; the outcome of each, and how it is shown."""

import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from invaug.lab.errors import UserError
from invaug.lab.jobs.job import Job
from invaug.lab.report import tables
from invaug.lab.report.document import Table
from invaug.lab.report.intervals import Estimate, estimate
from invaug.lab.run import atomic
from invaug.lab.tune.space import Range, Space

ASKED = "trials.json"
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
    """Return a value as short as it can be read."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def find_best(trials: list[Trial]) -> Trial | None:
    """Return the trial with the highest mean accuracy on held-out images; of equal ones the lower loss."""
    complete = [trial for trial in trials if trial.is_complete]
    return min(complete, key=lambda t: (-t.mean("held_out_accuracy", 0.0), t.mean("held_out_loss", 0.0)), default=None)


def as_table(trials: Sequence[Trial], best: Trial | None) -> Table:
    """Return every combination, the most accurate first."""
    rows = []
    for trial in sorted(trials, key=lambda trial: -trial.mean("held_out_accuracy", -1.0)):
        estimates = [(trial.estimate(key), form, factor) for key, (_, form, factor) in MEASURES.items()]
        numbers = [found.text(form, factor) if found else None for found, form, factor in estimates]
        counts = (len(trial.numbers("held_out_accuracy")), len(trial.failures))
        rows.append((*map(format_value, trial.params.values()), *numbers, *counts, "best" if trial is best else ""))
    titles = (*(title for title, *_ in MEASURES.values()), "folds", "failed", "")
    return Table("Cross-validation", (*(trials[0].params if trials else ()), *titles), tuple(rows))


def as_json(trials: Sequence[Trial], best: Trial | None) -> dict[str, Any]:
    """Return everything as plain values."""
    every = [
        {"params": trial.params, **{key: trial.numbers(key) for key in MEASURES}, "failed": trial.failures}
        for trial in trials
    ]
    return {"best": best.params if best else None, "trials": every}


def summary_lines(
    trials: Sequence[Trial], best: Trial | None, data: str, config: Path, page: str | None
) -> Iterator[str]:
    """Return the table in columns, the best combination, how to train with it, and where the report is."""
    yield from tables.in_columns(as_table(trials, best))
    if best and (accuracy := best.estimate("held_out_accuracy")):
        yield f"best: {best.name}, {accuracy.text('.2f', 100)} % of held-out images classified correctly"
        words = ["invaug", "train", *([] if data == "digits" else [data]), "--config", str(config)]
        yield f"train with: {shlex.join(words)}"
    if page:
        yield f"report: {page}"


@dataclass
class Search:
    """Yields the folds of one combination after another, and learns from those that have ended."""

    n_trials: int
    combinations: Iterable[dict[str, Any]]
    make_jobs: Callable[[Mapping[str, Any], int], list[Job]]
    """The folds of a combination; its number names their folders."""
    learn: Callable[[list[Trial]], None] = lambda _: None
    """Gets all trials whenever a fold has ended: a grid learns nothing."""
    trials: list[Trial] = field(default_factory=list)

    def jobs(self) -> Iterator[Job]:
        """Return the folds of one combination after another."""
        for params in self.combinations:
            trial = Trial(params, self.make_jobs(params, len(self.trials)))
            self.trials.append(trial)
            yield from trial.jobs
            self.learn(self.trials)


class Study:
    """Optuna's tree-structured Parzen estimator; what it asked for is kept, so that a stopped search resumes."""

    def __init__(self, space: Space, n_trials: int, folder: Path, seed: int) -> None:
        self.space, self.n_trials, self.path = space, n_trials, folder / ASKED
        self.optuna = _optuna()
        sampler = self.optuna.samplers.TPESampler(seed=seed, constant_liar=True)
        self.study = self.optuna.create_study(direction="maximize", sampler=sampler)
        self.asked: list[Any] = []
        """Optuna's trials, one for each of ours; None once it has been told."""

    def combinations(self) -> Iterator[dict[str, Any]]:
        """Return what was asked before, then what Optuna asks for next."""
        space = {key: _distribution(self.optuna, found) for key, found in self.space.items()}
        known = list((atomic.read_json(self.path) or {"trials": []})["trials"])
        for number in range(self.n_trials):
            if number < len(known):
                self.study.enqueue_trial(known[number])
            asked = self.study.ask(space)
            self.asked.append(asked)
            known[number : number + 1] = [dict(asked.params)]
            atomic.write_text(self.path, json.dumps({"trials": known}))
            yield dict(asked.params)

    def tell(self, trials: list[Trial]) -> None:
        """Tell Optuna of every trial whose folds have all ended."""
        failed = self.optuna.trial.TrialState.FAIL
        for number, trial in enumerate(trials):
            ended = len(trial.failures) + len(trial.numbers("held_out_accuracy")) == len(trial.jobs)
            if self.asked[number] is None or not ended:
                continue
            told = {"values": trial.mean("held_out_accuracy", 0.0)} if trial.is_complete else {"state": failed}
            self.study.tell(self.asked[number], **told)
            self.asked[number] = None


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise UserError("a search over ranges needs Optuna: pip install 'invaug[tune]', or give lists") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _distribution(optuna: Any, found: Sequence[Any] | Range) -> Any:
    kinds = optuna.distributions
    if not isinstance(found, Range):
        return kinds.CategoricalDistribution(found)
    if found.whole:
        return kinds.IntDistribution(int(found.low), int(found.high), log=found.is_logarithmic)
    return kinds.FloatDistribution(found.low, found.high, log=found.is_logarithmic)
