"""Jobs on Ray: on this machine, or on a cluster by its address. Ray starts the job of a killed worker again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from invaug.lab.errors import UserError, reason_of
from invaug.lab.jobs import worker
from invaug.lab.jobs.job import Job
from invaug.lab.jobs.progress import Bar
from invaug.lab.train.signals import Signals

RETRIES = 3
WAIT = 0.5  # seconds between looks at a signal


def connect(on: str) -> Any:
    """Return Ray, connected: `ray` is this machine (or RAY_ADDRESS), anything else an address."""
    try:
        import ray
    except ImportError:
        raise UserError(f"--on {on} needs Ray: pip install 'invaug[ray]'") from None
    if not ray.is_initialized():
        try:
            ray.init(address=None if on == "ray" else on, include_dashboard=False, log_to_driver=False)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise UserError(f"no Ray at {on}: {reason_of(error)}") from None
    return ray


def on_ray(jobs: Iterator[Job], bar: Bar, at_once: int, on: str, ended: Any, signals: Signals) -> None:
    """Train so many jobs at once as tasks of Ray; what a task returns is written here, should its disk be another."""
    ray = connect(on)
    task = ray.remote(max_retries=RETRIES, num_cpus=1)(worker.train)
    running: dict[Any, Job] = {}
    more = True
    try:
        while running or more:
            worker.stop_if(signals)
            while more and len(running) < at_once:
                job = next(jobs, None)
                more = job is not None
                if job:
                    bar.start(job)
                    running[task.remote(job.as_json())] = job
            for ref in ray.wait(list(running), num_returns=1, timeout=WAIT)[0] if running else ():
                job = running.pop(ref)
                settle(ray, ref, job)
                ended(job)
    except BaseException:
        for ref in running:
            ray.cancel(ref)  # Ctrl-C for the worker: it saves and stops
        ray.wait(list(running), num_returns=len(running), timeout=60) if running else None
        raise
    finally:
        ray.shutdown()


def settle(ray: Any, ref: Any, job: Job) -> None:
    """Keep what a task returned."""
    try:
        told = ray.get(ref)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, UserError):
            raise UserError(str(error.cause)) from None
        job.fail(reason_of(error.cause or error))
        return
    except ray.exceptions.RayError as error:  # its worker died more often than it may
        job.fail(reason_of(error))
        return
    if told.get("outcome") and job.found() is None:
        job.keep(told["outcome"])
    elif told.get("failed"):
        job.fail(told["failed"])
