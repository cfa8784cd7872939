"""Names, plans and rows of the paper's experiments, for tests."""

from __future__ import annotations

from pathlib import Path

from invaug.lab.reproduce.cells import SCALES, ScalePlan
from invaug.lab.reproduce.experiments import find
from invaug.lab.reproduce.rows import DONE, Row

ROOT = Path(__file__).parents[2]
NAMES = (
    "pilot",
    "table-1",
    "table-2",
    "figure-epsilon",
    "figure-uniform",
    "figure-steps",
    "figure-steps-dual",
    "table-synthetic",
    "figure-dual",
    "figure-epochs",
    "figure-frequency",
    "figure-levels",
    "table-runtime",
    "table-views",
    "table-bias",
    "table-epsilon-rule",
)
EVERY = [(name, scale) for name in NAMES for scale in SCALES]


def plan_of(name: str, scale: str) -> ScalePlan:
    return find(name).plans[scale]


def row(cell: str, seed: int = 0, status: str = DONE, **numbers: float) -> Row:
    return Row(cell, seed, status, {}, numbers, {} if status == DONE else {"reason": "<b>|reason"})
