"""What the user asked for: which experiment, which of its cells, where everything lies."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from invaug.lab.errors import UserError, nearest
from invaug.lab.reproduce import costs, plans
from invaug.lab.reproduce.cells import SCALES, Cell, Experiment, Plan, Scale

RUNS, RESULTS = Path("runs/reproduce"), Path("results")


@dataclass(frozen=True)
class Asked:
    """An experiment at a scale."""

    experiment: Experiment
    scale: Scale = "small"
    n_seeds: int | None = None
    out: Path = RUNS
    results: Path = RESULTS
    data_dir: Path | None = None
    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    at_once: int = 1
    on: str = "processes"

    @property
    def plan(self) -> Plan:
        """The plan at the scale."""
        return self.experiment.plans[self.scale]

    @property
    def seeds(self) -> int:
        """How many seeds each cell gets."""
        return self.n_seeds or self.plan.seeds

    @property
    def folder(self) -> Path:
        """Where the page of the experiment goes, and the runs that are no other's."""
        return self.out / f"{self.experiment.name}-{self.scale}"

    def folder_of(self, cell: Cell, seed: int) -> Path:
        """Return the folder of a run."""
        home, label = plans.place(self.experiment, self.scale, cell)
        return self.out / f"{home}-{self.scale}" / label / f"seed-{seed}"

    def cells(self) -> list[Cell]:
        """Return the cells that are wanted."""
        labels = [cell.label for cell in self.plan.cells]
        for pattern in (*self.only, *self.without):
            if not any(fnmatchcase(label, pattern) for label in labels):
                raise UserError(f"no cell of {self.experiment.name} is called {pattern}, {nearest(pattern, labels)}")
        return [cell for cell in self.plan.cells if _matches(cell, self.only or ("*",), self.without)]

    def command(self) -> str:
        """Return the command that goes on."""
        words = ["invaug", "reproduce", self.experiment.name, "--scale", self.scale]
        given = {
            "seeds": self.n_seeds, "out": self.out, "results": self.results, "data-dir": self.data_dir,
            "jobs": self.at_once, "on": self.on,
        }  # fmt: skip
        usual = {"out": RUNS, "results": RESULTS, "jobs": 1, "on": "processes"}
        for flag, value in given.items():
            if value is not None and value != usual.get(flag):
                words += [f"--{flag}", str(value)]
        for flag, patterns in (("only", self.only), ("without", self.without)):
            for pattern in patterns:
                words += [f"--{flag}", pattern]
        return shlex.join(words)

    def seconds(self) -> float:
        """Return about how long all of its runs take, those too that other experiments share."""
        return self.seeds * sum(costs.seconds(cell, self.scale) for cell in self.cells())

    def own_seconds(self) -> float:
        """Return about how long the runs take that no experiment before it has."""
        mine = [
            cell for cell in self.cells() if plans.place(self.experiment, self.scale, cell)[0] == self.experiment.name
        ]
        return self.seeds * sum(costs.seconds(cell, self.scale) for cell in mine)


def _matches(cell: Cell, only: Sequence[str], without: Sequence[str]) -> bool:
    wanted = any(fnmatchcase(cell.label, pattern) for pattern in only)
    return wanted and not any(fnmatchcase(cell.label, pattern) for pattern in without)


def scale_of(name: str) -> Scale:
    """Return a scale by name."""
    found: Iterator[Scale] = (scale for scale in SCALES if scale == name)
    scale = next(found, None)
    if scale is None:
        raise UserError(f"unknown scale {name}, {nearest(name, SCALES)}")
    return scale


def check(asked: Asked) -> None:
    """Refuse what the laboratory cannot do, before anything is trained; it never trains something else instead."""
    if asked.plan.lacks:
        raise UserError(f"{asked.experiment.name} cannot run yet: {asked.plan.lacks}")
    cells = asked.cells()
    if not cells:
        raise UserError(f"nothing is left of {asked.experiment.name}: --without leaves out every cell")
    for cell in cells:
        if cell.lacks:
            way_out = f"run the others with --without {shlex.quote(cell.label)}"
            raise UserError(f"{asked.experiment.name} cannot run {cell.label} yet: {cell.lacks}; {way_out}")
