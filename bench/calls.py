"""How many calls of torch a wide operation per image takes where the compiled loops cannot go, as on GPUs."""

from __future__ import annotations

import argparse
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import timing
from invaug import TransformSet, fused, sets

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


def main() -> None:
    argparse.ArgumentParser(description=__doc__, epilog=f"example: {EXAMPLE}").parse_args()
    fused.available = lambda: False  # type: ignore[assignment]
    rows = [[str(n), *(str(calls_of_apply(sets.wide(), n, device)) for device in ("cpu", "meta"))] for n in BATCHES]
    print(f"ATen calls of `sets.wide().apply`, colour images of {SIZE} px, without numba")
    timing.print_table(["images", "on the CPU", "on another device"], rows)


if __name__ == "__main__":
    main()
