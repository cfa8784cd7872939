"""Langevin and Hamiltonian chains beside independent ones, for transformations with a gradient in their magnitude.

    python bench/langevin.py [--data digits] [--images 40] [--chains 64] [--threads 1]

A small network is trained for a few epochs; then, for held-out images, λ_c ∝ loss over the magnitude is known to any
accuracy from a fine grid, and chains of each kind are held against it: how much of the way from U(G) to λ_c the mean
loss of their states has gone, how far their histogram is from λ_c's, and the CPU seconds they took. Chains with a
gradient get the best of a few step sizes, independent ones have none to choose.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from invaug import TransformSet, metropolis_hastings, sets
from invaug.lab import config as configs
from invaug.lab import loop, ranks, train
from invaug.lab.batches import batches
from invaug.lab.training import prepare

FAMILIES = {
    "rotations ± 90°": sets.rotations(math.pi / 2),
    "scalings ± 0.5": sets.scalings(0.5),
}
N_GRID, N_BINS = 240, 12
STEPS = (0.1, 0.3, 0.6)  # of the range, tried for chains that have a step
SMALLEST = 1e-12  # of a loss whose logarithm is taken
Losses = Callable[[Tensor, Tensor], Tensor]


class Chains(NamedTuple):
    """Where chains ended: a magnitude each, in parts of the range from -1 to 1, and the loss there."""

    place: Tensor
    loss: Tensor


def independent(losses: Losses, rows: Tensor, n_steps: int, _: float) -> Chains:
    """Return the library's: proposals that do not depend on the state are scored, then a chain goes through them."""
    places = 2 * torch.rand(n_steps + 1, len(rows)) - 1
    with torch.no_grad():
        scores = torch.stack([losses(rows, place) for place in places])
    state = metropolis_hastings(scores).state
    return Chains(places.gather(0, state[None])[0], scores.gather(0, state[None])[0])


def _with_slope(losses: Losses, rows: Tensor, place: Tensor) -> tuple[Tensor, Tensor]:
    """Return log loss and its derivative; no density outside the range."""
    place = place.detach().requires_grad_()
    density = losses(rows, place.clamp(-1, 1)).clamp(min=SMALLEST).log()
    (slope,) = torch.autograd.grad(density.sum(), place)
    return density.detach().masked_fill(place.detach().abs() > 1, -math.inf), slope


def hamiltonian(n_leaps: int) -> Callable[[Losses, Tensor, int, float], Chains]:
    """Return Hamiltonian chains; with one leap this is Langevin with its Metropolis correction."""

    def run(losses: Losses, rows: Tensor, n_steps: int, step: float) -> Chains:
        place = 2 * torch.rand(len(rows)) - 1
        density, slope = _with_slope(losses, rows, place)
        for _ in range(n_steps):
            speed = torch.randn(len(rows))
            energy, there, slope_there, at = density - speed**2 / 2, place, slope, density
            for _ in range(n_leaps):
                speed = speed + step / 2 * slope_there
                there = there + step * speed
                at, slope_there = _with_slope(losses, rows, there)
                speed = speed + step / 2 * slope_there
            moves = torch.rand(len(rows)).log() < at - speed**2 / 2 - energy
            place, density = torch.where(moves, there, place), torch.where(moves, at, density)
            slope = torch.where(moves, slope_there, slope)
        return Chains(place, density.exp())

    return run


KINDS = {"independent": independent, "Langevin": hamiltonian(1), "Hamiltonian, 3 leaps": hamiltonian(3)}
LENGTHS = {"independent": (1, 2, 4, 8, 24), "Langevin": (1, 2, 4, 24), "Hamiltonian, 3 leaps": (1, 2, 8)}


def trained(data: str, data_dir: Path | None, n_images: int) -> tuple[Callable[[Tensor, Tensor], Tensor], Tensor]:
    """Return the loss of images under a network trained for a while, by their rows, and the held-out images."""
    given = {"data": data, "epochs": 3, "val_fraction": 0.2, "method": "none", "workers": 0}
    config = configs.build(given | ({"data_dir": data_dir} if data_dir else {}))
    fabric = ranks.launch(train.decide(config))
    dataset = train.load_once(config, fabric, with_test=False)
    config = train.decide_for(config, dataset, config.method)
    training, finish = prepare(config, dataset, fabric)
    for _ in range(config.epochs):
        loop.one_epoch(config, dataset, training, loop.Watch())
        training.end_epoch()
    if dataset.val is None:
        raise SystemExit(f"no images of {data} could be held out")
    network = training.network.eval().requires_grad_(requires_grad=False)
    shown = next(iter(batches(dataset.val, n_images, epoch=0, seed=0, shuffle=False)))

    def losses(images: Tensor, rows: Tensor) -> Tensor:
        return F.cross_entropy(network(finish.plain(images)), shown.targets[rows], reduction="none")

    return losses, shown.images.float()


def under(family: TransformSet, losses: Callable[[Tensor, Tensor], Tensor], images: Tensor) -> Losses:
    """Return the loss of some rows at a place of the family's range each."""
    (op,) = family.ops
    return lambda rows, place: losses(op.function(images[rows], place * op.stop), rows)


class Truth(NamedTuple):
    """λ_c of each image, from a grid."""

    uniform: Tensor
    """Mean loss under U(G), shape (images,)."""
    mean: Tensor
    """Mean loss under λ_c, shape (images,)."""
    bins: Tensor
    """Its probability of each part of the range, shape (images, N_BINS)."""


def truth(losses: Losses, n_images: int) -> Truth:
    """Return what long chains must come to."""
    places, rows = (torch.arange(N_GRID) + 0.5) * 2 / N_GRID - 1, torch.arange(n_images)
    with torch.no_grad():
        grid = torch.stack([losses(rows, place.expand(n_images)) for place in places], 1).double()
    law = grid / grid.sum(1, keepdim=True)
    return Truth(grid.mean(1), (law * grid).sum(1), law.view(n_images, N_BINS, -1).sum(2))


def held_against(chains: Chains, known: Truth) -> tuple[float, float]:
    """Return how much of the way from U(G) to λ_c the chains have gone, and how far their histogram is from it."""
    n_images = len(known.mean)
    means = chains.loss.double().view(-1, n_images).mean(0)
    way = (means - known.uniform).sum() / (known.mean - known.uniform).sum()
    bins = ((chains.place + 1) / 2 * N_BINS).long().clamp(0, N_BINS - 1).view(-1, n_images)
    found = F.one_hot(bins, N_BINS).double().mean(0)
    return float(way), float((found - known.bins).abs().sum(1).mean() / 2)


def main() -> None:
    """Print a table for each family."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="digits")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--images", type=int, default=40)
    parser.add_argument("--chains", type=int, default=64, help="for each image")
    parser.add_argument("--threads", type=int, default=1)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    torch.manual_seed(0)
    network, images = trained(asked.data, asked.data_dir, asked.images)
    rows = torch.arange(len(images)).repeat(asked.chains)
    for name, family in FAMILIES.items():
        losses = under(family, network, images)
        known = truth(losses, len(images))
        sure = Chains(torch.multinomial(known.bins, asked.chains, replacement=True).T.reshape(-1), torch.empty(0))
        floor = held_against(Chains((sure.place + 0.5) * 2 / N_BINS - 1, known.mean.repeat(asked.chains)), known)[1]
        print(f"\n{name}: mean loss {known.uniform.mean():.3f} under U(G), {known.mean.mean():.3f} under λ_c; "
              f"as many draws of λ_c itself have a distance of {floor:.3f}")  # fmt: skip
        print(f"{'chain':22}{'steps':>6}{'step size':>11}{'of the way':>12}{'distance':>10}{'seconds':>9}")
        for kind, run in KINDS.items():
            for n_steps in LENGTHS[kind]:
                tried = []
                for size in (0.0,) if kind == "independent" else STEPS:
                    start = time.process_time()
                    way, distance = held_against(run(losses, rows, n_steps, size), known)
                    tried.append((distance, way, size, time.process_time() - start))
                distance, way, size, seconds = min(tried)
                print(f"{kind:22}{n_steps:6}{size or '–':>11}{way:12.2f}{distance:10.3f}{seconds:9.2f}")


if __name__ == "__main__":
    main()
