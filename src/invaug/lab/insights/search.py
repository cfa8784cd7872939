"""The search: every seed under all families at their full ranges, then rounds of bisection of those not learned."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from invaug.lab.errors import RunError
from invaug.lab.insights.families import Ranges, is_graded, scale_ranges
from invaug.lab.insights.thresholds import MOSTLY
from invaug.lab.insights.verdicts import NOT, Answer, Finding
from invaug.lab.jobs.job import Job

Train = Callable[[list[Job]], None]
"""Trains the jobs that are not done yet."""


@dataclass(frozen=True)
class InsightsPlan:
    """What determines the answer."""

    data: str
    families: dict[str, Ranges]
    idle: list[str]
    seeds: int
    rounds: int
    settings: dict[str, Any]
    """The config of each training, except for its seed and its families."""


def answer_by(plan: InsightsPlan, folder: Path, places: Mapping[str, Any], train: Train) -> Answer:
    """Return the gamma of every family, and how far each is learned.

    Args:
        folder: Where the trainings go.
        places: Settings that say where files are on this machine.
        train: Trains jobs; those it gets at once may run side by side.
    """

    def make_job(label: str, name: str, seed: int, families: Mapping[str, Ranges]) -> Job:
        settings = {**plan.settings, "families": dict(families)}
        return Job(label, settings, seed, folder / name, places=places, under_families=True)

    jobs = [make_job("full ranges", f"seed-{seed}", seed, plan.families) for seed in range(plan.seeds)]
    train(jobs)
    outcomes = [outcome_of(job) for job in jobs]
    findings = {
        name: Finding(
            name,
            ranges,
            gammas=[found["numbers"][f"gamma.{name}"] for found in outcomes],
            losses=[found["families"][name]["loss"] for found in outcomes],
            accuracies=[found["families"][name]["accuracy"] for found in outcomes],
        )
        for name, ranges in plan.families.items()
    }

    def gammas_of(number: int, families: Mapping[str, Ranges]) -> dict[str, float]:
        job = make_job(f"round {number}", f"round-{number}", 0, families)
        train([job])
        return {name: outcome_of(job)["numbers"][f"gamma.{name}"] for name in families}

    learned = learned_factors(plan, findings, gammas_of)
    accuracies = [found["numbers"]["held_out_accuracy"] for found in outcomes]
    seconds = sum(found["numbers"]["seconds"] for found in outcomes)
    final = [replace(finding, factor=learned[name]) for name, finding in findings.items()]
    return Answer(plan.data, outcomes[0]["model"], accuracies, final, plan.idle, seconds)


def outcome_of(job: Job) -> dict[str, Any]:
    """Return the outcome of a training; one that failed has no answer."""
    found = job.found()
    if found is None:
        raise RunError(f"{job.folder} failed: {job.failure()}")
    return found


def learned_factors(
    plan: InsightsPlan,
    findings: Mapping[str, Finding],
    gammas_of: Callable[[int, Mapping[str, Ranges]], Mapping[str, float]],
) -> dict[str, float]:
    """Return the part of its range up to which each family is learned: bisection, all families in one training."""
    low = {name: 0.0 if finding.verdict == NOT else 1.0 for name, finding in findings.items()}
    high = dict.fromkeys(findings, 1.0)
    unknown = [name for name in findings if low[name] < 1 and is_graded(plan.families[name])]
    for number in range(1, 1 + (plan.rounds if unknown else 0)):
        tried = {name: (low[name] + high[name]) / 2 for name in unknown}
        factors = {name: factor for name, factor in {**low, **tried}.items() if factor > 0}
        families = {name: scale_ranges(plan.families[name], factor) for name, factor in factors.items()}
        for name, gamma in gammas_of(number, families).items():
            if name in tried:
                (low if gamma <= MOSTLY else high)[name] = tried[name]
    return low
