"""What draws prove of a set that cannot be listed: continuous magnitudes, or operations at a random place."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from invaug import Draw, Op, TransformSet
from invaug.lab.certify import bounds
from invaug.lab.certify.certificate import Array, Bools, Question, above, by_class, expected, lambda_c, verdict
from invaug.lab.certify.matrix import MISTAKE, N_FIRST, TOLERANCE, Matrix, decided

BINS = 20  # of a continuous magnitude


def sampled(matrix: Matrix, first: Draw, question: Question) -> dict[str, Any]:
    """Return the certificate of a set that cannot be listed, from independent draws of it for each image.

    Args:
        first: The draws of the first rows, which every image got; later ones depend on the answers before.
    """
    clean, right_clean = matrix.losses[0].astype(np.float64), matrix.correct[0] > 0
    losses, right = matrix.losses[1 : 1 + N_FIRST].astype(np.float64), matrix.correct[1 : 1 + N_FIRST] > 0
    even = np.full(N_FIRST, 1 / N_FIRST)
    law, worst = lambda_c(losses, even), np.nanmax(matrix.losses[1:].astype(np.float64), axis=0)
    always: Bools = (matrix.correct[1:] != 0).all(axis=0)
    uniform = question.law(losses.mean(axis=0), right.mean(axis=0))
    highest = _at_least(question.mean_loss(worst))
    return {
        "kind": "sampled",
        "draws": int((matrix.correct[1:] >= 0).sum()),
        "uniform": uniform,
        "lambda_c": _under_lambda_c(law, losses, right, uniform, question),
        "worst": highest | {
            "accuracy": float(always.mean()), "accuracy_interval": [0.0, question.share(always)["interval"][1]],
            "verdict": verdict(highest["loss_interval"], question.epsilon),
        },
        "invariance_risk": _at_least(question.mean_loss(above(worst, clean))),
        "all": _at_most(question.share(right_clean & always)),
        "nearly": _nearly(decided(matrix), question),
        **_by_magnitude(right, first, question.transforms),
        "classes": by_class(
            question,
            lambda members: {
                "clean": float(right_clean[members].mean()),
                "uniform": float(right[:, members].mean()),
                "loss": float(expected(law, losses)[members].mean()),
                **_nearly(decided(matrix)[members], question),
            },
        ),
    }  # fmt: skip


def _under_lambda_c(
    law: Array, losses: Array, right: Bools, uniform: dict[str, Any], question: Question
) -> dict[str, Any]:
    """Return an estimate and its one bound: λ_c leans to larger losses, so its mean is at least the uniform one.

    A mean of ratios has no upper bound from a fixed number of draws, so nothing is claimed there.
    """
    ends = [uniform["loss_interval"][0], None]
    found = {"loss": float(expected(law, losses).mean()), "loss_interval": ends, "cut": uniform["cut"]}
    accuracy = float((law * right).sum(axis=0).mean())
    return found | {"accuracy": accuracy, "accuracy_interval": None, "verdict": verdict(ends, question.epsilon)}


def _at_least(found: dict[str, Any]) -> dict[str, Any]:
    """Return the numbers of the highest loss drawn: no draw is above the highest of all, so one end is open."""
    return found | {"loss_interval": [found["loss_interval"][0], None]}


def _at_most(found: dict[str, Any]) -> dict[str, Any]:
    return found | {"interval": [0.0, found["interval"][1]]}


def _nearly(judged: NDArray[np.int8], question: Question) -> dict[str, Any]:
    """Return the share of images right under at least 1 - TOLERANCE of the draws, with its interval."""
    yes, no, n = int((judged > 0).sum()), int((judged < 0).sum()), len(judged)
    ends = bounds.interval(bounds.screened_share(yes, no, n, MISTAKE, question.confidence))
    return {"share": yes / n, "right": yes, "wrong": no, "images": n, "interval": ends, "tolerance": TOLERANCE}


def _by_magnitude(right: Bools, draw: Draw, transforms: TransformSet) -> dict[str, Any]:
    """Return the accuracy by operation, and by level or by bins of the first magnitude; estimates, without bounds."""
    flat, op = right.reshape(-1), draw.op.flatten().numpy()
    size = draw.magnitude.reshape(len(draw), -1)[:, 0].numpy()
    operations, levels = {}, {}
    for i in np.unique(op):
        name, rows = transforms.ops[i].name, op == i
        operations[name] = {"draws": int(rows.sum()), "accuracy": float(flat[rows].mean())}
        column = _bins(size, transforms.ops[i]) if transforms.ops[i].continuous else draw.level.flatten().numpy()
        levels[name] = [
            {"level": int(at), "magnitude": float(size[rows & (column == at)].mean())}
            | {"accuracy": float(flat[rows & (column == at)].mean()), "draws": int((rows & (column == at)).sum())}
            for at in np.unique(column[rows])
        ]  # fmt: skip
    return {"operations": operations, "levels": levels}


def _bins(size: Array, op: Op) -> NDArray[np.int64]:
    start = -op.stop if op.signed else op.start
    share = (size - start) / ((op.stop - start) or 1.0)
    return (share * BINS).astype(np.int64).clip(0, BINS - 1)
