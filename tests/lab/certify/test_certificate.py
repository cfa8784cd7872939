"""Exact certificates against plain loops, and laws against all their proposals."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from invaug import Op, TransformSet, ops, sets
from invaug.lab.certify import bounds, certificate
from invaug.lab.certify.matrix import Exhaustive
from invaug.lab.data.batches import Batch
from invaug.lab.report.sections.certificate import sentences
from invaug.lab.run.folder import Predictor
from invaug.samplers import chain_probabilities
from tests.support.certificates import CLASSES, SMALL, fill, judge, make_question, mean
from tests.support.pillow_reference import by_pillow


@pytest.fixture(scope="module")
def exact(predictor: Predictor, sample: Batch, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    every, probability = certificate.list_transformations(SMALL)
    folder = tmp_path_factory.mktemp("scores")
    matrix = fill(Exhaustive(every, len(sample.targets)), predictor, sample, SMALL, folder)
    return certificate.certify_exactly(matrix, every, probability, make_question(SMALL, sample.targets))


def drawable(transforms: TransformSet) -> list[tuple[str, float, Fraction]]:
    """Every operation, level and sign a draw can give, one by one, with its probability."""
    found = []
    for op in transforms.ops:
        for level in range(transforms.min_level, transforms.n_levels):
            step = level * (op.stop - op.start) / (transforms.n_levels - 1)
            size = op.start + (math.trunc(step) if op.whole else step)
            for sign in (1, -1) if op.signed else (1, 1):
                share = Fraction(1, len(transforms.ops)) / (transforms.n_levels - transforms.min_level) / 2
                found.append((op.name, sign * size + 0.0, share))
    return found


def by_loops(predictor: Predictor, sample: Batch, transforms: TransformSet) -> list[list[Any]]:
    """Loss, right, operation, probability of each image under everything that can be drawn, made by Pillow."""
    table = []
    for image, target in zip(sample.images, sample.targets.tolist(), strict=True):
        row = []
        for name, size, share in drawable(transforms):
            place = torch.full((1, 2), 0.5)
            (changed,) = by_pillow([name], image[None], torch.tensor([size], dtype=torch.float64), place)
            row.append((*judge(predictor, changed, target), name, float(share)))
        table.append(row)
    return table


@pytest.fixture(scope="module")
def loops(predictor: Predictor, sample: Batch) -> list[list[Any]]:
    return by_loops(predictor, sample, SMALL)


def test_the_network_of_these_tests_is_neither_perfect_nor_useless(exact: dict[str, Any]) -> None:
    assert 0 < exact["all"]["right"] < 18
    assert 0.3 < exact["uniform"]["accuracy"] < 1


def test_uniform_risk_is_that_of_all_draws_one_by_one(exact: dict[str, Any], loops: list[list[Any]]) -> None:
    assert exact["uniform"]["loss"] == pytest.approx(mean(sum(p * x for x, _, _, p in row) for row in loops), rel=1e-4)
    assert exact["uniform"]["accuracy"] == pytest.approx(
        mean(sum(p * right for _, right, _, p in row) for row in loops)
    )


def test_lambda_c_weighs_each_draw_by_its_loss(exact: dict[str, Any], loops: list[list[Any]]) -> None:
    totals = [sum(p * x for x, _, _, p in row) for row in loops]
    loss = mean(sum(p * x * x for x, _, _, p in row) / t for row, t in zip(loops, totals, strict=True))
    right = mean(sum(p * x * r for x, r, _, p in row) / t for row, t in zip(loops, totals, strict=True))
    assert exact["lambda_c"]["loss"] == pytest.approx(loss, rel=1e-4)
    assert exact["lambda_c"]["accuracy"] == pytest.approx(right, rel=1e-4)


def test_the_worst_case_is_the_largest_of_all_losses(exact: dict[str, Any], loops: list[list[Any]]) -> None:
    assert exact["worst"]["loss"] == pytest.approx(mean(max(x for x, *_ in row) for row in loops), rel=1e-4)
    assert exact["worst"]["accuracy"] == pytest.approx(mean(all(r for _, r, *_ in row) for row in loops))


def test_invariance_risk_is_how_far_the_worst_is_above_the_clean_loss(
    exact: dict[str, Any], loops: list[list[Any]], predictor: Predictor, sample: Batch
) -> None:
    clean = [judge(predictor, image, int(t))[0] for image, t in zip(sample.images, sample.targets, strict=True)]
    risks = [max(c, *(x for x, *_ in row)) - c for c, row in zip(clean, loops, strict=True)]
    assert min(risks) >= 0
    assert exact["invariance_risk"]["loss"] == pytest.approx(mean(risks), rel=1e-4)


def test_images_right_under_everything_are_counted_one_by_one(
    exact: dict[str, Any], loops: list[list[Any]], predictor: Predictor, sample: Batch
) -> None:
    right = [
        judge(predictor, image, int(t))[1] and all(r for _, r, *_ in row)
        for image, t, row in zip(sample.images, sample.targets, loops, strict=True)
    ]
    assert (exact["all"]["right"], exact["all"]["images"]) == (sum(right), 18)
    assert exact["all"]["interval"] == bounds.interval(bounds.clopper_pearson(sum(right), 18))
    for i, name in enumerate(CLASSES):
        found = exact["classes"][name]
        assert (found["right"], found["images"]) == (sum(right[i::3]), 6)
        losses = [sum(p * x * x for x, _, _, p in row) / sum(p * x for x, _, _, p in row) for row in loops[i::3]]
        assert found["loss"] == pytest.approx(mean(losses), rel=1e-4)


def test_operations_and_levels_are_those_of_the_loops(exact: dict[str, Any], loops: list[list[Any]]) -> None:
    for name, found in exact["operations"].items():
        own = [[(r, p) for _, r, op, p in row if op == name] for row in loops]
        expected = mean(sum(p * r for r, p in row) / sum(p for _, p in row) for row in own)
        assert found["accuracy"] == pytest.approx(expected)
        levels = exact["levels"][name]
        assert min(level["worse"] for level in levels) >= found["share"]
    assert [row["magnitude"] for row in exact["levels"]["Rotate"]] == [0, 18, 36, 54, 72, 90]
    assert [row["level"] for row in exact["levels"]["Posterize"]] == [0, 2, 3, 4, 5]  # level 1 keeps 8 bits as well


@pytest.mark.parametrize(
    "transforms",
    [
        SMALL,
        sets.wide(),
        sets.standard(7, min_level=1, identity=False),
        sets.wide(5),
    ],
)
def test_each_distinct_transformation_has_the_probability_of_all_its_levels_and_signs(transforms: TransformSet) -> None:
    expected: Counter[tuple[str, float]] = Counter()
    for name, size, share in drawable(transforms):
        expected[name, round(size, 9)] += share  # type: ignore[assignment]
    every, probability = certificate.list_transformations(transforms)
    names = [transforms.ops[i].name for i in every.op.flatten().tolist()]
    found = dict(
        zip(
            zip(names, [round(m, 9) for m in every.magnitude.flatten().tolist()], strict=True), probability, strict=True
        )
    )
    assert found == {key: pytest.approx(float(share), abs=1e-12) for key, share in expected.items()}
    assert probability.sum() == pytest.approx(1)
    assert len(set(np.round(probability, 9))) > 1  # they are not all alike


def test_probabilities_are_the_frequencies_of_draws() -> None:
    every, probability = certificate.list_transformations(SMALL)
    draw = SMALL.draw(200_000, generator=torch.Generator().manual_seed(0))
    counts = Counter(zip(draw.op.flatten().tolist(), draw.magnitude.flatten().tolist(), strict=True))
    frequency = [
        counts[key] / 200_000
        for key in zip(every.op.flatten().tolist(), every.magnitude.flatten().tolist(), strict=True)
    ]
    assert sum(frequency) == pytest.approx(1)
    assert np.abs(frequency - probability).max() < 5 * math.sqrt(0.25 / 200_000)


@pytest.mark.parametrize("n_steps", [0, 1, 2, 3])
def test_the_law_of_a_chain_is_that_of_all_its_proposals_one_by_one(n_steps: int) -> None:
    probability = np.array([0.5, 0.2, 0.3])
    losses = np.array([[1.0, 0.0, 0.5, 2.0], [3.0, 0.2, 0.5, math.inf], [0.1, 0.0, 0.5, 1.0]])
    expected = np.zeros_like(losses)
    for proposals in itertools.product(range(3), repeat=n_steps + 1):
        ends = chain_probabilities(torch.from_numpy(losses[list(proposals)])).numpy()
        for step, proposal in enumerate(proposals):
            expected[proposal] += ends[step] * probability[list(proposals)].prod()
    found = certificate.chain_law(losses, probability, n_steps)
    assert found.sum(0) == pytest.approx(1)
    assert found[:, [0, 2, 3]] == pytest.approx(expected[:, [0, 2, 3]])
    # which of two transformations without a loss a chain ends on depends on ties, what it loses there does not
    assert found[1, 1] == pytest.approx(expected[1, 1])


@pytest.mark.parametrize("n_steps", [0, 1, 3])
def test_the_law_of_the_worst_proposal_is_that_of_all_proposals_one_by_one(n_steps: int) -> None:
    probability, losses = np.array([0.5, 0.2, 0.3]), np.array([[1.0, 0.1], [3.0, math.inf], [0.1, 0.0]])
    expected = np.zeros_like(losses)
    for proposals in itertools.product(range(3), repeat=n_steps + 1):
        for image in range(2):
            expected[max(proposals, key=lambda i: losses[i, image]), image] += probability[list(proposals)].prod()
    assert certificate.worst_law(losses, probability, n_steps) == pytest.approx(expected)


def test_a_long_chain_ends_on_lambda_c() -> None:
    generator = np.random.default_rng(0)
    losses, probability = generator.exponential(1.0, (30, 5)), generator.dirichlet(np.ones(30))
    long = certificate.chain_law(losses, probability, 500)
    assert long == pytest.approx(certificate.lambda_c(losses, probability), abs=1e-9)


def test_lambda_c_is_uniform_where_no_loss_is_and_infinite_where_one_is() -> None:
    losses = np.array([[0.0, 1.0, 2.0], [0.0, math.inf, 0.0]])
    probability = np.array([0.75, 0.25])
    law = certificate.lambda_c(losses, probability)
    assert law.tolist() == [[0.75, 0.0, 1.0], [0.25, 1.0, 0.0]]
    assert certificate.expected_loss(law, losses).tolist() == [0.0, math.inf, 2.0]


@pytest.mark.parametrize(
    ("ends", "epsilon", "said"),
    [
        ([0.1, 0.5], 0.5, "holds"),
        ([0.5, 0.9], 0.5, "cannot tell"),
        ([0.6, 0.9], 0.5, "does not hold"),
        ([0.1, None], 0.5, "cannot tell"),
        ([0.6, None], 0.5, "does not hold"),
        ([0.1, 0.5], None, None),
    ],
)
def test_a_verdict_needs_the_whole_interval_on_one_side(ends: Any, epsilon: float | None, said: str | None) -> None:
    assert certificate.verdict(ends, epsilon) == said


def test_shifts_out_of_the_image_leave_nothing_to_see(exact: dict[str, Any]) -> None:
    assert exact["blinding"] == {"count": 2, "names": ["TranslateX +20", "TranslateX -20"]}
    assert exact["seeing"]["right"] >= exact["all"]["right"]
    every, _ = certificate.list_transformations(sets.wide())
    assert certificate.find_blinding(sets.wide(), every, (3, 64, 64)).sum() == 0
    assert certificate.find_blinding(sets.wide(), every, (1, 1, 1)).sum() == 0


def test_a_set_that_destroys_every_image_is_told_so(predictor: Predictor, sample: Batch, tmp_path: Path) -> None:
    away = TransformSet((Op("TranslateX", ops.translate_x, 20, 30, signed=True, whole=True),), n_levels=3)
    every, probability = certificate.list_transformations(away)
    matrix = fill(Exhaustive(every, 18), predictor, sample, away, tmp_path)
    found = certificate.certify_exactly(matrix, every, probability, make_question(away, sample.targets))
    assert found["blinding"]["count"] == len(every) == 6
    assert found["seeing"] is None
    assert "no others are in the set" in " ".join(sentences(found, {"epsilon": 0.8, "cap": 10.0}))
