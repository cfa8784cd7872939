"""How good a model is: on clean images, under sets of transformations, by operation, level, class and confidence."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from invaug import TransformSet
from invaug.lab.data.batches import Batch, batches
from invaug.lab.data.splits import Split
from invaug.lab.run.folder import Predictor
from invaug.lab.train.finish import Finish
from invaug.scoring import frozen

BATCH = 256
N_BINS = 15  # of the calibration error, as Guo et al. (2017) have it
Progress = Callable[[int, int], None]
Metrics = dict[str, float]


def clean(
    network: nn.Module, finish: Finish, split: Split, workers: int = 0, progress: Progress | None = None
) -> Metrics:
    """Return loss and accuracy on untransformed images."""
    losses, scores, targets = predict_split(network, finish, split, workers, progress)
    return {"loss": float(losses.mean()), "accuracy": accuracy(scores, targets)}


def accuracy(scores: Tensor, targets: Tensor) -> float:
    """Return the share of images whose highest score is that of their class."""
    return float((scores.argmax(1) == targets).float().mean())


@torch.no_grad()
def predict_split(
    network: nn.Module, finish: Finish, split: Split, workers: int = 0, progress: Progress | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the loss, the class scores and the target of every image of a split, on the CPU."""
    found = []
    for batch in _stream(network, split, workers, progress):
        scored = score_images(network, finish, batch.images, batch.targets)
        found.append([tensor.cpu() for tensor in (*scored, batch.targets)])
    losses, scores, targets = (torch.cat(column) for column in zip(*found, strict=True))
    return losses, scores, targets


def _stream(network: nn.Module, split: Split, workers: int, progress: Progress | None) -> Iterator[Batch]:
    """Yield the images of a split in order, and report progress after each batch was used."""
    total, device = len(split.targets), next(network.parameters()).device
    found = batches(split, BATCH, epoch=0, seed=0, shuffle=False, device=device, workers=workers)
    for i, batch in enumerate(found, 1):
        yield batch
        if progress:
            progress(min(i * BATCH, total), total)


def score_images(network: nn.Module, finish: Finish, images: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return the loss of each uint8 image, shape (batch,), and its class scores, shape (batch, classes)."""
    with frozen(network) as scored:  # every module is put back in its own mode, whatever happens
        scores = scored(finish.plain(images)).float()
    return F.cross_entropy(scores, targets, reduction="none"), scores


@torch.no_grad()
def under(
    network: nn.Module,
    finish: Finish,
    split: Split,
    transforms: TransformSet,
    *,
    n_draws: int = 16,
    seed: int = 0,
    workers: int = 0,
    progress: Progress | None = None,
) -> dict[str, Metrics]:
    """Return loss and accuracy under uniform draws, under λ_c, and under the worst of the draws.

    The expectation under λ_c ∝ loss is the loss-weighted mean over the same uniform draws.
    """
    generator = torch.Generator().manual_seed(seed)
    losses, right = [], []
    for batch in _stream(network, split, workers, progress):
        draws = [transforms.draw(len(batch.images), generator=generator) for _ in range(n_draws)]
        changed = (transforms.apply(batch.images, draw) for draw in draws)
        scored = [score_images(network, finish, images, batch.targets) for images in changed]
        losses.append(torch.stack([loss for loss, _ in scored]).cpu())
        right.append(torch.stack([scores.argmax(1) == batch.targets for _, scores in scored]).cpu())
    loss, correct = torch.cat(losses, 1).double(), torch.cat(right, 1).double()
    weights = torch.where(loss.sum(0) > 0, loss / loss.sum(0).clamp(min=1e-300), 1 / n_draws)
    pairs = {
        "uniform": (loss.mean(0), correct.mean(0)),
        "lambda_c": ((weights * loss).sum(0), (weights * correct).sum(0)),
        "worst": (loss.max(0).values, correct.min(0).values),
    }
    return {name: {"loss": float(a.mean()), "accuracy": float(b.mean())} for name, (a, b) in pairs.items()}


def under_each(
    network: nn.Module, finish: Finish, split: Split, sets: Sequence[TransformSet], **options: Any
) -> list[dict[str, Metrics]]:
    """Return the result of `under` for each set; it takes the same options."""
    return [under(network, finish, split, transforms, **options) for transforms in sets]


def averaged(found: Sequence[dict[str, Metrics]]) -> dict[str, Metrics]:
    """Return the mean over sets of the results of `under`."""
    return {law: {key: fmean(one[law][key] for one in found) for key in row} for law, row in found[0].items()}


@torch.no_grad()
def by_level(
    network: nn.Module, finish: Finish, examples: Batch, transforms: TransformSet, progress: Progress | None = None
) -> dict[str, list[Metrics]]:
    """Return, for every operation, the accuracy on some images at each of its magnitudes."""
    table: dict[str, list[Metrics]] = {op.name: [] for op in transforms.ops}
    every = transforms.every()
    for i in range(len(every)):
        one = every[i]
        changed = transforms.apply(examples.images, every[torch.full((len(examples.images),), i)])
        _, scores = score_images(network, finish, changed, examples.targets)
        row = {"level": int(one.level), "magnitude": float(one.magnitude)}
        table[transforms.ops[int(one.op)].name].append(row | {"accuracy": accuracy(scores, examples.targets)})
        if progress:
            progress(i + 1, len(every))
    return table


def by_class(scores: Tensor, targets: Tensor, classes: tuple[str, ...]) -> dict[str, Metrics]:
    """Return the accuracy and the number of images of every class that has any."""
    masks = {name: targets == i for i, name in enumerate(classes)}
    return {name: _measure_some(scores, targets, mask) for name, mask in masks.items() if mask.any()}


def _measure_some(scores: Tensor, targets: Tensor, mask: Tensor) -> Metrics:
    """Return the accuracy and the number of the images of a mask."""
    return {"accuracy": accuracy(scores[mask], targets[mask]), "images": int(mask.sum())}


def calibration(scores: Tensor, targets: Tensor) -> list[Metrics]:
    """Return mean confidence, accuracy and size of each of 15 equal bins of confidence that has images."""
    confidence = scores.softmax(1).max(1).values
    bins = (confidence * N_BINS).long().clamp(max=N_BINS - 1)
    masks = [bins == i for i in bins.unique()]
    return [{"confidence": float(confidence[mask].mean())} | _measure_some(scores, targets, mask) for mask in masks]


def calibration_error(bins: Sequence[Metrics]) -> float:
    """Return the expected calibration error: |accuracy - confidence| averaged over the images of all bins."""
    total = sum(row["images"] for row in bins)
    return sum(row["images"] * abs(row["accuracy"] - row["confidence"]) for row in bins) / total


def everything(
    predictor: Predictor,
    split: Split,
    sets: Sequence[TransformSet],
    examples: Batch,
    *,
    n_draws: int = 16,
    workers: int = 0,
    progress: Callable[[str, int, int], None] = lambda *_: None,
) -> dict[str, Any]:
    """Return every number of `invaug evaluate`: those by level on the example images, the others on the split."""
    model = (predictor.network, predictor.finish)
    losses, scores, targets = predict_split(*model, split, workers, partial(progress, "clean"))
    bins = calibration(scores, targets)
    options: dict[str, Any] = {"n_draws": n_draws, "workers": workers, "progress": partial(progress, "transformed")}
    report: dict[str, Any] = {
        "images": len(targets),
        "clean": {"loss": float(losses.mean()), "accuracy": accuracy(scores, targets)},
        "calibration_error": calibration_error(bins),
        "calibration": bins,
        "classes": by_class(scores, targets, predictor.classes),
        "transformed": averaged(under_each(*model, split, sets, **options)),
    }
    for transforms in sets:
        if not any(op.continuous for op in transforms.ops):
            levels = by_level(*model, examples, transforms, partial(progress, "levels"))
            report.setdefault("levels", {}).update(levels)
    return report
