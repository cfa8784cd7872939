"""Where jobs are trained: one after another in this process, several processes at once, or Ray."""

import re
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Protocol

from invaug.lab.environment import under_torchrun
from invaug.lab.errors import UserError, nearest
from invaug.lab.jobs.job import Job, unfinished
from invaug.lab.jobs.progress import Bar
from invaug.lab.train.signals import Signals, Stopped

PROCESSES, RAY = "processes", "ray"
POLL = 0.1  # seconds
Ended = Callable[[Job], None]


def check_start(verb: str, on: str) -> None:
    """Refuse to start under torchrun, and on what is neither a known word nor an address."""
    if under_torchrun():
        raise UserError(f"{verb} starts processes of its own: start it without torchrun, with --jobs for several")
    if on not in (PROCESSES, RAY) and not re.match(r"^(ray://)?[\w.\-]+:\d+$", on):
        known = nearest(on, (PROCESSES, RAY))
        raise UserError(f"unknown --on {on}, {known}; a cluster is HOST:PORT or ray://HOST:PORT")


class Workers(Protocol):
    """Trains jobs elsewhere."""

    def start(self, job: Job) -> None:
        """Start a job."""

    def collect(self) -> list[Job]:
        """Return the jobs that have ended since the last call, done or failed."""

    def stop(self) -> None:
        """Make every running job save and end."""


def run_jobs(
    jobs: Iterable[Job], bar: Bar, *, at_once: int = 1, on: str = PROCESSES, ended: Ended = lambda _: None
) -> None:
    """Train all jobs that are not done yet; a signal saves what runs and raises Stopped.

    Args:
        jobs: What to train next: asked only when there is room, so that it may depend on what has ended.
        at_once: How many at the same time.
        on: processes, ray, or the address of a Ray cluster.
        ended: Called after each, whether it is done or has failed.
    """

    def finish(job: Job) -> None:
        bar.done(job)
        ended(job)

    waiting = unfinished(jobs, bar.skip)
    with Signals() as signals:
        if on == PROCESSES and at_once == 1:
            train_in_turn(waiting, bar, finish, signals)
        else:
            train_side_by_side(waiting, bar, _workers(at_once, on), at_once, finish, signals)


def _workers(at_once: int, on: str) -> Workers:
    if on == PROCESSES:
        from invaug.lab.jobs.processes import Processes

        return Processes(at_once)
    from invaug.lab.jobs.ray_jobs import RayTasks

    return RayTasks(on)


def train_in_turn(jobs: Iterator[Job], bar: Bar, ended: Ended, signals: Signals) -> None:
    """Train in this process, one job after another."""
    from invaug.lab.jobs.train_job import Trainer

    trainer = Trainer()
    for job in jobs:
        stop_if(signals)
        bar.advance(job)
        trainer(job, partial(bar.advance, job))
        ended(job)


def train_side_by_side(
    jobs: Iterator[Job], bar: Bar, workers: Workers, at_once: int, ended: Ended, signals: Signals
) -> None:
    """Train so many jobs at once with the help of workers."""
    running: list[Job] = []
    more = True
    try:
        while running or more:
            stop_if(signals)
            while more and len(running) < at_once:
                job = next(jobs, None)
                more = job is not None
                if job:
                    bar.advance(job)
                    workers.start(job)
                    running.append(job)
            for job in workers.collect():
                running.remove(job)
                ended(job)
            for job in running:
                bar.advance(job)
            time.sleep(POLL)
    finally:
        workers.stop()


def stop_if(signals: Signals) -> None:
    """Stop if a signal has asked to."""
    if signals.caught:
        raise Stopped(signals.caught)
