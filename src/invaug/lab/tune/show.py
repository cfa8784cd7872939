"""What a search found: as a table, as plain values, and as lines for people."""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from invaug.lab.report import tables
from invaug.lab.report.document import Table
from invaug.lab.tune.search import Trial, format_value

MEASURES = {
    "held_out_accuracy": ("held-out accuracy (%)", ".2f", 100.0),
    "held_out_loss": ("held-out loss", ".3f", 1.0),
    "gamma": ("γ", ".3f", 1.0),
}
"""The numbers of a fold: title, format and factor of their columns."""


def as_table(trials: Sequence[Trial], best: Trial | None) -> Table:
    """Return every combination, the most accurate first."""
    rows = []
    for trial in sorted(trials, key=lambda trial: -trial.mean("held_out_accuracy", -1.0)):
        estimates = [(trial.estimate(key), form, factor) for key, (_, form, factor) in MEASURES.items()]
        numbers = [found.text(form, factor) if found else None for found, form, factor in estimates]
        counts = (len(trial.numbers("held_out_accuracy")), len(trial.failures))
        rows.append((*map(format_value, trial.params.values()), *numbers, *counts, "best" if trial is best else ""))
    titles = (*(title for title, *_ in MEASURES.values()), "folds", "failed", "")
    return Table("Cross-validation", (*(trials[0].params if trials else ()), *titles), tuple(rows))


def as_json(trials: Sequence[Trial], best: Trial | None) -> dict[str, Any]:
    """Return everything as plain values."""
    every = [
        {"params": trial.params, **{key: trial.numbers(key) for key in MEASURES}, "failed": trial.failures}
        for trial in trials
    ]
    return {"best": best.params if best else None, "trials": every}


def summary_lines(
    trials: Sequence[Trial], best: Trial | None, data: str, config: Path, page: str | None
) -> Iterator[str]:
    """Return the table in columns, the best combination, how to train with it, and where the report is."""
    yield from tables.in_columns(as_table(trials, best))
    if best and (accuracy := best.estimate("held_out_accuracy")):
        yield f"best: {best.name}, {accuracy.text('.2f', 100)} % of held-out images classified correctly"
        words = ["invaug", "train", *([] if data == "digits" else [data]), "--config", str(config)]
        yield f"train with: {shlex.join(words)}"
    if page:
        yield f"report: {page}"
