"""`invaug` with a witness: writes down gamma and slack of every step and every file opened for writing, rank by rank.

Run as `python -m faults.rank_driver train …`, by torchrun or by Fabric; FAULT_LOG names the folder for the notes,
FAULT_NAN="rank step" makes the loss of one rank NaN at one step.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from invaug import Step, problem
from invaug.lab.cli.main import main
from invaug.lab.environment import restarts

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def rank() -> int:
    return int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0")))


def note(kind: str, text: str) -> None:
    with (Path(os.environ["FAULT_LOG"]) / f"{kind}-{rank()}").open("a") as file:
        file.write(text + "\n")


def witness_steps() -> None:
    """Note the bits of gamma and slack after every dual step."""
    step = problem.InvarianceConstrained.dual_step

    def noted(self: Any, slacks: list[torch.Tensor]) -> None:
        step(self, slacks)
        bits = [t.double().numpy().tobytes().hex() for t in (self.gamma, torch.stack(slacks).mean(0))]
        note("steps", " ".join([str(int(self.n_batches)), *bits]))

    problem.InvarianceConstrained.dual_step = noted  # type: ignore[method-assign]


def witness_writes() -> None:
    """Note every file below the run's folder that is opened for writing."""
    out = next((sys.argv[i + 1] for i, word in enumerate(sys.argv) if word == "--out"), None)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and out and str(arguments[0]).startswith(out) and (arguments[2] or 0) & WRITING:
            os.write(writes, f"{arguments[0]}\n".encode())

    writes = os.open(f"{os.environ['FAULT_LOG']}/writes-{rank()}", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    sys.addaudithook(hook)


def poison(bad_rank: int, bad_step: int) -> None:
    """Make one loss NaN."""
    forward = problem.InvarianceConstrained.forward

    def poisoned(self: Any, *arguments: Any, **options: Any) -> Step:
        found = forward(self, *arguments, **options)
        if rank() == bad_rank and int(self.n_batches) == bad_step:
            return replace(found, lagrangian=found.lagrangian * float("nan"))
        return found

    problem.InvarianceConstrained.forward = poisoned  # type: ignore[method-assign]


if __name__ == "__main__":
    note("pid", str(os.getpid()))
    witness_steps()
    witness_writes()
    if restarts() and rank() == 0:
        time.sleep(1)  # so that the others come first and find what the dead rank 0 has left in torchrun's store
    if "FAULT_NAN" in os.environ:
        poison(*map(int, os.environ["FAULT_NAN"].split()))
    main()
