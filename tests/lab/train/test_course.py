"""The course of gamma and levels out of reach, judged from numbers made by hand."""

from __future__ import annotations

import math

import pytest

from invaug.lab.train.course import advice, all_settled, course_of, out_of_reach

APPROACH = [1 - math.exp(-i / 3) for i in range(1, 31)]


@pytest.mark.parametrize(
    ("values", "shape"),
    [
        ([0.0] * 20, "zero"),
        ([0.002] * 20, "zero"),
        ([0.3, 0.4], "short"),
        ([0.0] * 4, "short"),
        ([0.001, 0.003, 0.005, 0.005, 0.009], "rising"),
        ([0.2, 0.6, 0.9, 1.0, 1.0, 0.9, 0.8, 0.8], "moving"),
        (APPROACH, "settled"),
        ([1.0 + 0.02 * (-1) ** i for i in range(30)], "settled"),
        ([0.1 * i for i in range(1, 31)], "rising"),
        ([0.0] * 15 + [0.05 * i for i in range(15)], "rising"),
        ([*APPROACH[:10], *(1 - 0.02 * i for i in range(20))], "moving"),
        ([*APPROACH[:10], *[0.0] * 20], "turned"),
        ([1.0, 0.9, 0.5, 0.3, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2], "turned"),
    ],
)
def test_the_course_is_judged_by_the_last_fifths_and_the_highest(values: list[float], shape: str) -> None:
    assert course_of(values).shape == shape


def test_gamma_has_settled_only_where_every_constraint_is_level_at_the_end() -> None:
    level, falling = [0.5, 0.9, 1.0, 1.0, 1.0, 1.0], [0.5, 0.9, 1.0, 0.9, 0.8, 0.7]
    assert all_settled([{"gamma": [gamma]} for gamma in level])
    assert not all_settled([{"gamma": [gamma]} for gamma in level[:4]])
    assert not all_settled([{"gamma": list(pair)} for pair in zip(level, falling, strict=True)])
    assert not all_settled([{"gamma": [None]}] * 6)
    assert course_of([0.001, 0.003, 0.005, 0.005, 0.009]).words == "is still rising: 0.009 at the end"


def test_the_course_names_its_epochs_and_ends() -> None:
    found = course_of([0.0, 0.5, 1.5, 1.0, 0.5, 0.4, 0.4, 0.4, 0.4, 0.4])
    assert (found.left_zero_at, found.highest, found.highest_at, found.last) == (2, 1.5, 3, 0.4)
    assert found.words == "left zero in epoch 2, reached 1.5 in epoch 3 and turned down to 0.4"
    assert course_of([]) is None


def rows_of(*slacks: float) -> list[dict[str, list[float]]]:
    return [{"slack": [slack], "constraint_loss": [slack + 0.1], "gamma": [2.0]} for slack in slacks]


@pytest.mark.parametrize(
    ("slacks", "alarm"),
    [
        ((0.5, 0.5, 0.5, 0.5), True),
        ((0.5, 0.51, 0.49, 0.5), True),
        ((0.9, 0.5, 0.5, 0.5, 0.5), True),
        ((0.5, 0.5, 0.5), False),  # too early to say
        ((0.9, 0.7, 0.5, 0.4), False),  # it gets better
        ((0.5, 0.5, -0.1, 0.5), False),
        ((-0.1, -0.1, -0.1, -0.1), False),
    ],
)
def test_alarm_is_for_slacks_that_stay(slacks: tuple[float, ...], alarm: bool) -> None:
    assert out_of_reach(rows_of(*slacks)) == [alarm]


def test_advice_names_the_numbers() -> None:
    assert "epsilon 0.10 looks out of reach" in advice(rows_of(0.5)[0], 0)
    assert "raise epsilon, for example to 0.66" in advice(rows_of(0.5)[0], 0)
