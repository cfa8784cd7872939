"""The search: per seed a training without any family and one with each alone, then smaller ranges of those not learned.

A family that is trained alone cannot be blamed for what another one does, and the training without any, on the same
images, tells what asking for it costs.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from invaug.lab.errors import RunError
from invaug.lab.insights.families import Ranges, is_graded, scale_ranges
from invaug.lab.insights.judge import HeldOut, has_settled
from invaug.lab.insights.thresholds import NOT
from invaug.lab.insights.verdicts import Answer, Finding
from invaug.lab.jobs.job import Job

Train = Callable[[list[Job]], None]
"""Trains the jobs that are not done yet."""
Outcome = Mapping[str, Any]


@dataclass(frozen=True)
class InsightsPlan:
    """What determines the answer."""

    data: str
    families: dict[str, Ranges]
    idle: list[str]
    seeds: int
    rounds: int
    settings: dict[str, Any]
    """The config of each training, except for its seed and its family."""

    @property
    def most_jobs(self) -> int:
        """How many trainings there are, if no family that can be made smaller is learned."""
        n_graded = sum(map(is_graded, self.families.values()))
        return self.seeds * (1 + len(self.families)) + self.rounds * n_graded


@dataclass(frozen=True)
class Search:
    """The jobs of a plan, in a folder."""

    plan: InsightsPlan
    folder: Path
    places: Mapping[str, Any]
    """Settings that say where files are on this machine."""
    train: Train
    """Those it gets at once may run side by side."""

    def without(self, seed: int) -> Job:
        """Return the training without any family."""
        settings = {**self.plan.settings, "method": "none"}
        return Job("no family", settings, seed, self.folder / f"none-seed-{seed}", places=self.places)

    def under(self, family: str, seed: int, factor: float = 1.0) -> Job:
        """Return the training with a family, made smaller by a factor."""
        far = "" if factor == 1 else f"-{factor:g}"
        number = list(self.plan.families).index(family)
        name = f"{number:02}-{re.sub(r'[^a-z0-9]+', '-', family.lower())[:40]}{far}-seed-{seed}"
        label = family if factor == 1 else f"{family} x {factor:g}"
        settings = {**self.plan.settings, "families": {family: scale_ranges(self.plan.families[family], factor)}}
        return Job(label, settings, seed, self.folder / name, places=self.places, under_families=True)

    def answer(self) -> Answer:
        """Return what every family costs, and how far each is learned."""
        seeds = range(self.plan.seeds)
        without = [self.without(seed) for seed in seeds]
        jobs = {family: [self.under(family, seed) for seed in seeds] for family in self.plan.families}
        self.train([*without, *(row[seed] for seed in seeds for row in jobs.values())])
        plain = [outcome_of(job) for job in without]
        outcomes = {family: [outcome_of(job) for job in row] for family, row in jobs.items()}
        findings = {family: self._finding(family, plain, found) for family, found in outcomes.items()}
        factors = self.learned_factors(findings, plain[:1])
        everything = [*plain, *(found for row in outcomes.values() for found in row)]
        return Answer(
            Path(self.plan.data).name,
            plain[0]["model"],
            self._held_out(plain),
            [replace(finding, factor=factors.get(family, 0.0)) for family, finding in findings.items()],
            self.plan.idle,
            sum(found["numbers"]["seconds"] for found in everything),
        )

    def _finding(self, family: str, plain: Sequence[Outcome], found: Sequence[Outcome]) -> Finding:
        under = [each["families"][family] for each in found]
        numbers = [each["numbers"] for each in found]
        return Finding(
            family,
            self.plan.families[family],
            gammas=[each[f"gamma.{family}"] for each in numbers],
            settled=all(has_settled([gamma for (gamma,) in each["curve"]["gamma"]]) for each in found),
            clean=[each["held_out_accuracy"] for each in numbers],
            under=[each["accuracy"] for each in under],
            loss_gaps=[each["loss"] - row["held_out_loss"] for each, row in zip(under, numbers, strict=True)],
            held_out=self._held_out(plain),
        )

    def _held_out(self, plain: Sequence[Outcome]) -> HeldOut:
        new = [each["new_images"] for each in plain]
        accuracies = [each["numbers"]["held_out_accuracy"] for each in plain]
        count, majority = min(each["count"] for each in new), max(each["majority"] for each in new)
        return HeldOut(count, majority, accuracies, len(plain) if self.plan.settings.get("val_fraction") else 1)

    def learned_factors(self, findings: Mapping[str, Finding], plain: Sequence[Outcome]) -> dict[str, float]:
        """Return the part of its range up to which each family that is not learned is: bisection, with one seed."""
        unknown = [name for name, found in findings.items() if found.verdict == NOT and is_graded(found.ranges)]
        low, high = dict.fromkeys(unknown, 0.0), dict.fromkeys(unknown, 1.0)
        for _ in range(self.plan.rounds if unknown else 0):
            tried = {name: (low[name] + high[name]) / 2 for name in unknown}
            jobs = {name: self.under(name, 0, factor) for name, factor in tried.items()}
            self.train(list(jobs.values()))
            for name, job in jobs.items():
                finding = self._finding(name, plain, [outcome_of(job)])
                (low if finding.is_learned else high)[name] = tried[name]
        return low


def outcome_of(job: Job) -> dict[str, Any]:
    """Return the outcome of a training; one that failed has no answer."""
    found = job.found()
    if found is None:
        raise RunError(f"{job.folder} failed: {job.failure()}")
    return found
