"""What to try next: every combination of a grid, or what Optuna asks for; and the outcome of each."""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from invaug.lab.errors import UserError
from invaug.lab.jobs.job import Job
from invaug.lab.report.intervals import Estimate, estimate
from invaug.lab.run import atomic
from invaug.lab.tune.space import Range, Space, Values, grid

ASKED = "trials.json"


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
    ranked = sorted(
        complete, key=lambda trial: (-trial.mean("held_out_accuracy", 0.0), trial.mean("held_out_loss", 0.0))
    )
    return ranked[0] if ranked else None


@dataclass
class Search:
    """Yields jobs, and is told when they have ended."""

    space: Space
    make_jobs: Callable[[Mapping[str, Any], int], list[Job]]
    """The folds of a combination; its number names their folders."""
    trials: list[Trial] = field(default_factory=list)

    @property
    def n_trials(self) -> int:
        """How many combinations are tried."""
        return math.prod(len(found.values) for found in self.space.values() if isinstance(found, Values))

    def jobs(self) -> Iterator[Job]:
        """Return the folds of one combination after another."""
        for params in self.combinations():
            trial = Trial(dict(params), self.make_jobs(params, len(self.trials)))
            self.trials.append(trial)
            yield from trial.jobs
            self.tell()

    def combinations(self) -> Iterator[dict[str, Any]]:
        """Return what to try, in order."""
        return grid(self.space)

    def tell(self) -> None:
        """Learn from the trials that have ended: a grid does not."""


@dataclass
class OptunaSearch(Search):
    """Optuna's tree-structured Parzen estimator; what it asked for is kept, so that a stopped search resumes."""

    trials_wanted: int = 20
    folder: Path = Path()
    seed: int = 0
    _study: Any = None
    _asked: list[Any] = field(default_factory=list)
    """Optuna's trials, one for each of ours; None once it has been told."""

    @property
    def n_trials(self) -> int:
        """How many combinations are tried."""
        return self.trials_wanted

    def combinations(self) -> Iterator[dict[str, Any]]:
        """Return what was asked before, then what Optuna asks for next."""
        optuna = _optuna()
        sampler = optuna.samplers.TPESampler(seed=self.seed, constant_liar=True)
        self._study = optuna.create_study(direction="maximize", sampler=sampler)
        space = {key: _distribution(optuna, found) for key, found in self.space.items()}
        known = list((atomic.read_json(self.folder / ASKED) or {"trials": []})["trials"])
        for number in range(self.trials_wanted):
            if number < len(known):
                self._study.enqueue_trial(known[number])
            asked = self._study.ask(space)
            self._asked.append(asked)
            known[number : number + 1] = [dict(asked.params)]
            atomic.write_text(self.folder / ASKED, json.dumps({"trials": known}))
            yield dict(asked.params)

    def tell(self) -> None:
        """Tell Optuna of every trial whose folds have all ended."""
        failed = _optuna().trial.TrialState.FAIL
        for number, trial in enumerate(self.trials):
            ended = len(trial.failures) + len(trial.numbers("held_out_accuracy")) == len(trial.jobs)
            if self._asked[number] is None or not ended:
                continue
            told = {"values": trial.mean("held_out_accuracy", 0.0)} if trial.is_complete else {"state": failed}
            self._study.tell(self._asked[number], **told)
            self._asked[number] = None


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise UserError("a search over ranges needs Optuna: pip install 'invaug[tune]', or give lists") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _distribution(optuna: Any, found: Values | Range) -> Any:
    kinds = optuna.distributions
    if isinstance(found, Values):
        return kinds.CategoricalDistribution(found.values)
    if found.whole:
        return kinds.IntDistribution(int(found.low), int(found.high), log=found.is_logarithmic)
    return kinds.FloatDistribution(found.low, found.high, log=found.is_logarithmic)
