"""The laboratory's policies: the published tables, their frequencies, and Pillow's bytes."""

from __future__ import annotations

import io
import math
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from scipy import stats
from torch import Tensor

from invaug import Draw, sets
from invaug.kernels import dispatch
from invaug.lab.baselines import autoaugment
from invaug.lab.baselines import policy as policies
from invaug.lab.baselines.deepaa import deepaa
from invaug.lab.baselines.policy import Policy
from invaug.lab.errors import UserError

Picture = Image.Image


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def assert_frequencies(observed: Counter[Any], expected: dict[Any, float]) -> None:
    """Fail if counts differ from probabilities by more than chance explains, rare outcomes taken together."""
    n = observed.total()
    assert set(observed) <= {outcome for outcome, share in expected.items() if share > 0}
    common = [outcome for outcome, share in expected.items() if share * n >= 10]
    seen = [observed[outcome] for outcome in common]
    awaited = [expected[outcome] * n for outcome in common]
    if n - sum(awaited) >= 10:
        seen, awaited = [*seen, n - sum(seen)], [*awaited, n - sum(awaited)]
    scale = sum(seen) / sum(awaited)
    if len(seen) == 1:
        assert seen == [n]
        return
    assert stats.chisquare(seen, [scale * count for count in awaited]).pvalue > 1e-4


def names_of(policy: Policy, draw: Draw) -> list[str]:
    return [policy.transforms.names[i] for i in draw.op.flatten().tolist()]


def layers(draw: Draw) -> list[Draw]:
    """Return the layers of a draw, each with one operation per image."""
    return [draw.layer(i) for i in range(draw.depth)]


# policy files of DeepAA, made as its search makes them

FILE_OPS: list[tuple[str, float, float]] = [
    ("Identity", 0.0, 1.0), ("ShearX", -0.3, 0.3), ("ShearY", -0.3, 0.3), ("TranslateX", -0.45, 0.45),
    ("TranslateY", -0.45, 0.45), ("Rotate", -30.0, 30.0), ("AutoContrast", 0.0, 1.0), ("Invert", 0.0, 1.0),
    ("Equalize", 0.0, 1.0), ("Solarize", 0.0, 256.0), ("Posterize", 4.0, 8.0), ("Contrast", 0.1, 1.9),
    ("Color", 0.1, 1.9), ("Brightness", 0.1, 1.9), ("Sharpness", 0.1, 1.9), ("RandFlip", 0.0, 1.0),
    ("RandCutout", 0.0, 1.0), ("RandCrop", 0.0, 1.0),
]  # fmt: skip
WITHOUT_MAGNITUDE = {"Identity", "AutoContrast", "Invert", "Equalize", "RandFlip", "RandCutout", "RandCrop"}
NO_CHANGE_AT_END = {"Solarize", "Posterize"}


def file_rows() -> list[tuple[int, int]]:
    """Return the 139 pairs of operation and magnitude: all but the magnitude that changes nothing."""
    rows = []
    for i, (name, _, _) in enumerate(FILE_OPS):
        nothing = 12 if name in NO_CHANGE_AT_END else 6
        rows += [(i, 6)] if name in WITHOUT_MAGNITUDE else [(i, m) for m in range(13) if m != nothing]
    return rows


def file_arrays(n_layers: int = 6, seed: int = 0) -> dict[str, Any]:
    rows = np.array(file_rows(), dtype=np.int32)
    logits = np.random.default_rng(seed).normal(0, 2, (n_layers, len(rows)))
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    return {
        "policy_probs": probabilities.astype(np.float32),
        "l_ops": 18,
        "l_mags": 13,
        "ops": rows[:, :1],
        "mags": rows[:, 1:],
        "op_names": [f"{name}:({low},,{high})" for name, low, high in FILE_OPS],
    }


MakeFile = Callable[..., Path]


@pytest.fixture
def make_file(tmp_path: Path) -> MakeFile:
    def make(**changes: Any) -> Path:
        path = tmp_path / "policy_DeepAA_cifar.npz"
        np.savez(path, **{name: array for name, array in {**file_arrays(), **changes}.items() if array is not None})
        return path

    return make


def only(*names: str) -> dict[str, Any]:
    """Return the change that makes every layer draw these operations alone, all their rows alike."""
    wanted = np.array([[FILE_OPS[op][0] in names for op, _ in file_rows()]] * 6, dtype=np.float32)
    return {"policy_probs": wanted / wanted.sum(axis=1, keepdims=True)}


@pytest.fixture(params=["trivial", "randaugment", "cifar10", "svhn", "imagenet", "deepaa"])
def policy(request: pytest.FixtureRequest, make_file: MakeFile) -> Policy:
    makers: dict[str, Callable[[], Policy]] = {
        "trivial": lambda: policies.trivial(sets.wide()),
        "randaugment": lambda: policies.randaugment(3, 21),
        "deepaa": lambda: deepaa(make_file()),
    }
    return makers.get(request.param, lambda: autoaugment.autoaugment(request.param))()


# what every policy promises


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


# TrivialAugment


def test_trivial_is_one_draw_of_the_set(photographs: Tensor) -> None:
    wide = sets.wide()
    policy = policies.trivial(wide)
    draw = policy.draw(64, generator=seeded(9))
    of_set = wide.draw(64, generator=seeded(9))
    assert torch.equal(draw.op, of_set.op)
    assert torch.equal(draw.magnitude, of_set.magnitude)
    assert torch.equal(policy.apply(photographs, draw), wide.apply(photographs, of_set))


# RandAugment and AutoAugment beside Pillow, every value worked out here again


def shifted(image: Picture, *six: float, fill: int = 0) -> Picture:
    return image.transform(image.size, Image.Transform.AFFINE, six, fillcolor=fill)


SIGNED = {"Rotate", "ShearX", "ShearY", "TranslateX", "TranslateY"}


def by_pillow(image: Picture, name: str, strength: float, sign: int) -> Picture:
    """Return the image under an operation of AutoAugment's table, strength 0 to 1 of its range."""
    width, height = image.size
    calls: dict[str, Callable[[], Picture]] = {
        "Identity": lambda: image,
        "AutoContrast": lambda: ImageOps.autocontrast(image),
        "Equalize": lambda: ImageOps.equalize(image),
        "Invert": lambda: ImageOps.invert(image),
        "Rotate": lambda: image.rotate(sign * strength * 30),
        "Solarize": lambda: ImageOps.solarize(image, 256 - int(strength * 256 + 1e-9)),
        "Posterize": lambda: ImageOps.posterize(image, 8 - int(strength * 4 + 1e-9)),
        "Color": lambda: ImageEnhance.Color(image).enhance(0.1 + strength * 1.8),
        "Contrast": lambda: ImageEnhance.Contrast(image).enhance(0.1 + strength * 1.8),
        "Brightness": lambda: ImageEnhance.Brightness(image).enhance(0.1 + strength * 1.8),
        "Sharpness": lambda: ImageEnhance.Sharpness(image).enhance(0.1 + strength * 1.8),
        "ShearX": lambda: shifted(image, 1, sign * strength * 0.3, 0, 0, 1, 0),
        "ShearY": lambda: shifted(image, 1, 0, 0, sign * strength * 0.3, 1, 0),
        "TranslateX": lambda: shifted(image, 1, 0, sign * strength * 150 / 331 * width, 0, 1, 0),
        "TranslateY": lambda: shifted(image, 1, 0, 0, 0, 1, sign * strength * 150 / 331 * height),
    }
    return calls[name]()


def to_picture(image: Tensor) -> Picture:
    return Image.fromarray((image[0] if len(image) == 1 else image.permute(1, 2, 0)).contiguous().numpy())


def to_tensor(picture: Picture) -> Tensor:
    array = torch.from_numpy(np.array(picture))
    return array.unsqueeze(0) if array.ndim == 2 else array.permute(2, 0, 1)


def assert_pillow_agrees(policy: Policy, images: Tensor, draws: Draw, n_levels: int) -> None:
    changed = policy.apply(images, draws)
    for i, image in enumerate(images):
        picture = to_picture(image)
        for draw in layers(draws):
            name = policy.transforms.names[int(draw.op[i])]
            sign = -1 if float(draw.magnitude[i]) < 0 else 1
            picture = by_pillow(picture, name, int(draw.level[i]) / (n_levels - 1), sign)
        assert torch.equal(changed[i], to_tensor(picture)), policy.describe(draws)[i]


@pytest.mark.parametrize("magnitude", [0, 1, 5, 9, 14, 23, 30])
@pytest.mark.parametrize(("n_channels", "side"), [(3, 32), (1, 28)])
def test_randaugment_is_pillow_byte_for_byte(
    magnitude: int, n_channels: int, side: int, make_images: Callable[..., Tensor]
) -> None:
    images = make_images(300, side, side, n_channels)
    policy = policies.randaugment(2, magnitude)
    assert_pillow_agrees(policy, images, policy.draw(300, generator=seeded(magnitude)), 31)


@pytest.mark.parametrize("dataset", ["cifar10", "svhn", "imagenet"])
@pytest.mark.parametrize(("n_channels", "side"), [(3, 32), (3, 47), (1, 28)])
def test_autoaugment_is_pillow_byte_for_byte(
    dataset: str, n_channels: int, side: int, make_images: Callable[..., Tensor]
) -> None:
    images = make_images(600, side, side, n_channels)
    policy = autoaugment.autoaugment(dataset)
    assert_pillow_agrees(policy, images, policy.draw(600, generator=seeded(side)), 10)


RANDAUGMENT_OPS = [
    "Identity", "AutoContrast", "Equalize", "Rotate", "Solarize", "Color", "Posterize", "Contrast", "Brightness",
    "Sharpness", "ShearX", "ShearY", "TranslateX", "TranslateY",
]  # fmt: skip


@pytest.mark.parametrize("n_ops", [1, 2, 3])
def test_randaugment_draws_each_of_14_operations_equally_often_in_each_layer(n_ops: int) -> None:
    policy = policies.randaugment(n_ops)
    draws = policy.draw(30_000, generator=seeded(1))
    assert draws.depth == n_ops
    for draw in layers(draws):
        assert_frequencies(Counter(names_of(policy, draw)), dict.fromkeys(RANDAUGMENT_OPS, 1 / 14))


def test_layers_of_randaugment_are_independent() -> None:
    policy = policies.randaugment(2)
    first, second = (names_of(policy, draw) for draw in layers(policy.draw(60_000, generator=seeded(2))))
    pairs = dict.fromkeys(product(RANDAUGMENT_OPS, repeat=2), 1 / 14**2)
    assert_frequencies(Counter(zip(first, second, strict=True)), pairs)


def test_geometric_operations_get_either_sign_equally_often() -> None:
    policy = policies.randaugment(1)
    draw = policy.draw(30_000, generator=seeded(3))
    signs = [(name, m > 0) for name, m in zip(names_of(policy, draw), draw.magnitude.flatten().tolist(), strict=True)]
    of_signed = Counter(pair for pair in signs if pair[0] in SIGNED)
    assert_frequencies(of_signed, dict.fromkeys(product(SIGNED, (True, False)), 0.1))
    assert all(positive or name in SIGNED or name in RANDAUGMENT_OPS[:3] for name, positive in signs)


def test_randaugments_magnitude_may_end_at_ten_as_in_its_imagenet_code() -> None:
    policy = policies.randaugment(1, 9, max_magnitude=10)
    draw = policy.draw(2_000, generator=seeded(0))
    values = dict(zip(names_of(policy, draw), draw.magnitude.abs().flatten().tolist(), strict=True))
    assert values["Rotate"] == pytest.approx(27)
    assert values["Brightness"] == pytest.approx(0.1 + 0.9 * 1.8)
    assert values["ShearX"] == pytest.approx(0.27)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 9), r"^n_ops must be at least 1, got 0$"),
        ((2, 31), r"^magnitude must lie in 0 to max_magnitude \(30\), got 31$"),
        ((2, -1), r"^magnitude must lie in 0 to max_magnitude \(30\), got -1$"),
        ((2, 0, 0), r"^magnitude must lie in 0 to max_magnitude \(0\), got 0$"),
    ],
)
def test_randaugment_refuses_numbers_without_sense(arguments: tuple[int, ...], message: str) -> None:
    with pytest.raises(UserError, match=message):
        policies.randaugment(*arguments)


class Entry(NamedTuple):
    name: str
    probability: float
    level: int


def pairs_of(dataset: str) -> list[list[Entry]]:
    """Return the pairs of a published table, read word by word."""
    pairs = []
    for line in autoaugment.TABLES[dataset].strip().splitlines():
        words = line.split()
        pairs.append([Entry(words[i], float(words[i + 1]), int(words[i + 2])) for i in (0, 3)])
    return pairs


@pytest.mark.parametrize("dataset", ["cifar10", "svhn", "imagenet"])
def test_tables_are_those_torchvision_ships(torchvision: ModuleType, dataset: str) -> None:
    kind = torchvision.transforms.AutoAugmentPolicy(dataset)
    theirs = torchvision.transforms.AutoAugment(kind).policies
    ours = pairs_of(dataset)
    assert len(ours) == len(theirs) == 25
    for our_pair, their_pair in zip(ours, theirs, strict=True):
        for entry, (name, probability, level) in zip(our_pair, their_pair, strict=True):
            assert (entry.name, entry.probability) == (name, probability)
            assert level in (None, entry.level)  # torchvision leaves the level out where it has no effect


def expected_pairs(dataset: str) -> dict[tuple[tuple[str, int], ...], float]:
    """Return how likely each pair of (operation, level) is, what is not applied being Identity at level 0."""
    shares: Counter[tuple[tuple[str, int], ...]] = Counter()
    for pair in pairs_of(dataset):
        for applied in product((True, False), repeat=2):
            share = 1 / 25
            for entry, is_applied in zip(pair, applied, strict=True):
                share *= entry.probability if is_applied else 1 - entry.probability
            outcome = [(e.name, e.level) if a else ("Identity", 0) for e, a in zip(pair, applied, strict=True)]
            shares[tuple(outcome)] += share  # type: ignore[assignment]
    return dict(shares)


@pytest.mark.parametrize("dataset", ["cifar10", "svhn", "imagenet"])
def test_autoaugment_draws_pairs_with_their_published_probabilities(dataset: str) -> None:
    policy = autoaugment.autoaugment(dataset)
    drawn = [
        list(zip(names_of(policy, draw), draw.level.flatten().tolist(), strict=True))
        for draw in layers(policy.draw(50_000, generator=seeded(4)))
    ]
    assert_frequencies(Counter(zip(*drawn, strict=True)), expected_pairs(dataset))


@pytest.mark.parametrize(
    ("dataset", "table"),
    [
        ("cifar10", "cifar10"), ("cifar100", "cifar10"), ("svhn", "svhn"), ("imagenet", "imagenet"),
        ("imagenet100", "imagenet"), ("tiny-imagenet", "imagenet"), ("mnist", "imagenet"), ("photos", "imagenet"),
    ],
)  # fmt: skip
def test_dataset_chooses_its_table(dataset: str, table: str) -> None:
    chosen, named = (autoaugment.autoaugment(name).draw(500, generator=seeded(0)) for name in (dataset, table))
    assert torch.equal(chosen.magnitude, named.magnitude)


# DeepAA


def pillow_deepaa(image: Picture, name: str, value: float, place: list[float]) -> Picture:
    """Return the image under an operation of a policy file; the value is signed and in the file's units."""
    width, height = image.size
    fill = (125, 123, 114) if image.mode == "RGB" else 123  # 123 is that colour in grey
    x, y = place[0] * width, place[1] * height

    def cutout() -> Picture:
        painted = image.copy()
        painted.paste(fill, tuple(int(math.floor(v) + d) for v, d in ((x, -8), (y, -8), (x, 8), (y, 8))))
        return painted

    def crop() -> Picture:
        left, top = (math.floor(p * 9) for p in place)
        return ImageOps.expand(image, 4, fill).crop((left, top, left + width, top + height))

    calls: dict[str, Callable[[], Picture]] = {
        "Identity": lambda: image,
        "AutoContrast": lambda: ImageOps.autocontrast(image),
        "Equalize": lambda: ImageOps.equalize(image),
        "Invert": lambda: ImageOps.invert(image),
        "Rotate": lambda: image.rotate(value),
        "Solarize": lambda: ImageOps.solarize(image, value),  # type: ignore[arg-type]
        "Posterize": lambda: ImageOps.posterize(image, int(value)),
        "Color": lambda: ImageEnhance.Color(image).enhance(value),
        "Contrast": lambda: ImageEnhance.Contrast(image).enhance(value),
        "Brightness": lambda: ImageEnhance.Brightness(image).enhance(value),
        "Sharpness": lambda: ImageEnhance.Sharpness(image).enhance(value),
        "ShearX": lambda: shifted(image, 1, value, 0, 0, 1, 0),
        "ShearY": lambda: shifted(image, 1, 0, 0, value, 1, 0),
        "TranslateX": lambda: shifted(image, 1, 0, value * width, 0, 1, 0),
        "TranslateY": lambda: shifted(image, 1, 0, 0, 0, 1, value * height),
        "RandFlip": lambda: ImageOps.mirror(image),
        "RandCutout": cutout,
        "RandCrop": crop,
    }
    return calls[name]()


@pytest.mark.parametrize(("n_channels", "side"), [(3, 32), (3, 33), (1, 32)])
def test_deepaa_is_pillow_byte_for_byte(
    n_channels: int, side: int, make_file: MakeFile, make_images: Callable[..., Tensor]
) -> None:
    uniform = np.full((6, 139), 1 / 139, dtype=np.float32)
    policy = deepaa(make_file(policy_probs=uniform))
    images = make_images(400, side, side, n_channels)
    draws = policy.draw(400, generator=seeded(side))
    changed = policy.apply(images, draws)
    ranges = {name: (low, high) for name, low, high in FILE_OPS}
    for i, image in enumerate(images):
        picture = to_picture(image)
        for draw in layers(draws):
            name, level = policy.transforms.names[int(draw.op[i])], int(draw.level[i])
            low, high = ranges[name]
            value = low + level / 12 * (high - low)
            if name in SIGNED and float(draw.magnitude[i]) * value < 0:
                value = -value
            picture = pillow_deepaa(picture, name, value, draw.place[i, 0].tolist())
        assert torch.equal(changed[i], to_tensor(picture)), policy.describe(draws)[i]


def test_deepaa_draws_each_layer_by_its_own_row_of_probabilities(make_file: MakeFile) -> None:
    policy = deepaa(make_file())
    draws = policy.draw(40_000, generator=seeded(5))
    assert draws.depth == 6
    for draw, probabilities in zip(layers(draws), file_arrays()["policy_probs"].astype(float), strict=True):
        expected: Counter[tuple[str, int]] = Counter()
        for (op, level), share in zip(file_rows(), probabilities / probabilities.sum(), strict=True):
            name = FILE_OPS[op][0]
            taken = 0.5 if name == "RandFlip" else 1.0
            expected[name, level] += share * taken  # type: ignore[assignment]
            expected["Identity", 0] += share * (1 - taken)  # type: ignore[assignment]
        observed = Counter(zip(names_of(policy, draw), draw.level.flatten().tolist(), strict=True))
        assert_frequencies(observed, dict(expected))


def test_deepaa_mirrors_geometric_operations_half_the_time(make_file: MakeFile) -> None:
    policy = deepaa(make_file(**only("Rotate")))
    magnitudes = policy.draw(26_000, generator=seeded(6)).layer(0).magnitude.flatten().round(decimals=9)
    angles = [-30.0 + 5 * m for m in range(13) if m != 6]
    assert_frequencies(Counter(magnitudes.tolist()), dict.fromkeys(angles, 1 / 12))
    first = policy.draw(26_000, generator=seeded(7)).layer(0)
    negated = Counter((first.magnitude.flatten().round() == -(-30 + 5 * first.level.flatten())).tolist())
    assert_frequencies(negated, {True: 0.5, False: 0.5})


def test_deepaa_takes_its_ranges_from_the_file(make_file: MakeFile) -> None:
    wide = [("Rotate", -135.0, 135.0) if name == "Rotate" else (name, low, high) for name, low, high in FILE_OPS]
    names = [f"{name}:({low},,{high})" for name, low, high in wide]
    policy = deepaa(make_file(op_names=names, **only("Rotate")))
    assert policy.draw(2_000, generator=seeded(0)).magnitude.abs().max() == pytest.approx(135)


@pytest.mark.parametrize("name", ["RandCutout", "RandCrop"])
def test_deepaa_fills_holes_with_its_colour(name: str, make_file: MakeFile, photographs: Tensor) -> None:
    policy = deepaa(make_file(**only(name)))
    draws = policy.draw(64, generator=seeded(0))
    white = policy.apply(torch.full_like(photographs, 255), draws)
    colours = {tuple(pixel) for pixel in white.permute(0, 2, 3, 1).reshape(-1, 3).tolist()}
    assert colours == {(255, 255, 255), (125, 123, 114)}
    kept_black = policy.apply(torch.zeros_like(photographs), draws)
    assert (kept_black == 0).any()


def test_deepaa_shifts_leave_black(make_file: MakeFile, photographs: Tensor) -> None:
    policy = deepaa(make_file(**only("TranslateX", "Rotate", "ShearY")))
    changed = policy.apply(torch.full_like(photographs, 255), policy.draw(64, generator=seeded(0)))
    assert set(changed.unique().tolist()) == {0, 255}


def test_deepaa_does_without_identity_in_the_file(make_file: MakeFile, photographs: Tensor) -> None:
    flips = {
        "op_names": ["RandFlip:(0.0,,1.0)", "Invert:(0.0,,1.0)"],
        "l_ops": 2,
        "ops": np.array([[0], [1]]),
        "mags": np.array([[6], [6]]),
        "policy_probs": np.array([[1.0, 0.0]]),
    }
    policy = deepaa(make_file(**flips))
    draws = policy.draw(64, generator=seeded(0))
    names = names_of(policy, draws)
    assert set(names) == {"RandFlip", "Identity"}
    flipped = torch.tensor([name == "RandFlip" for name in names]).view(-1, 1, 1, 1)
    assert torch.equal(policy.apply(photographs, draws), torch.where(flipped, photographs.flip(3), photographs))


def renamed(index: int, text: str) -> list[str]:
    names = file_arrays()["op_names"]
    return [*names[:index], text, *names[index + 1 :]]


def with_entry(name: str, place: tuple[int, int], value: Any) -> dict[str, Any]:
    array = np.array(file_arrays()[name])
    array[place] = value
    return {name: array}


MALFORMED: list[tuple[dict[str, Any], str]] = [
    ({"policy_probs": None}, "it lacks policy_probs$"),
    ({"mags": None, "l_mags": None}, "it lacks mags, l_mags$"),
    ({"l_mags": 1}, r"l_mags must be a whole number of at least 2, got array\(1\)$"),
    ({"l_mags": 13.0}, "l_mags must be a whole number of at least 2, got array"),
    ({"l_mags": np.array([13, 13])}, "l_mags must be a whole number"),
    ({"l_mags": 12}, "mags must lie in 0 to 11, got 0 to 12$"),
    (with_entry("ops", (3, 0), 18), "ops must lie in 0 to 17, got 0 to 18$"),
    (with_entry("ops", (3, 0), -1), "ops must lie in 0 to 17, got -1 to 17$"),
    ({"ops": file_arrays()["ops"][:-1]}, "ops and mags must be equally long, got 138 and 139$"),
    (
        {"ops": file_arrays()["ops"].astype(float)},
        r"ops must be a list of whole numbers, got float64 of shape \(139, 1\)",
    ),
    ({"mags": np.zeros((139, 2), int)}, r"mags must be a list of whole numbers, got int64 of shape \(139, 2\)"),
    ({"mags": np.zeros((0, 1), int)}, r"mags must be a list of whole numbers, got int64 of shape \(0, 1\)"),
    ({"policy_probs": np.ones((6, 100)) / 100}, r"policy_probs must be .* each of ops \(139\), got shape \(6, 100\)$"),
    ({"policy_probs": np.ones(139) / 139}, r"policy_probs must be .*, got shape \(139,\)$"),
    ({"policy_probs": np.ones((0, 139)) / 139}, r"policy_probs must be .*, got shape \(0, 139\)$"),
    ({"policy_probs": np.full((6, 139), "x")}, "policy_probs must be numbers"),
    ({"policy_probs": np.ones((6, 139))}, "each row of policy_probs must sum to 1, one is 138 off$"),
    (with_entry("policy_probs", (2, 3), -0.1), "policy_probs must not be negative or NaN$"),
    (with_entry("policy_probs", (2, 3), np.nan), "policy_probs must not be negative or NaN$"),
    (with_entry("policy_probs", (2, 3), np.inf), "each row of policy_probs must sum to 1, one is inf off$"),
    ({"op_names": renamed(1, "SheerX:(-0.3,,0.3)")}, "unknown operation SheerX, did you mean ShearX"),
    ({"op_names": renamed(1, "ShearX")}, r"an operation of op_names must read Name:\(low,,high\), got 'ShearX'$"),
    ({"op_names": renamed(1, "ShearX:(a,,b)")}, r"an operation of op_names must read Name:\(low,,high\), got"),
    ({"op_names": renamed(1, "ShearX:(-0.3,,nan)")}, "an operation of op_names must read Name:"),
    ({"op_names": renamed(1, "ShearX:(-11,,0.3)")}, "the range of ShearX must lie in -10 to 10, got"),
    ({"op_names": renamed(10, "Posterize:(4.0,,9.0)")}, "the range of Posterize must lie in 0 to 8, got"),
    ({"op_names": renamed(1, "ShearY:(-0.3,,0.3)")}, "op_names must differ, got Identity, ShearY, ShearY"),
    ({"op_names": np.arange(18)}, "op_names must be a list of strings, got int64$"),
]


@pytest.mark.parametrize(("changes", "message"), MALFORMED, ids=[message[:40] for _, message in MALFORMED])
def test_malformed_policy_file_says_what_is_wrong(changes: dict[str, Any], message: str, make_file: MakeFile) -> None:
    path = make_file(**changes)
    with pytest.raises(UserError, match=f"policy_DeepAA_cifar.npz is not a DeepAA policy file: {message}"):
        deepaa(path)


def test_policy_file_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "policy.npz"
    with pytest.raises(UserError, match=r"^cannot read .*policy.npz: No such file or directory$"):
        deepaa(path)
    path.write_text("<html>not found</html>", encoding="utf-8")
    with pytest.raises(UserError, match=r"^cannot read .*policy.npz: File is not a zip file$"):
        deepaa(path)
    np.save(path.with_suffix(".npy"), np.zeros(3))
    with pytest.raises(UserError, match=r"^cannot read .*policy.npy: File is not a zip file$"):
        deepaa(path.with_suffix(".npy"))
    with pytest.raises(UserError, match=r"^cannot read .*: Is a directory$"):
        deepaa(tmp_path)


def test_nothing_in_a_policy_file_is_unpickled(make_file: MakeFile) -> None:
    with pytest.raises(UserError, match="Object arrays cannot be loaded"):
        deepaa(make_file(op_names=np.array([{"a": 1}] * 18)))


def test_policy_file_that_unpacks_to_too_much_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "policy.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("policy_probs.npy", bytes(100 * 2**20))
    with pytest.raises(UserError, match=r"policy_probs\.npy grows from [\d,]+ to 104,857,600 bytes: a zip bomb$"):
        deepaa(path)


def damaged(whole: bytes) -> Iterator[bytes]:
    """Yield the file cut off at 60 places, then with one of 300 bytes changed."""
    chance = np.random.default_rng(0)
    yield from (whole[: int(end)] for end in np.linspace(0, len(whole) - 1, 60))
    for _ in range(300):
        flipped = bytearray(whole)
        flipped[chance.integers(len(whole))] ^= int(chance.integers(1, 256))
        yield bytes(flipped)


def test_damaged_policy_file_is_read_whole_or_refused(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **file_arrays())
    path = tmp_path / "policy.npz"
    refusals = []
    for content in damaged(buffer.getvalue()):
        path.write_bytes(content)
        try:
            deepaa(path)
        except UserError as error:
            refusals.append(str(error))
    assert len(refusals) > 200
    assert not [message for message in refusals if "\n" in message]
