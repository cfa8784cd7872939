"""The experiments at a scale that two cores finish: read from `small.toml`, which also describes the protocol."""

from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from invaug.lab.reproduce import full
from invaug.lab.reproduce.cells import Cell, ScalePlan, Settings, read_table

SEEDS = 3
PLANTED: Settings = {
    "families": full.families(full.SHIFTS["authors-code"]),
    "epochs": 3,
    "batch_size": 250,
    "share": 0.34,
    # the published 5e-4, scaled up as the number of steps falls from 400 epochs of 60 to 3 of 240: gammas compare
    "dual_lr": 0.016667,
    "workers": 0,
}
"""How the planted symmetries differ from full scale: all images, fewer epochs."""


def plans() -> dict[str, ScalePlan]:
    """Return the plan of every experiment."""
    table = read_table("small")
    cells: dict[str, list[Cell]] = {"table-synthetic": planted_cells(), "table-epsilon-rule": rule_cells()}
    for name, entry in table["plans"].items():
        if "same_as" in entry:
            cells[name] = [c for c in cells[entry["same_as"]] if fnmatchcase(c.label, entry.get("only", "*"))]
        elif "cells" in entry:
            cells[name] = [_cell(label, entry, table) for label in entry["cells"]]
    return {
        name: ScalePlan(tuple(cells[name]), entry.get("seeds", SEEDS), tuple(entry.get("notes", ())))
        for name, entry in table["plans"].items()
    }


def _cell(label: str, entry: Mapping[str, Any], table: Mapping[str, Any]) -> Cell:
    """Return a cell of the table: what all share, then its dataset, then its experiment, then its own settings."""
    given = entry["cells"][label]
    shape = table["datasets"][given.get("data", table["shared"]["data"])]
    settings = {**table["shared"], **shape, **entry.get("base", {}), **given}
    beside = settings.pop("beside", "")
    if settings["method"] == "uniform":
        settings.pop("n_steps")  # there is no chain
    return Cell(label, settings, beside)


def planted_cells() -> list[Cell]:
    """Return the cells of table-synthetic: those of the paper, uniform draws, in fewer epochs."""
    cells = [full.planted_cell(*name, "paper") for name in full.PLANTED]
    return [replace(c, label=c.label.removesuffix("-paper"), settings={**c.settings, **PLANTED}) for c in cells]


def rule_cells() -> list[Cell]:
    """Return the cells of table-epsilon-rule; gamma is smallest for the planted symmetry (a test compares)."""
    named = zip(full.PLANTED, planted_cells(), strict=True)
    pairs = [full.rule_pair(cell, {full.TRUTHS[name[-1]]}) for name, cell in named if name in full.RULED]
    return [cell for pair in pairs for cell in pair]
