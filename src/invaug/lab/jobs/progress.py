"""What many jobs show: one bar over all of them on a terminal, a line for each that ends elsewhere, the outcome."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from invaug.lab.jobs.job import Job
from invaug.lab.jobs.measures import HELD_OUT, TEST
from invaug.lab.run import record
from invaug.lab.train.display import Screen
from invaug.lab.train.signals import Stopped

Cost = Callable[[Job], float]


@dataclass
class Bar:
    """Moves the bar; a job counts as much as it is estimated to cost."""

    progress: Progress
    task: Any
    console: Screen
    most: int
    cost: Cost
    ended: int = 0
    running: dict[str, float] = field(default_factory=dict)
    """How much of each running job is done, by its name."""
    done_cost: float = 0.0

    def skip(self, job: Job) -> None:
        """Count a job that was done before."""
        self.done_cost += self.cost(job)
        self.ended += 1

    def advance(self, job: Job) -> None:
        """Name the job, and move to the epoch that it has reached by its record."""
        path = job.folder / record.NAME
        epochs = path.read_bytes().count(b"\n") if path.is_file() else 0
        self.running[job.name] = min(epochs / job.config().train.epochs, 1.0) * self.cost(job)
        self._show()

    def done(self, job: Job) -> None:
        """Move to the end of the job, and print its accuracy."""
        self.running.pop(job.name, None)
        self.skip(job)
        self._show()
        found = job.found()
        result = _accuracy(found["numbers"]) if found else "failed"
        line = f"{self.ended} of {self.most}: {job.name}: {result}"
        self.console.print(line, highlight=False, soft_wrap=True)

    def _show(self) -> None:
        now = f"run {min(self.ended + 1, self.most)} of {self.most}: {', '.join(self.running)}"
        self.progress.update(self.task, completed=self.done_cost + sum(self.running.values()), name=now)


def _accuracy(numbers: Mapping[str, float]) -> str:
    new = TEST if "test_accuracy" in numbers else HELD_OUT
    return f"{new.replace('_', '-')} accuracy {numbers[f'{new}_accuracy']:.2%}"


@contextmanager
def bar(most: int, console: Screen, command: str, cost: Cost = lambda _: 1.0) -> Iterator[Bar]:
    """Show the progress of jobs; when a signal stops them, name the command that resumes.

    Args:
        most: How many jobs there are at most.
        cost: What one of them costs, where 1 is the mean.
    """
    columns = (TextColumn("{task.fields[name]}", markup=False), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    hidden = console.quiet or not console.is_terminal
    try:
        with Progress(*columns, console=console, transient=True, disable=hidden) as progress:
            task = progress.add_task("", total=most, name="loading")
            yield Bar(progress, task, console, most, cost)
    except Stopped as error:
        raise Stopped(error.signum, f"stopped and saved; resume with: {command}") from None


def show(console: Screen, lines: Iterable[str], document: Mapping[str, Any]) -> None:
    """Print the lines for people; on a quiet console, one JSON document for machines."""
    if console.quiet:
        print(json.dumps(document))
        return
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True)
