"""Ways to choose epsilon while training, beside one another: held-out accuracy, where gamma and epsilon end.

    python bench/levels.py --data-dir DATA [--seeds 2] [--data cifar10 fashion-mnist] [--epochs 100]

All are the default of `invaug train` but for the level. `priced` is the library's "auto"; the others are here, to be
compared, and nowhere else: a level that gives way in proportion to gamma (resilient), one in proportion to the clean
loss (relative), and a fixed level with plain ascent or with proportional-integral control of gamma.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from invaug import InvarianceMixture
from invaug.lab import config as configs
from invaug.lab import loop, ranks, train
from invaug.lab.evaluate import clean
from invaug.lab.methods import usual_epsilon
from invaug.lab.report.intervals import estimate
from invaug.lab.reproduce import beyond
from invaug.lab.training import prepare

SMOOTHING = 0.1  # of running means


class Resilient(InvarianceMixture):
    """clean loss + epsilon² / (2 give): at the optimum epsilon = give · gamma, and gives way as gamma grows."""

    give = 0.5

    @property
    def epsilons(self) -> list[float]:
        return [self.give * float(gamma) for gamma in self.gamma]


class Relative(InvarianceMixture):
    """Epsilon is a quarter above the clean loss, both as they are now."""

    above, clean_loss = 1.25, math.nan

    @property
    def epsilons(self) -> list[float]:
        return [0.0 if math.isnan(self.clean_loss) else self.above * self.clean_loss for _ in self.constraints]

    def forward(self, *batch: Any, **options: Any) -> Any:
        step = super().forward(*batch, **options)
        gamma, mixed, changed = float(self.gamma.sum()), float(step.loss), float(step.slack[0] + step.epsilon[0])
        # the batch is a mixture of clean and transformed images in these proportions
        now = max((1 + gamma) * mixed - gamma * changed, 0.0)
        self.clean_loss = now if math.isnan(self.clean_loss) else self.clean_loss + SMOOTHING * (now - self.clean_loss)
        return step


class ProportionalIntegral(InvarianceMixture):
    """A fixed level; gamma moves with the slack, and with how far the slack is from its running mean."""

    proportional, mean = 0.1, 0.0

    def dual_step(self, slack: Tensor) -> None:
        change = self.proportional * (slack - self.mean)
        self.mean += SMOOTHING * (float(slack) - self.mean)
        super().dual_step(slack)
        self.gamma.copy_((self.gamma + change).clamp(min=0))


WAYS: dict[str, tuple[type[InvarianceMixture], Callable[[int], float | str]]] = {
    "priced (auto)": (InvarianceMixture, lambda _: "auto"),
    "resilient": (Resilient, lambda _: 1.0),
    "relative": (Relative, lambda _: 1.0),
    "fixed, ascent": (InvarianceMixture, usual_epsilon),
    "fixed, PI": (ProportionalIntegral, usual_epsilon),
}


def run(job: tuple[str, str, int, Path | None, int | None]) -> tuple[float, float, float]:
    """Train once; return held-out accuracy, gamma and epsilon at the end."""
    way, data, seed, data_dir, epochs = job
    torch.set_num_threads(1)
    kind, level = WAYS[way]
    given = beyond.settings(data, held_out=beyond.HELD_OUT[data], preset="default")
    given |= {"epsilon": level(beyond.CLASSES.get(data, 10)), "seed": seed}
    given |= {"data_dir": data_dir} if data_dir else {}
    given |= {"epochs": epochs} if epochs else {}
    config = configs.build(given)
    fabric = ranks.launch(train.decide(config))
    dataset = train.load_once(config, fabric, with_test=False)
    training, finish = prepare(train.decide_for(config, dataset, config.method), dataset, fabric)
    training.problem.__class__ = kind
    for _ in range(config.epochs):
        loop.one_epoch(config, dataset, training, loop.Watch())
        training.end_epoch()
    found = clean(training.network, finish, dataset.val, workers=0)
    return found["accuracy"], float(training.problem.gamma[0]), training.problem.epsilons[0]


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=list(beyond.CHOSEN_ON), choices=beyond.PER_CLASS)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--jobs", type=int, default=2)
    asked = parser.parse_args()
    jobs = list(product(WAYS, asked.data, range(asked.seeds), [asked.data_dir], [asked.epochs]))
    with ProcessPoolExecutor(asked.jobs, mp_context=get_context("spawn")) as pool:
        found = dict(zip(jobs, pool.map(run, jobs), strict=True))
    print(f"{'':16}{'data':16}{'held-out accuracy':>20}{'gamma':>8}{'epsilon':>9}")
    for way, data in product(WAYS, asked.data):
        rows = [row for job, row in found.items() if job[:2] == (way, data)]
        accuracy = estimate([row[0] for row in rows]).text(".2f", 100)
        print(f"{way:16}{data:16}{accuracy:>20}{fmean(r[1] for r in rows):8.2f}{fmean(r[2] for r in rows):9.2f}")


if __name__ == "__main__":
    main()
