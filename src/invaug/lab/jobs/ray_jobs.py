"""Jobs on Ray: on this machine, or on a cluster by its address. Ray restarts the job of a killed worker."""

from typing import Any

from invaug.lab.errors import UserError, reason_of
from invaug.lab.jobs import worker
from invaug.lab.jobs.job import Job
from invaug.lab.jobs.pool import RAY

RETRIES = 3
PATIENCE = 60  # seconds a task has to save and end


def connect(on: str) -> Any:
    """Return Ray, connected: `ray` is this machine (or RAY_ADDRESS), anything else an address."""
    try:
        import ray
    except ImportError:
        raise UserError(f"--on {on} needs Ray: pip install 'invaug[ray]'") from None
    if not ray.is_initialized():
        try:
            ray.init(address=None if on == RAY else on, include_dashboard=False, log_to_driver=False)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise UserError(f"no Ray at {on}: {reason_of(error)}") from None
    return ray


class RayTasks:
    """Tasks of Ray that train a job each; what a task returns is written here, in case its disk is another."""

    def __init__(self, on: str) -> None:
        self.ray = connect(on)
        self.task = self.ray.remote(max_retries=RETRIES, num_cpus=1)(worker.train)
        self.running: dict[Any, Job] = {}

    def start(self, job: Job) -> None:
        """Start the task of a job."""
        self.running[self.task.remote(job.as_json())] = job

    def collect(self) -> list[Job]:
        """Return the jobs whose tasks have ended."""
        if not self.running:
            return []
        ended = self.ray.wait(list(self.running), num_returns=len(self.running), timeout=0)[0]
        for task in ended:
            keep_result(self.ray, task, self.running[task])
        return [self.running.pop(task) for task in ended]

    def stop(self) -> None:
        """Send Ctrl-C to every task, so that it saves and stops; disconnect."""
        for task in self.running:
            self.ray.cancel(task)
        if self.running:
            self.ray.wait(list(self.running), num_returns=len(self.running), timeout=PATIENCE)
        self.ray.shutdown()


def keep_result(ray: Any, task: Any, job: Job) -> None:
    """Write what a task returned."""
    try:
        result = ray.get(task)
    except ray.exceptions.RayError as error:  # without a cause its worker died more often than it may
        cause = getattr(error, "cause", None) or error
        if isinstance(cause, UserError):
            raise UserError(str(cause)) from None
        job.fail(reason_of(cause))
        return
    if result.get("outcome") and job.found() is None:
        job.keep(result["outcome"])
    elif result.get("failed"):
        job.fail(result["failed"])
