"""Jobs in processes of their own on this machine.

A process that is killed costs nothing but its time: its job is started again and resumes from its checkpoint.
"""

import contextlib
import os
import subprocess
import sys
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import IO

from invaug.lab.errors import UserError
from invaug.lab.jobs.job import Job
from invaug.lab.train.signals import EXITS

STARTS = 4  # of one job, before it counts as failed
PATIENCE = 120.0  # seconds a process has to save and end


@dataclass
class Process:
    """A process and its job."""

    job: Job
    process: subprocess.Popen[str]
    output: IO[bytes]
    starts: int

    def close(self) -> None:
        """Close its standard input, of which one that was killed early has left some, and its output."""
        with contextlib.suppress(BrokenPipeError):
            if self.process.stdin:
                self.process.stdin.close()
        self.output.close()

    def last_line(self) -> str:
        """Return the last line of its output."""
        self.output.seek(0)
        return self.output.read().decode(errors="replace").strip().rpartition("\n")[2].strip()

    def stop(self) -> None:
        """Wait until it has saved and ended; kill it if it does not."""
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.close()


class Processes:
    """Processes that train a job each; `n` of them share the cores."""

    def __init__(self, n: int) -> None:
        self.threads = str(max((os.cpu_count() or 1) // n, 1))
        self.running: list[Process] = []

    def start(self, job: Job, starts: int = 1) -> None:
        """Start the process of a job; it gets no Ctrl-C but ours."""
        output = TemporaryFile()  # noqa: SIM115 - lives as long as the process
        process = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-m", "invaug.lab.jobs.worker", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=output,
            text=True,
            start_new_session=True,
            env={"OMP_NUM_THREADS": self.threads, **os.environ},
        )
        with contextlib.suppress(BrokenPipeError):  # it has ended already, which collect will notice
            print(job.as_json(), file=process.stdin, flush=True)
        self.running.append(Process(job, process, output, starts))

    def collect(self) -> list[Job]:
        """Return the jobs that have ended; those whose process was killed are started again."""
        ended = [each for each in self.running if each.process.poll() is not None]
        self.running = [each for each in self.running if each not in ended]
        return [each.job for each in ended if self._is_over(each)]

    def _is_over(self, each: Process) -> bool:
        """Whether the job of an ended process is over, done or failed; else it was started again."""
        code, line = each.process.returncode, each.last_line()
        each.close()
        if code == 2:
            raise UserError(line)
        killed = -code if code < 0 else code - 128 if code in EXITS else 0
        if killed and each.starts < STARTS:
            self.start(each.job, each.starts + 1)
            return False
        if killed:
            each.job.fail(f"its process was killed by signal {killed}, {each.starts} times")
        elif code and not each.job.failure():
            each.job.fail(line or f"its process ended with {code}")
        return True

    def stop(self) -> None:
        """Ask every process to save and end; kill those that do not."""
        for each in self.running:
            each.process.terminate()
        for each in self.running:
            each.stop()
