"""What is tried next: every combination of a grid, or what Optuna asks for; and what came of it."""

from __future__ import annotations

import json
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
        return " ".join(f"{key}={shown(value)}" for key, value in self.params.items())

    def numbers(self, key: str) -> list[float]:
        """Return a number of each fold that is done."""
        outcomes = [job.found() for job in self.jobs]
        return [found["numbers"][key] for found in outcomes if found and key in found["numbers"]]

    def estimate(self, key: str) -> Estimate | None:
        """Return mean and interval over folds."""
        values = self.numbers(key)
        return estimate(values) if values else None

    @property
    def whole(self) -> bool:
        """Whether every fold is done."""
        return len(self.numbers("held_out_accuracy")) == len(self.jobs)

    @property
    def failures(self) -> list[str]:
        """Why folds failed."""
        return [reason for job in self.jobs if (reason := job.failure()) and job.found() is None]


def shown(value: Any) -> str:
    """Return a value as short as it can be read."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def best_of(trials: list[Trial]) -> Trial | None:
    """Return the trial with the highest mean accuracy on held-out images; of equal ones the lower loss."""

    def rank(trial: Trial) -> tuple[float, float]:
        accuracy, loss = (trial.estimate(key) for key in ("held_out_accuracy", "held_out_loss"))
        return (accuracy.mean if accuracy else -1.0, -loss.mean if loss else 0.0)

    whole = [trial for trial in trials if trial.whole]
    return max(whole, key=rank) if whole else None


@dataclass
class Search:
    """Yields jobs that are not done yet, and is told when they have ended."""

    space: Space
    make: Callable[[Mapping[str, Any], int], list[Job]]
    """The folds of a combination; its number names their folders."""
    skip: Callable[[Job], None] = lambda _: None
    """Called for a fold that was done before."""
    trials: list[Trial] = field(default_factory=list)

    def jobs(self) -> Iterator[Job]:
        """Return the folds of one combination after another."""
        for params in self.combinations():
            trial = Trial(dict(params), self.make(params, len(self.trials)))
            self.trials.append(trial)
            for job in trial.jobs:
                if job.found() is None:
                    yield job
                else:
                    self.skip(job)
            self.tell()

    def combinations(self) -> Iterator[dict[str, Any]]:
        """Return what to try, in order."""
        return grid(self.space)

    def tell(self) -> None:
        """Learn from the trials that have ended: a grid does not."""


@dataclass
class OptunaSearch(Search):
    """Optuna's tree-structured Parzen estimator; what it asked for is kept, so that a stopped search goes on."""

    n_trials: int = 20
    folder: Path = Path()
    seed: int = 0
    _study: Any = None
    _asked: list[Any] = field(default_factory=list)
    _told: set[int] = field(default_factory=set)

    def combinations(self) -> Iterator[dict[str, Any]]:
        """Return what was asked before, then what Optuna asks for next."""
        optuna = _optuna()
        before = atomic.read_json(self.folder / ASKED) or {"trials": []}
        sampler = optuna.samplers.TPESampler(seed=self.seed, constant_liar=True)
        self._study = optuna.create_study(direction="maximize", sampler=sampler)
        space = {key: _distribution(optuna, found) for key, found in self.space.items()}
        known = list(before["trials"])
        for number in range(self.n_trials):
            if number < len(known):
                self._study.enqueue_trial(known[number])
            asked = self._study.ask(space)
            self._asked.append(asked)
            known[number:] = [dict(asked.params), *known[number + 1 :]]
            atomic.write_text(self.folder / ASKED, json.dumps({"trials": known}))
            yield dict(asked.params)

    def tell(self) -> None:
        """Tell Optuna of every trial whose folds have all ended."""
        optuna = _optuna()
        for number, trial in enumerate(self.trials):
            if number in self._told:
                continue
            accuracy = trial.estimate("held_out_accuracy")
            if trial.whole and accuracy:
                self._study.tell(self._asked[number], accuracy.mean)
                self._told.add(number)
            elif len(trial.failures) + len(trial.numbers("held_out_accuracy")) == len(trial.jobs):
                self._study.tell(self._asked[number], state=optuna.trial.TrialState.FAIL)
                self._told.add(number)


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
        return kinds.IntDistribution(int(found.low), int(found.high), log=found.by_log)
    return kinds.FloatDistribution(found.low, found.high, log=found.by_log)
