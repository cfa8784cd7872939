"""The entropy of what was kept, against scipy and uniform draws."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import entropy as scipy_entropy

from invaug.lab.train.tally import entropy, entropy_of_uniform


def test_the_entropy_is_scipys_and_its_range_is_that_of_uniform_draws() -> None:
    counts = torch.tensor([[3, 5], [0, 0], [7, 1]])
    assert entropy(counts) == pytest.approx(scipy_entropy([8, 0, 8]))
    assert entropy(torch.zeros(3, 2)) == 0
    low, high = entropy_of_uniform(14, 2000)
    assert entropy_of_uniform(14, 2000) == [low, high]  # a fixed seed
    rng = np.random.default_rng(7)
    found = [scipy_entropy(rng.multinomial(2000, [1 / 14] * 14)) for _ in range(1000)]
    inside = np.mean([low <= each <= high for each in found])
    assert 0.9 < inside < 0.98
    assert high < math.log(14)
    assert entropy_of_uniform(14, 0) == [0.0, 0.0]
