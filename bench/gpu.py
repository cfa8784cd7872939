"""Check an accelerator in about ten minutes: exact operations, the cost of a step, throughput, launches and reads."""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

sys.path.insert(0, str(Path(__file__).parents[1]))  # the cases and Pillow's answers are those of the tests

import calls
import step
import timing
from invaug import sets
from invaug.kernels import dispatch
from tests.support.exactness import EVERY, MODES, OBLONGS, SQUARES, chunks, draw_of, every_case, places_for
from tests.support.images import real_images
from tests.support.pillow_reference import by_pillow
from timing import Clock, Spread, Task, cycle_through, one_by_one

EXAMPLE = "INVAUG_DATA=~/data python bench/gpu.py --device cuda"
STEPS = ["default, gamma 1", 'views="both", as printed']
PACKAGES = ("invaug", "torch", "numpy", "pillow", "kornia", "torchvision")


class Size(NamedTuple):
    """How much is measured."""

    shapes: list[tuple[int, int]]
    n_images: int
    """Under every operation at every level and sign."""
    networks: tuple[str, ...]
    batch: int
    """Images per step."""
    applied: dict[int, int]
    """Images per call of `apply`, by their side."""


FULL = Size(SQUARES + OBLONGS, 8, ("wrn-16-2", "wrn-40-2"), 128, {32: 1024, 224: 128})
QUICK = Size([(8, 8), (5, 9)], 1, ("resnet-8",), 8, {32: 8})


def compare_with_pillow(size: Size, device: str) -> dict[str, Any]:
    """Return how many bytes differ from Pillow's, and of which operations."""
    cases, n_bytes, differing = every_case(), 0, Counter[str]()
    for height, width in size.shapes:
        for n_channels in MODES.values():
            for image in real_images(size.n_images, height, width, n_channels):
                for chunk in chunks(len(cases), height, width, n_channels):
                    names, magnitudes = zip(*cases[chunk], strict=True)
                    differing += count_differing(list(names), magnitudes, image, device)
                n_bytes += len(cases) * image.numel()
    return {
        "operations": len(EVERY.names),
        "magnitudes": len(cases),
        "shapes": size.shapes,
        "modes": list(MODES),
        "bytes": n_bytes,
        "differing_bytes": differing.total(),
        "by_operation": dict(differing),
    }


def count_differing(names: list[str], magnitudes: Iterable[float], image: Tensor, device: str) -> Counter[str]:
    """Return how many bytes differ, by operation; operations without a difference are left out."""
    images, places = image.expand(len(names), -1, -1, -1).contiguous(), places_for(len(names))
    sizes = torch.tensor([*magnitudes], dtype=torch.float64)
    changed = EVERY.apply(images.to(device), draw_of(names, sizes, places)).cpu()
    wrong = (changed != by_pillow(names, images, sizes, places)).flatten(1).sum(1)
    found = Counter[str]()
    for name, count in zip(names, wrong.tolist(), strict=True):
        found[name] += count
    return +found


def time_steps(size: Size, rounds: int, slot: float, clock: Clock, device: str) -> dict[str, Any]:
    """Return the milliseconds of each kind of step, and its ratio to TrivialAugment in the same rounds."""
    how = (rounds, slot, size.batch, clock)
    tables = {model: step.race(*how, model, STEPS, device) for model in size.networks}
    return {
        model: {
            name: {"milliseconds": row["milliseconds"], "times_trivialaugment": row[step.TRIVIAL]._asdict()}
            for name, row in table.items()
        }
        for model, table in tables.items()
    }


def appliers(device: str) -> dict[str, tuple[Callable[[Any], object], Callable[[Tensor], Any]]]:
    """Return how each library that is installed transforms a batch on the device, and the batch in its own format."""
    wide = sets.wide()
    found: dict[str, tuple[Callable[[Any], object], Callable[[Tensor], Any]]] = {
        "invaug": (lambda images: wide.apply(images, wide.draw(len(images))), lambda images: images)
    }
    if find_spec("torchvision"):
        timing.import_torchvision()
        v2 = import_module("torchvision.transforms.v2")
        found["torchvision v2"] = (partial(one_by_one, v2.TrivialAugmentWide()), lambda images: images)
    if find_spec("kornia"):
        auto = import_module("kornia.augmentation.auto")
        floats = (partial(one_by_one, auto.TrivialAugment().to(device)), lambda images: (images / 255).split(1))
        found["kornia"] = floats
    return found


def time_apply(size: Size, rounds: int, slot: float, clock: Clock, device: str) -> dict[str, Any]:
    """Return the images per second under one operation of the wide set each; the peers take them one by one."""
    found: dict[str, Any] = {}
    for side, batch in size.applied.items():
        images, source = timing.real_images(side, 4 * batch)
        batches = images.to(device).split(batch)
        tasks = {name: cycle_through(f, [*map(form, batches)]) for name, (f, form) in appliers(device).items()}
        times = timing.interleaved(tasks, rounds, slot, clock)
        rates = {name: Spread.of([batch / seconds for seconds in taken]) for name, taken in times.items()}
        print(f"{side} px, batches of {batch}, {source}")
        timing.print_table(["one wide operation per image", "images/s"], [[n, f"{r:,.0f}"] for n, r in rates.items()])
        found[str(side)] = {"batch": batch, "images_per_second": {n: r._asdict() for n, r in rates.items()}}
    return found


def count_calls(batch: int, device: str) -> dict[str, Any]:
    """Return what a step with a one-layer network asks of the device: calls, reads, launches and copies to the host."""
    found = {}
    for views in ("one", "both"):
        take = calls.make_step(batch, views, device)
        take()  # the first may compile kernels
        n_calls, n_reads = calls.count_step(take)
        found[views] = {"aten_calls": n_calls, "reads": n_reads, **profiled(take, device)}
    columns = ["aten_calls", "reads", "launches", "copies_to_host"]
    timing.print_table(["views", *columns], [[how, *(str(row[c]) for c in columns)] for how, row in found.items()])
    return found


def profiled(take: Task, device: str) -> dict[str, int | None]:
    """Return how many kernels were launched and how often the device copied to the host; None where nobody counts."""
    if device != "cuda":
        return {"launches": None, "copies_to_host": None}
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as watched:
        take()
        torch.cuda.synchronize()
    return count_events(event.name for event in watched.events())


def count_events(names: Iterable[str]) -> dict[str, int | None]:
    """Return how many events of CUDA's profile are launches, and how many copies to the host.

    >>> count_events(["aten::add", "cudaLaunchKernel", "cuLaunchKernelEx", "Memcpy DtoH (Device -> Pageable)"])
    {'launches': 2, 'copies_to_host': 1}
    """
    every = list(names)
    copies = sum(name.startswith("Memcpy DtoH") for name in every)
    return {"launches": sum("LaunchKernel" in name for name in every), "copies_to_host": copies}


def versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found


def name_of(device: str) -> str:
    return torch.cuda.get_device_name() if device == "cuda" else device


def main() -> None:
    parser = timing.parser(__doc__, EXAMPLE, slot=0.5)
    parser.add_argument("--device", required=True, choices=("cuda", "mps", "cpu"), help="cpu is a rehearsal")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that everything runs")
    parser.set_defaults(json=Path("gpu.json"))
    options = parser.parse_args()
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if not available[options.device]:
        others = ", ".join(name for name, is_there in available.items() if is_there)
        parser.error(f"--device {options.device} is not available on this machine: choose one of {others}")
    dispatch.has_numba = lambda: False  # type: ignore[assignment] # the torch kernels, also on the CPU
    warnings.simplefilter("ignore")  # the peers' warnings about each other's versions
    torch.set_num_threads(options.threads)
    started, size, device = time.perf_counter(), QUICK if options.quick else FULL, options.device
    how = (options.rounds, options.slot, timing.device_clock(device), device)
    print(f"{name_of(device)}, {timing.machine(options, 'torch')}\n")
    exactness = compare_with_pillow(size, device)
    print(f"{exactness['differing_bytes']:,} of {exactness['bytes']:,} bytes differ from Pillow\n")
    numbers = {
        "device": device,
        "name": name_of(device),
        "quick": options.quick,
        "versions": versions(),
        "exactness": exactness,
        "steps": time_steps(size, *how),
        "throughput": time_apply(size, *how),
        "calls": count_calls(size.batch, device),
        "seconds": time.perf_counter() - started,
    }
    options.json.write_text(json.dumps(numbers, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"written: {options.json}")
    sys.exit(1 if exactness["differing_bytes"] else 0)


if __name__ == "__main__":
    main()
