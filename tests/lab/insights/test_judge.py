"""Verdicts from held-out accuracies: chance, intervals, what has settled."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest

from invaug.lab.insights.judge import HeldOut, has_settled, judge
from invaug.lab.insights.thresholds import LEARNED, MOSTLY_LEARNED, MOVING, NEAR_CHANCE, NOT, TOO_FEW, UNDECIDED


def held_out(*accuracies: float, images: int = 400, majority: float = 0.1) -> HeldOut:
    return HeldOut(images, majority, list(accuracies), len(accuracies))


@pytest.mark.parametrize("right", range(2, 37, 2))
def test_near_chance_is_where_wilsons_interval_reaches_the_majority_class(right):
    expected = binomtest(right, 36).proportion_ci(method="wilson").low <= 1 / 3
    assert held_out(right / 36, images=36, majority=1 / 3).is_near_chance == expected


def test_an_untrained_network_is_never_judged():
    """As reported: a third of 36 images of three classes is right, and nothing changes under the family."""
    assert judge([1 / 3], [1 / 3], held_out(1 / 3, images=36, majority=1 / 3), True) == (UNDECIDED, NEAR_CHANCE)
    assert judge([0.9], [0.9], held_out(0.9), False) == (UNDECIDED, MOVING)


def test_losses_count_as_shares_of_the_skill_above_a_guess():
    assert judge([0.9] * 3, [0.88] * 3, held_out(*[0.9] * 3), True)[0] == LEARNED
    assert judge([0.9] * 3, [0.82] * 3, held_out(*[0.9] * 3), True)[0] == MOSTLY_LEARNED
    assert judge([0.9] * 3, [0.7] * 3, held_out(*[0.9] * 3), True)[0] == NOT
    # the same two points in a hundred are little of 80 points of skill and much of 10
    assert judge([0.6] * 3, [0.58] * 3, held_out(*[0.6] * 3, images=4000, majority=0.5), True)[0] == NOT


def test_a_family_that_ruins_the_clean_accuracy_is_not_learned_although_it_leaves_no_gap():
    assert judge([0.5] * 3, [0.5] * 3, held_out(*[0.9] * 3), True) == (NOT, "")


def test_a_network_that_gains_on_clean_images_is_still_held_to_its_gap():
    assert judge([0.9] * 3, [0.5] * 3, held_out(*[0.5] * 3), True) == (NOT, "")


def test_too_few_images_or_seeds_that_disagree_give_no_verdict():
    assert judge([1.0], [1.0], held_out(1.0, images=7, majority=3 / 7), True) == (UNDECIDED, TOO_FEW)
    assert judge([0.9, 0.9], [1.0, 0.6], held_out(0.9, 0.9), True) == (UNDECIDED, TOO_FEW)


def test_a_falsehood_is_not_called_learned_whatever_the_draw_of_few_images():
    """Two classes that the family exchanges: 20,000 networks of any skill, each measured on 30 images."""
    rng = np.random.default_rng(0)
    called = 0
    for skill in rng.uniform(0.5, 1.0, 20000):
        clean, mirrored, without = (rng.binomial(30, p) / 30 for p in (skill, 1 - skill, skill))
        verdict, _ = judge([clean], [mirrored], held_out(without, images=30, majority=0.5), True)
        called += verdict in (LEARNED, MOSTLY_LEARNED)
    assert called <= 20


def test_gamma_has_settled_when_its_last_quarter_is_like_the_one_before():
    assert not has_settled([0.3])
    assert not has_settled([0.3, 0.3, 0.3])
    assert has_settled([0.0, 0.3, 0.5, 0.5, 0.52, 0.5, 0.49, 0.5])
    assert not has_settled([0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7])
    assert not has_settled([0.8, 0.8, 0.8, 0.8, 0.7, 0.6, 0.4, 0.2])
