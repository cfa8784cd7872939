"""What many jobs show: one bar over all of them on a terminal, a line for each that ends elsewhere, the outcome."""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from invaug.lab.errors import UserError
from invaug.lab.jobs.job import Job
from invaug.lab.jobs.measures import HELD_OUT, TEST
from invaug.lab.run import atomic, record
from invaug.lab.run.files import read_run_config
from invaug.lab.terminal import duration
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
    skipped_cost: float = 0.0
    """Of jobs that were done before, which tell nothing about the pace."""
    started: float = field(default_factory=time.monotonic)

    def skip(self, job: Job) -> None:
        """Count a job that was done before."""
        self.skipped_cost += self.cost(job)
        self._end(job)

    def _end(self, job: Job) -> None:
        self.done_cost += self.cost(job)
        self.ended += 1

    def advance(self, job: Job) -> None:
        """Name the job, and move to the epoch that it has reached by its record."""
        path = job.folder / record.NAME
        epochs = path.read_bytes().count(b"\n") if path.is_file() else 0
        done = min(epochs / planned_epochs(job), 1.0) if epochs else 0.0
        self.running[job.name] = done * self.cost(job)
        self._show()

    def done(self, job: Job) -> None:
        """Move to the end of the job, and print its accuracy."""
        self.running.pop(job.name, None)
        self._end(job)
        self._show()
        found = job.found()
        result = _accuracy(found["numbers"]) if found else "failed"
        left = f", {self.time_left()}" if self.ended < self.most else ""
        self.console.print(f"{self.ended} of {self.most}: {job.name}: {result}{left}", highlight=False, soft_wrap=True)

    def time_left(self) -> str:
        """Return about how long all jobs together still take, at the pace so far; nothing before there is one."""
        now = self.done_cost + sum(self.running.values())
        pace = (now - self.skipped_cost) / max(time.monotonic() - self.started, 1e-9)
        return f"about {duration((self.most - now) / pace)} left" if pace > 0 else ""

    def _show(self) -> None:
        now = f"run {min(self.ended + 1, self.most)} of {self.most}: {', '.join(self.running)}"
        completed = self.done_cost + sum(self.running.values())
        self.progress.update(self.task, completed=completed, name=now, left=self.time_left())


def planned_epochs(job: Job) -> int:
    """Return how many epochs a job trains: what was asked for, or what its run has chosen."""
    asked = job.config().train.epochs
    return int(read_run_config(job.folder)["train"]["epochs"]) if asked == "auto" else asked


def _accuracy(numbers: Mapping[str, float]) -> str:
    new = TEST if "test_accuracy" in numbers else HELD_OUT
    return f"{new.replace('_', '-')} accuracy {numbers[f'{new}_accuracy']:.2%}"


@contextmanager
def kept_plan(file: Path, plan: Mapping[str, Any]) -> Iterator[None]:
    """Write what many trainings share; take it back, with the folders made for it, if the first of them is refused."""
    made = [path for path in file.parents if not path.exists()]
    file.parent.mkdir(parents=True, exist_ok=True)
    atomic.write_text(file, json.dumps(plan))
    try:
        yield
    except UserError:
        if list(file.parent.iterdir()) == [file]:
            file.unlink()
            for path in made:
                path.rmdir()
        raise


@contextmanager
def bar(most: int, console: Screen, command: str, cost: Cost = lambda _: 1.0) -> Iterator[Bar]:
    """Show the progress of jobs; when a signal stops them, name the command that resumes.

    Args:
        most: How many jobs there are at most.
        cost: What one of them costs, where 1 is the mean.
    """
    name, left = (TextColumn(f"{{task.fields[{field}]}}", markup=False) for field in ("name", "left"))
    columns = (name, BarColumn(), TimeElapsedColumn(), left)
    hidden = console.quiet or not console.is_terminal
    try:
        with Progress(*columns, console=console, transient=True, disable=hidden) as progress:
            task = progress.add_task("", total=most, name="loading", left="")
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
