"""The progress of many jobs: one bar over all of them on a terminal, a line for each that ends elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from invaug.lab.jobs.job import Job
from invaug.lab.jobs.measures import HELD_OUT, TEST
from invaug.lab.train.display import Screen

Cost = Callable[[Job], float]


@dataclass
class Bar:
    """What moves the bar: a job counts as much as it is estimated to cost."""

    progress: Progress
    task: Any
    console: Screen
    quiet: bool
    ended: int
    most: int
    cost: Cost
    running: dict[str, float] = field(default_factory=dict)
    """How much of each running job is done, by its name."""
    behind: float = 0.0
    """The cost of those that have ended."""

    def start(self, job: Job) -> None:
        """Name the job."""
        self.running[job.name] = 0.0
        self._show()

    def skip(self, job: Job) -> None:
        """Count a job that was done before."""
        self.behind += self.cost(job)
        self.ended += 1

    def reached(self, job: Job, epochs: int) -> None:
        """Move to where a job is."""
        self.running[job.name] = min(epochs / max(job.config().train.epochs, 1), 1.0) * self.cost(job)
        self._show()

    def done(self, job: Job) -> None:
        """Move to the end of the job, and say what came of it."""
        self.running.pop(job.name, None)
        self.behind += self.cost(job)
        self.ended += 1
        self._show()
        if not self.quiet:
            found = job.found()
            said = _said(found["numbers"]) if found else "failed"
            line = f"{self.ended} of {self.most}: {job.name}: {said}"
            self.console.print(line, highlight=False, soft_wrap=True)

    def _show(self) -> None:
        now = f"run {min(self.ended + 1, self.most)} of {self.most}: {', '.join(self.running)}"
        self.progress.update(self.task, completed=self.behind + sum(self.running.values()), name=now)


def _said(numbers: Mapping[str, float]) -> str:
    new = TEST if "test_accuracy" in numbers else HELD_OUT
    return f"{new.replace('_', ' ')} {numbers[f'{new}_accuracy']:.2%}"


@contextmanager
def bar(most: int, ended: int, total: float, cost: Cost, console: Screen, quiet: bool) -> Iterator[Bar]:
    """Show the progress of the jobs that are not done yet, of a cost in all."""
    with Progress(
        TextColumn("{task.fields[name]}", markup=False), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn(),
        console=console, transient=True, disable=quiet or not console.is_terminal,
    ) as progress:  # fmt: skip
        task = progress.add_task("", total=total, name="loading")
        yield Bar(progress, task, console, quiet, ended, most, cost)
