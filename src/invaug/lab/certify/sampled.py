"""What random draws prove: about sequences of operations, continuous magnitudes and operations at random places."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from invaug import Draw, Op, TransformSet, samplers
from invaug.lab.certify import bounds
from invaug.lab.certify.certificate import Array, Bools, Question, expected_loss, invariance_losses, lambda_c, verdict
from invaug.lab.certify.matrix import MISTAKE, TOLERANCE, Matrix, decide_images

BINS = 20  # of a continuous magnitude
ENDS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "metropolis_hastings": samplers.chain_probabilities,
    "worst": lambda losses: torch.zeros_like(losses).scatter_(0, losses.argmax(0, keepdim=True), 1.0),
}
"""The probability that training kept each of the proposals of a chain, by sampler."""


def certify_from_draws(matrix: Matrix, first: Draw, question: Question) -> dict[str, Any]:
    """Return the certificate of a set that is not listed, from independent draws for each image.

    The mean over an image's draws is an unbiased number for that image, whatever the number of draws, and images are
    independent: so the intervals of means over images hold for the mean over images and draws together. No draw
    exceeds the worst transformation, so whatever concerns the worst case has one end only.

    Args:
        first: The draws of the first rows, which every image got; how many follow depends on the answers to these.
    """
    n_first = len(first) // matrix.losses.shape[1]
    clean, right_clean = matrix.losses[0].astype(np.float64), matrix.correct[0] > 0
    losses, right = matrix.losses[1 : 1 + n_first].astype(np.float64), matrix.correct[1 : 1 + n_first] > 0
    law = lambda_c(losses, np.full(n_first, 1 / n_first))
    worst = np.nanmax(matrix.losses[1:].astype(np.float64), axis=0)
    under_all: Bools = (matrix.correct[1:] != 0).all(axis=0)
    uniform = _under(np.full_like(losses, 1 / n_first), losses, right, question)
    trained = kept_weights(losses, question.n_steps, question.sampler)
    columns = {"clean": right_clean, "uniform": right.mean(axis=0), "loss": expected_loss(law, losses)}
    decided = decide_images(matrix)
    return {
        "kind": "sampled",
        "draws": int((matrix.correct[1:] >= 0).sum()),
        "draws_per_image": n_first,
        "clean": question.loss_and_share(clean, right_clean),
        "uniform": uniform,
        "trained": _under(trained, losses, right, question) if question.n_steps else None,
        "lambda_c": _under_lambda_c(law, losses, right, uniform, question),
        "worst": _under_worst(worst, under_all, question),
        "invariance_risk": _without_upper_end(question.mean_loss(invariance_losses(worst, clean))),
        "all": _without_lower_end(question.share(right_clean & under_all)),
        "nearly": nearly_invariant(decided, question),
        **_by_magnitude(right, first, question.transforms),
        "classes": question.by_class(columns, lambda members: nearly_invariant(decided[members], question)),
    }


def kept_weights(losses: Array, n_steps: int, sampler: str) -> Array:
    """Return weights for the draws of each image under which its mean is that of the views that training keeps.

    The draws are cut into groups of n_steps + 1 proposals, each one chain; those that are left over weigh nothing.
    """
    n_chains, size = len(losses) // (n_steps + 1), n_steps + 1
    chains = torch.from_numpy(losses[: n_chains * size]).unflatten(0, (n_chains, size)).transpose(0, 1)
    weights = np.zeros_like(losses)
    weights[: n_chains * size] = ENDS[sampler](chains).transpose(0, 1).flatten(0, 1).numpy() / n_chains
    return weights


def _under(weights: Array, losses: Array, right: Bools, question: Question) -> dict[str, Any]:
    """Return loss and accuracy of weighted draws; losses are clipped draw by draw, so more draws bound the same."""
    clipped = expected_loss(weights, np.minimum(losses, question.cap))
    found = question.loss_and_accuracy(expected_loss(weights, losses), (weights * right).sum(axis=0), clipped)
    return found | {"cut": int((losses > question.cap).any(axis=0).sum())}


def _under_lambda_c(
    law: Array, losses: Array, right: Bools, uniform: dict[str, Any], question: Question
) -> dict[str, Any]:
    """Return an estimate and its lower bound: λ_c favours larger losses, so its mean is at least the uniform one.

    A mean of ratios has no upper bound from a fixed number of draws, so none is claimed.
    """
    ends = [uniform["loss_interval"][0], None]
    return {
        "loss": float(expected_loss(law, losses).mean()),
        "loss_interval": ends,
        "cut": uniform["cut"],
        "accuracy": float((law * right).sum(axis=0).mean()),
        "accuracy_interval": None,
        "verdict": verdict(ends, question.epsilon),
    }


def _under_worst(worst: Array, under_all: Bools, question: Question) -> dict[str, Any]:
    """Return the highest loss that was drawn, and the share of images right under every draw."""
    found, share = _without_upper_end(question.mean_loss(worst)), _without_lower_end(question.share(under_all))
    accuracy = {"accuracy": share["share"], "accuracy_interval": share["interval"]}
    return found | accuracy | {"verdict": verdict(found["loss_interval"], question.epsilon)}


def _without_upper_end(found: dict[str, Any]) -> dict[str, Any]:
    return found | {"loss_interval": [found["loss_interval"][0], None]}


def _without_lower_end(found: dict[str, Any]) -> dict[str, Any]:
    return found | {"interval": [0.0, found["interval"][1]]}


def nearly_invariant(decided: NDArray[np.int8], question: Question) -> dict[str, Any]:
    """Return the share of images right under at least 1 - TOLERANCE of the draws, with its interval."""
    yes, no, n = int((decided > 0).sum()), int((decided < 0).sum()), len(decided)
    ends = bounds.interval(bounds.screened_share(yes, no, n, MISTAKE, question.confidence))
    return {"share": yes / n, "right": yes, "wrong": no, "images": n, "interval": ends, "tolerance": TOLERANCE}


def _by_magnitude(right: Bools, draw: Draw, transforms: TransformSet) -> dict[str, Any]:
    """Return the accuracy by operation, and by level or by bin of the first magnitude; estimates, without bounds."""
    # a sequence counts for each of its operations
    flat, ops, size = right.reshape(-1).repeat(draw.depth), draw.op.flatten().numpy(), draw.magnitude[..., 0].numpy()
    size = size.reshape(-1)
    operations, levels = {}, {}
    for i in np.unique(ops):
        op, rows = transforms.ops[i], ops == i
        column = _bin_indices(size, op) if op.continuous else draw.level.flatten().numpy()
        masks = [(int(at), rows & (column == at)) for at in np.unique(column[rows])]
        operations[op.name] = _count_right(flat, rows)
        levels[op.name] = [
            {"level": at, "magnitude": float(size[mask].mean()), **_count_right(flat, mask)} for at, mask in masks
        ]
    return {"operations": operations, "levels": levels}


def _count_right(right: Bools, mask: Bools) -> dict[str, Any]:
    return {"draws": int(mask.sum()), "accuracy": float(right[mask].mean())}


def _bin_indices(size: Array, op: Op) -> NDArray[np.int64]:
    """Return which of the equal bins of an operation's range each magnitude falls into."""
    start = -op.stop if op.signed else op.start
    share = (size - start) / ((op.stop - start) or 1.0)
    return (share * BINS).astype(np.int64).clip(0, BINS - 1)
