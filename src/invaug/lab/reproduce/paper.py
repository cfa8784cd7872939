"""The paper's printed numbers, in its own units: accuracies in percent, times in seconds.

Only what is printed: most figures have axes and no numbers, and their entries say so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

NO_NUMBERS = "the figure prints no numbers"


class Number(NamedTuple):
    """A printed number and what stands after its ±, if something does."""

    mean: float
    spread: float | None = None


@dataclass(frozen=True)
class Published:
    """Where something is in the paper and what is printed there, by entry and by what is measured."""

    place: str
    spread: str = ""
    """What its ± is."""
    numbers: Mapping[tuple[str, str], Number] = field(default_factory=dict)
    note: str = ""


def _entries(number: str, rows: Mapping[str, tuple[float, ...]]) -> dict[tuple[str, str], Number]:
    return {(entry, number): Number(*values) for entry, values in rows.items()}


def _table_1() -> dict[tuple[str, str], Number]:
    columns = [f"{space} {method}" for space in ("standard", "wide") for method in ("trivial", "deepaa", "constrained")]
    rows = {
        "cifar10 wrn-40-2": ((96.55, 0.11), (96.43, 0.09), (96.76, 0.14), (96.24, 0.19), (96.27, 0.19), (97.05, 0.18)),
        "cifar10 wrn-28-10": ((97.46, 0.10), (97.57, 0.15), (97.74, 0.10), (97.51, 0.20), (97.27, 0.10), (97.85, 0.17)),
        "cifar100 wrn-40-2": ((79.92, 0.13), (79.45, 0.42), (80.83, 0.31), (79.96, 0.45), (79.36, 0.27), (81.19, 0.34)),
        "cifar100 wrn-28-10": (
            (83.40, 0.16), (83.77, 0.29), (83.53, 0.16), (84.11, 0.24), (83.09, 0.30), (84.89, 0.12),
        ),
        "svhn wrn-28-10": ((98.05, 0.03), (98.04, 0.08), (98.15, 0.09), (98.07, 0.03), (97.93, 0.03), (98.01, 0.04)),
    }  # fmt: skip
    found = {f"{row} {c}": pair for row, pairs in rows.items() for c, pair in zip(columns, pairs, strict=True)}
    return _entries("test_accuracy", found)


def _synthetic() -> dict[tuple[str, str], Number]:
    columns = ("r180", "r90", "translated", "scaled")
    gammas = {
        "mnist mlp": ((0.000, 0.004, 3.224, 0.035), (1.344, 0.038, 0.289, 0.032), (1.800, 0.045, 4.206, 0.004)),
        "mnist cnn": ((0.000, 0.002, 2.724, 0.012), (1.218, 0.009, 0.439, 0.006), (2.026, 0.049, 4.029, 0.003)),
        "fashion-mnist mlp": ((0.000, 0.037, 4.470, 1.599), (3.572, 1.934, 0.939, 0.717), (4.144, 2.653, 3.472, 0.754)),
        "fashion-mnist cnn": ((0.000, 0.107, 3.301, 1.352), (3.572, 1.426, 0.515, 0.441), (4.144, 2.332, 2.725, 0.904)),
    }
    return {
        (f"{block} {column}", f"gamma.{family}"): Number(value)
        for block, rows in gammas.items()
        for family, values in zip(("rotation", "translation", "scale"), rows, strict=True)
        for column, value in zip(columns, values, strict=True)
    }


def _epsilon_rule() -> dict[tuple[str, str], Number]:
    rows = {
        "mnist mlp translated": ((93.5, 0.2), (94.9, 0.1)),
        "mnist mlp r90": ((96.95, 0.03), (97.28, 0.07)),
        "mnist mlp r180": ((93.18, 0.03), (95.35, 0.03)),
        "mnist cnn translated": ((96.00, 0.02), (97.79, 0.09)),
        "mnist cnn r90": ((98.15, 0.09), (98.5, 0.1)),
        "mnist cnn r180": ((96.3, 0.3), (97.2, 0.3)),
        "fashion-mnist mlp translated": ((76.5, 0.5), (81.2, 0.2)),
        "fashion-mnist mlp r90": ((81.8, 0.1), (84.78, 0.06)),
        "fashion-mnist mlp r180": ((76.1, 0.7), (83.85, 0.21)),
    }
    kinds = ("same", "adjusted")
    found = {f"{row} {kind}": pair for row, pairs in rows.items() for kind, pair in zip(kinds, pairs, strict=True)}
    return _entries("test_accuracy", found)


SUBSAMPLED = {
    "0.01 trivial": (19.17, 0.38), "0.01 constrained": (20.11, 0.69), "0.025 trivial": (34.67, 0.34),
    "0.025 constrained": (37.85, 0.23), "0.05 trivial": (48.77, 0.46), "0.05 constrained": (51.01, 1.74),
    "0.1 trivial": (60.77, 0.47), "0.1 constrained": (62.45, 0.58),
}  # fmt: skip
SECONDS = {"trivial": (12.6,), "deepaa": (13.3,), "2 steps": (32.5,), "4 steps": (51.2,)}
VIEWS = {"1": (81.19, 0.34), "2": (81.58,), "4": (81.34,), "8": (81.25,), "16": (80.33,)}
BIAS = {"none": (78.42, 0.31), "sampled": (75.19, 0.54), "identity-mix": (80.01, 0.26)}

PUBLISHED: Mapping[str, Published] = {
    "pilot": Published("appendix, hyperparameters: not an experiment of the paper", note=NO_NUMBERS),
    "table-1": Published("Table 1 (table:results)", "95 % interval, 5 runs", _table_1()),
    "table-2": Published(
        "Table 2 (table:results-imnet)", "standard deviation, 3 runs", _entries("test_accuracy", SUBSAMPLED)
    ),
    "figure-epsilon": Published("the figure of constraint levels (plot:const-level)", note=NO_NUMBERS),
    "figure-uniform": Published("the figure of uniform sampling (plot:uniform)", note=NO_NUMBERS),
    "figure-steps": Published(
        "the figures of sampling steps (plot:daug:steps-ablation, a:plot:daug:steps-ablation)", note=NO_NUMBERS
    ),
    "figure-steps-dual": Published("appendix, dual variables by steps (a:plot:dual-steps)", note=NO_NUMBERS),
    "table-synthetic": Published(
        "Table 3 (table:synthetic-invariance-results)", "", _synthetic(),
        "F-MNIST, full rotation: translation and scale are the same numbers for MLP and CNN in the paper",
    ),
    "figure-dual": Published("appendix, dual variables by constraint level (a:plot:dual-level)", note=NO_NUMBERS),
    "figure-epochs": Published("appendix, early stopping (plot:daug:epochs)", note=NO_NUMBERS),
    "figure-frequency": Published(
        "appendix, sampled transformations (a:plot:proportion, a:plot:proportion2)", note=NO_NUMBERS
    ),
    "figure-levels": Published("appendix, sampled levels (a:plot:levels-2, a:plot:levels-16)", note=NO_NUMBERS),
    "table-runtime": Published(
        "appendix, runtime (table:runtime)", "", _entries("seconds_per_epoch", SECONDS),
        "an RTX 3090; DeepAA's search of 11 hours is not in it",
    ),
    "table-views": Published(
        "appendix, batch mode (a:table:m-ablation)", "", _entries("test_accuracy", VIEWS),
        "m = 1 is the entry of Table 1, with its interval",
    ),
    "table-bias": Published(
        "appendix, bias (table:augmentation-is-bad)", "confidence interval, 5 runs", _entries("test_accuracy", BIAS)
    ),
    "table-epsilon-rule": Published(
        "appendix, constraint level specification (a:table-epsilon-heuristic)", "not said", _epsilon_rule()
    ),
}  # fmt: skip
