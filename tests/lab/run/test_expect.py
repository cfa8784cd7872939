"""Values from files, compared with known ones: the first entry that is odd is named in one short line."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from invaug.lab.run.expect import MisfitError, require_alike, require_keys

LIKE: dict[str, Any] = {"w": torch.zeros(2, 3), "n": 1, "x": 0.5, "pair": (1, None), "deep": {0: [True]}}
ALIKE: dict[str, Any] = {"w": torch.ones(2, 3), "n": 7, "x": -1.0, "pair": (0, None), "deep": {0: [False]}}


def test_other_values_of_the_same_structure_are_alike() -> None:
    require_alike(ALIKE, LIKE, "state")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"w": torch.ones(3, 2)}, r"s/w is a tensor of float32 of shape \(3, 2\), expected .* of shape \(2, 3\)"),
        ({"w": torch.ones(2, 3).double()}, "s/w is a tensor of float64"),
        ({"w": 3}, "s/w is 3, expected a tensor of float32"),
        ({"n": True}, "s/n is True, expected a value of type int"),
        ({"n": 1.0}, "s/n is 1.0"),
        ({"n": torch.ones(2)}, r"s/n is a tensor of float32 of shape \(2,\), expected a value of type int"),
        ({"x": None}, "s/x is None"),
        ({"pair": [1, None]}, "s/pair is a list of 2, expected a tuple of 2"),
        ({"pair": (1, None, 2)}, "s/pair is a tuple of 3"),
        ({"pair": (1, 2)}, "s/pair/1 is 2, expected a value of type NoneType"),
        ({"deep": {False: [True]}}, "s/deep/False is unknown to this run"),
        ({"deep": {0: [1]}}, "s/deep/0/0 is 1"),
        ({"deep": {}}, "s/deep/0 is missing"),
        ({"deep": []}, "s/deep is a list of 0, expected a table"),
        ({"\x1b[2J" + "k" * 999: 1}, r"s/\?\[2Jk{56}… is unknown to this run"),
        ({"n": "\x1b" + "v" * 10**6}, r"s/n is '\\x1bv{55}…, expected"),
    ],
    ids=str,
)
def test_the_entry_that_differs_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(MisfitError, match=message) as caught:
        require_alike({**ALIKE, **change}, LIKE, "s")
    assert len(str(caught.value)) < 200


def test_optional_keys_may_be_there_or_not() -> None:
    require_keys({"a": 1}, ["a"], "s", optional=["b"])
    require_keys({"a": 1, "b": 2}, ["a"], "s", optional=["b"])
    with pytest.raises(MisfitError, match="s/c is unknown"):
        require_keys({"a": 1, "c": 2}, ["a"], "s", optional=["b"])
