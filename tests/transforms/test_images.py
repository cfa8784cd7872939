"""The door for images: what is let in, what is refused and why, and the grey of any number of channels."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor

from invaug import ops, sets
from invaug.transforms import continuous
from invaug.transforms.images import MAX_SIDE, check_images, luminance, on_bytes, to_bytes


def blank(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.zeros(shape, dtype=dtype)


REFUSED = {
    "no tensor": ([[1]], TypeError, r"images must be a torch\.Tensor, got list"),
    "one image": (blank(3, 8, 8), ValueError, r"shape \(batch, channels, height, width\), got \(3, 8, 8\)"),
    "five axes": (blank(1, 1, 1, 8, 8), ValueError, r"images must have shape .* got \(1, 1, 1, 8, 8\)"),
    "int64": (blank(1, 1, 8, 8, dtype=torch.int64), TypeError, r"uint8, or float in \[0, 1\], got torch\.int64"),
    "bool": (blank(1, 1, 8, 8, dtype=torch.bool), TypeError, r"got torch\.bool: convert with \.to\(torch\.uint8\)"),
    "complex": (blank(1, 1, 8, 8, dtype=torch.complex64), TypeError, r"images must be uint8, .* got torch\.complex64"),
    "no channels": (blank(1, 0, 8, 8), ValueError, r"images must have channels and sides .* got \(1, 0, 8, 8\)"),
    "no height": (blank(1, 3, 0, 8), ValueError, r"sides of 1 to 8192 pixels, got \(1, 3, 0, 8\)"),
    "no width": (blank(1, 3, 8, 0), ValueError, r"sides of 1 to 8192 pixels, got \(1, 3, 8, 0\)"),
    "too wide": (blank(1, 1, 1, MAX_SIDE + 1), ValueError, r"sides of 1 to 8192 pixels, got \(1, 1, 1, 8193\)"),
    "too high": (blank(1, 1, MAX_SIDE + 1, 1), ValueError, r"sides of 1 to 8192 pixels, got \(1, 1, 8193, 1\)"),
}


DOORS = {
    "check_images": check_images,
    "a set of byte operations": lambda images: sets.wide().apply(images, sets.wide().draw(1)),
    "a continuous set": lambda images: sets.rotations(1.0).apply(images, sets.rotations(1.0).draw(len(images))),
    "a byte operation": lambda images: ops.rotate(images, torch.zeros(1)),
    "a continuous operation": lambda images: continuous.turn(images, torch.zeros(1)),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_no_batch_of_images_is_refused_at_every_door(kind: str, door: str) -> None:
    images, error, message = REFUSED[kind]
    with pytest.raises(error, match=message):
        DOORS[door](images)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (1.01, r"float images must lie in \[0, 1\], got values from 0 to 1\.01: divide bytes by 255"),
        (-0.5, r"got values from -0\.5 to 0"),
        (255.0, r"got values from 0 to 255: divide bytes by 255"),
        (float("nan"), r"float images must lie in \[0, 1\], got values from nan to nan"),
        (float("inf"), r"got values from 0 to inf"),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_float_images_out_of_range_are_refused(value: float, message: str, dtype: torch.dtype) -> None:
    images = torch.zeros(2, 3, 4, 4, dtype=dtype)
    images[1, 2, 3, 3] = value
    message = message if dtype in (torch.float32, torch.float64) else r"float images must lie in \[0, 1\]"
    with pytest.raises(ValueError, match=message):
        sets.standard().apply(images, sets.standard().draw(2))


def test_bytes_survive_the_way_through_float_images(make_bytes) -> None:
    images = make_bytes(2, 3, 16, 16)
    for dtype in (torch.float32, torch.float64, torch.float16):
        assert torch.equal(to_bytes((images.double() / 255).to(dtype)), images)


def test_bytes_are_handed_on_without_a_copy(make_bytes) -> None:
    images = make_bytes(1, 1, 4, 4)
    assert to_bytes(images) is images
    assert on_bytes(images, lambda batch: batch) is images


def test_float_images_come_back_in_their_dtype() -> None:
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        images = torch.linspace(0, 1, 16, dtype=dtype).view(1, 1, 4, 4)
        back = on_bytes(images, lambda batch: batch)
        assert back.dtype == dtype
        assert (back.double() - images.double()).abs().max() <= 1 / 255


def test_float_images_pass_no_gradient_and_need_none() -> None:
    images = torch.rand(1, 1, 4, 4, requires_grad=True)
    assert not sets.wide().apply(images, sets.wide().draw(1)).requires_grad


def grey_in_plain_python(pixel: list[int]) -> int:
    """One channel is grey, three are RGB with Pillow's weights, the rest is the mean, halves rounded up."""
    if len(pixel) == 1:
        return pixel[0]
    if len(pixel) == 3:
        return (19595 * pixel[0] + 38470 * pixel[1] + 7471 * pixel[2] + 32768) // 65536
    return int(sum(pixel) / len(pixel) + 0.5)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.integers(1, 9).flatmap(lambda n: st.lists(st.lists(st.integers(0, 255), min_size=n, max_size=n), min_size=1)))
def test_luminance_follows_its_written_rule(pixels: list[list[int]]) -> None:
    images = torch.tensor(pixels, dtype=torch.uint8).view(len(pixels), -1, 1, 1)
    assert luminance(images).flatten().tolist() == [grey_in_plain_python(pixel) for pixel in pixels]


def test_luminance_of_every_second_colour_equals_pillow() -> None:
    ramp = torch.arange(0, 256, 2, dtype=torch.uint8)
    colours = torch.cartesian_prod(ramp, ramp, ramp).view(1024, 2048, 3)
    expected = torch.tensor(list(Image.fromarray(colours.numpy()).convert("L").tobytes()), dtype=torch.uint8)
    assert torch.equal(luminance(colours.permute(2, 0, 1).unsqueeze(0)).flatten(), expected)


@pytest.mark.parametrize("n_channels", [1, 2, 3, 4, 7])
def test_luminance_is_one_byte_per_pixel(make_bytes, n_channels: int) -> None:
    images: Tensor = make_bytes(2, n_channels, 5, 6)
    assert luminance(images).shape == (2, 1, 5, 6)
    assert luminance(images).dtype == torch.uint8
