"""What came out: a row per run in results/NAME/SCALE.jsonl, and from these alone the table beside the paper's."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from invaug.lab.errors import UserError
from invaug.lab.report.intervals import Estimate, estimate
from invaug.lab.report.tables import Cell as Text
from invaug.lab.report.tables import Table
from invaug.lab.reproduce.cells import USUAL, Claim, Experiment, Scale
from invaug.lab.reproduce.paper import PUBLISHED, Number
from invaug.lab.run import atomic
from invaug.lab.terminal import plain

DONE, FAILED = "done", "failed"
MOST = 16 << 20  # bytes of a results file


class Measure(NamedTuple):
    """How a number is shown."""

    title: str
    factor: float = 1.0
    form: str = ".2f"


MEASURES: Mapping[str, Measure] = {
    "test_accuracy": Measure("test accuracy (%)", 100),
    "held_out_accuracy": Measure("held-out accuracy (%)", 100), "held_out_loss": Measure("held-out loss", form=".3f"),
    "train_error": Measure("training error (%)", 100),
    "test_error": Measure("test error (%)", 100), "gap": Measure("gap (%)", 100),
    "train_loss": Measure("training loss", form=".3f"), "test_loss": Measure("test loss", form=".3f"),
    "constraint_loss": Measure("constraint loss", form=".3f"), "gamma": Measure("γ", form=".3f"),
    "gamma_quarter": Measure("γ at 1/4", form=".3f"), "gamma_half": Measure("γ at 1/2", form=".3f"),
    "gamma_three_quarters": Measure("γ at 3/4", form=".3f"), "gamma_highest": Measure("highest γ", form=".3f"),
    "gamma.rotation": Measure("γ of rotation", form=".3f"),
    "gamma.translation": Measure("γ of translation", form=".3f"), "gamma.scale": Measure("γ of scale", form=".3f"),
    "entropy_first": Measure("entropy, first epoch", form=".3f"), "entropy": Measure("entropy, last epoch", form=".3f"),
    "geometric_first": Measure("geometric, first epoch (%)", 100, ".1f"),
    "geometric": Measure("geometric, last epoch (%)", 100, ".1f"),
    "extreme_first": Measure("extremes × uniform, first epoch"), "extreme": Measure("extremes × uniform, last epoch"),
    "seconds": Measure("seconds", form=".1f"), "seconds_per_epoch": Measure("seconds an epoch"),
    "time_ratio": Measure("time × TrivialAugment"),
    "pass_ratio": Measure("passes × TrivialAugment"),
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One run, without anything of the machine it ran on."""

    cell: str
    seed: int
    status: str
    config: Mapping[str, Any]
    numbers: Mapping[str, float]
    more: Mapping[str, Any]
    """The reason of a failure, versions, and what the experiment keeps beside numbers."""

    def line(self) -> str:
        """Return the row as JSON."""
        known = {"cell": self.cell, "seed": self.seed, "status": self.status}
        return json.dumps({**known, "config": self.config, "numbers": self.numbers, **self.more})


def essentials(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a run without where its files lie, and without those that most runs have."""
    plain = {key: value for key, value in config.items() if key not in ("data_dir", "workers", "seed")}
    if plain.get("method") == "uniform":
        plain.pop("n_steps", None)  # rows of earlier versions have one, which did nothing
    if "preset" not in plain:
        plain = {key: value for key, value in plain.items() if USUAL.get(key) != value}
    return {key: Path(value).name if key in ("data", "policy") else value for key, value in plain.items()}


def path_of(results: Path, name: str, scale: Scale) -> Path:
    """Return the file of an experiment's rows."""
    return results / name / f"{scale}.jsonl"


def write(path: Path, rows: Iterable[Row]) -> None:
    """Replace the file by one with these rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic.write_text(path, "".join(f"{row.line()}\n" for row in rows))


def read(path: Path) -> list[Row]:
    """Return the rows of a file, none where there is none."""
    if not path.is_file():
        return []
    if path.is_symlink() or path.stat().st_size > MOST:
        raise UserError(f"{path} is not a file of results: it is a link, or over {MOST:,} bytes")
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return [_parsed(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]


def _parsed(path: Path, number: int, line: str) -> Row:
    try:
        content = json.loads(line)
        named = {key: content.pop(key) for key in ("cell", "seed", "status", "config", "numbers")}
        # rows may come from elsewhere: a line break in a name would end the row of a table
        shown = {key: plain(value) if isinstance(value, str) else value for key, value in content.items()}
        row = Row(**{**named, "cell": plain(named["cell"])}, more=shown)
        rules = [
            isinstance(row.cell, str), type(row.seed) is int, row.status in (DONE, FAILED),
            isinstance(row.config, dict), all(_is_number(value) for value in row.numbers.values()),
        ]  # fmt: skip
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        rules = [False]
    if not all(rules):
        raise UserError(f"{path} is damaged in line {number}: not the row of a run; run the experiment again")
    return row


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


class Verdict(NamedTuple):
    """Whether a claim holds in the mean over seeds (None where runs are missing), and in how many seeds by itself."""

    text: str
    holds: bool | None
    in_seeds: int
    of_seeds: int
    difference: Estimate | None = None
    """Of a claim about two cells: by how much, with the interval of runs of the same seed."""

    @property
    def beyond_chance(self) -> bool | None:
        """Whether the interval of the difference leaves zero out; None where there is none."""
        ends = self.difference.interval if self.difference else None
        return None if ends is None else ends[0] > 0 or ends[1] < 0

    @property
    def word(self) -> str:
        """What it comes to."""
        if self.holds is None:
            return "not run yet"
        if self.beyond_chance is False:
            return "not decided: above in the mean, within the noise" if self.holds else "not shown, within the noise"
        if self.holds and 2 * self.in_seeds < self.of_seeds:
            return "not decided: true of the means, of fewer than half of the seeds"
        return "shown" if self.holds else "not shown"

    def said(self) -> str:
        """Return the verdict in words, with the numbers behind it."""
        if self.holds is None:
            return self.word
        by = f"by {self.difference.text('+.2f', 100)} points, " if self.difference else ""
        return f"{self.word} ({by}in {self.in_seeds} of {self.of_seeds} seeds)"

    def as_json(self) -> dict[str, Any]:
        """Return the verdict as plain values."""
        by = {"mean": self.difference.mean, "half": self.difference.half} if self.difference else None
        seeds = {"seeds_it_holds_in": self.in_seeds, "seeds": self.of_seeds}
        return {"claim": self.text, "holds": self.holds, "verdict": self.word, "difference": by, **seeds}


class Outcome:
    """The rows of an experiment at a scale, and what they say."""

    def __init__(self, experiment: Experiment, scale: Scale, rows: Sequence[Row], seeds: int | None = None) -> None:
        self.experiment, self.scale = experiment, scale
        self.plan = experiment.plans[scale]
        self.rows = with_ratios(rows, experiment.reference) if experiment.reference else list(rows)
        self.seeds = seeds or self.plan.seeds

    @property
    def cells(self) -> list[str]:
        """The cells of the plan, then those that only the rows know."""
        return list(dict.fromkeys([*(cell.label for cell in self.plan.cells), *(row.cell for row in self.rows)]))

    def values(self, cell: str, number: str) -> list[float]:
        """Return a number of every run of a cell that has it, by seed."""
        rows = sorted(self._of(cell, DONE), key=lambda row: row.seed)
        return [row.numbers[number] for row in rows if number in row.numbers]

    def estimate(self, cell: str, number: str) -> Estimate | None:
        """Return mean and interval over seeds."""
        values = self.values(cell, number)
        return estimate(values) if values else None

    def mean(self, cell: str, number: str) -> float | None:
        """Return the mean over seeds."""
        found = self.estimate(cell, number)
        return found.mean if found else None

    def counts(self, cell: str) -> tuple[int, int, int]:
        """Return how many runs of a cell are done, failed, and left out of those that were planned."""
        done, failed = len(self._of(cell, DONE)), len(self._of(cell, FAILED))
        return done, failed, max(self.seeds - done - failed, 0)

    def total(self) -> tuple[int, int, int]:
        """Return the counts over all cells."""
        done, failed, left = zip(*map(self.counts, self.cells), strict=True) if self.cells else ((0,), (0,), (0,))
        return sum(done), sum(failed), sum(left)

    def _of(self, cell: str, status: str) -> list[Row]:
        return [row for row in self.rows if row.cell == cell and row.status == status]

    def published(self, cell: str, number: str) -> Number | None:
        """Return the paper's number a cell stands beside."""
        beside = {each.label: each.beside for each in self.plan.cells}.get(cell, "")
        return PUBLISHED[self.experiment.name].numbers.get((beside, number)) if self._is_known() else None

    def _is_known(self) -> bool:
        return self.experiment.name in PUBLISHED

    def table(self) -> Table:
        """Return our numbers with their intervals, the paper's beside them where it prints some, and the counts."""
        shown = self.experiment.numbers
        printed = [n for n in shown if any(self.published(cell, n) for cell in self.cells)]
        columns = ["cell"]
        for number in shown:
            columns += [MEASURES[number].title, *(["paper"] if number in printed else [])]
        rows = [self._line(cell, printed) for cell in self.cells]
        title = f"{self.experiment.name}, {self.scale} scale: {self.experiment.title}"
        return Table(title, (*columns, "runs", "failed", "left out"), tuple(rows))

    def _line(self, cell: str, printed: Sequence[str]) -> tuple[Text, ...]:
        line: list[Text] = [cell]
        for number in self.experiment.numbers:
            found, measure = self.estimate(cell, number), MEASURES[number]
            line.append(found.text(measure.form, measure.factor) if found else None)
            if number in printed:
                line.append(_printed(self.published(cell, number), measure))
        return (*line, *self.counts(cell))

    def verdicts(self) -> list[Verdict]:
        """Return what the small scale must show, and whether it does."""
        if self.scale != "small":
            return []
        return [self._verdict(claim) for claim in self.experiment.claims]

    def _verdict(self, claim: Claim) -> Verdict:
        each = [claim.holds(self._of_seed(seed)) for seed in sorted({row.seed for row in self.rows})]
        in_seeds = [holds for holds in each if holds is not None]
        return Verdict(claim.text, claim.holds(self), sum(in_seeds), len(in_seeds), self.difference(claim))

    def _of_seed(self, seed: int) -> Outcome:
        return Outcome(self.experiment, self.scale, [row for row in self.rows if row.seed == seed])

    def difference(self, claim: Claim) -> Estimate | None:
        """Return by how much the first cell of a claim about two is above the second: the same seeds, run by run."""
        if not claim.pair:
            return None
        first, second = (
            {row.seed: row.numbers[claim.number] for row in self._of(cell, DONE) if claim.number in row.numbers}
            for cell in claim.pair
        )
        shared = [first[seed] - second[seed] for seed in sorted(first.keys() & second.keys())]
        return estimate(shared) if shared else None

    def as_json(self) -> dict[str, Any]:
        """Return the table with whole numbers."""
        cells = []
        for cell in self.cells:
            done, failed, left_out = self.counts(cell)
            ours = {n: self.estimate(cell, n) for n in self.experiment.numbers}
            theirs = {n: self.published(cell, n) for n in self.experiment.numbers}
            cells.append({
                "cell": cell, "done": done, "failed": failed, "left_out": left_out,
                "ours": {n: {"mean": e.mean, "half": e.half, "n": e.n} for n, e in ours.items() if e},
                "paper": {n: t._asdict() for n, t in theirs.items() if t},
            })  # fmt: skip
        shows = [verdict.as_json() for verdict in self.verdicts()]
        return {"experiment": self.experiment.name, "scale": self.scale, "cells": cells, "claims": shows}


def _printed(number: Number | None, measure: Measure) -> str | None:
    if number is None:
        return None
    form = measure.form if measure.form != ".2f" else "g"  # as printed
    return format(number.mean, form) + (f" ± {number.spread:g}" if number.spread is not None else "")


def with_ratios(rows: Sequence[Row], reference: str) -> list[Row]:
    """Return the rows with time and passes beside those of the reference of the same seed and preset."""
    base = {(row.seed, row.config.get("preset")): row for row in rows if row.cell.endswith(reference)}
    found = []
    for row in rows:
        other = base.get((row.seed, row.config.get("preset")))
        if other and row.status == other.status == DONE:
            seconds, passes = (row.numbers[n] / other.numbers[n] for n in ("seconds_per_epoch", "passes"))
            row = replace(row, numbers={**row.numbers, "time_ratio": seconds, "pass_ratio": passes})
        found.append(row)
    return found
