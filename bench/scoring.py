"""What a scoring pass costs in lower precision and compiled, beside the same pass as it is.

    python bench/scoring.py [--threads 1] [--models resnet-8 conv-24 wrn-16-2]

Proposals are scored without gradient in eval mode, so both change nothing but time and the last digits of a loss. CPU
time, the fastest of some rounds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch

from invaug.lab import models

BATCH = {"conv-24": 32}  # as in the comparison; 64 elsewhere
ROUNDS, CALLS = 5, 8


def seconds(task: Callable[[], object]) -> float:
    """Return the CPU time of a call."""
    task()  # the first call warms caches
    fastest = float("inf")
    for _ in range(ROUNDS):
        start = time.process_time()
        for _ in range(CALLS):
            task()
        fastest = min(fastest, (time.process_time() - start) / CALLS)
    return fastest


@torch.no_grad()
def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--models", nargs="+", default=["resnet-8", "conv-24", "wrn-16-2"])
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    print(f"{'model':12}{'batch':>6}{'as it is':>12}{'bfloat16':>11}{'compiled':>11}{'to compile':>13}")
    for name in asked.models:
        images = torch.randn(BATCH.get(name, 64), 3, 32, 32).contiguous(memory_format=torch.channels_last)
        model = models.build(name, 10, (3, 32, 32)).eval().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        compiled = torch.compile(model)
        start = time.perf_counter()
        compiled(images)
        took = time.perf_counter() - start
        plain = seconds(lambda model=model, images=images: model(images))  # type: ignore[misc]
        fast = seconds(lambda model=compiled, images=images: model(images))  # type: ignore[misc]
        with torch.autocast("cpu", torch.bfloat16):
            low = seconds(lambda model=model, images=images: model(images))  # type: ignore[misc]
        times = f"{1e3 * plain:9.2f} ms{low / plain:9.2f} ×{fast / plain:9.2f} ×{took:11.1f} s"
        print(f"{name:12}{len(images):6}{times}")


if __name__ == "__main__":
    main()
