"""What this machine can bear: checked when something is started, never when the config of a run is read.

A config may come from a larger machine, or from somebody else; reading, reporting and evaluating it is always allowed.
"""

import os

from invaug.lab.errors import UserError

FEWEST = 8  # processes and threads that every machine may be asked for, for tests and for slow disks
PER_CORE = 4  # threads and processes beyond this only wait for each other


def n_cores() -> int:
    """Return the number of cores that this machine has."""
    return os.cpu_count() or 1


def check_count(name: str, value: int, most: int, why: str) -> None:
    """Refuse a number of processes, threads or devices that this machine does not have."""
    if value > most:
        raise UserError(f"{name} {value} is more than this machine can bear, at most {most} {why}: lower --{name}")


def check_threads(threads: int) -> None:
    """Refuse more threads than help on this machine."""
    check_count("threads", threads, _for_cores(), _of_cores())


def check_workers(workers: int) -> None:
    """Refuse more decoding processes than help on this machine."""
    check_count("workers", workers, _for_cores(), _of_cores())


def usable_workers(workers: int) -> int:
    """Return as many decoding processes as a config names, but no more than help on this machine."""
    return min(workers, _for_cores())


def check_jobs(jobs: int, on: str) -> None:
    """Refuse more trainings at once than this machine bears; a Ray cluster has its own limits."""
    if on == "processes":
        check_count("jobs", jobs, _for_cores(), _of_cores())


def check_devices(devices: int, kind: str, n_found: int) -> None:
    """Refuse more devices than there are; on a CPU a device is a process, and one per core is plenty.

    Args:
        kind: cpu, cuda or mps.
        n_found: How many of that kind there are.
    """
    if kind == "cpu":
        check_count("devices", devices, max(n_cores(), FEWEST), _of_cores())
    else:
        check_count("devices", devices, n_found, f"of {kind}")


def _for_cores() -> int:
    return max(PER_CORE * n_cores(), FEWEST)


def _of_cores() -> str:
    n = n_cores()
    return f"with {n} core{'s' if n > 1 else ''}"
