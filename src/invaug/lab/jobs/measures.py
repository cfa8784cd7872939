"""The numbers of a finished run, from its record."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from invaug.lab.config.levels import is_rule
from invaug.lab.config.methods import METHODS
from invaug.lab.config.schema import Config

Row = Mapping[str, Any]
GEOMETRIC = ("Rotate", "ShearX", "ShearY", "TranslateX", "TranslateY")
BLENDS = ("Color", "Contrast", "Brightness", "Sharpness")
PLAIN = ("Identity", "AutoContrast", "Equalize")
"""Operations without a level."""
EXTREME = 5 / 6  # of the way from doing nothing to the largest magnitude
TEST, HELD_OUT = "test", "held_out"
"""New images, as the numbers call them."""
TRAIN = "train_clean"
"""The clean training images, as the record calls them."""
POINTS = 21  # of a curve
BINS = 6  # of the levels in the results


def numbers(config: Config, rows: Sequence[Row]) -> dict[str, float]:
    """Return everything the tables need, from the epochs of the record."""
    last, seconds = rows[-1], [row["seconds"] for row in rows]
    found = {
        **_measured(last),
        "seconds": sum(seconds),
        "seconds_per_epoch": _mean(seconds[1:] or seconds),
        "passes": sum(row["passes"] for row in rows),
        **_gammas(config, rows),
    }
    if last["constraint_loss"]:
        found["constraint_loss"] = _mean(last["constraint_loss"])
    if last["kept"] and not config.families:
        for suffix, row in (("_first", rows[0]), ("", last)):
            found |= {f"{name}{suffix}": value for name, value in _sampled(config, row).items()}
    return {name: round(value, 6) for name, value in found.items() if value is not None and math.isfinite(value)}


def _measured(row: Row) -> dict[str, float]:
    """Return loss, accuracy and error on clean images, of the test or held-out and of the training images."""
    found: dict[str, float] = {}
    for split, name in ((TEST, TEST), ("val", HELD_OUT), (TRAIN, "train")):
        if f"{split}_accuracy" in row:
            loss, accuracy = row[f"{split}_loss"], row[f"{split}_accuracy"]
            found |= {f"{name}_loss": loss, f"{name}_accuracy": accuracy, f"{name}_error": 1 - accuracy}
    new = TEST if "test_accuracy" in found else HELD_OUT
    return {**found, "gap": found["train_accuracy"] - found[f"{new}_accuracy"]}


def majority(targets: Sequence[int]) -> float:
    """Return the share of the most frequent class: what a guess gets right.

    >>> majority([0, 1, 1, 2])
    0.5
    """
    return max(Counter(targets).values()) / len(targets)


def passes(config: Config, gamma: float = 1.0) -> float:
    """Return the passes that a training image costs: forward 1, backward 2, a scored proposal 1.

    Args:
        config: A resolved config.
        gamma: The sum of all gammas, which decides how many images one view per image transforms, and so scores.
    """
    row, method = METHODS[config.method.name], config.method
    if not row.is_constrained:
        return 3.0
    share, n_constraints = float(method.share), max(len(config.families), 1)
    proposals = method.n_steps + 1 if method.n_steps else 0
    if method.views == "one" and row.keeps_clean:
        transformed = proposals * max(gamma / (1 + gamma) / n_constraints, share) if proposals else share
        clean = share if is_rule(method.epsilon) and row.holds_epsilon else 0.0
        return 3.0 + n_constraints * (transformed + clean)
    return 3 * row.keeps_clean + share * n_constraints * method.n_views * (proposals + 3)


def _mean(values: Sequence[float | None]) -> float:
    there = [value for value in values if value is not None]
    return sum(there) / len(there) if there else math.nan


def _gammas(config: Config, rows: Sequence[Row]) -> dict[str, float]:
    """Return gamma at the end of each quarter and its highest; with several families only at the end."""
    if not rows[-1]["gamma"]:
        return {}
    if config.families:
        ends = zip(config.families, rows[-1]["gamma"], strict=True)
        return {f"gamma.{family}": gamma for family, gamma in ends}
    gammas = [row["gamma"][0] for row in rows]
    quarters = {"gamma_quarter": 0.25, "gamma_half": 0.5, "gamma_three_quarters": 0.75, "gamma": 1.0}
    at = {name: gammas[math.ceil(part * len(gammas)) - 1] for name, part in quarters.items()}
    return {**at, "gamma_highest": max(gammas)}


def _sampled(config: Config, row: Row) -> dict[str, float]:
    """Return what an epoch kept: entropy, the share of geometric operations, extreme levels relative to uniform."""
    shares, histograms = operations(row), row["kept"][0]
    graded = {op: counts for op, counts in histograms.items() if op not in PLAIN}
    total = sum(map(sum, graded.values()))
    least = int(not config.method.identity)
    extreme = [(op, counts, _extremes(op, len(counts), least)) for op, counts in graded.items()]
    here = sum(counts[level] for _, counts, levels in extreme for level in levels)
    # as often as if each operation's levels were drawn uniformly
    uniform = sum(sum(counts) * len(levels) / (len(counts) - least) for _, counts, levels in extreme)
    return {
        "entropy": row["entropy"][0],
        "geometric": sum(shares.get(op, 0.0) for op in GEOMETRIC),
        "extreme": here / uniform if total and uniform else math.nan,
    }


def _extremes(op: str, n_levels: int, least: int) -> list[int]:
    """Return the levels that change images most: near both ends for blends, which do nothing half-way."""
    top = n_levels - 1
    far = [abs(2 * level / top - 1) if op in BLENDS else level / top for level in range(n_levels)]
    return [level for level in range(least, n_levels) if far[level] > EXTREME]


def operations(row: Row) -> dict[str, float]:
    """Return the share of each operation among those kept."""
    counts = {op: sum(levels) for op, levels in row["kept"][0].items()}
    total = max(sum(counts.values()), 1)
    return {op: round(count / total, 4) for op, count in counts.items()}


def levels(row: Row) -> dict[str, list[float]]:
    """Return the share of each part of an operation's levels among those kept."""
    return {op: _binned(counts) for op, counts in row["kept"][0].items() if op not in PLAIN}


def _binned(counts: Sequence[int]) -> list[float]:
    total, n = max(sum(counts), 1), len(counts)
    edges = [round(i * n / BINS) for i in range(BINS + 1)]
    return [round(sum(counts[a:b]) / total, 4) for a, b in pairwise(edges)]


def extras(config: Config, rows: Sequence[Row]) -> dict[str, Any]:
    """Return the curve of gamma, and the operations and levels kept in the first and the last epoch."""
    if not rows[-1]["gamma"]:
        return {}
    count = min(POINTS, len(rows))
    chosen = sorted({round(i * (len(rows) - 1) / max(count - 1, 1)) for i in range(count)})
    curve = {
        "epoch": [rows[i]["epoch"] for i in chosen],
        "gamma": [[round(gamma, 4) for gamma in rows[i]["gamma"]] for i in chosen],
    }
    if config.families:
        return {"curve": curve}
    ends = {"first": rows[0], "last": rows[-1]}
    return {
        "curve": curve,
        "kept": {name: operations(row) for name, row in ends.items()},
        "levels": {name: levels(row) for name, row in ends.items()},
    }
