"""The cost of one constrained step relative to a step on plain draws of the same set: time and peak memory."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import timing
from invaug import Constraint, InvarianceConstrained, TransformSet, sets
from invaug.lab.models.build import build_model
from invaug.lab.train.malloc import keep_freed
from timing import Clock, Spread, Task

BASIC, TRIVIAL = "no augmentation", "TrivialAugment (wide, plain draws)"
PLAIN = {"wide": TRIVIAL, "mild": "mild, plain draws"}
SETTLED = 0.5
"""Where gamma settles on CIFAR-10 by default (docs/default.md)."""
SETTINGS: dict[str, dict[str, Any]] = {
    "default, gamma 1": {"gamma_init": 1.0},
    f"default, gamma {SETTLED:g}": {"gamma_init": SETTLED},
    "default, gamma 2 (its cap)": {"gamma_init": 2.0},
    "default, gamma 0": {},
    "uniform draws, gamma 1": {"gamma_init": 1.0, "n_steps": 0},
    'views="both", as printed': {"views": "both", "gamma_init": 1.0},
}
GOALS = {"default, gamma 1": 1.35, f"default, gamma {SETTLED:g}": 1.35, 'views="both", as printed': 2.7}
MEMORY_GOAL, IMPORT_GOAL = 1.3, 0.2
NETWORKS = ("resnet-8", "wrn-16-2")
EXAMPLE = "INVAUG_DATA=~/data python bench/step.py --threads 1 --rounds 7"
Loss = Callable[[nn.Module, Tensor, Tensor], Tensor]


def network(name: str) -> nn.Module:
    torch.manual_seed(0)
    return build_model(name, 10, (3, 32, 32)).to(memory_format=torch.channels_last)


def finish(images: Tensor) -> Tensor:
    return images.float().div_(255).contiguous(memory_format=torch.channels_last)


def plain_loss(transforms: TransformSet | None, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
    if transforms is not None:
        images = transforms.apply(images, transforms.draw(len(images)))
    return F.cross_entropy(model(finish(images)), targets)


def constrained_loss(problem: InvarianceConstrained, model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
    step = problem(model, images, targets)
    problem.dual_step(step.slack)
    lagrangian: Tensor = step.lagrangian
    return lagrangian


def losses(device: str = "cpu") -> dict[str, Loss]:
    """Return for each row of the table the function that computes a batch's loss; gamma is fixed."""
    rows: dict[str, Loss] = {BASIC: partial(plain_loss, None)}
    rows |= {PLAIN[name]: partial(plain_loss, getattr(sets, name)()) for name in PLAIN}
    for name, settings in SETTINGS.items():
        problem = InvarianceConstrained(Constraint(sets.mild()), dual_lr=0.0, finish=finish, **settings)
        rows[name] = partial(constrained_loss, problem.to(device))
    return rows


def stepper(loss_of: Loss, model: nn.Module, batches: Iterator[tuple[Tensor, Tensor]]) -> Task:
    """Return one training step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)

    def take() -> None:
        loss = loss_of(model, *next(batches))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return take


def batches_of(images: Tensor, batch: int) -> Iterator[tuple[Tensor, Tensor]]:
    return cycle([(part, torch.randint(10, (len(part),), device=images.device)) for part in images.split(batch)])


def race(
    rounds: int, slot: float, batch: int, clock: Clock, model: str, only: list[str], device: str = "cpu"
) -> dict[str, dict[str, Any]]:
    """Time every kind of step, print the table, return the numbers."""
    images, source = timing.real_images(32, 8 * batch)
    images = images.to(device)
    wanted = {name: loss for name, loss in losses(device).items() if name not in SETTINGS or name in only}
    tasks = {name: stepper(loss, network(model).to(device), batches_of(images, batch)) for name, loss in wanted.items()}
    times = timing.interleaved(tasks, rounds, slot, clock)
    beside = {
        peer: {name: Spread.of([1 / r for r in each]) for name, each in timing.ratios(times, peer).items()}
        for peer in (TRIVIAL, PLAIN["mild"])
    }
    print(f"{model}, channels last, batches of {batch}, {source}: median of {rounds} rounds (quartiles)")
    rows = {
        name: {"milliseconds": Spread.of(times[name]).median * 1e3, **{peer: beside[peer][name] for peer in beside}}
        for name in tasks
    }
    cells = [[n, f"{r['milliseconds']:.1f}", *(f"{r[peer]:.2f}" for peer in beside)] for n, r in rows.items()]
    timing.print_table(["step", "ms", "× TrivialAugment", "× mild, plain"], cells)
    for name in (name for name in GOALS if name in rows):
        ratio = rows[name][TRIVIAL].median
        print(f"{name}: {ratio:.2f} × TrivialAugment; goal: at most {GOALS[name]}: {verdict(ratio <= GOALS[name])}")
    print()
    return rows


def verdict(met: bool) -> str:
    return "met" if met else "NOT MET"


def peak_memory(name: str, batch: int) -> int:
    """Return the kilobytes ten steps of a row take above what was there before them, in a process of its own."""
    command = [sys.executable, __file__, "--memory-of", name, "--batch", str(batch)]
    return int(subprocess.run(command, capture_output=True, check=True, text=True).stdout)  # noqa: S603


def print_peak(name: str, batch: int) -> None:
    torch.set_num_threads(1)
    images = torch.randint(256, (8 * batch, 3, 32, 32), dtype=torch.uint8)
    take = stepper(losses()[name], network("wrn-16-2"), batches_of(images, batch))
    sets.wide().apply(images[:1], sets.wide().draw(1))  # compiled loops take memory that no step needs again
    before = high_water_mark()
    for _ in range(10):
        take()
    print(high_water_mark() - before)


def high_water_mark() -> int:
    """Return the most memory this process had, in kilobytes; getrusage would tell that of the parent too."""
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))


def import_seconds(n: int) -> Spread:
    """Return how long the import takes in a fresh interpreter that has torch; everything, as modules load on demand."""
    code = "import time, torch; start = time.perf_counter(); from invaug import *; print(time.perf_counter() - start)"
    command = [sys.executable, "-c", code]
    runs = [subprocess.run(command, capture_output=True, check=True, text=True).stdout for _ in range(n)]  # noqa: S603
    return Spread.of([float(seconds) for seconds in runs])


def main() -> None:
    parser = timing.parser(__doc__, EXAMPLE, slot=0.25)
    parser.add_argument("--batch", type=int, default=128, help="images per batch (default: %(default)s)")
    parser.add_argument("--only", nargs="+", choices=SETTINGS, default=list(SETTINGS), metavar="STEP")
    parser.add_argument("--memory-of", help="print the peak memory of one row in kilobytes and stop")
    options = parser.parse_args()
    if options.memory_of:
        print_peak(options.memory_of, options.batch)
        return
    keep_freed()  # as `invaug train` does
    clock = timing.prepare(options)
    machine = timing.machine(options, "torch", "numba")
    print(f"{machine}\n")
    timing.warn_if_busy(options)
    how = (options.rounds, options.slot, options.batch, clock)
    tables = {model: race(*how, model, options.only) for model in NETWORKS}
    kilobytes = {name: peak_memory(name, options.batch) for name in (TRIVIAL, "default, gamma 1")}
    ratio = kilobytes["default, gamma 1"] / kilobytes[TRIVIAL]
    met = verdict(ratio <= MEMORY_GOAL)
    print(f"peak memory, WRN-16-2: {ratio:.2f} × TrivialAugment; goal: at most {MEMORY_GOAL}: {met}")
    seconds = import_seconds(5)
    met = verdict(seconds.median < IMPORT_GOAL)
    print(f"import of all invaug exports, beyond torch: {seconds:.3f} s; goal: under {IMPORT_GOAL} s: {met}")
    if options.json:
        numbers = {
            "machine": machine,
            "rounds": options.rounds,
            "tables": tables,
            "peak_memory_ratio": ratio,
            "import_seconds": seconds._asdict(),
        }
        options.json.write_text(json.dumps(numbers, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
