"""The experiments, one per table and figure of the paper: read from `experiments.toml`, and from `small.toml`.

The latter holds the plans that two cores finish, and describes their protocol.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from invaug.lab.errors import UserError, nearest
from invaug.lab.jobs import job
from invaug.lab.reproduce import full, proof
from invaug.lab.reproduce.cells import PUBLISHED, Cell, Chart, Claim, Experiment, Scale, ScalePlan, expand, read_table

SMALL_SEEDS = 3
Place = tuple[str, str]
"""Where a cell is trained: an experiment and a label. Of equal cells, that of the first."""


@cache
def all_experiments() -> dict[str, Experiment]:
    """Return every experiment by its name: the paper's, then those of the protocol."""
    return {**paper_experiments(), **{each.name: each for each in proof.experiments()}}


@cache
def paper_experiments() -> dict[str, Experiment]:
    """Return the experiments of the paper by name, in the order of its argument."""
    at_full, at_small = full.cells(), small_plans()
    found = {}
    for name, entry in read_table("experiments").items():
        plans: dict[Scale, ScalePlan] = {"full": ScalePlan(at_full[name], **entry["full"]), "small": at_small[name]}
        entry["above"] = [*entry.get("above", ()), *_pairs(entry.get("pair", ()), [c.label for c in at_full[name]])]
        # with seeds of their own, cells have too few for a claim
        claims = list(_claims(entry, [cell.label for cell in at_small[name].cells if cell.seeds is None]))
        charts = [Chart(**chart) for chart in entry.get("charts", ())]
        own = {key: entry[key] for key in ("title", "found", "measures", "keeps", "reference") if key in entry}
        found[name] = Experiment(name, **own, plans=plans, claims=claims, charts=charts, published=PUBLISHED[name])
    return found


def _pairs(ends: Sequence[str], labels: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the labels that end with the first word, each with the one that ends with the second in its place."""
    for label in labels if ends else ():
        other = label.removesuffix(ends[0]) + ends[1]
        if label.endswith(ends[0]) and other in labels:
            yield label, other


def _claims(entry: Mapping[str, Any], labels: list[str]) -> Iterator[Claim]:
    for a, b in entry.get("above", ()):
        yield Claim(f"{a} is above {b}", "above", ((a, "test_accuracy"), (b, "test_accuracy")))
    for claim in entry.get("claims", ()):
        of = tuple(each for pattern in claim["of"] for each in expand(pattern, labels))
        yield Claim(claim["text"], claim["rule"], of, claim.get("limit"))
    for label in labels if "smallest_gamma" in entry else ():
        truth = entry["smallest_gamma"][label.rpartition("-")[2]]
        gammas = sorted(entry["measures"], key=lambda measure: measure != f"gamma.{truth}")
        yield Claim(f"{label}: gamma is smallest for {truth}", "smallest", tuple((label, gamma) for gamma in gammas))


def small_plans() -> dict[str, ScalePlan]:
    """Return the plan of every experiment at the small scale."""
    table = read_table("small")
    planted = _planted_cells(table["planted"])
    synthetic = [*planted.values(), *_long_planted_cells(**table["planted-long"])]
    cells = {"table-synthetic": synthetic, "table-epsilon-rule": list(_rule_cells(planted))}
    for name, entry in table["plans"].items():
        if "same_as" in entry:
            cells[name] = [c for c in cells[entry["same_as"]] if fnmatchcase(c.label, entry.get("only", "*"))]
        elif "cells" in entry:
            cells[name] = [_small_cell(label, entry, table) for label in entry["cells"]]
    return {
        name: ScalePlan(cells[name], entry.get("seeds", SMALL_SEEDS), entry.get("notes", ()))
        for name, entry in table["plans"].items()
    }


def _small_cell(label: str, entry: Mapping[str, Any], table: Mapping[str, Any]) -> Cell:
    """Return a cell of the table: what all share, then its dataset, then its experiment, then its own settings."""
    given = entry["cells"][label]
    shape = table["datasets"][given.get("data", table["shared"]["data"])]
    settings = {**table["shared"], **shape, **entry.get("base", {}), **given}
    beside = settings.pop("beside", "")
    if settings["method"] == "uniform":
        settings.pop("n_steps")  # there is no chain
    return Cell(label, settings, beside)


def _planted_cells(budget: Mapping[str, Any]) -> dict[tuple[str, ...], Cell]:
    """Return the cells of table-synthetic: those of the paper, uniform draws, in fewer epochs."""
    changes = {"families": full.families(full.SHIFTS["authors-code"]), **budget}
    cells = {name: full.planted_cell(*name, "paper") for name in full.PLANTED}
    return {
        name: replace(cell, label="-".join(name), settings={**cell.settings, **changes}) for name, cell in cells.items()
    }


def _long_planted_cells(
    budget: Mapping[str, Any], seeds: Mapping[str, int], once: Mapping[str, Mapping[str, Any]]
) -> Iterator[Cell]:
    """Return the cells of table-synthetic with the MLP that are as published except for their length, or wholly."""
    cells = {label: cell for cell in _planted_cells(budget).values() if "-mlp-" in (label := cell.label)}
    for label, cell in cells.items():
        yield replace(cell, label=f"{budget['epochs']}-epochs-{label}", seeds=seeds.get(label, seeds["default"]))
    for label, changes in once.items():
        settings = {**cells[label].settings, **changes}
        yield replace(cells[label], label=f"{changes['epochs']}-epochs-{label}", settings=settings, seeds=1)


def _rule_cells(planted: Mapping[tuple[str, ...], Cell]) -> Iterator[Cell]:
    """Return the cells of table-epsilon-rule; gamma is smallest for the planted symmetry (a test compares)."""
    for name, cell in planted.items():
        if name in full.RULED:
            yield from full.rule_pair(cell, {full.TRUTHS[name[-1]]})


def find(name: str) -> Experiment:
    """Return an experiment by name."""
    if name == "tune":
        raise UserError("tune is a command of its own: invaug tune cifar10, over the levels of the paper")
    if name not in all_experiments():
        raise UserError(f"unknown experiment {name}, {nearest(name, all_experiments())}")
    return all_experiments()[name]


@cache
def _homes(scale: Scale) -> Mapping[Place, Place]:
    """Return where each cell of a scale is trained that has an equal before it."""
    first: dict[str, Place] = {}
    found = {}
    for experiment in all_experiments().values():
        if not experiment.reference:  # seconds are measured in runs of their own, the methods in turn
            for cell in experiment.plans[scale].cells:
                own = (experiment.name, cell.label)
                found[own] = first.setdefault(job.identity(cell.settings), own)
    return found


def place(experiment: Experiment, scale: Scale, cell: Cell) -> Place:
    """Return where a cell of an experiment is trained."""
    own = (experiment.name, cell.label)
    return _homes(scale).get(own, own)
