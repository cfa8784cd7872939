"""The outcome of an experiment, from its rows alone: the table next to the paper's, and what they say of its claims."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any, NamedTuple

from invaug.lab.config.methods import is_constrained
from invaug.lab.report.document import Cell as Text
from invaug.lab.report.document import Table
from invaug.lab.report.intervals import Estimate, estimate
from invaug.lab.reproduce.cells import Cell, Experiment, Number, Scale
from invaug.lab.reproduce.claims import Verdict, judge
from invaug.lab.reproduce.measures import MEASURES as MEASURES
from invaug.lab.reproduce.rows import DONE, FAILED, Row


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
        """Return what the seeds say about the claims on cells of this scale."""
        planned = {cell.label for cell in self.plan.cells}
        claims = [claim for claim in self.experiment.claims if planned.issuperset(cell for cell, _ in claim.of)]
        return [judge(claim, [self.by_seed(*key) for key in claim.of]) for claim in claims]

    def weak_trials(self) -> list[str]:
        """Return a note for every task on which no augmentation is best, or better than all plain augmentation."""
        return [note for cell in self.plan.cells if method_of(cell) == "none" for note in self._weak(cell)]

    def _weak(self, without: Cell) -> Iterator[str]:
        own, others = self._accuracy(without), [cell for cell in self.plan.cells if same_task(cell, without)]
        plain = [cell for cell in others if not is_constrained(method_of(cell))]
        for arms, name in ((others, "everything else"), (plain, "all plain augmentation")):
            means = [mean for cell in arms if cell != without and (mean := self._accuracy(cell)) is not None]
            if own is not None and means and own > max(means):
                better = f"on {without.settings['data']} training without augmentation has a higher mean than {name}"
                yield f"weak trial: {better}, so this says little about augmentations"
                return

    def _accuracy(self, cell: Cell) -> float | None:
        """Return the mean accuracy of a cell on new images."""
        found = self.mean(cell.label, "test_accuracy")
        return self.mean(cell.label, "held_out_accuracy") if found is None else found

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


def method_of(cell: Cell) -> str:
    """Return the method of a cell; published presets have the paper's."""
    return str(cell.settings.get("method", "constrained"))


def same_task(cell: Cell, other: Cell) -> bool:
    """Whether two cells train the same network on the same data."""
    return all(cell.settings.get(key) == other.settings.get(key) for key in ("data", "model"))


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
