"""What the trainings found about each symmetry: numbers with intervals, a ranking, and a set to train with."""

from dataclasses import dataclass
from statistics import fmean

from invaug.lab.config.build import dump
from invaug.lab.insights.families import Ranges, scale_ranges
from invaug.lab.insights.judge import HeldOut, judge
from invaug.lab.insights.thresholds import LEARNED, MOSTLY_LEARNED, NOT, UNDECIDED, VERDICTS
from invaug.lab.report.intervals import Estimate, estimate


@dataclass(frozen=True)
class Finding:
    """What the trainings under one family found, one number per seed."""

    name: str
    ranges: Ranges
    gammas: list[float]
    """The gap that was left on training images, as a share of the loss of a guess."""
    settled: bool
    """Whether gamma had stopped moving in every training."""
    clean: list[float]
    """Accuracy on held-out images as they are, of the network trained with the family."""
    under: list[float]
    """The same on the same images under uniform draws of the family."""
    loss_gaps: list[float]
    """Loss of the same images under the family minus their clean loss."""
    held_out: HeldOut
    factor: float = 0.0
    """The part of the range up to which it is learned; 0 if none that was tried is."""

    @property
    def gamma(self) -> Estimate:
        """The mean of gamma over seeds, and its interval."""
        return estimate(self.gammas)

    @property
    def gap(self) -> Estimate:
        """The held-out invariance gap: accuracy on images as they are minus accuracy under the family."""
        return estimate([clean - under for clean, under in zip(self.clean, self.under, strict=True)])

    @property
    def cost(self) -> Estimate:
        """What asking for the family costs: held-out clean accuracy without it minus with it."""
        return estimate([a - b for a, b in zip(self.held_out.accuracies, self.clean, strict=True)])

    @property
    def judgement(self) -> tuple[str, str]:
        """The verdict, and why it is undecided."""
        return judge(self.clean, self.under, self.held_out, self.settled)

    @property
    def verdict(self) -> str:
        """One of `VERDICTS`."""
        return self.judgement[0]

    @property
    def is_learned(self) -> bool:
        """Whether it is learned, or mostly, as far as tried."""
        return self.verdict in (LEARNED, MOSTLY_LEARNED)

    @property
    def learned(self) -> Ranges | None:
        """The family as far as it is learned; nothing for one that is undecided."""
        factor = 1.0 if self.is_learned else self.factor if self.verdict == NOT else 0.0
        return scale_ranges(self.ranges, factor) if factor else None


@dataclass(frozen=True)
class Answer:
    """The answer for a dataset."""

    data: str
    model: str
    held_out: HeldOut
    families: list[Finding]
    unchanged: list[str]
    """Families that change none of the images."""
    seconds: float

    @property
    def ranking(self) -> list[Finding]:
        """The families, by verdict, then the smallest held-out gap first."""
        return sorted(self.families, key=lambda found: (VERDICTS.index(found.verdict), found.gap.mean))

    @property
    def undecided(self) -> list[Finding]:
        """The families without a verdict."""
        return [found for found in self.ranking if found.verdict == UNDECIDED]

    @property
    def suggested(self) -> Ranges:
        """Every operation as far as it is learned."""
        return {op: pair for found in self.ranking if found.learned for op, pair in found.learned.items()}

    @property
    def accuracy(self) -> float:
        """The mean held-out accuracy without any family."""
        return fmean(self.held_out.accuracies)


def as_code(answer: Answer) -> str:
    """Return the suggested set as Python."""
    lines = [f'    "{op}": {pair!r},' for op, pair in answer.suggested.items()]
    return "\n".join(["from invaug import sets", "", "transforms = sets.of({", *lines, "})"]) if lines else ""


def as_toml(answer: Answer) -> str:
    """Return the suggested set as a config of `invaug train`, which mirrors no images whose labels change by that."""
    if not answer.suggested:
        return ""
    depends_on_side = any(found.verdict == NOT and "FlipX" in found.ranges for found in answer.families)
    settings = {"train": {"flip": "no"}} if depends_on_side else {}
    return dump({**settings, "families": {"suggested": answer.suggested}})
