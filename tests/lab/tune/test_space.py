"""What may be searched."""

from __future__ import annotations

import pytest

from invaug.lab.errors import UserError
from invaug.lab.tune import space


def test_the_usual_levels_are_the_papers_and_scale_with_the_loss_of_a_guess():
    assert space.usual_levels("cifar10", 10) == (0.2, 0.5, 0.8, 1.1, 1.4, 1.7, 2.0, 2.3)
    assert space.usual_levels("cifar100", 100)[-2:] == (2.1, 2.4)
    assert space.usual_levels("photos", 100) == (0.4, 1.0, 1.6, 2.2, 2.8, 3.4, 4.0, 4.6)


def test_a_range_is_searched_by_its_logarithm_when_its_ends_are_far_apart():
    found = space.parse(["lr=0.01:0.3", "epsilon=0.5:2", "n_steps=1:4"], {})
    assert found["lr"].is_logarithmic
    assert not found["epsilon"].is_logarithmic
    assert (found["n_steps"].low, found["n_steps"].high, found["n_steps"].whole) == (1, 4, True)


def test_a_grid_has_every_combination_the_last_key_fastest():
    found = space.parse(["epsilon=0.5,1", "optimizer=sgd,adamw"], {})
    tried = [tuple(each.values()) for each in space.grid(found)]
    assert tried == [(0.5, "sgd"), (0.5, "adamw"), (1.0, "sgd"), (1.0, "adamw")]
    assert space.grid(space.parse(["epsilon=0.5,1", "lr=0.01:0.3"], {})) == []


def test_a_setting_that_the_method_does_not_use_is_not_searched():
    with pytest.raises(UserError, match="method trivial does not use n_steps: leave it out of --search"):
        space.parse(["n_steps=1,2"], {"method": "trivial"})
    assert space.parse(["magnitude=5,9"], {"method": "randaugment"})
    assert space.parse(["method=trivial,randaugment", "magnitude=5,9"], {})
