"""Mutations of which every second one misbehaves, to see that the fuzzer notices."""

import json
import os
import tempfile
import time
from pathlib import Path

from faults.fuzz import worker

KEPT: list[bytearray] = []
ACTS = {
    "hang": lambda: time.sleep(60),
    "growth": lambda: KEPT.append(bytearray(b"x") * (worker.GROWTH + (50 << 20))),
    "traceback": lambda: os._exit(9),
}


def make(index: int) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """Return a good command; every second one misbehaves."""
    if index % 2:
        [*ACTS.values()][index // 2]()
    return {"a file": b""}, ("ls",)


def main() -> None:
    """Try all of them and print what they came to."""
    worker.SECONDS = 5.0
    with tempfile.TemporaryDirectory() as folder:
        worker.warm_up()
        Path(folder, "good").mkdir()
        job = worker.Job("npz", make, Path(folder, "good"), Path(folder, "odd"))
        print(json.dumps([found for _, found in worker.attempt(job, range(2 * len(ACTS) + 1))]))
