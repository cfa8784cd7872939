"""Certificates from draws against plain loops and known shares."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from invaug import sets
from invaug.lab.certify import matrix as scored
from invaug.lab.certify import sampled
from invaug.lab.certify.matrix import Adaptive
from invaug.lab.data.batches import Batch
from invaug.lab.run.folder import Predictor
from tests.support.certificates import PLACED, biased, fill, judge, make_question, mean


def test_the_share_of_nearly_invariant_images_is_covered(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    held = 0
    for i in range(20):
        shares = np.where(generator.random(150) < 0.6, generator.random(150) * 0.02, 0.1 + generator.random(150) * 0.9)
        matrix = scored.fill_matrix(Adaptive(PLACED, 150, seed=i), tmp_path / str(i), {}, biased(shares))
        asked = make_question(PLACED, torch.zeros(150, dtype=torch.long))
        low, high = sampled.nearly_invariant(scored.decide_images(matrix), asked)["interval"]
        held += low <= 0.6 <= high
    assert held >= 17


def test_a_continuous_set_is_measured_on_draws_that_loops_make_as_well(
    predictor: Predictor, sample: Batch, tmp_path: Path
) -> None:
    turns = sets.rotations(1.0)
    plan = Adaptive(turns, 18)
    matrix = fill(plan, predictor, sample, turns, tmp_path)
    found = sampled.certify_from_draws(matrix, plan.first_draws(), make_question(turns, sample.targets))
    first = plan.first_draws()
    judged = []
    for k in range(scored.N_FIRST * 18):
        image, target = sample.images[k % 18], int(sample.targets[k % 18])
        judged.append(judge(predictor, turns.apply(image[None], first[k])[0], target))
    assert found["uniform"]["loss"] == pytest.approx(mean(x for x, _ in judged), rel=1e-4)
    assert found["uniform"]["accuracy"] == pytest.approx(mean(r for _, r in judged))
    assert found["lambda_c"]["loss"] >= found["uniform"]["loss"]
    assert found["worst"]["loss"] >= mean(max(judged[i::18])[0] for i in range(18)) * (1 - 1e-4)
    assert found["worst"]["loss_interval"][1] is None
    assert sum(row["draws"] for row in found["levels"]["Rotation"]) == scored.N_FIRST * 18
