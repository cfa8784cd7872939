"""The outcome of an experiment, from its rows alone: the table next to the paper's, and whether its claims hold."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from invaug.lab.report.document import Cell as Text
from invaug.lab.report.document import Table
from invaug.lab.report.intervals import Estimate, estimate
from invaug.lab.reproduce.cells import Claim, Experiment, Number, Scale, read_table
from invaug.lab.reproduce.rows import DONE, FAILED, Row


class Measure(NamedTuple):
    """How a number is shown."""

    title: str
    factor: float = 1.0
    form: str = ".2f"

    def printed(self, number: Number | None) -> str | None:
        """Return a number as the paper prints it."""
        if number is None:
            return None
        mean = format(number.mean, self.form if self.form != ".2f" else "g")
        return mean if number.spread is None else f"{mean} ± {number.spread:g}"


MEASURES: Mapping[str, Measure] = {name: Measure(**entry) for name, entry in read_table("measures").items()}


@dataclass(frozen=True)
class Verdict:
    """Whether a claim holds for the means over seeds (None where runs are missing), and for how many single seeds."""

    claim: str
    holds: bool | None
    in_seeds: int
    of_seeds: int
    difference: Estimate | None = None
    """By how much one cell is above the other, with the interval of runs of the same seed."""

    @property
    def conclusion(self) -> str:
        """The verdict in a few words."""
        ends = self.difference.interval if self.difference else None
        if self.holds is None:
            return "not run yet"
        if ends and ends[0] <= 0 <= ends[1]:
            return "inconclusive: higher on average, within the noise" if self.holds else "not shown, within the noise"
        if self.holds and 2 * self.in_seeds < self.of_seeds:
            return "inconclusive: true of the means, but of fewer than half of the seeds"
        return "shown" if self.holds else "not shown"

    @property
    def evidence(self) -> str:
        """The numbers behind the verdict, in parentheses."""
        if self.holds is None:
            return ""
        by = f"by {self.difference.text('+.2f', 100)} points, " if self.difference else ""
        return f" ({by}in {self.in_seeds} of {self.of_seeds} seeds)"

    def as_json(self) -> dict[str, Any]:
        """Return the verdict as plain values."""
        by = {"mean": self.difference.mean, "half": self.difference.half} if self.difference else None
        seeds = {"seeds_it_holds_in": self.in_seeds, "seeds": self.of_seeds}
        return {"claim": self.claim, "holds": self.holds, "verdict": self.conclusion, "difference": by, **seeds}


class Counts(NamedTuple):
    """How many runs are done, how many failed, and how many of those planned are missing."""

    done: int
    failed: int
    left_out: int


class Outcome:
    """The rows of an experiment at a scale, and what follows from them."""

    def __init__(self, experiment: Experiment, scale: Scale, rows: Sequence[Row], seeds: int | None = None) -> None:
        self.experiment, self.scale = experiment, scale
        self.plan = experiment.plans[scale]
        self.rows = with_ratios(rows, experiment.reference) if experiment.reference else list(rows)
        self.seeds = seeds or self.plan.seeds

    @property
    def cells(self) -> list[str]:
        """The cells of the plan, then those that only the rows have."""
        return list(dict.fromkeys([*(cell.label for cell in self.plan.cells), *(row.cell for row in self.rows)]))

    def rows_of(self, cell: str, status: str = DONE) -> list[Row]:
        """Return the rows of a cell, by seed."""
        rows = [row for row in self.rows if row.cell == cell and row.status == status]
        return sorted(rows, key=lambda row: row.seed)

    def by_seed(self, cell: str, measure: str) -> dict[int, float]:
        """Return a number of every run of a cell that has it."""
        return {row.seed: row.numbers[measure] for row in self.rows_of(cell) if measure in row.numbers}

    def estimate(self, cell: str, measure: str) -> Estimate | None:
        """Return mean and interval over seeds."""
        values = self.by_seed(cell, measure)
        return estimate([*values.values()]) if values else None

    def mean(self, cell: str, measure: str) -> float | None:
        """Return the mean over seeds."""
        found = self.estimate(cell, measure)
        return found.mean if found else None

    def counts(self, cell: str) -> Counts:
        """Return the counts of a cell."""
        done, failed = len(self.rows_of(cell)), len(self.rows_of(cell, FAILED))
        own = next((each.seeds for each in self.plan.cells if each.label == cell), None) or self.seeds
        return Counts(done, failed, max(own - done - failed, 0))

    def total(self) -> Counts:
        """Return the counts of all cells."""
        counts = [self.counts(cell) for cell in self.cells]
        return Counts(*(sum(each[i] for each in counts) for i in range(3)))

    def published(self, cell: str, measure: str) -> Number | None:
        """Return the number of the paper that a cell is compared with."""
        beside = next((each.beside for each in self.plan.cells if each.label == cell), "")
        return self.experiment.published.numbers.get((beside, measure))

    def table(self) -> Table:
        """Return our numbers with their intervals, the paper's next to them where it prints any, and the counts."""
        columns: dict[tuple[str, bool], str] = {}
        for measure in self.experiment.measures:
            columns[measure, False] = MEASURES[measure].title
            if any(self.published(cell, measure) for cell in self.cells):
                columns[measure, True] = "paper"
        rows = [(cell, *(self._text(cell, *key) for key in columns), *self.counts(cell)) for cell in self.cells]
        title = f"{self.experiment.name}, {self.scale} scale: {self.experiment.title}"
        return Table(title, ("cell", *columns.values(), "runs", "failed", "left out"), tuple(rows))

    def _text(self, cell: str, measure: str, from_paper: bool) -> Text:
        how, ours = MEASURES[measure], self.estimate(cell, measure)
        if from_paper:
            return how.printed(self.published(cell, measure))
        return ours.text(how.form, how.factor) if ours else None

    def verdicts(self) -> list[Verdict]:
        """Return which of the claims about the small scale hold."""
        return [self._judge(claim) for claim in self.experiment.claims] if self.scale == "small" else []

    def _judge(self, claim: Claim) -> Verdict:
        seeds = sorted({row.seed for row in self.rows})
        answers = [claim.holds(lambda *key, s=seed: self.by_seed(*key).get(s)) for seed in seeds]
        known = [holds for holds in answers if holds is not None]
        return Verdict(claim.text, claim.holds(self.mean), sum(known), len(known), self._difference(claim))

    def _difference(self, claim: Claim) -> Estimate | None:
        """Return by how much the first cell of a comparison is above the second, run by run of the same seed."""
        if claim.rule != "above" or len(claim.of) != 2:  # not of two cells
            return None
        first, second = (self.by_seed(*key) for key in claim.of)
        differences = [first[seed] - second[seed] for seed in sorted(first.keys() & second.keys())]
        return estimate(differences) if differences else None

    def as_json(self) -> dict[str, Any]:
        """Return the table with unrounded numbers."""
        return {
            "experiment": self.experiment.name,
            "scale": self.scale,
            "cells": [self._cell_as_json(cell) for cell in self.cells],
            "claims": [verdict.as_json() for verdict in self.verdicts()],
        }

    def _cell_as_json(self, cell: str) -> dict[str, Any]:
        measures = self.experiment.measures
        ours = {measure: asdict(found) for measure in measures if (found := self.estimate(cell, measure))}
        paper = {measure: theirs._asdict() for measure in measures if (theirs := self.published(cell, measure))}
        return {"cell": cell, **self.counts(cell)._asdict(), "ours": ours, "paper": paper}


def with_ratios(rows: Sequence[Row], reference: str) -> list[Row]:
    """Return the rows with time and passes relative to those of the reference of the same seed and preset."""
    references = {(row.seed, row.config.get("preset")): row for row in rows if row.cell.endswith(reference)}
    found = []
    for row in rows:
        other = references.get((row.seed, row.config.get("preset")))
        if other and row.status == other.status == DONE:
            time, passes = (row.numbers[name] / other.numbers[name] for name in ("seconds_per_epoch", "passes"))
            row = replace(row, numbers={**row.numbers, "time_ratio": time, "pass_ratio": passes})
        found.append(row)
    return found
