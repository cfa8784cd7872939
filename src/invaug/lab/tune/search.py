"""What to try: the default first, then every combination of a grid, or what Optuna asks for."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from invaug.lab.errors import UserError
from invaug.lab.jobs.job import Job
from invaug.lab.run import atomic
from invaug.lab.tune.outcome import Trial
from invaug.lab.tune.space import Range, Space

ASKED = "trials.json"


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
        self.optuna, self.seed = _optuna(), seed
        self.study = self.optuna.create_study(direction="maximize")
        self.asked: list[Any] = []
        """Optuna's trials, one for each of ours; None once it has been told."""

    def combinations(self) -> Iterator[dict[str, Any]]:
        """Return what was asked before, then what Optuna asks for next."""
        space = {key: _distribution(self.optuna, found) for key, found in self.space.items()}
        known = self._asked_before()
        for number in range(self.n_trials):
            if number < len(known):
                self.study.enqueue_trial(known[number])
            # seeded by its number: a resumed search must not ask again for what it has tried
            seed = (self.seed + number) % 2**32
            self.study.sampler = self.optuna.samplers.TPESampler(seed=seed, constant_liar=True)
            asked = self.study.ask(space)
            self.asked.append(asked)
            known[number : number + 1] = [dict(asked.params)]
            atomic.write_text(self.path, json.dumps({"trials": known}))
            yield dict(asked.params)

    def _asked_before(self) -> list[dict[str, Any]]:
        """Return what was asked before this search was stopped, none if it is new."""
        content = atomic.read_json(self.path) or {"trials": []}
        known = content.get("trials")
        if not isinstance(known, list) or not all(
            isinstance(each, dict) and {*each} <= {*self.space} for each in known
        ):
            raise UserError(f"{self.path} is not the list of an earlier search: remove it, or choose another --out")
        return known

    def tell(self, trials: list[Trial]) -> None:
        """Tell Optuna of every trial whose folds have all ended, but the first: the default is none it asked for."""
        failed = self.optuna.trial.TrialState.FAIL
        for number, trial in enumerate(trials[1:]):
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
