"""Certificates from draws against plain loops and known shares."""

from __future__ import annotations

import itertools
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from invaug import Draw, Op, TransformSet, ops, sets
from invaug.lab.certify import bounds, sampled
from invaug.lab.certify import matrix as scored
from invaug.lab.certify.matrix import Adaptive, Block
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


LOW, HIGH = 0.25, 2.0  # the two losses of the simulated images


def simulate(n_images: int, n_draws: int, repetitions: int) -> np.ndarray:
    """Return losses of images that are hard under a share of the draws; many samples side by side."""
    generator = np.random.default_rng(0)
    shares = generator.beta(0.4, 1.2, (n_images, repetitions))
    return np.where(generator.random((n_draws, n_images, repetitions)) < shares, HIGH, LOW)


@pytest.mark.parametrize(
    ("sampler", "moves"), [("metropolis_hastings", LOW / HIGH), ("worst", 0.0)], ids=["chain", "worst"]
)
def test_the_bound_on_the_loss_of_kept_views_covers_what_is_known_exactly(sampler: str, moves: float) -> None:
    """With two proposals, high and low in either order: the chain ends high unless it moves from high to low."""
    losses = simulate(80, 8, 1500).reshape(8, -1)
    means = (sampled.kept_weights(losses, 1, sampler) * losses).sum(0).reshape(80, -1)
    share = np.random.default_rng(1).beta(0.4, 1.2, 2_000_000)
    ends_high = (share**2 + share * (1 - share) * (2 - moves)).mean()
    truth = LOW + (HIGH - LOW) * ends_high
    assert means.mean() == pytest.approx(truth, abs=0.01)
    low, high = bounds.mean_interval(means, 0.9, 4.0)
    assert ((low <= truth) & (truth <= high)).mean() >= 0.89
    assert (high - low).mean() < 0.6  # it says something
    off = truth * 1.5
    assert ((low <= off) & (off <= high)).mean() < 0.1  # and excludes what is wrong


def test_draws_left_over_from_the_last_chain_weigh_nothing() -> None:
    weights = sampled.kept_weights(np.ones((8, 3)), 2, "metropolis_hastings")
    assert weights.sum(0) == pytest.approx(1)
    assert weights[6:].tolist() == [[0.0] * 3] * 2


PAIRS = TransformSet(
    (
        Op("Rotate", ops.rotate, 0, 90, signed=True, whole=True),
        Op("Posterize", ops.posterize, 8, 2, whole=True),
    ),
    n_levels=3,
    depth=2,
)


def all_sequences() -> list[tuple[tuple[int, float], tuple[int, float]]]:
    """Everything that two draws in sequence can be, each as likely as any other: operation, level and sign."""
    singles = [(0, 45.0 * level * sign) for level in range(3) for sign in (1, -1)]
    singles += [(1, 8.0 - 3 * level) for level in range(3) for _ in range(2)]
    return list(itertools.product(singles, singles))


class Population:
    """Images of which one is drawn with replacement, and their losses under all 144 sequences, made one by one."""

    def __init__(self, predictor: Predictor, sample: Batch) -> None:
        self.table: dict[Any, list[tuple[float, bool]]] = {}
        for sequence in set(all_sequences()):
            images = sample.images
            for op, size in sequence:
                images = PAIRS.ops[op](images, torch.full((18,), size, dtype=torch.float64))
            pairs = zip(images, sample.targets.tolist(), strict=True)
            self.table[sequence] = [judge(predictor, image, target) for image, target in pairs]

    def losses(self) -> np.ndarray:
        """Return the loss of each equally likely sequence and image."""
        return np.array([[loss for loss, _ in self.table[sequence]] for sequence in all_sequences()])

    def accuracy(self) -> float:
        return mean(right for sequence in all_sequences() for _, right in self.table[sequence])

    def kept_loss(self) -> float:
        """Return the mean loss of a chain of two proposals, from all pairs of proposals (Algorithm 1)."""
        losses = self.losses()
        total = 0.0
        for first in losses:
            accept = np.minimum(1.0, losses / first)
            total += (accept * losses + (1 - accept) * first).mean()
        return total / len(losses)

    def score(self, chosen: np.ndarray, block: Block) -> tuple[np.ndarray, np.ndarray]:
        """Score a block by looking it up."""
        columns, shape = np.tile(chosen[block.active], block.n_rows), (block.n_rows, len(block.active))
        rows = self._identity(len(columns)) if block.draw is None else self._keys(block.draw)
        found = np.array([self.table[key][column] for key, column in zip(rows, columns, strict=True)])
        return found[:, 0].reshape(shape).astype(np.float32), found[:, 1].reshape(shape).astype(np.int8)

    @staticmethod
    def _identity(n: int) -> list[Any]:
        return [((0, 0.0), (0, 0.0))] * n

    @staticmethod
    def _keys(draw: Draw) -> list[Any]:
        numbers = zip(draw.op.tolist(), draw.magnitude[..., 0].tolist(), strict=True)
        return [tuple(zip(op, size, strict=True)) for op, size in numbers]


@pytest.fixture(scope="module")
def population(predictor: Predictor, sample: Batch) -> Population:
    return Population(predictor, sample)


def test_certificates_of_sequences_cover_the_value_of_all_sequences(
    population: Population, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scored, "N_MOST", scored.N_FIRST)  # further draws do not enter these bounds
    loss, accuracy, uniform = population.kept_loss(), population.accuracy(), float(population.losses().mean())
    held, n_images, repetitions = np.zeros(3), 40, 40
    for i in range(repetitions):
        chosen = np.random.default_rng(i).integers(18, size=n_images)
        plan = Adaptive(PAIRS, n_images, seed=i, n_steps=1)
        matrix = scored.fill_matrix(plan, tmp_path / str(i), {}, partial(population.score, chosen))
        asked = make_question(PAIRS, torch.zeros(n_images, dtype=torch.long), confidence=0.8, n_steps=1)
        found = sampled.certify_from_draws(matrix, plan.first_draws(), asked)
        ends = [found["trained"]["loss_interval"], found["uniform"]["loss_interval"]]
        ends.append(found["uniform"]["accuracy_interval"])
        held += [low <= truth <= high for (low, high), truth in zip(ends, (loss, uniform, accuracy), strict=True)]
    assert loss > uniform  # chains keep what is hard
    assert (
        held >= 0.7 * repetitions
    ).all()  # 0.8 is promised; as it is 0.8, not 0.95, a bound that is too narrow shows


def test_the_loss_of_kept_views_comes_close_to_that_of_all_sequences(
    population: Population, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scored, "N_MOST", scored.N_FIRST)
    chosen = np.tile(np.arange(18), 60)
    plan = Adaptive(PAIRS, len(chosen), n_steps=1)
    matrix = scored.fill_matrix(plan, tmp_path, {}, partial(population.score, chosen))
    asked = make_question(PAIRS, torch.zeros(len(chosen), dtype=torch.long), n_steps=1)
    found = sampled.certify_from_draws(matrix, plan.first_draws(), asked)
    assert found["trained"]["loss"] == pytest.approx(population.kept_loss(), rel=0.03)
    assert found["uniform"]["accuracy"] == pytest.approx(population.accuracy(), abs=0.01)
    assert found["draws_per_image"] == 32
