"""What the user asked for: which experiment, which of its cells, and where everything goes."""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from invaug.lab.errors import UserError, nearest
from invaug.lab.jobs.resume import resume_command
from invaug.lab.reproduce import experiments
from invaug.lab.reproduce.cells import SCALES, Cell, Experiment, Scale, ScalePlan
from invaug.lab.reproduce.costs import estimate_seconds

RUNS, RESULTS = Path("runs/reproduce"), Path("results")
DEFAULTS: dict[str, Any] = {"out": RUNS, "results": RESULTS, "jobs": 1, "on": "processes"}


@dataclass(frozen=True)
class Request:
    """An experiment at a scale."""

    experiment: Experiment
    scale: Scale = "small"
    n_seeds: int | None = None
    out: Path = RUNS
    results: Path = RESULTS
    data_dir: Path | None = None
    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    jobs: int = 1
    on: str = "processes"

    @property
    def plan(self) -> ScalePlan:
        """The plan at the scale."""
        return self.experiment.plans[self.scale]

    @property
    def seeds(self) -> int:
        """How many seeds each cell gets."""
        return self.n_seeds or self.plan.seeds

    @property
    def folder(self) -> Path:
        """Where the report goes, and the runs that belong to no other experiment."""
        return self.out / f"{self.experiment.name}-{self.scale}"

    def folder_of(self, cell: Cell, seed: int) -> Path:
        """Return the folder of a run."""
        home, label = experiments.place(self.experiment, self.scale, cell)
        return self.out / f"{home}-{self.scale}" / label / f"seed-{seed}"

    def cells(self) -> list[Cell]:
        """Return the cells that were asked for."""
        labels = [cell.label for cell in self.plan.cells]
        for pattern in (*self.only, *self.without):
            if not any(fnmatchcase(label, pattern) for label in labels):
                raise UserError(f"no cell of {self.experiment.name} is called {pattern}, {nearest(pattern, labels)}")

        def matches(label: str, patterns: tuple[str, ...]) -> bool:
            return any(fnmatchcase(label, pattern) for pattern in patterns)

        wanted = [cell for cell in self.plan.cells if matches(cell.label, self.only or ("*",))]
        return [cell for cell in wanted if not matches(cell.label, self.without)]

    def command(self) -> str:
        """Return the command that resumes."""
        flags = {
            "scale": self.scale,
            "seeds": self.n_seeds,
            "out": self.out,
            "results": self.results,
            "data_dir": self.data_dir,
            "jobs": self.jobs,
            "on": self.on,
            "only": self.only,
            "without": self.without,
        }
        return resume_command("reproduce", self.experiment.name, flags, DEFAULTS)

    def seconds(self, *, shared: bool = True) -> float:
        """Return about how long its runs take, with or without those that an earlier experiment shares."""
        cells = [cell for cell in self.cells() if shared or not self.home_of(cell)]
        return self.seeds * sum(estimate_seconds(cell.settings, self.scale) for cell in cells)

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
        raise UserError(f"{request.experiment.name} cannot run yet: {request.plan.lacks}")
    if not request.cells():
        raise UserError(f"nothing is left of {request.experiment.name}: --without leaves out every cell")
