"""The kernels and their parameters against their definitions, one pixel at a time in plain Python."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFilter
from torch import Tensor

from invaug.kernels import by_torch, rules
from invaug.kernels.rules import Actions

N_CHANNELS = [1, 2, 3, 4, 7]
SIX = st.lists(st.floats(-3, 3), min_size=6, max_size=6)


def actions(codes: list[int], magnitudes: list[float], place: float = 0.5) -> Actions:
    places = np.full((len(codes), 2), place)
    return Actions(np.array(codes), np.array(magnitudes, dtype=np.float64), places, tuple(codes))


TABLES = {
    rules.SOLARIZE: lambda value, magnitude: value if value < magnitude else 255 - value,
    rules.POSTERIZE: lambda value, magnitude: value - value % 2 ** (8 - min(max(int(magnitude), 0), 8)),
    rules.INVERT: lambda value, magnitude: 255 - value,
    rules.BRIGHTNESS: lambda value, magnitude: int(min(max(np.float32(value) * np.float32(magnitude), 0), 255)),
}


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.sampled_from(sorted(TABLES)), st.floats(-3, 300)), min_size=1, max_size=5))
def test_tables_of_mixed_operations_are_those_of_each(cases: list[tuple[int, float]]) -> None:
    codes, magnitudes = map(list, zip(*cases, strict=True))
    expected = [[TABLES[code](value, magnitude) for value in range(256)] for code, magnitude in cases]
    assert rules.tables(actions(codes, magnitudes)).tolist() == expected


@pytest.mark.parametrize("n_channels", N_CHANNELS)
def test_look_up_replaces_each_value_by_its_entry(make_bytes, n_channels: int) -> None:
    images, asked = make_bytes(3, n_channels, 4, 5), actions(sorted(TABLES)[:3], [100, 3, 0])
    found, tables = by_torch.look_up(images, asked), rules.tables(asked)
    for i, c, y, x in np.ndindex(*images.shape):
        assert found[i, c, y, x] == tables[i, images[i, c, y, x]]


def affine_in_plain_python(image: Tensor, six: list[float]) -> Tensor:
    """Read each pixel's centre through the map, in whole 65536ths, and leave black what falls outside."""
    height, width = image.shape[1:]
    a, b, c, d, e, f = six
    fixed = [math.floor(v * 65536 + 0.5) for v in (a, b, c + a * 0.5 + b * 0.5, d, e, f + d * 0.5 + e * 0.5)]
    read = torch.zeros_like(image)
    for y in range(height):
        for x in range(width):
            from_x = (fixed[0] * x + fixed[1] * y + fixed[2]) // 65536
            from_y = (fixed[3] * x + fixed[4] * y + fixed[5]) // 65536
            if 0 <= from_x < width and 0 <= from_y < height:
                read[:, y, x] = image[:, from_y, from_x]
    return read


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(SIX, min_size=1, max_size=3), st.integers(1, 4), st.integers(1, 9), st.integers(1, 9))
def test_affine_reads_pixel_centres_in_fixed_point(
    matrices: list[list[float]], n_channels: int, height: int, width: int
) -> None:
    generator = torch.Generator().manual_seed(height)
    images = torch.randint(256, (len(matrices), n_channels, height, width), dtype=torch.uint8, generator=generator)
    read = by_torch.affine(images, np.array(matrices))
    expected = [affine_in_plain_python(image, six) for image, six in zip(images, matrices, strict=True)]
    assert torch.equal(read, torch.stack(expected))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(SIX)
def test_affine_equals_pillow_for_any_six_numbers(six: list[float]) -> None:
    six[1] = six[1] or 0.5  # without a shear Pillow takes another road, exact for whole shifts alone
    image = torch.randint(256, (1, 1, 13, 21), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    expected = Image.fromarray(image[0, 0].numpy()).transform((21, 13), Image.Transform.AFFINE, six)
    assert np.array_equal(by_torch.affine(image, np.array([six]))[0, 0], np.asarray(expected))


def test_affine_of_the_identity_is_a_new_batch(make_bytes) -> None:
    images = make_bytes(2, 3, 5, 6)
    same = by_torch.affine(images, np.array([[1.0, 0, 0, 0, 1, 0]] * 2))
    assert torch.equal(same, images)
    assert same.data_ptr() != images.data_ptr()


def test_fixed_point_rounds_halves_up_and_starts_at_the_first_centre() -> None:
    matrices = [[1.0, 0, 0, 0, 1, 0], [2**-17, 0, 0, -(2**-17), 0, 0]]
    assert rules.fixed_point(np.array(matrices)).tolist() == [[65536, 0, 32768, 0, 65536, 32768], [1, 0, 0, 0, 0, 0]]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 255), min_size=2, max_size=2), st.floats(-2, 4, width=32))
def test_blend_is_single_precision_clipped_and_cut(pair: list[int], factor: float) -> None:
    image, degenerate = (torch.full((1, 1, 1, 1), value, dtype=torch.uint8) for value in pair)
    start, change = np.float32(pair[1]), np.float32(pair[0]) - np.float32(pair[1])
    expected = int(min(max(start + np.float32(factor) * change, np.float32(0)), np.float32(255)))
    assert by_torch.mix(image, degenerate, torch.tensor([factor])).item() == expected


@pytest.mark.parametrize("shape", [(1, 1), (2, 9), (3, 3), (3, 4), (17, 31)])
def test_smooth_equals_pillow(make_bytes, shape: tuple[int, int]) -> None:
    image = make_bytes(1, 1, *shape)
    expected = Image.fromarray(image[0, 0].numpy()).filter(ImageFilter.SMOOTH)
    assert np.array_equal(by_torch.smooth(image, actions([rules.SHARPNESS], [0]))[0, 0], np.asarray(expected))


@pytest.mark.parametrize("n_channels", N_CHANNELS)
def test_histogram_counts_each_plane_as_numpy_does(make_bytes, n_channels: int) -> None:
    images = make_bytes(3, n_channels, 9, 8) // 3
    counts = by_torch.histogram(images.flatten(2).long())
    for i, c in np.ndindex(3, n_channels):
        assert np.array_equal(counts[i, c], np.bincount(images[i, c].flatten(), minlength=256))
