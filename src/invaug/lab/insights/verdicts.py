"""What the gammas of symmetries say: verdicts, sentences, a ranking, and a set to train with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from invaug.lab.config import build as configs
from invaug.lab.insights.families import Ranges, in_words, is_graded, scaled
from invaug.lab.report.intervals import Estimate, estimate
from invaug.lab.report.sections.insights import FULLY, MOSTLY, VERDICTS

DEPENDS = 0.1  # share of held-out images lost under a family that says labels depend on it
LEARNED, PARTLY, NOT = VERDICTS


@dataclass(frozen=True)
class Finding:
    """What the trainings say of one family."""

    name: str
    ranges: Ranges
    gammas: list[float]
    """The gap that was left on training images, as a share of the loss of a guess, one per seed."""
    losses: list[float]
    """On held-out images under uniform draws of the family, one per seed."""
    accuracies: list[float]
    factor: float = 1.0
    """The part of the range up to which it is learned; 0: none that was tried."""

    @property
    def gamma(self) -> Estimate:
        """The mean of gamma over seeds, and its interval."""
        return estimate(self.gammas)

    @property
    def verdict(self) -> str:
        """One of `VERDICTS`."""
        mean = fmean(self.gammas)
        return LEARNED if mean <= FULLY else PARTLY if mean <= MOSTLY else NOT

    @property
    def learned(self) -> Ranges | None:
        """The family as far as it is learned."""
        return None if not self.factor else self.ranges if self.factor == 1 else scaled(self.ranges, self.factor)


@dataclass(frozen=True)
class Answer:
    """The answer for a dataset."""

    data: str
    model: str
    accuracies: list[float]
    """On held-out images as they are, one per seed."""
    findings: list[Finding]
    idle: list[str]
    """Families that change none of the images."""
    seconds: float

    @property
    def ranking(self) -> list[Finding]:
        """The families, the smallest gamma first."""
        return sorted(self.findings, key=lambda finding: (finding.gamma.mean, fmean(finding.losses)))

    @property
    def suggested(self) -> Ranges:
        """Every operation as far as it is learned."""
        return {op: pair for found in self.ranking if found.learned for op, pair in found.learned.items()}

    def as_json(self) -> dict[str, Any]:
        """Return everything, for machines and for the page."""
        return {
            "data": self.data,
            "model": self.model,
            "clean_accuracy": self.accuracies,
            "families": [_row(found, self) for found in self.ranking],
            "unchanged": self.idle,
            "seconds": self.seconds,
            "suggested": self.suggested,
            "code": code(self),
            "toml": toml(self),
        }


def _row(found: Finding, answer: Answer) -> dict[str, Any]:
    gamma = found.gamma
    return {
        **asdict(found),
        "gamma": gamma.mean,
        "interval": list(gamma.interval) if gamma.interval else None,
        "verdict": found.verdict,
        "learned_range": found.learned,
        "reading": reading(found, answer),
    }


def reading(found: Finding, answer: Answer) -> str:
    """Return in one sentence what the gamma of a family says."""
    clean, under = fmean(answer.accuracies), fmean(found.accuracies)
    words = in_words(found.ranges)
    right = f"{under:.0%} of held-out images right under it, {clean:.0%} without"
    gap = f"{fmean(found.gammas):.1%} of the loss of a guess is left on training images"
    if found.verdict == LEARNED:
        return f"{found.name} is learned as far as tried: {gap} ({words}; {right})."
    if found.verdict == PARTLY:
        return f"{found.name} is mostly learned as far as tried: {gap} ({words}; {right})."
    if found.learned:
        rest = f"it is learned up to {in_words(found.learned)}."
    else:
        rest = "no range that was tried is learned." if is_graded(found.ranges) else "leave it out."
    if clean - under > DEPENDS:
        lost = "labels change or get lost that far out" if is_graded(found.ranges) else "labels depend on it"
        return f"{found.name} is not learned, {lost}: {gap} ({words}; {right}); {rest}"
    return f"{found.name} is not learned in this time: {gap} ({words}; {right}); {rest}"


def code(answer: Answer) -> str:
    """Return the suggested set as Python."""
    lines = [f'    "{op}": {pair!r},' for op, pair in answer.suggested.items()]
    return "\n".join(["from invaug import sets", "", "transforms = sets.of({", *lines, "})"]) if lines else ""


def toml(answer: Answer) -> str:
    """Return the suggested set as a config of `invaug train`."""
    return configs.dump({"families": {"suggested": answer.suggested}}) if answer.suggested else ""


def lines(answer: Answer) -> Iterator[str]:
    """Yield the answer for people: ranking, sentences, suggestion."""
    n, accuracy = len(answer.accuracies), fmean(answer.accuracies)
    yield f"{answer.data}: {answer.model}, {n} seed{'s' * (n > 1)}, {accuracy:.1%} of held-out images right"
    yield "gamma: the gap between transformed and clean loss that is left on training images, as a share of a guess's"
    yield ""
    width = max(20, *(len(found.name) for found in answer.findings))
    yield f"{'family':{width}}  {'gamma':>14}  verdict         learned up to"
    for found in answer.ranking:
        far = in_words(found.learned) if found.learned else "none"
        yield f"{found.name:{width}}  {found.gamma.text('.2f'):>14}  {found.verdict:14}  {far}"
    for name in answer.idle:
        yield f"{name:{width}}  {'-':>14}  {'-':14}  changes none of the images"
    yield ""
    first = answer.ranking[0]
    yield f"Smallest gamma: {first.name}, the symmetry the network has learned most fully."
    yield from (reading(found, answer) for found in answer.ranking)
    if not answer.suggested:
        yield "No family is learned: nothing to suggest."
        return
    yield ""
    yield from code(answer).splitlines()
