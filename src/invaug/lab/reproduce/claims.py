"""How claims are judged: by the 95 % interval over seeds of one number per seed, and by nothing else.

Each rule turns the numbers of one seed into an effect that is positive where the claim holds. The claim is shown if the
interval of the mean effect lies above zero, whatever the means or single seeds say.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from invaug.lab.report.document import Table
from invaug.lab.report.intervals import Estimate, estimate
from invaug.lab.reproduce.cells import Claim
from invaug.lab.reproduce.measures import MEASURES
from invaug.lab.terminal import count

FEWEST_SEEDS = 5
"""Wherever a difference is claimed."""
COLUMNS = ("claim", "effect", "± (no smaller effect could be shown)", "seeds", "verdict")
Numbers = Mapping[int, float]
"""One number per seed."""

EFFECTS: Mapping[str, Callable[..., float]] = {
    "above": lambda value, other: value - other,
    "below": lambda value, other: other - value,
    "rising": lambda *values: values[-1] - values[0],
    "falling": lambda *values: values[0] - values[-1],
    "smallest": lambda value, *others: min(others) - value,
}
"""The rules. A limit comes last, as if it were another number."""


@dataclass(frozen=True)
class Verdict:
    """What the seeds say about a claim."""

    claim: Claim
    effect: Estimate | None
    """Mean and interval over the seeds that all of its cells have; None without any."""

    @property
    def conclusion(self) -> str:
        """The verdict in a few words."""
        if self.effect is None:
            return "not run yet"
        ends = self.effect.interval
        if ends and ends[0] > 0:
            return "shown"
        if ends and ends[1] < 0:
            return "the opposite is shown"
        return "not decided" if self.effect.n >= FEWEST_SEEDS else f"not decided: {count(self.effect.n, 'seed')}"

    def row(self) -> tuple[str, str | None, str | None, int, str]:
        """Return the verdict under `COLUMNS`."""
        effect, measure = self.effect, MEASURES[self.claim.of[0][1]]
        if effect is None:
            return self.claim.text, None, None, 0, self.conclusion
        half = None if effect.half is None else measure.difference(effect.half)
        return self.claim.text, measure.difference(effect.mean, "+"), half, effect.n, self.conclusion

    def as_json(self) -> dict[str, Any]:
        """Return the verdict as plain values."""
        mean, half, n = (self.effect.mean, self.effect.half, self.effect.n) if self.effect else (None, None, 0)
        return {"claim": self.claim.text, "verdict": self.conclusion, "effect": mean, "half": half, "seeds": n}


def judge(claim: Claim, columns: Sequence[Numbers]) -> Verdict:
    """Return the verdict on a claim, from the numbers of its cells, paired by seed."""
    seeds = sorted(set(columns[0]).intersection(*columns[1:]))
    limits = [] if claim.limit is None else [claim.limit]
    effects = [EFFECTS[claim.rule](*(column[seed] for column in columns), *limits) for seed in seeds]
    return Verdict(claim, estimate(effects) if effects else None)


def table_of(verdicts: Sequence[Verdict]) -> Table:
    """Return the verdicts as a table."""
    return Table("Claims", COLUMNS, tuple(verdict.row() for verdict in verdicts))
