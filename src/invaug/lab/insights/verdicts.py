"""What the gammas of symmetries mean: verdicts, sentences, a ranking, and a set to train with."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from invaug.lab.config.build import dump
from invaug.lab.insights.families import Ranges, in_words, is_graded, scale_ranges
from invaug.lab.insights.thresholds import FULLY, MOSTLY, VERDICTS
from invaug.lab.report.intervals import Estimate, estimate

DEPENDS = 0.1  # share of held-out images lost under a family that says labels depend on it
LEARNED, MOSTLY_LEARNED, NOT = VERDICTS


@dataclass(frozen=True)
class Finding:
    """What the trainings found about one family."""

    name: str
    ranges: Ranges
    gammas: list[float]
    """The gap that was left on training images, as a share of the loss of a guess, one per seed."""
    losses: list[float]
    """On held-out images under uniform draws of the family, one per seed."""
    accuracies: list[float]
    factor: float = 1.0
    """The part of the range up to which it is learned; 0 if none that was tried is."""

    @property
    def gamma(self) -> Estimate:
        """The mean of gamma over seeds, and its interval."""
        return estimate(self.gammas)

    @property
    def verdict(self) -> str:
        """One of `VERDICTS`."""
        mean = fmean(self.gammas)
        return LEARNED if mean <= FULLY else MOSTLY_LEARNED if mean <= MOSTLY else NOT

    @property
    def learned(self) -> Ranges | None:
        """The family as far as it is learned."""
        return scale_ranges(self.ranges, self.factor) if self.factor else None


@dataclass(frozen=True)
class Answer:
    """The answer for a dataset."""

    data: str
    model: str
    clean_accuracy: list[float]
    """On clean held-out images, one per seed."""
    families: list[Finding]
    unchanged: list[str]
    """Families that change none of the images."""
    seconds: float

    @property
    def ranking(self) -> list[Finding]:
        """The families, the smallest gamma first."""
        return sorted(self.families, key=lambda finding: (finding.gamma.mean, fmean(finding.losses)))

    @property
    def suggested(self) -> Ranges:
        """Every operation as far as it is learned."""
        return {op: pair for found in self.ranking if found.learned for op, pair in found.learned.items()}

    def as_json(self) -> dict[str, Any]:
        """Return everything, for machines and for the page."""
        families = [_row(found, self) for found in self.ranking]
        suggestion = {"suggested": self.suggested, "code": as_code(self), "toml": as_toml(self)}
        return {**vars(self), "families": families, **suggestion}


def _row(found: Finding, answer: Answer) -> dict[str, Any]:
    gamma = found.gamma
    return {
        **asdict(found),
        "gamma": gamma.mean,
        "interval": list(gamma.interval) if gamma.interval else None,
        "verdict": found.verdict,
        "learned_range": found.learned,
        "reading": explain(found, answer),
    }


def explain(found: Finding, answer: Answer) -> str:
    """Return in one sentence what the gamma of a family means."""
    clean, under = fmean(answer.clean_accuracy), fmean(found.accuracies)
    gap = f"{fmean(found.gammas):.1%} of the loss of a guess is left on training images"
    right = f"{under:.0%} of held-out images classified correctly under it, {clean:.0%} without"
    numbers = f"{gap} ({in_words(found.ranges)}; {right})"
    if found.verdict != NOT:
        return f"{found.name} is {found.verdict} as far as tried: {numbers}."
    graded = is_graded(found.ranges)
    reason = " in this time"
    if clean - under > DEPENDS:
        reason = ", labels change or get lost that far out" if graded else ", labels depend on it"
    rest = "no range that was tried is learned" if graded else "leave it out"
    if found.learned:
        rest = f"it is learned up to {in_words(found.learned)}"
    return f"{found.name} is not learned{reason}: {numbers}; {rest}."


def as_code(answer: Answer) -> str:
    """Return the suggested set as Python."""
    lines = [f'    "{op}": {pair!r},' for op, pair in answer.suggested.items()]
    return "\n".join(["from invaug import sets", "", "transforms = sets.of({", *lines, "})"]) if lines else ""


def as_toml(answer: Answer) -> str:
    """Return the suggested set as a config of `invaug train`."""
    return dump({"families": {"suggested": answer.suggested}}) if answer.suggested else ""


def summary_lines(answer: Answer) -> Iterator[str]:
    """Yield the answer for people: ranking, sentences, suggestion."""
    n, accuracy = len(answer.clean_accuracy), fmean(answer.clean_accuracy)
    seeds = f"{n} seed{'s' * (n > 1)}"
    yield f"{answer.data}: {answer.model}, {seeds}, {accuracy:.1%} of held-out images classified correctly"
    yield "gamma: the gap between transformed and clean loss left on training images, as a share of the loss of a guess"
    yield ""
    width = max(20, *(len(found.name) for found in answer.families))
    yield f"{'family':{width}}  {'gamma':>14}  verdict         learned up to"
    for found in answer.ranking:
        far = in_words(found.learned) if found.learned else "none"
        yield f"{found.name:{width}}  {found.gamma.text('.2f'):>14}  {found.verdict:14}  {far}"
    for name in answer.unchanged:
        yield f"{name:{width}}  {'-':>14}  {'-':14}  changes none of the images"
    yield ""
    first = answer.ranking[0]
    yield f"Smallest gamma: {first.name}, the symmetry the network has learned most fully."
    yield from (explain(found, answer) for found in answer.ranking)
    if not answer.suggested:
        yield "No family is learned: nothing to suggest."
        return
    yield ""
    yield from as_code(answer).splitlines()
