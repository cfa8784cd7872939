"""Whole training epochs on CIFAR-shaped images: plain, TrivialAugment, constrained, and a torchvision DataLoader."""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time

import numpy as np
import torch
from torch.nn import functional as F
from torch.utils import data

import timing
from invaug.lab.config.build import build
from invaug.lab.data.load import Dataset
from invaug.lab.data.splits import Split
from invaug.lab.train import loop, ranks
from invaug.lab.train.command import resolve_for
from invaug.lab.train.state import prepare
from timing import Spread, Task

METHODS = ("none", "trivial", "constrained")
MODELS = ("cnn-small", "resnet-8")
PEER = "torchvision TrivialAugmentWide, DataLoader, 2 workers"
N_IMAGES = 2048
GOALS = {"constrained / trivial": 1.35, "peak memory, constrained / none": 1.3, "invaug --help, seconds": 0.5}
EXAMPLE = "INVAUG_DATA=~/data python bench/epoch.py --rounds 5"


def images(real: bool = True) -> Dataset:
    """Return images with random labels, which do not affect the time."""
    noise = torch.randint(256, (N_IMAGES, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    pixels = timing.real_images(32, N_IMAGES)[0] if real else noise
    targets = torch.randint(10, (len(pixels),), generator=torch.Generator().manual_seed(0))
    split = Split(targets=targets, images=pixels, files=None)
    classes = tuple(map(str, range(10)))
    return Dataset("cifar10", split, None, split, classes, (0.49, 0.48, 0.45), (0.2, 0.2, 0.2), (3, 32, 32))


def epoch_of(method: str, model: str, dataset: Dataset) -> Task:
    """Return one epoch of the lab's own loop."""
    config = build({"method": method, "model": model, "epochs": 1000, "workers": 0})
    fabric = ranks.launch(config)
    config = resolve_for(config, dataset, fabric)
    training = prepare(config, dataset, fabric)

    def epoch() -> None:
        loop.one_epoch(config, dataset, training, loop.Watch())
        training.end_epoch()

    return epoch


class Augmented(data.Dataset[tuple[torch.Tensor, int]]):
    """Images one by one, as users of torchvision load them."""

    def __init__(self, dataset: Dataset) -> None:
        timing.import_torchvision()
        from PIL import Image
        from torchvision.transforms import v2

        assert dataset.train.images is not None
        self.images = [Image.fromarray(np.asarray(i.permute(1, 2, 0))) for i in dataset.train.images]
        self.targets = dataset.train.targets.tolist()
        self.transform = v2.Compose(
            [
                v2.TrivialAugmentWide(),
                v2.RandomCrop(32, padding=4),
                v2.RandomHorizontalFlip(),
                v2.ToImage(),
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize(dataset.mean, dataset.std),
            ]
        )

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        return self.transform(self.images[i]), self.targets[i]


def peer_epoch(model: str, dataset: Dataset) -> Task:
    """Return one epoch of a plain loop fed by torchvision's TrivialAugmentWide in two worker processes."""
    from invaug.lab.models.build import build_model

    loader = data.DataLoader(
        Augmented(dataset),
        128,
        shuffle=True,
        num_workers=2,
        drop_last=True,
        persistent_workers=True,
    )
    network = build_model(model, 10, dataset.image_shape).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(network.parameters(), 0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)

    def epoch() -> None:
        for inputs, targets in loader:
            optimizer.zero_grad()
            F.cross_entropy(network(inputs.to(memory_format=torch.channels_last)), targets).backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 5.0)
            optimizer.step()

    return epoch


def peak_memory(method: str) -> float:
    """Return the peak memory in MB of a process that trains ResNet-8 with this method."""
    command = [sys.executable, __file__, "--peak-memory", method]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)  # noqa: S603


def peak_of_training(method: str) -> float:
    """Return the peak memory of this process in MB; trains on noise, because reading an archive would take more."""
    epoch_of(method, "resnet-8", images(real=False))()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def help_seconds() -> float:
    """Return the seconds that `invaug --help` takes, the best of five."""
    command = [sys.executable, "-m", "invaug", "--help"]
    taken = []
    for _ in range(5):
        start = time.perf_counter()
        subprocess.run(command, capture_output=True, check=True)  # noqa: S603
        taken.append(time.perf_counter() - start)
    return min(taken)


def measure(options: argparse.Namespace) -> dict[str, float]:
    """Print the tables; return the ratios."""
    clock, dataset, found = timing.prepare(options), images(), {}
    for model in MODELS:
        tasks = {method: epoch_of(method, model, dataset) for method in METHODS} | {PEER: peer_epoch(model, dataset)}
        times = timing.interleaved(tasks, options.rounds, options.slot, clock)
        cost = {name: [1 / r for r in values] for name, values in timing.ratios(times, "trivial").items()}
        speed = {name: [N_IMAGES / seconds for seconds in taken] for name, taken in times.items()}
        print(f"{model}, {N_IMAGES} images, batches of 128\n")
        rows = [[name, f"{Spread.of(speed[name]):,.0f}", f"{Spread.of(cost[name]):.2f}"] for name in tasks]
        timing.print_table(["epoch", "images/s", "time / trivial"], rows)
        found[f"{model}: constrained / trivial"] = Spread.of(cost["constrained"]).median
        found[f"{model}: torchvision / trivial"] = Spread.of(cost[PEER]).median
    peaks = {method: peak_memory(method) for method in ("none", "constrained")}
    print("resnet-8, peak memory of the process: " + ", ".join(f"{m} {mb:.0f} MB" for m, mb in peaks.items()) + "\n")
    found["peak memory, constrained / none"] = peaks["constrained"] / peaks["none"]
    found["invaug --help, seconds"] = help_seconds()
    return found


def main() -> None:
    options = timing.parser(__doc__, EXAMPLE, slot=0.5)
    options.add_argument("--peak-memory", metavar="METHOD", help=argparse.SUPPRESS)
    options.set_defaults(rounds=5)
    arguments = options.parse_args()
    if arguments.peak_memory:
        print(peak_of_training(arguments.peak_memory))
        return
    print(timing.machine(arguments, "torch", "torchvision", "lightning-fabric"), "\n")
    timing.warn_if_busy(arguments)
    found = measure(arguments)
    for name, value in found.items():
        goal = next((limit for key, limit in GOALS.items() if name.endswith(key)), None)
        verdict = "" if goal is None else f"   (goal at most {goal:g}: {'met' if value <= goal else 'not met'})"
        print(f"{name}: {value:.2f}{verdict}")
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
