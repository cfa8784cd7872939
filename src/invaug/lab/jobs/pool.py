"""Who trains the jobs: this process one after another, several processes at once, or Ray.

A process that is killed costs nothing but its time: its job is started again and goes on from its checkpoint.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import IO

from invaug.lab.errors import UserError, nearest
from invaug.lab.jobs.job import Job
from invaug.lab.jobs.progress import Bar
from invaug.lab.jobs.worker import stop_if
from invaug.lab.run import record
from invaug.lab.train.signals import Signals

PROCESSES = "processes"
STARTS = 4  # of one job, before its killer is believed
POLL = 0.1  # seconds
SAVED = (128 + signal.SIGTERM, 128 + signal.SIGINT)  # how a process ends that was asked to
LEAVE = 120.0  # seconds a process has to save and end
Ended = Callable[[Job], None]


def run_jobs(jobs: Iterator[Job], bar: Bar, *, at_once: int = 1, on: str = PROCESSES, ended: Ended) -> None:
    """Train all jobs; a signal saves what runs and raises Stopped.

    Args:
        jobs: What to train next: asked only when there is room, so that it may depend on what has ended.
        at_once: How many at the same time.
        on: processes, ray, or the address of a Ray cluster.
        ended: Called after each, whether it is done or has failed.
    """

    check_place(on)

    def done(job: Job) -> None:
        bar.done(job)
        ended(job)

    with Signals() as signals:
        if on != PROCESSES:
            from invaug.lab.jobs.ray_jobs import on_ray

            on_ray(jobs, bar, at_once, on, done, signals)
        elif at_once == 1:
            in_turn(jobs, bar, done, signals)
        else:
            in_processes(jobs, bar, at_once, done, signals)


def check_place(on: str) -> None:
    """Refuse what is neither a word we know nor an address."""
    if on not in (PROCESSES, "ray") and not re.match(r"^(ray://)?[\w.\-]+:\d+$", on):
        raise UserError(
            f"unknown --on {on}, {nearest(on, (PROCESSES, 'ray'))}; a cluster is HOST:PORT or ray://HOST:PORT"
        )


def in_turn(jobs: Iterator[Job], bar: Bar, ended: Ended, signals: Signals) -> None:
    """Train in this process, one after another."""
    from invaug.lab.jobs.train_job import Trainer

    trainer = Trainer()
    for job in jobs:
        stop_if(signals)
        bar.start(job)
        trainer(job, lambda job=job: bar.reached(job, epochs_of(job)))  # type: ignore[misc]
        ended(job)


def epochs_of(job: Job) -> int:
    """Return how many epochs of a job are done, by its record."""
    try:
        return (job.folder / record.NAME).read_bytes().count(b"\n")
    except OSError:
        return 0


@dataclass
class Running:
    """A process and its job."""

    job: Job
    process: subprocess.Popen[str]
    said: IO[bytes]
    starts: int

    def close(self) -> None:
        """Let go of its standard input, of which one that was killed early has left some, and of what it said."""
        with contextlib.suppress(BrokenPipeError):
            if self.process.stdin:
                self.process.stdin.close()
        self.said.close()

    def last_line(self) -> str:
        """Return the last it said."""
        self.said.seek(0)
        lines = self.said.read().decode(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")


def in_processes(jobs: Iterator[Job], bar: Bar, at_once: int, ended: Ended, signals: Signals) -> None:
    """Train each job in a process of its own, so many at once; start a killed one again."""
    running: list[Running] = []
    more = True
    try:
        while running or more:
            stop_if(signals)
            while more and len(running) < at_once:
                job = next(jobs, None)
                more = job is not None
                if job:
                    bar.start(job)
                    running.append(started(job, at_once))
            for each in list(running):
                if each.process.poll() is None:
                    bar.reached(each.job, epochs_of(each.job))
                    continue
                running.remove(each)
                again = settled(each, at_once)
                if again:
                    running.append(again)
                else:
                    ended(each.job)
            time.sleep(POLL)
    except BaseException:
        stop(running)
        raise


def started(job: Job, at_once: int, starts: int = 1) -> Running:
    """Start the process of a job; it shares the cores with the others, and gets no Ctrl-C but ours."""
    threads = str(max((os.cpu_count() or 1) // at_once, 1))
    said = TemporaryFile()  # noqa: SIM115 - lives as long as the process
    process = subprocess.Popen(
        [sys.executable, "-m", "invaug.lab.jobs.worker"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=said,
        text=True, start_new_session=True, env={"OMP_NUM_THREADS": threads, **os.environ},
    )  # fmt: skip
    with contextlib.suppress(BrokenPipeError):  # it has ended already: the poll will see it
        print(job.as_json(), file=process.stdin, flush=True)
    return Running(job, process, said, starts)


def settled(each: Running, at_once: int) -> Running | None:
    """Return the process started again if it was killed; None if its job has ended, well or not."""
    code, line = each.process.returncode, each.last_line()
    each.close()
    if code == 2:
        raise UserError(line)
    killed = -code if code < 0 else code - 128 if code in SAVED else 0
    if killed and each.starts < STARTS:
        return started(each.job, at_once, each.starts + 1)
    if killed:
        each.job.fail(f"its process was killed by signal {killed}, {each.starts} times")
    elif code and not each.job.failure():
        each.job.fail(line or f"its process ended with {code}")
    return None


def stop(running: list[Running]) -> None:
    """Ask every process to save and end; kill those that do not."""
    for each in running:
        each.process.terminate()
    for each in running:
        try:
            each.process.wait(LEAVE)
        except subprocess.TimeoutExpired:
            each.process.kill()
            each.process.wait()
        each.close()
