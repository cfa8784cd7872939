"""What a scored matrix proves: exact numbers of the images at hand, and bounds for the images they stand for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from invaug import Draw, TransformSet
from invaug.lab.certify import bounds
from invaug.lab.certify.matrix import Matrix

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]
N_PROBES = 4
N_NAMED = 6  # transformations named in a sentence


@dataclass(frozen=True)
class Question:
    """What is asked of a matrix, beside the matrix."""

    transforms: TransformSet
    targets: NDArray[np.int64]
    classes: tuple[str, ...]
    image_shape: tuple[int, int, int]
    confidence: float
    cap: float
    """Where the loss of an image is cut: bounds of a mean need a largest value, and cross-entropy has none."""
    epsilon: float | None = None
    n_steps: int = 0
    """Transitions of the chain the run trained with, which is on its way to λ_c."""

    def share(self, right: Bools) -> dict[str, Any]:
        """Return a share of images with its Clopper–Pearson interval."""
        k, n = int(right.sum()), len(right)
        ends = bounds.interval(bounds.clopper_pearson(k, n, self.confidence))
        return {"share": k / n, "right": k, "images": n, "interval": ends}

    def mean_loss(self, values: Array) -> dict[str, Any]:
        """Return the mean of the losses of images, and the interval of the mean of the losses cut at the cap."""
        cut = np.minimum(values, self.cap)
        ends = bounds.interval(bounds.mean_interval(cut, self.confidence, self.cap))
        return {"loss": float(values.mean()), "loss_interval": ends, "cut": int((values > self.cap).sum())}

    def law(self, losses: Array, accuracy: Array) -> dict[str, Any]:
        """Return loss and accuracy under one law, with intervals and what they say of epsilon."""
        ends = bounds.interval(bounds.mean_interval(accuracy.clip(0, 1), self.confidence))
        found = {**self.mean_loss(losses), "accuracy": float(accuracy.mean()), "accuracy_interval": ends}
        return {**found, "verdict": verdict(found["loss_interval"], self.epsilon)}


def verdict(ends: Sequence[float | None], epsilon: float | None) -> str | None:
    """Return whether E[loss] <= epsilon is met or violated with confidence, or neither was shown; None without one."""
    low, high = ends
    if epsilon is None:
        return None
    if high is not None and high <= epsilon:
        return "met"
    return "violated" if low is not None and low > epsilon else "not shown"


def is_listed(transforms: TransformSet) -> bool:
    """Whether a set has finitely many transformations, few enough to try each: none continuous, none placed."""
    return not any(op.continuous or op.placed for op in transforms.ops)


def members(transforms: TransformSet) -> tuple[Draw, Array]:
    """Return each transformation of a finite set, and the exact probability that a draw is it.

    Levels and signs that give the same magnitude are one transformation, drawn as often as all of them.
    """
    every = transforms.every()
    levels = torch.arange(transforms.min_level, transforms.n_levels)
    chances: dict[tuple[int, float], float] = {}
    for i, op in enumerate(transforms.ops):
        sizes = op.magnitude(levels, transforms.n_levels).numpy()
        both = np.concatenate([sizes, -sizes if op.signed else sizes]) + 0.0  # no -0
        values, counts = np.unique(both, return_counts=True)
        chances |= {(i, float(v)): c / len(both) / len(transforms.ops) for v, c in zip(values, counts, strict=True)}
    keys = zip(every.op.flatten().tolist(), every.magnitude.flatten().tolist(), strict=True)
    probability = np.array([chances[key] for key in keys])
    return every, probability


def blinding(transforms: TransformSet, every: Draw, shape: tuple[int, int, int]) -> Bools:
    """Return which transformations leave nothing to see of any image of a shape: noise becomes one colour.

    A shift by the width of the image does; which ones do depends on the shape alone, not on the images certified.
    """
    noise = torch.randint(256, (N_PROBES, *shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    if noise.flatten(2).amin(2).eq(noise.flatten(2).amax(2)).any():  # images of one pixel have nothing to lose
        return np.zeros(len(every), bool)
    found = []
    for rows in torch.arange(len(every)).split(64):
        changed = transforms.apply(noise.repeat(len(rows), 1, 1, 1), every[rows.repeat_interleave(N_PROBES)]).flatten(2)
        flat = changed.amin(2).eq(changed.amax(2)).all(1)
        found.append(flat.view(len(rows), N_PROBES).all(1).numpy())
    return np.concatenate(found)


def lambda_c(losses: Array, probability: Array) -> Array:
    """Return the law λ_c ∝ loss over the transformations, one column an image; the uniform law where no loss is."""
    infinite = np.isinf(losses)
    heavy = np.where(infinite.any(axis=0), infinite, np.where(infinite, 0.0, losses)) * probability[:, None]
    total = heavy.sum(axis=0)
    law: Array = np.where(total > 0, heavy / np.where(total > 0, total, 1.0), probability[:, None])
    return law


def chain_law(losses: Array, probability: Array, n_steps: int) -> Array:
    """Return where Metropolis–Hastings chains of uniform proposals end, exactly; one column an image.

    A step moves i to j with p_j min(1, l_j / l_i). In the order of the losses both sums of it are running sums.
    """
    order = losses.argsort(axis=0, kind="stable")
    loss, p = np.take_along_axis(losses, order, axis=0), probability[order]
    finite = np.where(np.isfinite(loss), loss, 0.0)
    inverse = np.divide(1.0, loss, out=np.zeros_like(loss), where=loss > 0)
    above = p[::-1].cumsum(axis=0)[::-1]
    leaves = above + inverse * ((p * finite).cumsum(axis=0) - p * finite)
    law = p
    for _ in range(n_steps):
        heavier = (law * inverse)[::-1].cumsum(axis=0)[::-1] - law * inverse
        law = p * (law.cumsum(axis=0) + finite * heavier) + law * (1 - leaves)
    found = np.empty_like(law)
    np.put_along_axis(found, order, law.clip(0.0), axis=0)
    return found


def expected(law: Array, losses: Array) -> Array:
    """Return the mean loss of each image under a law; a transformation without probability adds nothing."""
    mean: Array = np.where(law > 0, law * np.where(law > 0, losses, 0.0), 0.0).sum(axis=0)
    return mean


def exact(matrix: Matrix, every: Draw, probability: Array, question: Question) -> dict[str, Any]:
    """Return the certificate of a finite set: every image was scored under every transformation."""
    clean, losses = matrix.losses[0].astype(np.float64), matrix.losses[1:].astype(np.float64)
    right_clean, right = matrix.correct[0] > 0, matrix.correct[1:] > 0
    law, worst = lambda_c(losses, probability), losses.max(axis=0)
    always: Bools = np.logical_and.reduce(right, axis=0)
    uniform, heavy = expected(np.broadcast_to(probability[:, None], losses.shape), losses), expected(law, losses)
    blind = blinding(question.transforms, every, question.image_shape)
    names = question.transforms.describe(every[torch.from_numpy(blind)])
    return {
        "kind": "exact",
        "transformations": len(every),
        "uniform": question.law(uniform, probability @ right),
        "chain": _chain(losses, right, probability, question),
        "lambda_c": question.law(heavy, (law * right).sum(axis=0)),
        # a worst case is right or wrong, so its share has an exact interval
        "worst": question.law(worst, always.astype(np.float64))
        | {"accuracy_interval": question.share(always)["interval"]},
        "invariance_risk": question.mean_loss(above(worst, clean)),
        "all": question.share(right_clean & always),
        "blinding": {"count": len(names), "names": names[:N_NAMED]},
        "seeing": question.share(right_clean & right[~blind].all(axis=0)) if 0 < len(names) < len(every) else None,
        "operations": _by_op(matrix, every, probability, question),
        "levels": _by_level(right, every, probability, question.transforms),
        "classes": by_class(
            question,
            lambda members: {
                "clean": float(right_clean[members].mean()),
                "uniform": float((probability @ right[:, members]).mean()),
                "loss": float(heavy[members].mean()),
                **question.share((right_clean & always)[members]),
            },
        ),
    }


def _chain(losses: Array, right: Bools, probability: Array, question: Question) -> dict[str, Any] | None:
    """Return loss and accuracy under the law the run was trained on; None where that is the uniform one."""
    if not question.n_steps:
        return None
    law = chain_law(losses, probability, question.n_steps)
    accuracy = (law * right).sum(axis=0)
    return question.law(expected(law, losses), accuracy) | {"n_steps": question.n_steps}


def above(worst: Array, clean: Array) -> Array:
    """Return the invariance loss of each image, the identity among the transformations: worst or clean, less clean."""
    return np.where(np.isinf(clean), 0.0, np.maximum(worst, clean) - np.where(np.isinf(clean), 0.0, clean))


def _by_op(matrix: Matrix, every: Draw, probability: Array, question: Question) -> dict[str, Any]:
    """Return, for each operation, accuracy under its draws, the images right under all of them, its invariance risk."""
    losses, right, clean = matrix.losses[1:], matrix.correct[1:] > 0, matrix.losses[0].astype(np.float64)
    table = {}
    for i in np.unique(every.op.flatten().numpy()):
        rows = every.op.flatten().numpy() == i
        risk = above(losses[rows].max(axis=0).astype(np.float64), clean).mean()
        found = {"transformations": int(rows.sum()), "accuracy": _accuracy(right, rows, probability)}
        share = question.share((matrix.correct[0] > 0) & right[rows].all(axis=0))
        table[question.transforms.ops[i].name] = {**found, **share, "invariance_risk": float(risk)}
    return table


def _by_level(right: Bools, every: Draw, probability: Array, transforms: TransformSet) -> dict[str, Any]:
    """Return, for each operation, the accuracy at each of its levels, and of the worse sign."""
    op, level = every.op.flatten().numpy(), every.level.flatten().numpy()
    table: dict[str, list[dict[str, float]]] = {}
    for i, at in sorted(set(zip(op.tolist(), level.tolist(), strict=True))):
        rows = (op == i) & (level == at)
        row = {"level": at, "magnitude": float(every.magnitude[torch.from_numpy(rows)].abs().max())}
        scores = {"accuracy": _accuracy(right, rows, probability), "worse": float(right[rows].mean(axis=1).min())}
        table.setdefault(transforms.ops[i].name, []).append({**row, **scores})
    return table


def _accuracy(right: Bools, rows: Bools, probability: Array) -> float:
    return float((probability[rows] @ right[rows]).mean() / probability[rows].sum())


def by_class(question: Question, describe: Callable[[Bools], dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return what is said of the images of each class that has some."""
    masks = {name: question.targets == i for i, name in enumerate(question.classes)}
    return {name: describe(mask) for name, mask in masks.items() if mask.any()}
