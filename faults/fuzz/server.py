"""A process that tries mutations for another: a line of JSON in, the name of a format and how many, a line of JSON out.

The process that asks may have threads and must stay as it is, so it can neither fork nor be changed for speed.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

from faults.fuzz import worker
from faults.fuzz.findings import replay, workshop


@cache
def server() -> subprocess.Popen[str]:
    """Return the one of this process, which ends with it."""
    command, environment = [sys.executable, "-m", "faults.fuzz.server"], {**os.environ, "OMP_NUM_THREADS": "1"}
    root = Path(__file__).parent.parent.parent
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root, env=environment
    )
    atexit.register(process.communicate)
    return process


def ask(name: str, tries: int = 0, seed: int = 0) -> list[worker.Answer]:
    """Return what the first mutations of a format come to; of a finding, by its path, what it comes to now."""
    process = server()
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("no pipes")
    process.stdin.write(json.dumps([name, tries, seed]) + "\n")
    process.stdin.flush()
    line = process.stdout.readline()
    if not line:
        raise RuntimeError("the process that tries mutations died")
    return [worker.Answer(*found) for found in json.loads(line)]


def serve() -> None:
    """Answer until the input ends."""
    with workshop() as (examples, place):
        for line in sys.stdin:
            name, tries, seed = json.loads(line)
            if tries:
                job = worker.mutations(name, seed, examples, place)
                found = [answer for _, answer in worker.attempt(job, range(tries))]
            else:
                found = [replay(Path(name), examples, place)]
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    serve()
