"""Mutations whose second one misbehaves, to see that the fuzzer notices."""

import json
import os
import tempfile
import time
from pathlib import Path

from faults.fuzz import worker


def run(act: str) -> None:
    """Try three and print what they came to."""
    kept: list[bytearray] = []
    acts = {
        "hang": lambda: time.sleep(60),
        "growth": lambda: kept.append(bytearray(b"x") * (worker.GROWTH + (50 << 20))),
        "death": lambda: os._exit(9),
    }

    def make(index: int) -> tuple[dict[str, bytes], tuple[str, ...]]:
        if index == 1:
            acts[act]()
        return {}, ("ls",)

    worker.SECONDS = 5.0
    with tempfile.TemporaryDirectory() as folder:
        worker.warm_up()
        Path(folder, "good").mkdir()
        job = worker.Job("npz", make, Path(folder, "good"), Path(folder, "odd"))
        print(json.dumps([found for _, found in worker.attempt(job, range(3))]))
