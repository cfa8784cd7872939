"""Rotations, shifts and scalings: against rot90, copies, scipy, Pillow's direction and finite differences."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from scipy.ndimage import affine_transform
from torch import Tensor
from torch.autograd import gradcheck

from invaug import Draw, TransformSet, sets
from invaug.transforms import continuous

MAGNITUDES = {
    continuous.turn: torch.tensor([0.3, -1.1], dtype=torch.float64),
    continuous.shift: torch.tensor([[1.3, -0.6], [-2.2, 0.4]], dtype=torch.float64),
    continuous.zoom: torch.tensor([0.31, -0.23], dtype=torch.float64),
}
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
warps = pytest.mark.parametrize("warp", MAGNITUDES, ids=lambda warp: warp.__name__)


@pytest.fixture
def doubles() -> Tensor:
    return torch.rand(2, 2, 6, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@warps
def test_gradients_in_image_and_magnitude_are_finite_differences(warp, doubles: Tensor) -> None:
    assert gradcheck(warp, (doubles.requires_grad_(), MAGNITUDES[warp].clone().requires_grad_()))


@pytest.mark.parametrize("n_turns", [-2, -1, 0, 1, 2, 3])
def test_quarter_turns_of_a_square_are_rot90(photographs: Tensor, n_turns: int) -> None:
    angles = torch.full((64,), n_turns * math.pi / 2, dtype=torch.float64)
    expected = torch.rot90(photographs, n_turns, (2, 3))
    assert torch.equal(continuous.turn(photographs, angles), expected)
    assert torch.allclose(continuous.turn(photographs.double(), angles), expected.double(), atol=1e-9)


def test_rotation_turns_the_way_pillow_turns(digits: Tensor) -> None:
    angles = torch.linspace(-3, 3, 64, dtype=torch.float64)
    turned = continuous.turn(digits, angles)
    for image, angle, result in zip(digits, angles.tolist(), turned, strict=True):
        by_pillow = Image.fromarray(image[0].numpy()).rotate(math.degrees(angle), Image.Resampling.BILINEAR)
        difference = (result[0].double() - torch.from_numpy(np.array(by_pillow)).double()).abs()
        # Pillow samples bilinearly too, but in fixed steps, and leaves out pixels that lie half outside
        assert difference[1:-1, 1:-1].mean() < 1


def shifted_copy(image: Tensor, x: int, y: int) -> Tensor:
    """Return the image moved right by x and down by y, one pixel at a time."""
    height, width = image.shape[1:]
    moved = torch.zeros_like(image)
    for row in range(height):
        for column in range(width):
            if 0 <= row - y < height and 0 <= column - x < width:
                moved[:, row, column] = image[:, row - y, column - x]
    return moved


@pytest.mark.parametrize(("x", "y"), [(0, 0), (3, 0), (0, 2), (-4, 5), (8, -1), (9, 9), (-40, 0)])
def test_whole_shifts_are_copies_with_black_behind_them(make_bytes, x: int, y: int) -> None:
    images = make_bytes(2, 3, 9, 8)
    expected = torch.stack([shifted_copy(image, x, y) for image in images])
    pixels = torch.tensor([[x, y]] * 2, dtype=torch.float64)
    assert torch.equal(continuous.shift(images, pixels), expected)
    assert torch.allclose(continuous.shift(images.double(), pixels), expected.double(), atol=1e-9)


def test_half_a_pixel_is_the_mean_of_two(doubles: Tensor) -> None:
    moved = continuous.shift(doubles, torch.tensor([[0.5, 0.0]] * 2, dtype=torch.float64))
    assert torch.allclose(moved[..., 1:], (doubles[..., 1:] + doubles[..., :-1]) / 2)
    assert torch.allclose(moved[..., 0], doubles[..., 0] / 2)


def test_zoom_by_one_is_the_image_itself(photographs: Tensor) -> None:
    assert torch.equal(continuous.zoom(photographs, torch.full((64,), math.log(1))), photographs)


def test_zoom_by_two_of_four_blocks_keeps_the_blocks(make_bytes) -> None:
    blocks = make_bytes(1, 1, 2, 2).double().repeat_interleave(8, 2).repeat_interleave(8, 3)
    enlarged = continuous.zoom(blocks, torch.tensor([math.log(2)], dtype=torch.float64))
    assert torch.allclose(enlarged[..., [0, -1], :][..., [0, -1]], blocks[..., [0, -1], :][..., [0, -1]])
    shrunk = continuous.zoom(blocks, torch.tensor([-math.log(2)], dtype=torch.float64))
    assert torch.equal(shrunk != 0, torch.nn.functional.pad(torch.ones(1, 1, 8, 8), (4, 4, 4, 4)) != 0)


def by_scipy(image: Tensor, matrix: np.ndarray, offset: np.ndarray) -> Tensor:
    """Return a plane read at matrix (y, x) + offset from its centre, linear between pixels, zero outside."""
    centre = (np.array(image.shape) - 1) / 2
    start = centre + offset - matrix @ centre
    return torch.from_numpy(affine_transform(image.numpy(), matrix, start, order=1, mode="grid-constant"))


@pytest.mark.parametrize("angle", [0.2, 1.0, -2.5])
def test_rotation_of_an_oblong_equals_scipy(make_images, angle: float) -> None:
    images = make_images(2, 31, 17).double() / 255
    cos, sin = math.cos(angle), math.sin(angle)
    expected = [by_scipy(image[0], np.array([[cos, sin], [-sin, cos]]), np.zeros(2)) for image in images]
    turned = continuous.turn(images, torch.full((2,), angle, dtype=torch.float64))
    assert torch.allclose(turned[:, 0], torch.stack(expected), atol=1e-9)


@pytest.mark.parametrize("log_scale", [0.7, -0.4])
def test_zoom_of_an_oblong_equals_scipy(make_images, log_scale: float) -> None:
    images = make_images(2, 31, 17).double() / 255
    expected = [by_scipy(image[0], np.eye(2) * math.exp(-log_scale), np.zeros(2)) for image in images]
    zoomed = continuous.zoom(images, torch.full((2,), log_scale, dtype=torch.float64))
    assert torch.allclose(zoomed[:, 0], torch.stack(expected), atol=1e-9)


def test_shift_of_an_oblong_equals_scipy(make_images) -> None:
    images = make_images(2, 31, 17).double() / 255
    expected = [by_scipy(image[0], np.eye(2), np.array([3.25, -1.6])) for image in images]
    moved = continuous.shift(images, torch.tensor([[1.6, -3.25]] * 2, dtype=torch.float64))
    assert torch.allclose(moved[:, 0], torch.stack(expected), atol=1e-9)


@warps
def test_bytes_are_the_float_result_rounded(warp, photographs: Tensor) -> None:
    images, magnitudes = photographs[:2], MAGNITUDES[warp].float()
    assert torch.equal(warp(images, magnitudes), warp(images.float(), magnitudes).round().to(torch.uint8))


@warps
@pytest.mark.parametrize("dtype", FLOATS)
def test_float_images_keep_their_dtype(warp, photographs: Tensor, dtype: torch.dtype) -> None:
    images = (photographs[:2].double() / 255).to(dtype)
    changed = warp(images, MAGNITUDES[warp])
    assert changed.dtype == dtype
    exact = warp(images.double(), MAGNITUDES[warp])
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-4}.get(dtype, 1 / 255)
    assert (changed.double() - exact).abs().max() <= tolerance


@warps
def test_warp_leaves_its_input_alone(warp, photographs: Tensor) -> None:
    images = photographs[:2].clone()
    warp(images, MAGNITUDES[warp])
    assert torch.equal(images, photographs[:2])


@warps
def test_no_images_give_no_images(warp) -> None:
    changed = warp(torch.empty(0, 3, 8, 8, dtype=torch.uint8), MAGNITUDES[warp][:0])
    assert changed.shape == (0, 3, 8, 8)
    assert changed.dtype == torch.uint8


SETS = {"rotations": sets.rotations(1.0), "translations": sets.translations(2.0), "scalings": sets.scalings(0.5)}


@pytest.mark.parametrize("name", SETS)
def test_gradients_flow_through_a_set(doubles: Tensor, generator, name: str) -> None:
    draw = SETS[name].draw(2, generator=generator)
    images, magnitude = doubles.requires_grad_(), draw.magnitude.requires_grad_()
    SETS[name].apply(images, Draw(draw.op, draw.level, magnitude)).square().sum().backward()
    assert images.grad.abs().sum() > 0
    assert (magnitude.grad.view(2, -1).abs().sum(1) > 0).all()


def test_gradients_flow_through_a_set_of_several(doubles: Tensor) -> None:
    both = TransformSet(SETS["rotations"].ops + SETS["scalings"].ops)
    magnitude = torch.tensor([0.4, -0.3], dtype=torch.float64, requires_grad=True)
    changed = both.apply(doubles, Draw(torch.tensor([1, 0]), torch.tensor([-1, -1]), magnitude))
    expected = torch.cat([continuous.zoom(doubles[:1], magnitude[:1]), continuous.turn(doubles[1:], magnitude[1:])])
    assert torch.equal(changed, expected)
    (gradient,) = torch.autograd.grad(changed.square().sum(), magnitude, retain_graph=True)
    assert torch.equal(gradient, torch.autograd.grad(expected.square().sum(), magnitude)[0])


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.sampled_from(sorted(SETS)),
    st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(1, 16), st.integers(1, 16)),
    st.sampled_from([torch.uint8, *FLOATS]),
)
def test_shape_dtype_and_range_are_kept(name: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    raw = torch.randint(256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(sum(shape)))
    images = raw if dtype == torch.uint8 else (raw / 255).to(dtype)
    changed = SETS[name].apply(images, SETS[name].draw(shape[0], generator=torch.Generator().manual_seed(0)))
    assert changed.shape == images.shape
    assert changed.dtype == dtype
    assert images.min() * 0 <= changed.min() <= changed.max() <= images.max() + (1e-6 if dtype != torch.uint8 else 0)
