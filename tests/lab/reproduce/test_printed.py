"""The numbers printed in docs/reproduce.md, computed again from the rows with scipy alone."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from scipy import stats

from invaug.lab.reproduce.experiments import all_experiments
from tests.support.experiments import NAMES, ROOT

Rows = list[dict[str, Any]]
PERCENT = ("test_accuracy", "held_out_accuracy", "train_error", "test_error", "gap", "geometric", "geometric_first")
DIGITS = {"geometric": 1, "geometric_first": 1, **dict.fromkeys(PERCENT[:5], 2), "extreme": 2, "extreme_first": 2}
DIGITS |= dict.fromkeys(("seconds_per_epoch", "time_ratio", "pass_ratio"), 2)
OTHER_COLUMNS = ("cell", "paper", "runs", "failed", "left out")
WITH_ROWS = [name for name in NAMES if (ROOT / "results" / name / "small.jsonl").is_file()]
RULES: dict[str, Callable[..., float]] = {
    "above": lambda a, b: a - b,
    "below": lambda a, b: b - a,
    "rising": lambda *values: values[-1] - values[0],
    "falling": lambda *values: values[0] - values[-1],
    "smallest": lambda first, *others: np.min(others) - first,
}


def section(name: str) -> str:
    text = (ROOT / "docs" / "reproduce.md").read_text(encoding="utf-8")
    return re.search(rf"^## {name}: .*?(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)[0]


def tables(name: str) -> Iterator[list[dict[str, str]]]:
    """Yield the tables of a section, each as one dictionary per row; of columns of one name, the first counts."""
    for table in re.findall(r"(?:^\|.*\n)+", section(name), re.MULTILINE):
        head, _, *body = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table.splitlines()]
        yield [dict(zip(reversed(head), reversed(cells), strict=True)) for cells in body]


def numbers(name: str, cell: str, measure: str) -> dict[int, float]:
    """Return a number of every finished run, by seed."""
    lines = (ROOT / "results" / name / "small.jsonl").read_text(encoding="utf-8").splitlines()
    rows: Rows = [row for row in map(json.loads, lines) if row["status"] == "done"]
    found = {row["seed"]: row["numbers"] for row in rows if row["cell"] == cell}
    if measure in ("time_ratio", "pass_ratio"):
        reference = {row["seed"]: row["numbers"] for row in rows if row["cell"] == "trivial"}
        key = {"time_ratio": "seconds_per_epoch", "pass_ratio": "passes"}[measure]
        return {seed: each[key] / reference[seed][key] for seed, each in found.items()}
    return {seed: each[measure] for seed, each in found.items() if measure in each}


def interval(values: list[float]) -> tuple[float, float]:
    """Return mean and half width of Student's 95 % interval."""
    if len(values) == 1:
        return values[0], float("nan")
    low, high = stats.ttest_1samp(values, 0).confidence_interval(0.95) if np.ptp(values) else (values[0], values[0])
    return float(np.mean(values)), (high - low) / 2


def close(printed: str, value: float, measure: str) -> bool:
    """Whether a printed number is the value, as far as its digits go."""
    unit, digits = 100 if measure in PERCENT else 1, DIGITS.get(measure, 3)
    return abs(float(printed) - unit * value) <= 0.5001 * 10**-digits


def test_the_experiments_of_the_paper_have_rows():
    assert len(WITH_ROWS) >= 16


@pytest.mark.parametrize("name", WITH_ROWS)
def test_every_mean_and_interval_is_that_of_scipy(name):
    experiment = all_experiments()[name]
    printed = {row["cell"]: row for row in next(tables(name))}
    titles = [
        title for title in next(iter(printed.values())) if title not in ("cell", "paper", "runs", "failed", "left out")
    ]
    measures = dict(zip(reversed(titles), experiment.measures, strict=True))
    checked = 0
    for cell, row in printed.items():
        for title, measure in measures.items():
            values = [*numbers(name, cell, measure).values()]
            assert (row[title] == "–") == (not values)
            if values:
                mean, half = interval(values)
                shown = row[title].split(" ± ")
                assert close(shown[0], mean, measure), (cell, title)
                assert len(shown) == 1 if np.isnan(half) else close(shown[1], half, measure), (cell, title)
                checked += 1
    assert checked >= len(printed)


@pytest.mark.parametrize("name", [name for name in WITH_ROWS if all_experiments()[name].claims])
def test_every_verdict_is_that_of_scipy(name):
    _, printed = tables(name)
    small = {cell.label for cell in all_experiments()[name].plans["small"].cells}
    claims = [claim for claim in all_experiments()[name].claims if {cell for cell, _ in claim.of} <= small]
    assert [row["claim"].replace("\\", "") for row in printed] == [claim.text for claim in claims]
    for claim, row in zip(claims, printed, strict=True):
        columns = [numbers(name, *key) for key in claim.of]
        seeds = sorted(set.intersection(*map(set, columns)))
        limits = [claim.limit] if claim.limit is not None else []
        mean, half = interval([float(RULES[claim.rule](*(c[seed] for c in columns), *limits)) for seed in seeds])
        measure = claim.of[0][1]
        unit = " points" if measure in PERCENT else ""
        effect, spread = row["effect"], row["± (no smaller effect could be shown)"]
        assert effect.endswith(unit)
        assert close(effect.removesuffix(unit), mean, measure), claim.text
        assert close(spread.removesuffix(unit), half, measure), claim.text
        assert row["seeds"] == str(len(seeds))
        few = f": {len(seeds)} seeds" if len(seeds) < 5 else ""
        expected = "shown" if mean > half else "the opposite is shown" if mean < -half else f"not decided{few}"
        assert row["verdict"] == expected, claim.text
