"""The experiments, one per table and figure of the paper: read from `experiments.toml`."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

from invaug.lab.errors import UserError, nearest
from invaug.lab.jobs import job
from invaug.lab.reproduce import full, small
from invaug.lab.reproduce.cells import (
    BarChart,
    Cell,
    Claim,
    Experiment,
    LineChart,
    Scale,
    ScalePlan,
    expand,
    read_table,
)


@cache
def all_experiments() -> dict[str, Experiment]:
    """Return every experiment by its name, in the order of the paper's argument."""
    at_full, at_small = full.cells(), small.plans()
    found = {}
    for name, entry in read_table("experiments").items():
        published = entry.pop("full")
        plan = ScalePlan(tuple(at_full[name]), **{**published, "notes": tuple(published.get("notes", ()))})
        found[name] = _experiment(name, entry, {"full": plan, "small": at_small[name]})
    return found


def _experiment(name: str, entry: dict[str, Any], plans: Mapping[Scale, ScalePlan]) -> Experiment:
    return Experiment(
        name,
        entry["title"],
        entry["found"],
        tuple(entry["measures"]),
        plans,
        tuple(_claims(entry, [cell.label for cell in plans["small"].cells])),
        tuple(LineChart(**chart) for chart in entry.get("lines", ())),
        tuple(BarChart(**chart) for chart in entry.get("bars", ())),
        tuple(entry.get("keeps", ())),
        entry.get("reference", ""),
    )


def _claims(entry: dict[str, Any], labels: list[str]) -> Iterator[Claim]:
    for a, b in entry.get("above", ()):
        yield Claim(f"{a} is above {b}", "above", ((a, "test_accuracy"), (b, "test_accuracy")))
    for claim in entry.get("claims", ()):
        of = tuple(each for pattern in claim["of"] for each in expand(pattern, labels))
        yield Claim(claim["text"], claim["rule"], of, claim.get("limit"))
    for label in labels if "smallest_gamma" in entry else ():
        truth = entry["smallest_gamma"][label.rpartition("-")[2]]
        gammas = sorted(entry["measures"], key=lambda measure: measure != f"gamma.{truth}")
        yield Claim(f"{label}: gamma is smallest for {truth}", "smallest", tuple((label, gamma) for gamma in gammas))


def find(name: str) -> Experiment:
    """Return an experiment by name."""
    if name == "tune":
        raise UserError("tune is a command of its own: invaug tune cifar10, over the levels of the paper")
    if name not in all_experiments():
        raise UserError(f"unknown experiment {name}, {nearest(name, all_experiments())}")
    return all_experiments()[name]


class Place(NamedTuple):
    """Where a cell is trained: of equal cells, where the first is."""

    home: str
    label: str


def identity(cell: Cell) -> str:
    """Return what makes two cells the same training."""
    return job.identity(cell.settings, cell.unit_inputs)


@cache
def places(scale: Scale) -> Mapping[str, Place]:
    """Return where each training of a scale is, by its identity."""
    found: dict[str, Place] = {}
    for experiment in all_experiments().values():
        if not experiment.reference:  # seconds are measured in runs of their own, the methods in turn
            for cell in experiment.plans[scale].cells:
                found.setdefault(identity(cell), Place(experiment.name, cell.label))
    return found


def place(experiment: Experiment, scale: Scale, cell: Cell) -> Place:
    """Return where a cell of an experiment is trained."""
    own = Place(experiment.name, cell.label)
    return own if experiment.reference else places(scale).get(identity(cell), own)
