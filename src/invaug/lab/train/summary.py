"""The numbers of a run: what it is measured on while it trains, and what it ends with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from invaug.lab.config import methods
from invaug.lab.config.schema import Config
from invaug.lab.data.load import Dataset
from invaug.lab.data.splits import Split
from invaug.lab.evaluate.measure import averaged, clean, under_each
from invaug.lab.run.record import read
from invaug.lab.train import ranks
from invaug.lab.train.course import all_settled
from invaug.lab.train.problem import epsilons, final_epsilon
from invaug.lab.train.sets import transform_sets
from invaug.lab.train.state import Training


@dataclass(frozen=True)
class Measured:
    """Which images a run is measured on, by the names its record gives them."""

    every_epoch: Mapping[str, Split]
    at_the_end: Mapping[str, Split]

    @classmethod
    def held_out(cls, dataset: Dataset) -> Measured:
        """Return the validation and test images that there are, measured after every epoch."""
        splits = {"val": dataset.val, "test": dataset.test}
        return cls({name: split for name, split in splits.items() if split is not None}, {})


def measure(
    config: Config, training: Training, splits: Mapping[str, Split], progress: Callable[..., None] | None = None
) -> dict[str, float]:
    """Return clean loss and accuracy on each of the splits; the first rank measures for all."""

    def found() -> dict[str, float]:
        numbers: dict[str, float] = {}
        for name, split in splits.items():
            options: dict[str, Any] = {"workers": config.data.workers, "progress": progress}
            each = clean(training.network, training.finish, split, **options)
            numbers |= {f"{name}_{key}": value for key, value in each.items()}
        return numbers

    return ranks.on_first_rank(training.fabric, found)


def summarise(config: Config, dataset: Dataset, folder: Path, training: Training, split: Split) -> dict[str, Any]:
    """Return accuracy clean and under the set, gamma, and whether the constraint holds.

    Args:
        split: The images on which accuracy under the set is measured.
    """
    rows = read(folder)
    names, sets = zip(*transform_sets(config), strict=True)
    options = {"n_draws": max(4 // len(sets), 1), "seed": config.run.seed, "workers": config.data.workers}
    each = under_each(training.network, training.finish, split, sets, **options)
    last, transformed = rows[-1], averaged(each)["uniform"]
    levels = epsilons(config)  # one that a rule sets is neither met nor violated
    given = [slack for slack, level in zip(last["slack"], levels, strict=False) if isinstance(level, float)]
    holds = all(slack is None or slack <= 0 for slack in given)  # no slack means no bound
    feasible = holds if given and methods.holds_epsilon(config.method.name) else None
    measured = ("test_accuracy", "test_loss", "val_accuracy", "val_loss")
    return {
        "run": str(folder),
        "method": config.method.name,
        "data": dataset.name,
        "model": config.model.name,
        "preset": config.method.preset,
        "epochs": len(rows),
        **{key: last[key] for key in measured if key in last},
        "transformed_accuracy": transformed["accuracy"],
        "transformed_loss": transformed["loss"],
        "gamma": last["gamma"],
        "slack": last["slack"],
        "epsilon": final_epsilon(config, rows),
        "epsilon_chosen": len(given) < len(last["slack"]),
        "settled": all_settled(rows),
        "constraint_loss": last["constraint_loss"],
        "feasible": feasible,
        "seconds": sum(row["seconds"] for row in rows),
        **({"families": dict(zip(names, each, strict=True))} if config.families else {}),
    }


def table_row(summary: Mapping[str, Any]) -> dict[str, str]:
    """Return a summary as texts for the table a run ends with."""
    accuracy = summary.get("test_accuracy", summary.get("val_accuracy"))
    return {
        "method": methods.label(summary["method"]),
        "clean": "-" if accuracy is None else f"{accuracy:.1%}",
        "transformed": f"{summary['transformed_accuracy']:.1%}",
        "gamma": " ".join(f"{gamma:.3f}" for gamma in summary["gamma"]) or "-",
        "constraint": _constraint_text(summary),
        "seconds": f"{summary['seconds']:.0f}",
    }


def _constraint_text(summary: Mapping[str, Any]) -> str:
    """Return whether the constraints hold, with each loss next to its epsilon; with many of them, how many do not."""
    pairs = zip(summary["constraint_loss"], summary["slack"], strict=True)
    known = [(loss, loss - slack) for loss, slack in pairs if None not in (loss, slack, summary["feasible"])]
    verdict = {True: "feasible", False: "violated", None: "-"}[summary["feasible"]]
    if summary["epsilon_chosen"]:
        is_known = summary["settled"] and summary["epsilon"] is not None
        verdict = f"epsilon {summary['epsilon']:.2f}, by its rule" if is_known else "epsilon not settled yet"
    numbers = " ".join(f"{loss:.2f} vs {level:.4g}" for loss, level in known)
    if len(known) > 2:
        above, levels = sum(loss > level for loss, level in known), {f"{level:.4g}" for _, level in known}
        numbers = f"{above} of {len(known)} above {levels.pop() if len(levels) == 1 else 'their epsilons'}"
    return f"{verdict} ({numbers})" if numbers else verdict
