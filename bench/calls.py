"""Count ATen calls and device reads without numba, as on a GPU: of `apply`, and of a whole step."""

from __future__ import annotations

import argparse
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import timing
from invaug import Constraint, InvarianceConstrained, TransformSet, sets, step
from invaug.kernels import dispatch
from timing import Task

EXAMPLE = "python bench/calls.py"
BATCHES = (1, 64, 256)
SIZE = 32


class Calls(TorchDispatchMode):
    """Counts the ATen calls made inside it."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        self.count += 1
        return function(*arguments, **(options or {}))


def calls_of_apply(transforms: TransformSet, n: int, device: str) -> int:
    """Return how many calls `apply` makes for n images on a device."""
    images = torch.zeros(n, 3, SIZE, SIZE, dtype=torch.uint8, device=device)
    draw = transforms.draw(n, generator=torch.Generator().manual_seed(0))
    with Calls() as calls:
        transforms.apply(images, draw)
    return calls.count


def make_step(n: int, views: str, device: str = "cpu") -> Task:
    """Return one step with a small model, `problem()` and `dual_step`, of n images of the wide set."""
    problem = InvarianceConstrained(Constraint(sets.wide()), gamma_init=1.0, views=views).to(device)
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * SIZE * SIZE, 10)).to(device)
    images = torch.zeros(n, 3, SIZE, SIZE, dtype=torch.uint8, device=device)
    targets = torch.zeros(n, dtype=torch.long, device=device)
    return lambda: problem.dual_step(problem(model, images, targets).slack)


def count_step(take: Task) -> tuple[int, int]:
    """Return how many ATen calls a step makes, and how often it reads from the device."""
    reads, read = [], step.read_from_device
    step.read_from_device = lambda numbers: reads.append(1) or read(numbers)
    try:
        with Calls() as calls:
            take()
    finally:
        step.read_from_device = read
    return calls.count, len(reads)


def main() -> None:
    argparse.ArgumentParser(description=__doc__, epilog=f"example: {EXAMPLE}").parse_args()
    dispatch.has_numba = lambda: False  # type: ignore[assignment]
    rows = [[str(n), *(str(calls_of_apply(sets.wide(), n, device)) for device in ("cpu", "meta"))] for n in BATCHES]
    print(f"ATen calls of `sets.wide().apply`, colour images of {SIZE} px, without numba")
    timing.print_table(["images", "on the CPU", "on another device"], rows)
    print("\na whole step, `problem()` and `dual_step`, wide set, 128 images")
    counts = [[how, *map(str, count_step(make_step(128, how)))] for how in ("one", "both")]
    timing.print_table(["views", "calls", "reads"], counts)


if __name__ == "__main__":
    main()
