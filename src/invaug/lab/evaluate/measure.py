"""How good a model is: on clean images, under a set of transformations, by operation, level and class."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from invaug import Draw, TransformSet, metropolis_hastings
from invaug.lab.data.batches import Batch, batches
from invaug.lab.data.splits import Split
from invaug.lab.train.finish import Finish
from invaug.samplers import Sampler
from invaug.scoring import frozen

BATCH = 256
N_BINS = 15  # of the calibration error
Progress = Callable[[int, int], None]


def clean(
    network: nn.Module, finish: Finish, split: Split, workers: int = 0, progress: Progress | None = None
) -> dict[str, float]:
    """Return loss and accuracy on the images as they are."""
    losses, scores, targets = predict_split(network, finish, split, workers, progress)
    return {"loss": float(losses.mean()), "accuracy": float((scores.argmax(1) == targets).float().mean())}


@torch.no_grad()
def predict_split(
    network: nn.Module, finish: Finish, split: Split, workers: int = 0, progress: Progress | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the loss, the class scores and the target of every image of a split, on the CPU."""
    found = []
    for i, batch in enumerate(_stream(network, split, workers)):
        found.append([t.cpu() for t in _losses(network, finish.plain(batch.images), batch.targets)])
        if progress:
            progress(min((i + 1) * BATCH, len(split.targets)), len(split.targets))
    losses, scores, targets = (torch.cat(column) for column in zip(*found, strict=True))
    return losses, scores, targets


def _stream(network: nn.Module, split: Split, workers: int) -> Iterator[Batch]:
    device = next(network.parameters()).device
    return batches(split, BATCH, epoch=0, seed=0, shuffle=False, device=device, workers=workers)


def _losses(network: nn.Module, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    with frozen(network) as scored:  # every module back in its own mode, whatever happens
        scores = scored(inputs).float()
    return F.cross_entropy(scores, targets, reduction="none"), scores, targets


@torch.no_grad()
def under(
    network: nn.Module, finish: Finish, split: Split, transforms: TransformSet, *, n_draws: int = 16, seed: int = 0,
    workers: int = 0, progress: Progress | None = None,
) -> dict[str, dict[str, float]]:  # fmt: skip
    """Return loss and accuracy under uniform draws, under λ_c, and under the worst of the draws.

    The expectation under λ_c ∝ loss is the loss-weighted mean over the same uniform draws.
    """
    generator = torch.Generator().manual_seed(seed)
    losses, right = [], []
    for i, batch in enumerate(_stream(network, split, workers)):
        draws = [transforms.draw(len(batch.images), generator=generator) for _ in range(n_draws)]
        scored = [_losses(network, finish.plain(transforms.apply(batch.images, d)), batch.targets) for d in draws]
        losses.append(torch.stack([loss for loss, _, _ in scored]).cpu())
        right.append(torch.stack([scores.argmax(1) == targets for _, scores, targets in scored]).cpu().double())
        if progress:
            progress(min((i + 1) * BATCH, len(split.targets)), len(split.targets))
    loss, correct = torch.cat(losses, 1).double(), torch.cat(right, 1)
    weights = torch.where(loss.sum(0) > 0, loss / loss.sum(0).clamp(min=1e-300), 1 / n_draws)
    pairs = {
        "uniform": (loss.mean(0), correct.mean(0)),
        "lambda_c": ((weights * loss).sum(0), (weights * correct).sum(0)),
        "worst": (loss.max(0).values, correct.min(0).values),
    }
    return {name: {"loss": float(a.mean()), "accuracy": float(b.mean())} for name, (a, b) in pairs.items()}


def under_each(
    network: nn.Module, finish: Finish, split: Split, sets: Sequence[TransformSet], *, progress: Progress | None = None,
    **options: Any,
) -> list[dict[str, dict[str, float]]]:  # fmt: skip
    """Return what `under` says of each set."""
    n, total = len(split.targets), len(sets) * len(split.targets)
    return [
        under(network, finish, split, transforms, progress=_shifted(progress, i * n, total), **options)
        for i, transforms in enumerate(sets)
    ]


def averaged(found: Sequence[dict[str, dict[str, float]]]) -> dict[str, dict[str, float]]:
    """Return the mean over sets of what `under` says."""
    return {law: {key: fmean(one[law][key] for one in found) for key in row} for law, row in found[0].items()}


def _shifted(progress: Progress | None, before: int, total: int) -> Progress | None:
    return None if progress is None else lambda done, _: progress(before + done, total)


@torch.no_grad()
def by_level(
    network: nn.Module, finish: Finish, images: Tensor, targets: Tensor, transforms: TransformSet,
    progress: Progress | None = None,
) -> dict[str, list[dict[str, float]]]:  # fmt: skip
    """Return, for every operation, the accuracy of these images at each of its magnitudes."""
    table: dict[str, list[dict[str, float]]] = {op.name: [] for op in transforms.ops}
    every = transforms.every()
    for i in range(len(every)):
        one = every[i]
        draw = Draw(*(column.expand(len(images), *column.shape[1:]) for column in (one.op, one.level, one.magnitude)))
        _, scores, _ = _losses(network, finish.plain(transforms.apply(images, draw)), targets)
        accuracy = float((scores.argmax(1) == targets).float().mean())
        row = {"level": int(one.level), "magnitude": float(one.magnitude), "accuracy": accuracy}
        table[transforms.ops[int(one.op)].name].append(row)
        if progress:
            progress(i + 1, len(every))
    return table


def by_class(scores: Tensor, targets: Tensor, classes: tuple[str, ...]) -> dict[str, dict[str, float]]:
    """Return the accuracy and the number of images of every class that has some."""
    right = scores.argmax(1) == targets
    return {
        name: {"accuracy": float(right[targets == i].float().mean()), "images": int((targets == i).sum())}
        for i, name in enumerate(classes)
        if (targets == i).any()
    }


def calibration_error(scores: Tensor, targets: Tensor) -> float:
    """Return the expected calibration error: |accuracy - confidence| over 15 bins of confidence, by their size."""
    confidence, predicted = scores.softmax(1).max(1)
    bins = (confidence * N_BINS).long().clamp(max=N_BINS - 1)
    gaps = torch.zeros(N_BINS).index_add_(0, bins, (predicted == targets).float() - confidence)
    return float(gaps.abs().sum() / len(targets))


def whole(
    network: nn.Module, finish: Finish, split: Split, classes: tuple[str, ...], sets: Sequence[TransformSet], *,
    n_draws: int = 16, n_images: int = 256, n_steps: int = 1, sampler: Sampler = metropolis_hastings, workers: int = 0,
    progress: Callable[[str, int, int], None] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Return everything `invaug evaluate` says of a model."""
    from invaug.lab.evaluate import pictures  # which reads the number of bins from here

    losses, scores, targets = predict_split(network, finish, split, workers, _named(progress, "clean"))
    accuracy = float((scores.argmax(1) == targets).float().mean())
    report: dict[str, Any] = {
        "images": len(targets),
        "clean": {"loss": float(losses.mean()), "accuracy": accuracy},
        "calibration_error": calibration_error(scores, targets),
        "calibration": pictures.calibration(scores, targets),
        "classes": by_class(scores, targets, classes),
    }
    if not sets:
        return report
    step = _named(progress, "transformed")
    each = under_each(network, finish, split, sets, n_draws=n_draws, workers=workers, progress=step)
    report["transformed"] = averaged(each)
    first = next(iter(batches(split, n_images, epoch=0, seed=0, shuffle=True, device=_device(network))))
    shown = (network, finish, first.images, first.targets, classes, sets)
    report["gallery"] = pictures.gallery(*shown, sampler=sampler, n_steps=n_steps)
    report["hardest"] = pictures.hardest(*shown)
    for transforms in sets:
        if not any(op.continuous for op in transforms.ops):
            levels = by_level(network, finish, first.images, first.targets, transforms, _named(progress, "levels"))
            report.setdefault("levels", {}).update(levels)
    return report


def _device(network: nn.Module) -> torch.device:
    return next(network.parameters()).device


def _named(progress: Callable[[str, int, int], None] | None, name: str) -> Progress | None:
    return None if progress is None else lambda done, total: progress(name, done, total)
