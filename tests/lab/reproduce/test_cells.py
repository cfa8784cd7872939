"""Rules of claims."""

from __future__ import annotations

import pytest

from invaug.lab.reproduce import cells


@pytest.mark.parametrize(
    ("values", "rises"), [((1, 2, 3), True), ((0, 0, 1), True), ((1, 1), False), ((1, 3, 2), False)]
)
def test_numbers_rise_if_they_end_higher_and_never_fall(values, rises):
    assert (cells.rises(*values), cells.falls(*values[::-1])) == (rises, rises)
