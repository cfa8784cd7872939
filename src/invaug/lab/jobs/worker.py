"""A process that trains one job: `python -m invaug.lab.jobs.worker PID`, the job as a line on standard input.

It exits as `invaug train` does. When the search that started it, the process PID, is gone, standard input ends, and it
saves and ends.
"""

import os
import signal
import sys
import threading
import time

from invaug.lab.errors import UserError
from invaug.lab.jobs.job import Job
from invaug.lab.run.owner import work_for
from invaug.lab.train.signals import Signals, Stopped

GRACE = 5.0  # seconds to save once the search is gone


def train(text: str) -> dict[str, object]:
    """Train a job; return its outcome, or the reason why it failed."""
    from invaug.lab.jobs.train_job import Trainer

    job = Job.of_json(text)
    Trainer()(job, lambda: None)
    found, failure = job.found(), job.failure()
    return {"outcome": found} if found else {"failed": failure}


def _end_with_the_search() -> None:
    """Wait for the end of standard input; then save and end, in a few seconds: the next start waits for the folder."""
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE)
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> int:
    """Train the job on standard input; return the exit code."""
    work_for(int(sys.argv[1]))
    Signals.second_ends = False  # a scheduler may signal the search and its workers, and the search signals these too
    text = sys.stdin.readline()
    threading.Thread(target=_end_with_the_search, daemon=True).start()
    try:
        train(text)
    except Stopped as error:
        return 128 + error.signum
    except (UserError, OSError) as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return 2 if isinstance(error, UserError) else 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
