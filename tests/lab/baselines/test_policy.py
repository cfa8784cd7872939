"""What every policy promises, TrivialAugment and RandAugment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
import torch
from torch import Tensor

from invaug import Draw, sets
from invaug.kernels import dispatch
from invaug.lab.baselines import autoaugment
from invaug.lab.baselines import policy as policies
from invaug.lab.baselines.deepaa import deepaa
from invaug.lab.baselines.policy import Policy
from invaug.lab.config.build import build
from invaug.lab.errors import UserError
from tests.support.operations import TRIVIAL_AUGMENT
from tests.support.policies import SIGNED, MakeFile, assert_frequencies, assert_pillow_agrees, layers, names_of, seeded


@pytest.fixture(params=["trivial", "randaugment", "cifar10", "svhn", "imagenet", "deepaa"])
def policy(request: pytest.FixtureRequest, make_file: MakeFile) -> Policy:
    makers: dict[str, Callable[[], Policy]] = {
        "trivial": lambda: policies.uniform_policy(sets.wide()),
        "randaugment": lambda: policies.randaugment(3, 21),
        "deepaa": lambda: deepaa(make_file()),
    }
    return makers.get(request.param, lambda: autoaugment.autoaugment(request.param))()


@pytest.mark.parametrize("shape", [(64, 3, 32, 32), (16, 1, 28, 28), (8, 4, 9, 14), (4, 3, 1, 1)], ids=str)
def test_policy_is_a_pure_function_of_images_and_draws(
    policy: Policy, shape: tuple[int, ...], make_bytes: Callable[..., Tensor]
) -> None:
    images = make_bytes(*shape)
    before = images.clone()
    draw = policy.draw(len(images), generator=seeded(1))
    changed = policy.apply(images, draw)
    assert changed.shape == images.shape
    assert changed.dtype == images.dtype
    assert torch.equal(images, before)
    assert torch.equal(policy.apply(images, draw), changed)
    singles = [policy.apply(images[i : i + 1], draw[i]) for i in range(len(images))]
    assert torch.equal(torch.cat(singles), changed)


def test_seed_of_the_generator_decides_the_draws(policy: Policy) -> None:
    first, again, other = (policy.draw(200, generator=seeded(seed)) for seed in (5, 5, 6))
    assert torch.equal(first.op, again.op)
    assert torch.equal(first.magnitude, again.magnitude)
    assert not torch.equal(first.op, other.op)


def test_without_a_generator_torchs_own_is_used(policy: Policy) -> None:
    torch.manual_seed(3)
    first = policy.draw(50)
    torch.manual_seed(3)
    assert torch.equal(first.op, policy.draw(50).op)


def test_draws_replay_from_disk_to_the_same_bytes(policy: Policy, photographs: Tensor, tmp_path: Path) -> None:
    draw = policy.draw(len(photographs), generator=seeded(2))
    draw.save(tmp_path / "draw.npz")
    assert torch.equal(policy.apply(photographs, Draw.load(tmp_path / "draw.npz")), policy.apply(photographs, draw))


def test_float_images_give_what_their_bytes_give(policy: Policy, photographs: Tensor) -> None:
    draws = policy.draw(len(photographs), generator=seeded(4))
    floats = policy.apply(photographs.float() / 255, draws)
    assert floats.dtype == torch.float32
    assert torch.equal((floats * 255).round().to(torch.uint8), policy.apply(photographs, draws))


def test_policy_gives_the_same_bytes_by_torch_alone(
    policy: Policy, photographs: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    draws = policy.draw(len(photographs), generator=seeded(8))
    compiled = policy.apply(photographs, draws)
    monkeypatch.setattr(dispatch, "can_run_compiled", lambda images: False)
    assert torch.equal(policy.apply(photographs, draws), compiled)


def test_no_images_give_no_images(policy: Policy) -> None:
    empty = torch.zeros(0, 3, 8, 8, dtype=torch.uint8)
    assert policy.apply(empty, policy.draw(0)).shape == (0, 3, 8, 8)


def test_policy_stays_on_the_device_of_the_images(policy: Policy) -> None:
    found = policy.apply(torch.empty(64, 3, 32, 32, dtype=torch.uint8, device="meta"), policy.draw(64))
    assert (found.device.type, found.shape, found.dtype) == ("meta", (64, 3, 32, 32), torch.uint8)


def test_trivial_is_one_draw_of_the_set(photographs: Tensor) -> None:
    wide = sets.wide()
    policy = policies.uniform_policy(wide)
    draw = policy.draw(64, generator=seeded(9))
    of_set = wide.draw(64, generator=seeded(9))
    assert torch.equal(draw.op, of_set.op)
    assert torch.equal(draw.magnitude, of_set.magnitude)
    assert torch.equal(policy.apply(photographs, draw), wide.apply(photographs, of_set))


@pytest.mark.parametrize("magnitude", [0, 1, 5, 9, 14, 23, 30])
@pytest.mark.parametrize(("n_channels", "side"), [(3, 32), (1, 28)])
def test_randaugment_is_pillow_byte_for_byte(
    magnitude: int, n_channels: int, side: int, make_images: Callable[..., Tensor]
) -> None:
    images = make_images(300, side, side, n_channels)
    policy = policies.randaugment(2, magnitude)
    assert_pillow_agrees(policy, images, policy.draw(300, generator=seeded(magnitude)), 31)


@pytest.mark.parametrize("n_ops", [1, 2, 3])
def test_randaugment_draws_each_of_14_operations_equally_often_in_each_layer(n_ops: int) -> None:
    policy = policies.randaugment(n_ops)
    draws = policy.draw(30_000, generator=seeded(1))
    assert draws.depth == n_ops
    for draw in layers(draws):
        assert_frequencies(Counter(names_of(policy, draw)), dict.fromkeys(TRIVIAL_AUGMENT, 1 / 14))


def test_layers_of_randaugment_are_independent() -> None:
    policy = policies.randaugment(2)
    first, second = (names_of(policy, draw) for draw in layers(policy.draw(60_000, generator=seeded(2))))
    pairs = dict.fromkeys(product(TRIVIAL_AUGMENT, repeat=2), 1 / 14**2)
    assert_frequencies(Counter(zip(first, second, strict=True)), pairs)


def test_geometric_operations_get_either_sign_equally_often() -> None:
    policy = policies.randaugment(1)
    draw = policy.draw(30_000, generator=seeded(3))
    signs = [(name, m > 0) for name, m in zip(names_of(policy, draw), draw.magnitude.flatten().tolist(), strict=True)]
    of_signed = Counter(pair for pair in signs if pair[0] in SIGNED)
    assert_frequencies(of_signed, dict.fromkeys(product(SIGNED, (True, False)), 0.1))
    assert all(positive or name in SIGNED or name in TRIVIAL_AUGMENT[:3] for name, positive in signs)


def test_ranges_of_randaugment_end_at_magnitude_thirty() -> None:
    policy = policies.randaugment(1, 27)
    draw = policy.draw(2_000, generator=seeded(0))
    values = dict(zip(names_of(policy, draw), draw.magnitude.abs().flatten().tolist(), strict=True))
    assert values["Rotate"] == pytest.approx(27)
    assert values["Brightness"] == pytest.approx(0.1 + 0.9 * 1.8)
    assert values["ShearX"] == pytest.approx(0.27)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"n_ops": 0}, "^n_ops should be greater than or equal to 1, got 0$"),
        ({"magnitude": 31}, "^magnitude should be less than or equal to 30, got 31$"),
        ({"magnitude": -1}, "^magnitude should be greater than or equal to 0, got -1$"),
    ],
)
def test_randaugment_refuses_numbers_without_sense(setting: dict[str, int], message: str) -> None:
    with pytest.raises(UserError, match=message):
        build({"method": "randaugment", **setting})
