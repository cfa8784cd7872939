"""A process that trains one job: `python -m invaug.lab.jobs.worker`, the job as a line on standard input.

It exits as `invaug train` does. When the process that started it is gone, standard input ends, and it saves and ends.
"""

import os
import signal
import sys
import threading

from invaug.lab.errors import UserError, reason_of
from invaug.lab.jobs.job import Job
from invaug.lab.train.signals import Stopped


def train(text: str) -> dict[str, object]:
    """Train a job; return its outcome, or the reason why it failed."""
    from invaug.lab.jobs.train_job import Trainer

    job = Job.of_json(text)
    Trainer()(job, lambda: None)
    found, failure = job.found(), job.failure()
    return {"outcome": found} if found else {"failed": failure}


def _end_with_the_parent() -> None:
    for _ in sys.stdin:
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> int:
    """Train the job on standard input; return the exit code."""
    text = sys.stdin.readline()
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    try:
        train(text)
    except Stopped as error:
        return 128 + error.signum
    except UserError as error:
        print(reason_of(error), file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
