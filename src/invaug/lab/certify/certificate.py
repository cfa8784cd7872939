"""What a scored matrix proves: exact numbers for the images at hand, and bounds for the images they represent."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
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
N_PROBES = 4  # images of noise that tell whether a transformation leaves anything to see
N_NAMED = 6  # transformations named in a sentence


@dataclass(frozen=True)
class Question:
    """What is asked of a matrix."""

    transforms: TransformSet
    targets: NDArray[np.int64]
    classes: tuple[str, ...]
    image_shape: tuple[int, int, int]
    confidence: float
    cap: float
    """Losses are clipped here: bounds of a mean need a largest value, and cross-entropy has none."""
    available: int
    """Held-out images, of which `targets` are those at hand."""
    epsilon: float | None = None
    reached: float | None = None
    """What epsilon bounds, on training images in the last epoch."""
    n_steps: int = 0
    """Transitions of the chain the run was trained with; with more of them its law approaches λ_c."""
    sampler: str = "metropolis_hastings"
    """Which of its n_steps + 1 proposals the run kept: a function of `invaug.samplers`."""

    def share(self, right: Bools) -> dict[str, Any]:
        """Return a share of images with its Clopper–Pearson interval."""
        k, n = int(right.sum()), len(right)
        ends = bounds.interval(bounds.clopper_pearson(k, n, self.confidence))
        return {"share": k / n, "right": k, "images": n, "interval": ends}

    def mean_loss(self, losses: Array, clipped: Array | None = None) -> dict[str, Any]:
        """Return the mean loss, and the interval of the mean of the clipped losses: those given, or cut at the cap."""
        clipped = np.minimum(losses, self.cap) if clipped is None else clipped
        ends = bounds.interval(bounds.mean_interval(clipped, self.confidence, self.cap))
        return {"loss": float(losses.mean()), "loss_interval": ends, "cut": int((losses > self.cap).sum())}

    def loss_and_accuracy(self, losses: Array, accuracy: Array, clipped: Array | None = None) -> dict[str, Any]:
        """Return loss and accuracy under one law, with intervals, and the verdict on epsilon."""
        clipped = np.minimum(losses, self.cap) if clipped is None else clipped
        ends = bounds.interval(bounds.mean_interval(accuracy.clip(0, 1), self.confidence))
        found = {**self.mean_loss(losses, clipped), "accuracy": float(accuracy.mean()), "accuracy_interval": ends}
        said, level = verdict(found["loss_interval"], self.epsilon), self.epsilon or 0.0
        is_open = said == "cannot tell"
        needed = bounds.n_to_decide(clipped, level, self.confidence, self.cap) if is_open else None
        return {**found, "verdict": said, "images_needed": needed}

    def loss_and_share(self, losses: Array, right: Bools) -> dict[str, Any]:
        """Return the same where each image is right or wrong, so that its share has an exact interval."""
        found = self.loss_and_accuracy(losses, right.astype(np.float64))
        return found | {"accuracy_interval": self.share(right)["interval"]}

    def by_class(
        self, columns: Mapping[str, NDArray[Any]], share: Callable[[Bools], dict[str, Any]]
    ) -> dict[str, dict[str, Any]]:
        """Return, for each class that has images, the mean of each column over them and the share that is right."""
        masks = {name: self.targets == i for i, name in enumerate(self.classes)}
        return {
            name: {key: float(values[mask].mean()) for key, values in columns.items()} | share(mask)
            for name, mask in masks.items()
            if mask.any()
        }


def verdict(ends: Sequence[float | None], epsilon: float | None) -> str | None:
    """Return whether E[loss] <= epsilon holds, does not hold, or neither is shown; None without an epsilon."""
    low, high = ends
    if epsilon is None:
        return None
    if high is not None and high <= epsilon:
        return "holds"
    return "does not hold" if low is not None and low > epsilon else "cannot tell"


def is_finite_set(transforms: TransformSet) -> bool:
    """Whether a set has finitely many transformations: no continuous magnitudes, no random places."""
    return not any(op.continuous or op.placed for op in transforms.ops)


def list_transformations(transforms: TransformSet) -> tuple[Draw, Array]:
    """Return each transformation of a finite set, and the exact probability that it is drawn.

    Levels and signs with the same magnitude are one transformation, drawn as often as all of them together.
    """
    every, levels = transforms.every(), torch.arange(transforms.min_level, transforms.n_levels)
    counts: Counter[tuple[int, float]] = Counter()
    for i, op in enumerate(transforms.ops):
        sizes = op.magnitude(levels, transforms.n_levels)
        counts.update((i, size) for size in torch.cat([sizes, -sizes if op.signed else sizes]).tolist())
    keys = zip(every.op.flatten().tolist(), every.magnitude.flatten().tolist(), strict=True)
    drawn = np.array([counts[key] for key in keys], np.float64)
    return every, drawn / drawn.sum()


def find_blinding(transforms: TransformSet, every: Draw, shape: tuple[int, int, int]) -> Bools:
    """Return which transformations leave nothing to see of any image of a shape: they turn noise into one colour.

    A shift by the width of the image does. It depends on the shape alone, not on the certified images.
    """
    noise = torch.randint(256, (N_PROBES, *shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    if _is_flat(noise).any():  # images of one pixel have nothing to lose
        return np.zeros(len(every), bool)
    found = []
    for rows in torch.arange(len(every)).split(64):
        changed = transforms.apply(noise.repeat(len(rows), 1, 1, 1), every[rows.repeat_interleave(N_PROBES)])
        found.append(_is_flat(changed).view(len(rows), N_PROBES).all(1).numpy())
    return np.concatenate(found)


def _is_flat(images: torch.Tensor) -> torch.Tensor:
    """Return whether each channel of an image has one value, for each image."""
    pixels = images.flatten(2)
    return pixels.amin(2).eq(pixels.amax(2)).all(1)


def lambda_c(losses: Array, probability: Array) -> Array:
    """Return the law λ_c ∝ loss over the transformations, one column per image; uniform where all losses are zero."""
    infinite = np.isinf(losses)
    heavy = np.where(infinite.any(axis=0), infinite, losses) * probability[:, None]
    total = heavy.sum(axis=0)
    law: Array = np.where(total > 0, heavy / np.where(total > 0, total, 1.0), probability[:, None])
    return law


def chain_law(losses: Array, probability: Array, n_steps: int) -> Array:
    """Return the exact law of the last state of Metropolis–Hastings chains of uniform proposals, one column per image.

    A transition moves i to j with probability p_j min(1, l_j / l_i). With the losses sorted, the part below and the
    part above l_i are cumulative sums.
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
    return _unsort(law, order)


def worst_law(losses: Array, probability: Array, n_steps: int) -> Array:
    """Return the exact law of the worst of n_steps + 1 uniform proposals, one column per image."""
    order = losses.argsort(axis=0, kind="stable")
    none_worse = probability[order].cumsum(axis=0) ** (n_steps + 1)
    return _unsort(np.diff(none_worse, axis=0, prepend=0.0), order)


def _unsort(law: Array, order: NDArray[np.int64]) -> Array:
    unsorted = np.empty_like(law)
    np.put_along_axis(unsorted, order, law.clip(0.0), axis=0)
    return unsorted


KEPT: Mapping[str, Callable[[Array, Array, int], Array]] = {"metropolis_hastings": chain_law, "worst": worst_law}
"""The law of the views that training kept, by sampler."""


def expected_loss(law: Array, losses: Array) -> Array:
    """Return the mean loss of each image under a law; a transformation of probability 0 adds 0 even if infinite."""
    mean: Array = (law * np.where(law > 0, losses, 0.0)).sum(axis=0)
    return mean


def invariance_losses(worst: Array, clean: Array) -> Array:
    """Return how far the worst loss of each image is above its clean loss; at least 0, as the identity is allowed."""
    base = np.where(np.isinf(clean), 0.0, clean)
    return np.where(np.isinf(clean), 0.0, np.maximum(worst, clean) - base)


def certify_exactly(matrix: Matrix, every: Draw, probability: Array, question: Question) -> dict[str, Any]:
    """Return the certificate of a finite set: every image was scored under every transformation."""
    clean, losses = matrix.losses[0].astype(np.float64), matrix.losses[1:].astype(np.float64)
    right_clean, right = matrix.correct[0] > 0, matrix.correct[1:] > 0
    always = right_clean & right.all(axis=0)
    heavy = expected_loss(lambda_c(losses, probability), losses)
    columns = {"clean": right_clean, "uniform": probability @ right, "loss": heavy}
    return {
        "kind": "exact",
        "transformations": len(every),
        "clean": question.loss_and_share(clean, right_clean),
        **_by_law(losses, right, probability, question),
        "invariance_risk": question.mean_loss(invariance_losses(losses.max(axis=0), clean)),
        "all": question.share(always),
        **_without_blinding(right_clean, right, every, question),
        "operations": _by_operation(matrix, every, probability, question),
        "levels": _by_level(right, every, probability, question.transforms),
        "classes": question.by_class(columns, lambda members: question.share(always[members])),
    }


def _by_law(losses: Array, right: Bools, probability: Array, question: Question) -> dict[str, Any]:
    """Return loss and accuracy under each law."""

    def under(law: Array) -> dict[str, Any]:
        return question.loss_and_accuracy(expected_loss(law, losses), (law * right).sum(axis=0))

    n, kept, always = question.n_steps, KEPT[question.sampler], np.logical_and.reduce(right, axis=0)
    return {
        "uniform": under(np.broadcast_to(probability[:, None], losses.shape)),
        "trained": under(kept(losses, probability, n)) if n else None,
        "lambda_c": under(lambda_c(losses, probability)),
        "worst": question.loss_and_share(losses.max(axis=0), always),
    }


def _without_blinding(right_clean: Bools, right: Bools, every: Draw, question: Question) -> dict[str, Any]:
    """Return which transformations leave nothing to see, and the share of images right under all others."""
    blind = find_blinding(question.transforms, every, question.image_shape)
    names = question.transforms.describe(every[torch.from_numpy(blind)])
    some = 0 < len(names) < len(every)
    return {
        "blinding": {"count": len(names), "names": names[:N_NAMED]},
        "seeing": question.share(right_clean & right[~blind].all(axis=0)) if some else None,
    }


def _by_operation(matrix: Matrix, every: Draw, probability: Array, question: Question) -> dict[str, Any]:
    """Return the accuracy, the share of images right under all transformations, and the risk of each operation."""
    right, clean, ops = matrix.correct[1:] > 0, matrix.losses[0].astype(np.float64), every.op.flatten().numpy()
    table = {}
    for i in np.unique(ops):
        rows = ops == i
        worst = matrix.losses[1:][rows].max(axis=0).astype(np.float64)
        table[question.transforms.ops[i].name] = {
            "transformations": int(rows.sum()),
            "accuracy": _accuracy(right, rows, probability),
            **question.share((matrix.correct[0] > 0) & right[rows].all(axis=0)),
            "invariance_risk": float(invariance_losses(worst, clean).mean()),
        }
    return table


def _by_level(right: Bools, every: Draw, probability: Array, transforms: TransformSet) -> dict[str, Any]:
    """Return, for each operation, the accuracy at each of its levels, and with the worse of the two signs."""
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
