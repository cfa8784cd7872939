"""What one constrained step costs, in units of a plain training step, beside the passes it should cost."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle, product
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import timing
from invaug import Constraint, Draw, InvarianceConstrained, InvarianceMixture, TransformSet, sets
from invaug.lab import models
from timing import Clock, Spread, Task

PLAIN, TRIVIAL = "plain", "TrivialAugment wide"
FORWARD, BACKWARD = 1, 2  # what the passes cost, in forward passes
IMPORT_GOAL = 0.2
SETTINGS: dict[str, dict[str, Any]] = {
    f"n_steps={n_steps}, n_views={n_views}": {"n_steps": n_steps, "n_views": n_views}
    for n_views, n_steps in product((1, 2), (0, 1, 3))
}
SETTINGS["n_steps=1, n_views=1, joint=False"] = {"n_steps": 1, "n_views": 1, "joint": False}
MIXTURES = {
    f"mixture, n_steps={n_steps}": {"n_steps": n_steps, "n_views": 1, "kind": InvarianceMixture} for n_steps in (0, 1)
}
MIXTURES["mixture, remembered chains"] = {"n_steps": 1, "n_views": 1, "kind": InvarianceMixture, "remember": True}
DEFAULT: dict[str, Any] = {"gamma_init": 3.0, "set": sets.mild()}
MIXTURES["default with chains"] = {**MIXTURES["mixture, remembered chains"], **DEFAULT}
MIXTURES["default of invaug train"] = {**MIXTURES["mixture, n_steps=0"], **DEFAULT}
MIXTURES["default, learned draws"] = {**MIXTURES["default of invaug train"], "learn": 1.0}
SETTINGS |= MIXTURES
WIDE_SETTINGS = {name: SETTINGS[name] for name in ("n_steps=0, n_views=1", "n_steps=1, n_views=1", *MIXTURES)}
GOAL = 1.25  # times a TrivialAugment step, of the cheapest constrained one
EXAMPLE = "INVAUG_DATA=~/data python bench/step.py --threads 1 --rounds 7"


class Block(nn.Module):
    """Two 3x3 convolutions and a way round them."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        stride = 1 if n_in == n_out else 2
        self.convolutions = nn.Sequential(
            nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False),
            nn.BatchNorm2d(n_out),
            nn.ReLU(),
            nn.Conv2d(n_out, n_out, 3, 1, 1, bias=False),
            nn.BatchNorm2d(n_out),
        )
        self.way_round = nn.Conv2d(n_in, n_out, 1, stride, bias=False) if stride == 2 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.convolutions(x) + self.way_round(x))


def resnet8(width: int = 16, n_classes: int = 10) -> nn.Module:
    """Return the smallest ResNet for 32 px: three blocks, width doubled twice."""
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        *(Block(n_in, n_out) for n_in, n_out in ((width, width), (width, 2 * width), (2 * width, 4 * width))),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4 * width, n_classes),
    ).to(memory_format=torch.channels_last)


@dataclass
class Stopwatch:
    """Adds up the seconds spent inside it."""

    clock: Clock
    seconds: float = 0.0
    started: bool = False

    @contextmanager
    def running(self) -> Iterator[None]:
        if self.started:  # operations in a row call one another
            yield
            return
        self.started, start = True, self.clock()
        yield
        self.started = False
        self.seconds += self.clock() - start


@dataclass(frozen=True)
class TimedSet(TransformSet):
    """A set that knows how long its draws and transformations took."""

    watch: Stopwatch = field(default_factory=lambda: Stopwatch(time.perf_counter))

    def draw(self, n: int, *, generator: torch.Generator | None = None, law: Any = None) -> Draw:
        with self.watch.running():
            return super().draw(n, generator=generator, law=law)

    def apply(self, images: Tensor, draw: Draw) -> Tensor:
        with self.watch.running():
            return super().apply(images, draw)


@dataclass
class Trainer:
    """A model, its optimiser, and a way to make the loss of a batch."""

    make_loss: Callable[[nn.Module, Tensor, Tensor, Tensor], Tensor]
    batches: Iterator[tuple[Tensor, Tensor, Tensor]]
    """Images, labels and which images they are."""
    passes: float
    """What a step should cost, in forward passes."""
    watch: Stopwatch
    """The time spent in draws and transformations."""
    network: Callable[[], nn.Module] = resnet8

    def __post_init__(self) -> None:
        torch.manual_seed(0)
        self.model = self.network()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
        self.shares: list[float] = []

    def step(self) -> None:
        """Take one step, and note the share of it spent in draws and transformations."""
        before, start = self.watch.seconds, self.watch.clock()
        loss = self.make_loss(self.model, *next(self.batches))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.shares.append((self.watch.seconds - before) / (self.watch.clock() - start))


def finish(images: Tensor) -> Tensor:
    return images.float().div_(255).contiguous(memory_format=torch.channels_last)


def plain_loss(model: nn.Module, images: Tensor, targets: Tensor, indices: Tensor) -> Tensor:
    return F.cross_entropy(model(finish(images)), targets)


def trivial_loss(
    transforms: TransformSet, model: nn.Module, images: Tensor, targets: Tensor, indices: Tensor
) -> Tensor:
    return plain_loss(model, transforms.apply(images, transforms.draw(len(images))), targets, indices)


def constrained_loss(
    problem: InvarianceConstrained, model: nn.Module, images: Tensor, targets: Tensor, indices: Tensor
) -> Tensor:
    step = problem(model, images, targets, indices=indices)
    problem.dual_step(step.slack)  # here and not after the primal step, which is the same: the Lagrangian has its gamma
    return step.lagrangian


def count(settings: dict[str, Any]) -> float:
    """Return what a constrained step should cost, in forward passes: proposals scored, clean and kept views trained.

    Under the mixture a share gamma / (1 + gamma) of the images is scored, and each is trained on once.
    """
    n_steps, n_views = settings["n_steps"], settings["n_views"]
    first = 0 if settings.get("remember") else 1  # a remembered chain starts from a view that is not scored again
    scored = (n_steps + first) * n_views if n_steps else 0
    if "kind" in settings:
        gamma = settings.get("gamma_init", 1.0)
        return FORWARD * scored * gamma / (1 + gamma) + FORWARD + BACKWARD
    return FORWARD * scored + (FORWARD + BACKWARD) * (1 + n_views)


def trainers(
    images: Tensor, batch: int, clock: Clock, network: Callable[[], nn.Module], every: dict[str, dict[str, Any]]
) -> dict[str, Trainer]:
    """Return one trainer per row of the table."""
    parts = zip(images.split(batch), torch.arange(len(images)).split(batch), strict=True)
    batches = [(part, torch.randint(10, (len(part),)), indices) for part, indices in parts]

    def trainer(make_loss: Callable[[TransformSet], Any], passes: float, table: TransformSet | None = None) -> Trainer:
        table = table or sets.wide()
        transforms = TimedSet(table.ops, depth=table.depth, watch=Stopwatch(clock))
        return Trainer(make_loss(transforms), cycle(batches), passes, transforms.watch, network)

    rows = {
        PLAIN: trainer(lambda _: plain_loss, FORWARD + BACKWARD),
        TRIVIAL: trainer(lambda transforms: partial(trivial_loss, transforms), FORWARD + BACKWARD),
    }
    for name, settings in every.items():
        rows[name] = trainer(partial(constrained, settings, len(images)), count(settings), settings.get("set"))
    return rows


def constrained(settings: dict[str, Any], n_images: int, transforms: TransformSet) -> Callable[..., Tensor]:
    kind = settings.get("kind", InvarianceConstrained)
    others = {key: value for key, value in settings.items() if key not in ("kind", "set")}
    others["remember"] = n_images if settings.get("remember") else 0
    problem = kind(Constraint(transforms, 0.8), **{"gamma_init": 1.0, "finish": finish, **others})
    return partial(constrained_loss, problem)


def wrn_16_2() -> nn.Module:
    return models.build("wrn-16-2", 10, (3, 32, 32)).to(memory_format=torch.channels_last)


def costs_beside(times: dict[str, list[float]], other: str) -> dict[str, Spread]:
    return {name: Spread.of([1 / ratio for ratio in each]) for name, each in timing.ratios(times, other).items()}


def race(
    rounds: int, slot: float, batch: int, clock: Clock, title: str, network: Callable[[], nn.Module],
    every: dict[str, dict[str, Any]],
) -> list[dict[str, Any]]:  # fmt: skip
    """Time every kind of step, print the table, return the numbers."""
    images, source = timing.real_images(32, 8 * batch)
    contenders = trainers(images, batch, clock, network, every)
    tasks: dict[str, Task] = {name: trainer.step for name, trainer in contenders.items()}
    times = timing.interleaved(tasks, rounds, slot, clock)
    costs, beside = costs_beside(times, PLAIN), costs_beside(times, TRIVIAL)
    rows = [
        {
            "step": name,
            "milliseconds": Spread.of(times[name]).median * 1e3,
            "cost": costs[name]._asdict(),
            "beside_trivial": beside[name]._asdict(),
            "count": trainer.passes / (FORWARD + BACKWARD),
            "draw_and_apply": Spread.of(trainer.shares).median,
        }
        for name, trainer in contenders.items()
    ]
    print(f"{title}, channels last, batches of {batch}, {source}: median of {rounds} rounds")
    headings = ["step", "ms", "cost (quartiles)", "count", f"beside {TRIVIAL}", "draw + apply"]
    timing.print_table(headings, [in_words(row) for row in rows])
    print("cost and count in plain steps; count takes a forward pass as 1, a backward pass as 2, all else as nothing")
    cheapest = min(every, key=lambda name: beside[name].median)
    met = "met" if beside[cheapest].median <= GOAL else "NOT MET"
    print(f"cheapest constrained step: {cheapest}; goal: at most {GOAL} times {TRIVIAL}: {met}\n")
    return rows


def in_words(row: dict[str, Any]) -> list[str]:
    cost = f"{Spread(**row['cost']):.2f}"
    beside = f"{Spread(**row['beside_trivial']):.2f}"
    shares = f"{row['count']:.2f}", beside, f"{row['draw_and_apply']:.1%}"
    return [row["step"], f"{row['milliseconds']:.1f}", cost, *shares]


def import_seconds(n: int) -> Spread:
    """Return how long the import takes in a fresh interpreter that has torch; everything, as modules load on demand."""
    code = "import time, torch; start = time.perf_counter(); from invaug import *; print(time.perf_counter() - start)"
    command = [sys.executable, "-c", code]
    runs = [subprocess.run(command, capture_output=True, check=True, text=True).stdout for _ in range(n)]  # noqa: S603
    return Spread.of([float(seconds) for seconds in runs])


def main() -> None:
    parser = timing.parser(__doc__, EXAMPLE, slot=0.25)
    parser.add_argument("--batch", type=int, default=128, help="images per batch (default: %(default)s)")
    parser.add_argument("--only", nargs="+", choices=SETTINGS, metavar="STEP", help="these constrained steps alone")
    options = parser.parse_args()
    clock = timing.prepare(options)
    machine = timing.machine(options, "torch", "numba")
    print(f"{machine}\n")
    timing.warn_if_busy(options)
    how = (options.rounds, options.slot, options.batch, clock)
    some, some_wide = (
        {name: each[name] for name in each if name in (options.only or each)} for each in (SETTINGS, WIDE_SETTINGS)
    )
    rows = race(*how, "ResNet-8 of width 16", resnet8, some)
    wide = race(*how, "WRN-16-2", wrn_16_2, some_wide or WIDE_SETTINGS)
    seconds = import_seconds(5)
    met = "met" if seconds.median < IMPORT_GOAL else "NOT MET"
    print(f"import of all invaug exports, beyond torch: {seconds:.3f} s; goal: under {IMPORT_GOAL} s: {met}")
    if options.json:
        numbers = {
            "machine": machine,
            "rounds": options.rounds,
            "steps": rows,
            "wrn_16_2": wide,
            "import_seconds": seconds._asdict(),
        }
        options.json.write_text(json.dumps(numbers, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
