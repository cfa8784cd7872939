"""The course of gamma, judged from numbers made by hand."""

from __future__ import annotations

import math

import pytest

from invaug.lab.train.course import course_of

APPROACH = [1 - math.exp(-i / 3) for i in range(1, 31)]


@pytest.mark.parametrize(
    ("values", "shape"),
    [
        ([0.0] * 20, "zero"),
        ([0.002] * 20, "zero"),
        ([0.3, 0.4], "short"),
        (APPROACH, "settled"),
        ([1.0 + 0.02 * (-1) ** i for i in range(30)], "settled"),
        ([0.1 * i for i in range(1, 31)], "rising"),
        ([0.0] * 15 + [0.05 * i for i in range(15)], "rising"),
        ([*APPROACH[:10], *(1 - 0.02 * i for i in range(20))], "turned"),
        ([*APPROACH[:10], *[0.0] * 20], "turned"),
        ([1.0, 0.9, 0.5, 0.3, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2], "turned"),
    ],
)
def test_the_course_is_judged_by_the_last_fifths_and_the_highest(values: list[float], shape: str) -> None:
    assert course_of(values).shape == shape


def test_the_course_names_its_epochs_and_ends() -> None:
    found = course_of([0.0, 0.5, 1.5, 1.0, 0.5, 0.4, 0.4, 0.4, 0.4, 0.4])
    assert (found.left_zero_at, found.highest, found.highest_at, found.last) == (2, 1.5, 3, 0.4)
    assert found.words == "left zero in epoch 2, reached 1.5 in epoch 3 and turned down to 0.4"
    assert course_of([]) is None
