"""Any set as plain augmentation, with its depth."""

from __future__ import annotations

import pytest
import torch

from invaug import sets
from invaug.lab.baselines.policy import whole_set
from invaug.lab.config.build import build
from invaug.lab.errors import UserError
from tests.support.configs import resolved
from tests.support.policies import seeded


@pytest.mark.parametrize(("settings", "depth"), [({}, 2), ({"set": "wide"}, 1), ({"set": "wide", "depth": 3}, 3)])
def test_plain_augmentation_draws_what_the_set_draws(settings, depth):
    policy = whole_set(resolved(method="plain", **settings), None)
    assert policy.transforms.depth == depth
    make = getattr(sets, settings.get("set", "mild"))
    images = torch.randint(256, (64, 3, 16, 16), dtype=torch.uint8, generator=seeded(0))
    if depth == make().depth:
        draw, expected = (each.draw(64, generator=seeded(1)) for each in (policy, make()))
        assert torch.equal(policy.apply(images, draw), make().apply(images, expected))


def test_families_are_one_set_for_plain_augmentation():
    families = {"flips": {"FlipX": True, "FlipY": True}, "turns": {"Rotate": 180}}
    policy = whole_set(resolved(method="plain", families=families), None)
    assert policy.transforms.names == ("FlipX", "FlipY", "Rotate")
    assert policy.transforms.ops[2].stop == 180


def test_trivial_augment_has_one_operation_and_says_so_where_a_depth_is_given():
    assert resolved(method="trivial", set="mild").method.depth == 1
    with pytest.raises(UserError, match="method trivial has no sequences of operations: leave out depth 2, or use --m"):
        build({"method": "trivial", "depth": 2})
