"""Byte for byte equal to Pillow, on both back ends: the compiled loops for CPUs and the torch kernels everywhere."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from invaug import Draw
from tests.support.exactness import (
    EVERY,
    MODES,
    OBLONGS,
    SQUARES,
    chunks,
    draw_of,
    every_case,
    magnitudes_of,
    places_for,
)
from tests.support.images import by_torch
from tests.support.pillow_reference import PILLOW, by_pillow, pictures, tensor

SHAPES = [pytest.param(*shape, id=f"{shape[0]}x{shape[1]}") for shape in SQUARES + OBLONGS]
IN_MODES = [pytest.param(n_channels, id=mode) for mode, n_channels in MODES.items()]


def both_paths(images: Tensor, draw: Draw) -> Iterator[tuple[str, Tensor]]:
    yield "fused", EVERY.apply(images, draw)
    yield "torch", by_torch(EVERY, images, draw)


def assert_equals_pillow(names: list[str], images: Tensor, magnitudes: Tensor, places: Tensor | None = None) -> None:
    places = places_for(len(images)) if places is None else places
    expected = by_pillow(names, images, magnitudes, places)
    for path, changed in both_paths(images, draw_of(names, magnitudes, places)):
        assert_same(path, names, magnitudes, changed, expected)


def assert_same(path: str, names: list[str], magnitudes: Tensor, changed: Tensor, expected: Tensor) -> None:
    if torch.equal(changed, expected):
        return
    differing = (changed != expected).flatten(1).sum(1)
    wrong = [f"{names[i]} {magnitudes[i]:g}: {differing[i]} bytes" for i in differing.nonzero().flatten().tolist()]
    assert not wrong, f"the {path} path differs from Pillow: {wrong}"


def test_every_operation_shipped_has_a_reference() -> None:
    assert set(PILLOW) == set(EVERY.names)


@pytest.mark.parametrize(("height", "width"), SHAPES)
@pytest.mark.parametrize("n_channels", IN_MODES)
def test_every_level_and_sign_of_every_set_equals_pillow(make_images, height: int, width: int, n_channels: int) -> None:
    cases = every_case()
    real = make_images(8, height, width, n_channels)
    for chunk in chunks(len(cases), height, width, n_channels):
        names, magnitudes = zip(*cases[chunk], strict=True)
        images = real[torch.arange(chunk.start, chunk.stop) % len(real)]
        assert_equals_pillow(list(names), images, torch.tensor(magnitudes, dtype=torch.float64))


@pytest.mark.slow
@pytest.mark.parametrize(("height", "width"), SHAPES)
@pytest.mark.parametrize("n_channels", IN_MODES)
@pytest.mark.parametrize("name", list(PILLOW))
def test_200_images_at_every_level_and_sign_equal_pillow(
    make_images, name: str, n_channels: int, height: int, width: int
) -> None:
    real = make_images(200, height, width, n_channels)
    originals, places = pictures(real), places_for(200)
    for magnitude in magnitudes_of(name).tolist():
        rows = zip(originals, places.tolist(), strict=True)
        expected = tensor([PILLOW[name](image, magnitude, tuple(place)) for image, place in rows], real)
        for chunk in chunks(200, height, width, n_channels):
            names = [name] * (chunk.stop - chunk.start)
            magnitudes = torch.full((len(names),), magnitude, dtype=torch.float64)
            for path, changed in both_paths(real[chunk], draw_of(names, magnitudes, places[chunk])):
                assert_same(path, names, magnitudes, changed, expected[chunk])


ENHANCERS = ["Color", "Contrast", "Brightness", "Sharpness"]
RANGES = {
    "Rotate": (-720, 720),
    **dict.fromkeys(["ShearX", "ShearY"], (-3, 3)),
    **dict.fromkeys(["TranslateX", "TranslateY"], (-50, 50)),
    **dict.fromkeys(ENHANCERS, (-1, 4)),
}


@st.composite
def fractional_cases(draws: st.DrawFn) -> tuple[str, float]:
    name = draws(st.sampled_from(sorted(RANGES)))
    # Pillow shifts by adding along a row, and doubles next to a half would round on the way
    return name, draws(st.floats(*RANGES[name], width=32 if name.startswith("Translate") else 64))


@st.composite
def batches(draws: st.DrawFn, n_images: int = 4) -> Tensor:
    """Return random bytes of any small shape, sometimes of few different values."""
    shape = n_images, draws(st.sampled_from([1, 3])), draws(st.integers(1, 40)), draws(st.integers(1, 40))
    generator = torch.Generator().manual_seed(draws(st.integers(0, 2**32)))
    palette = torch.randint(256, (draws(st.integers(1, 256)),), dtype=torch.uint8, generator=generator)
    return palette[torch.randint(len(palette), shape, generator=generator)]


@settings(max_examples=300, deadline=None, derandomize=True)
@given(batches(), st.lists(fractional_cases(), min_size=4, max_size=4))
def test_magnitudes_between_the_levels_equal_pillow(images: Tensor, cases: list[tuple[str, float]]) -> None:
    names, magnitudes = zip(*cases, strict=True)
    assert_equals_pillow(list(names), images, torch.tensor(magnitudes, dtype=torch.float64))


WHOLE = ["TranslateX", "TranslateY", "Crop", "Cutout", "Solarize", "Posterize"]


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    batches(),
    st.lists(st.sampled_from(WHOLE), min_size=4, max_size=4),
    st.integers(0, 60),
    st.lists(st.floats(0, 1, exclude_max=True), min_size=8, max_size=8),
)
def test_whole_magnitudes_of_any_size_and_place_equal_pillow(
    images: Tensor, names: list[str], magnitude: int, places: list[float]
) -> None:
    limits = {"Posterize": (1, 8)}  # Pillow takes no other number of bits
    bounds = [limits.get(name, (0, 60)) for name in names]
    magnitudes = torch.tensor([min(max(magnitude, low), high) for low, high in bounds])
    assert_equals_pillow(names, images, magnitudes, torch.tensor(places, dtype=torch.float64).view(4, 2))


@pytest.mark.parametrize("degrees", [0, 45, 90, 180, 270, 360, -90, -180, 450, 1e-9, -1e-9, 1e-20, -1e-20])
@pytest.mark.parametrize(("height", "width"), [(32, 32), (33, 33), (31, 17), (8, 9)])
def test_quarter_turns_and_their_neighbours_equal_pillow(make_images, degrees: float, height: int, width: int) -> None:
    images = make_images(2, height, width, 3)
    assert_equals_pillow(["Rotate"] * 2, images, torch.full((2,), degrees, dtype=torch.float64))


@pytest.mark.parametrize("factor", [0.0, 1.0, 1e-8, 1 - 1e-8, 1 + 1e-7, 255.0, 1e6])
@pytest.mark.parametrize("n_channels", IN_MODES)
def test_enhancers_at_the_ends_of_the_blend_equal_pillow(make_images, factor: float, n_channels: int) -> None:
    images = make_images(4, 28, 28, n_channels)
    assert_equals_pillow(ENHANCERS, images, torch.full((4,), factor, dtype=torch.float64))


@pytest.mark.parametrize("name", ENHANCERS)
def test_factor_of_one_gives_the_image_back(make_images, name: str) -> None:
    images = make_images(4, 28, 28, 3)
    for path, changed in both_paths(images, draw_of([name] * 4, torch.ones(4), places_for(4))):
        assert torch.equal(changed, images), path


def strange_images(n_channels: int) -> dict[str, Tensor]:
    """Return images that the statistics of an operation may stumble on."""
    ramp = torch.arange(256, dtype=torch.uint8).view(16, 16)
    lonely = torch.zeros(16, 16, dtype=torch.uint8)
    lonely[7, 7] = 1
    planes = {
        "black": torch.zeros(16, 16, dtype=torch.uint8),
        "white": torch.full((16, 16), 255, dtype=torch.uint8),
        "grey": torch.full((16, 16), 128, dtype=torch.uint8),
        "two values": (ramp % 2) * 255,
        "two near values": (ramp % 2) + 127,
        "one pixel of another value": lonely,
        "every value once": ramp,
        "every value, backwards": 255 - ramp,
        "mostly bright": torch.where(ramp < 250, 255, ramp),
        "mostly dark": torch.where(ramp < 250, 0, ramp),
    }
    return {name: plane.expand(1, n_channels, 16, 16).contiguous() for name, plane in planes.items()}


@pytest.mark.parametrize("kind", list(strange_images(1)))
@pytest.mark.parametrize("n_channels", IN_MODES)
def test_images_of_strange_statistics_equal_pillow(kind: str, n_channels: int) -> None:
    cases = [(name, magnitude) for name in EVERY.names for magnitude in magnitudes_of(name)[::5].tolist()]
    names, magnitudes = zip(*cases, strict=True)
    images = strange_images(n_channels)[kind].expand(len(names), -1, -1, -1)
    assert_equals_pillow(list(names), images, torch.tensor(magnitudes, dtype=torch.float64))


def test_channels_are_equalized_and_stretched_apart() -> None:
    kinds = strange_images(1)
    images = torch.cat([kinds["black"], kinds["every value once"], kinds["mostly bright"]], dim=1).expand(2, 3, 16, 16)
    assert_equals_pillow(["Equalize", "AutoContrast"], images, torch.zeros(2))


@pytest.mark.parametrize("low", range(0, 250, 7))
def test_every_contrast_range_is_stretched_as_pillow_stretches_it(low: int) -> None:
    highs = list(range(low + 1, 256))
    ramp = torch.arange(256).view(1, 1, 16, 16)
    images = torch.cat([ramp.clamp(low, high) for high in highs]).to(torch.uint8)
    assert_equals_pillow(["AutoContrast"] * len(highs), images, torch.zeros(len(highs)))


def test_equalize_in_steps_of_more_than_255_pixels_equals_pillow(make_images) -> None:
    images = make_images(2, 300, 300, 3)
    brightest = [(plane == plane.max()).sum() for plane in images.flatten(0, 1)]
    assert all((300 * 300 - int(count)) // 255 > 255 for count in brightest)
    assert_equals_pillow(["Equalize"] * 2, images, torch.zeros(2))


@pytest.mark.parametrize("magnitude", [1e3, 1e6, 1e12, 1e15, 1e300])
@pytest.mark.parametrize("name", ["ShearX", "ShearY", "TranslateX", "TranslateY"])
def test_shears_and_shifts_past_all_reason_equal_pillow(make_bytes, name: str, magnitude: float) -> None:
    magnitudes = torch.tensor([magnitude, -magnitude], dtype=torch.float64)
    assert_equals_pillow([name] * 2, make_bytes(2, 1, 8, 8), magnitudes)


@pytest.mark.parametrize(("height", "width"), [(1, 8192), (8192, 1), (3, 8192), (600, 800)])
def test_large_images_equal_pillow(make_bytes, height: int, width: int) -> None:
    names = [*EVERY.names]
    strongest = torch.stack([magnitudes_of(name).max() for name in names])
    assert_equals_pillow(names, make_bytes(len(names), 3, height, width), strongest)
    assert_equals_pillow(names, make_bytes(len(names), 1, height, width), strongest)
