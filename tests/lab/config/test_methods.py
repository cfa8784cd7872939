"""Which settings have an effect on which method."""

from __future__ import annotations

import pytest

from invaug.lab.config.methods import METHODS, OF_SOME, is_used
from invaug.lab.config.schema import PLACES


def test_every_setting_of_the_method_is_used_by_some_method() -> None:
    of_the_method = {key for key, place in PLACES.items() if place.record == "method"}
    assert of_the_method - OF_SOME == {"method", "preset"}
    assert OF_SOME - of_the_method == {"families", "ranges"}


@pytest.mark.parametrize(
    ("method", "used", "unused"),
    [
        ("constrained", {"epsilon", "n_steps", "set"}, {"n_ops", "magnitude", "policy"}),
        ("uniform", {"epsilon", "set"}, {"n_steps", "n_ops"}),
        ("penalty", {"gamma_init", "set"}, {"epsilon", "dual_lr"}),
        ("sampled", {"set", "n_steps"}, {"views", "share", "gamma_init"}),
        ("none", {"lr"}, {"set", "epsilon", "n_steps", "only", "magnitude"}),
        ("trivial", {"set", "only"}, {"epsilon", "depth", "views", "n_ops"}),
        ("randaugment", {"n_ops", "magnitude"}, {"set", "policy", "epsilon"}),
        ("deepaa", {"policy"}, {"set", "n_ops"}),
        ("of another version", {"epsilon", "n_ops"}, set()),
    ],
)
def test_a_method_uses_its_own_settings(method: str, used: set[str], unused: set[str]) -> None:
    assert {key for key in used | unused if is_used(method, key)} == used


def test_what_a_method_fixes_is_not_a_setting_of_it() -> None:
    assert not any(row.uses & set(row.settings) for row in METHODS.values())
