"""What the user asked for: which experiment, which of its cells, where everything goes, what it costs, what is done."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from invaug.checks import nearest
from invaug.lab.config.build import build
from invaug.lab.config.resolve import Facts, resolve
from invaug.lab.errors import UserError
from invaug.lab.jobs.job import Job
from invaug.lab.jobs.measures import passes
from invaug.lab.jobs.verbs import resume_command
from invaug.lab.reproduce import experiments, rows
from invaug.lab.reproduce.cells import SCALES, Cell, Experiment, Scale, ScalePlan, read_table

RESULTS = Path("results")
COSTS = read_table("costs")
PER_RUN = 2.0  # seconds to load and save


@dataclass(frozen=True)
class Request:
    """An experiment at a scale; the names of the other fields are those of the flags."""

    experiment: Experiment
    scale: Scale = "small"
    seeds: int | None = None
    out: Path = Path("runs/reproduce")
    results: Path = RESULTS
    data_dir: Path | None = None
    jobs: int = 1
    on: str = "processes"
    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    @property
    def plan(self) -> ScalePlan:
        """The plan at the scale."""
        return self.experiment.plans[self.scale]

    @property
    def n_seeds(self) -> int:
        """How many seeds each cell gets."""
        return self.seeds or self.plan.seeds

    @property
    def folder(self) -> Path:
        """Where the report goes, and the runs that belong to no other experiment."""
        return self.out / f"{self.experiment.name}-{self.scale}"

    def cells(self) -> list[Cell]:
        """Return the cells that were asked for."""
        labels = [cell.label for cell in self.plan.cells]
        for pattern in (*self.only, *self.without):
            if not any(fnmatchcase(label, pattern) for label in labels):
                listed = f"see invaug reproduce {self.experiment.name} --dry-run"
                hint = nearest(pattern, labels, otherwise=listed)
                raise UserError(f"no cell of {self.experiment.name} is called {pattern}, {hint}")

        def matches(label: str, patterns: tuple[str, ...]) -> bool:
            return any(fnmatchcase(label, pattern) for pattern in patterns)

        wanted = [cell for cell in self.plan.cells if matches(cell.label, self.only or ("*",))]
        return [cell for cell in wanted if not matches(cell.label, self.without)]

    def run_of(self, cell: Cell, seed: int) -> Job:
        """Return a run."""
        home, label = experiments.place(self.experiment, self.scale, cell)
        folder = self.out / f"{home}-{self.scale}" / label / f"seed-{seed}"
        return Job(cell.label, cell.settings, seed, folder)

    def runs(self) -> list[Job]:
        """Return the runs, one seed of every cell before the next seed: a stopped experiment has whole columns."""
        cells = [(cell, self.seeds or cell.seeds or self.plan.seeds) for cell in self.cells()]
        return [self.run_of(cell, seed) for seed in range(self.most_seeds) for cell, n in cells if seed < n]

    @property
    def most_seeds(self) -> int:
        """The largest number of seeds that a cell has, or is asked to have."""
        return max(self.n_seeds, self.plan.seeds, *(cell.seeds or 0 for cell in self.plan.cells))

    def command(self) -> str:
        """Return the command that resumes."""
        flags = {key: value for key, value in vars(self).items() if key != "experiment"}
        return resume_command("reproduce", self.experiment.name, flags, {**vars(Request), "scale": None})

    def seconds(self, *, shared: bool = True) -> float:
        """Return about how long its runs take, with or without those that an earlier experiment shares."""
        cells = [cell for cell in self.cells() if shared or not self.home_of(cell)]
        n_seeds = (self.seeds or cell.seeds or self.plan.seeds for cell in cells)
        return sum(n * estimate_seconds(cell.settings, self.scale) for n, cell in zip(n_seeds, cells, strict=True))

    def home_of(self, cell: Cell) -> str | None:
        """Return the earlier experiment that has the same training, and its label there."""
        home, label = experiments.place(self.experiment, self.scale, cell)
        return f"{home} {label}" if home != self.experiment.name else None


def find_scale(name: str) -> Scale:
    """Return a scale by name."""
    for scale in SCALES:
        if scale == name:
            return scale
    raise UserError(f"unknown scale {name}, {nearest(name, SCALES)}")


def check(request: Request) -> None:
    """Refuse what cannot run before anything is trained; nothing else is ever trained instead."""
    if request.plan.lacks:
        raise UserError(f"{request.experiment.name} has no {request.scale} scale: {request.plan.lacks}")
    if not request.cells():
        raise UserError(f"nothing is left of {request.experiment.name}: --without leaves out every cell")


def estimate_seconds(settings: Mapping[str, Any], scale: Scale) -> float:
    """Return about how long a training takes, by `costs.toml`."""
    given, speeds = build(settings), COSTS["microseconds"][scale]
    data, name = given.data, given.data.name.partition("+")[0]
    there, tested, n_classes = COSTS["images"].get(name, COSTS["images"]["unknown"])
    asked = data.per_class * n_classes if data.per_class else data.images or there * data.fraction
    used = min(asked, there)
    train, test = used * (1 - data.val_fraction), used * data.val_fraction or tested
    config = resolve(given, Facts(("",) * n_classes, int(train)))
    one = 1e-6 * speeds.get(config.model.name, speeds["unknown"])
    return float(PER_RUN + one * (train * int(config.train.epochs) * passes(config) + train + test))


def read_rows(request: Request) -> list[rows.Row]:
    """Return the rows of the results whose config is that of their cell."""
    known = {cell.label: _comparable(cell.settings) for cell in request.plan.cells}
    found = rows.read(rows.path_of(request.results, request.experiment.name, request.scale))
    return [row for row in found if _comparable(row.config) == known.get(row.cell)]


def _comparable(config: Mapping[str, Any]) -> str:
    return json.dumps(rows.essentials(config), sort_keys=True)
