"""The progress of an experiment: one bar over all runs on a terminal, a line a run elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from invaug.lab import atomic
from invaug.lab import config as configs
from invaug.lab.display import Screen
from invaug.lab.reproduce import costs
from invaug.lab.reproduce.asked import Asked
from invaug.lab.reproduce.cells import Scale
from invaug.lab.reproduce.jobs import OUTCOME, Job


@dataclass
class Bar:
    """What moves the bar: a run counts as much as it is estimated to cost."""

    progress: Progress
    task: Any
    console: Screen
    quiet: bool
    number: int
    most: int
    scale: Scale
    step: float = 0.0
    at: float = 0.0

    def start(self, job: Job) -> None:
        """Name the run."""
        self.number += 1
        self.at = self.progress.tasks[0].completed
        self.step = costs.seconds(job.cell, self.scale) / max(configs.build(job.cell.settings).epochs, 1)
        name = f"{job.cell.label} seed {job.seed}"
        self.progress.update(self.task, name=f"run {self.number} of {self.most}: {name}")

    def epoch_done(self) -> None:
        """Move by an epoch."""
        self.progress.advance(self.task, self.step)

    def done(self, job: Job) -> None:
        """Move to the end of the run, and say what came of it."""
        self.progress.update(self.task, completed=self.at + costs.seconds(job.cell, self.scale))
        if not self.quiet:
            ended = atomic.read_json(job.folder / OUTCOME)
            said = f"test {ended['numbers']['test_accuracy']:.2%}" if ended else "failed"
            line = f"{self.number} of {self.most}: {job.cell.label} seed {job.seed}: {said}"
            self.console.print(line, highlight=False, soft_wrap=True)


@contextmanager
def bar(jobs: list[Job], waiting: list[Job], asked: Asked, console: Screen, quiet: bool) -> Iterator[Bar]:
    """Show the progress of the runs that are not done yet."""
    with Progress(
        TextColumn("{task.fields[name]}", markup=False), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn(),
        console=console, transient=True, disable=quiet or not console.is_terminal,
    ) as progress:  # fmt: skip
        total = sum(costs.seconds(job.cell, asked.scale) for job in waiting)
        task = progress.add_task("", total=total, name="loading")
        yield Bar(progress, task, console, quiet, len(jobs) - len(waiting), len(jobs), asked.scale)
