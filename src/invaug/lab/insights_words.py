"""What the prices of symmetries say: verdicts, sentences, a ranking, and a set to train with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from invaug.lab import config as configs
from invaug.lab.families import Ranges, in_words, is_graded, scaled
from invaug.lab.report.insights import CHEAP, FREE
from invaug.lab.report.intervals import Estimate, estimate

DEPENDS = 0.1  # share of held-out images lost under a family that says labels depend on it


@dataclass(frozen=True)
class Finding:
    """What the trainings say of one family."""

    name: str
    ranges: Ranges
    gammas: list[float]
    beyond: list[float]
    """gamma minus that of the images as they are."""
    losses: list[float]
    """On held-out images under uniform draws of the family, one per seed."""
    accuracies: list[float]
    factor: float = 1.0
    """The part of the range up to which it is cheap; 0: none that was tried."""

    @property
    def price(self) -> Estimate:
        """The mean of gamma over seeds, and its interval."""
        return estimate(self.gammas)

    @property
    def verdict(self) -> str:
        """One of free, cheap, expensive."""
        mean = fmean(self.beyond)
        return "free" if mean <= FREE else "cheap" if mean <= CHEAP else "expensive"

    @property
    def cheap(self) -> Ranges | None:
        """The family as far as it is cheap."""
        return None if not self.factor else self.ranges if self.factor == 1 else scaled(self.ranges, self.factor)


@dataclass(frozen=True)
class Prices:
    """The answer for a dataset."""

    data: str
    model: str
    epsilon: float
    accuracies: list[float]
    """On held-out images as they are, one per seed."""
    references: list[float]
    """gamma of the images as they are, one per seed."""
    findings: list[Finding]
    idle: list[str]
    """Families that change none of the images."""
    seconds: float

    @property
    def ranking(self) -> list[Finding]:
        """The families, the cheapest first."""
        return sorted(self.findings, key=lambda finding: (finding.price.mean, fmean(finding.losses)))

    @property
    def suggested(self) -> Ranges:
        """Every operation as far as it is cheap."""
        return {op: pair for found in self.ranking if found.cheap for op, pair in found.cheap.items()}

    def as_json(self) -> dict[str, Any]:
        """Return everything, for machines and for the page."""
        rows = []
        for found in self.ranking:
            price = found.price
            rows.append({
                **asdict(found), "price": price.mean, "interval": list(price.interval) if price.interval else None,
                "verdict": found.verdict, "cheap_range": found.cheap, "reading": reading(found, self),
            })  # fmt: skip
        return {
            "data": self.data, "model": self.model, "epsilon": self.epsilon, "clean_accuracy": self.accuracies,
            "reference": fmean(self.references),
            "families": rows, "unchanged": self.idle, "seconds": self.seconds, "suggested": self.suggested,
            "code": code(self), "toml": toml(self),
        }  # fmt: skip


def reading(found: Finding, prices: Prices) -> str:
    """Return in one sentence what the price of a family says."""
    clean, under = fmean(prices.accuracies), fmean(found.accuracies)
    words = in_words(found.ranges)
    right = f"{under:.0%} of held-out images right under it, {clean:.0%} without"
    if found.verdict == "free":
        return f"{found.name} is free: the labels are invariant to it as far as tried ({words})."
    if found.verdict == "cheap":
        return f"{found.name} is cheap: it can be learned at little cost as far as tried ({words}; {right})."
    if found.cheap:
        rest = f"it is cheap up to {in_words(found.cheap)}."
    else:
        rest = "no range that was tried is cheap." if is_graded(found.ranges) else "leave it out."
    if clean - under > DEPENDS and fmean(found.losses) > prices.epsilon:
        lost = "labels change or get lost that far out" if is_graded(found.ranges) else "labels depend on it"
        return f"{found.name} is expensive: {lost} ({words}; {right}); {rest}"
    return f"{found.name} is expensive: the network has to pay for it ({words}; {right}); {rest}"


def code(prices: Prices) -> str:
    """Return the suggested set as Python."""
    lines = [f'    "{op}": {pair!r},' for op, pair in prices.suggested.items()]
    return "\n".join(["from invaug import sets", "", "transforms = sets.of({", *lines, "})"]) if lines else ""


def toml(prices: Prices) -> str:
    """Return the suggested set as a config of `invaug train`."""
    return configs.dump({"families": {"suggested": prices.suggested}}) if prices.suggested else ""


def lines(prices: Prices) -> Iterator[str]:
    """Yield the answer for people: ranking, sentences, suggestion."""
    n, accuracy = len(prices.accuracies), fmean(prices.accuracies)
    seeds = f"{n} seed{'s' * (n > 1)}"
    yield f"{prices.data}: {prices.model}, epsilon {prices.epsilon:g}, {seeds}, {accuracy:.1%} of held-out images right"
    yield ""
    width = max(20, *(len(found.name) for found in prices.findings))
    yield f"{'family':{width}}  {'price gamma':>14}  verdict    cheap range"
    for found in prices.ranking:
        cheap = in_words(found.cheap) if found.cheap else "none"
        yield f"{found.name:{width}}  {found.price.text('.2f'):>14}  {found.verdict:9}  {cheap}"
    yield f"{'(images as they are)':{width}}  {estimate(prices.references).text('.2f'):>14}"
    for name in prices.idle:
        yield f"{name:{width}}  {'-':>14}  {'-':9}  changes none of the images"
    yield ""
    yield from (reading(found, prices) for found in prices.ranking)
    if not prices.suggested:
        yield "No family is cheap: nothing to suggest."
        return
    yield ""
    yield from code(prices).splitlines()
