"""The operations: pure batched functions, whatever the layout, the dtype and the number of channels."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import pad

from invaug import Op, ops, sets
from invaug.transforms.ops import Rule
from tests.support.pillow_reference import by_pillow

OPS = {op.name: op for op in (*sets.wide().ops, *sets.EXTRA)}
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


@pytest.fixture(params=OPS)
def op(request) -> Op:
    return OPS[request.param]


def rows_for(op: Op, n: int) -> tuple[Tensor, Tensor]:
    """Return n magnitudes from one end of the range to the other, both signs, and n places."""
    magnitudes = op.magnitude(torch.arange(n), max(n, 2))
    signs = torch.tensor([1.0, -1.0]).repeat(n)[:n] if op.signed else torch.ones(n)
    places = torch.rand(n, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(n))
    return magnitudes * signs, places


def test_function_of_an_operation_equals_pillow(both_backends: str, op: Op, photographs: Tensor) -> None:
    images = photographs[:8]
    magnitudes, places = rows_for(op, 8)
    assert torch.equal(op(images, magnitudes, places), by_pillow([op.name] * 8, images, magnitudes, places))


def test_crop_and_cutout_are_centred_without_places(both_backends: str, photographs: Tensor) -> None:
    sizes = torch.full((64,), 8.0)
    cut = ops.cutout(photographs.clamp(min=1), sizes)
    assert torch.equal((cut == 0).all(0).all(0).nonzero().aminmax(dim=0).min, torch.tensor([12, 12]))
    assert (cut == 0).sum() == 64 * 3 * 8 * 8
    assert torch.equal(ops.crop(photographs, sizes), photographs)


def test_input_is_not_written_to(both_backends: str, op: Op, photographs: Tensor) -> None:
    images, (magnitudes, places) = photographs.clone(), rows_for(op, 64)
    before = magnitudes.clone(), places.clone()
    changed = op(images, magnitudes, places)
    changed.fill_(7)  # nor is it what was handed back
    assert torch.equal(images, photographs)
    assert torch.equal(magnitudes, before[0])
    assert torch.equal(places, before[1])


@pytest.mark.parametrize("n_channels", [1, 2, 3, 4, 7])
def test_batch_gives_what_its_images_give_one_by_one(both_backends: str, op: Op, make_bytes, n_channels: int) -> None:
    images, (magnitudes, places) = make_bytes(6, n_channels, 9, 14), rows_for(op, 6)
    single = [op(images[i : i + 1], magnitudes[i : i + 1], places[i : i + 1]) for i in range(6)]
    assert torch.equal(op(images, magnitudes, places), torch.cat(single))


# the operations that look at all channels at once; every other sees one channel at a time
ACROSS_CHANNELS = {"Color", "Contrast"}


@pytest.mark.parametrize("n_channels", [2, 4, 7])
@pytest.mark.parametrize("name", sorted(set(OPS) - ACROSS_CHANNELS))
def test_channels_of_any_number_are_grey_images_to_most_operations(
    both_backends: str, name: str, make_bytes, n_channels: int
) -> None:
    images, (magnitudes, places) = make_bytes(6, n_channels, 13, 11), rows_for(OPS[name], 6)
    planes = [by_pillow([name] * 6, images[:, c : c + 1], magnitudes, places) for c in range(n_channels)]
    assert torch.equal(OPS[name](images, magnitudes, places), torch.cat(planes, dim=1))


def blend_in_plain_python(start: int, value: int, factor: float) -> int:
    mixed = np.float32(start) + np.float32(factor) * (np.float32(value) - np.float32(start))
    return int(min(max(mixed, np.float32(0)), np.float32(255)))


@pytest.mark.parametrize("n_channels", [2, 4, 7])
@pytest.mark.parametrize("factor", [0.0, 0.01, 0.7, 1.0, 2.0])
def test_grey_of_other_channel_numbers_is_their_mean(
    both_backends: str, make_bytes, n_channels: int, factor: float
) -> None:
    images = make_bytes(1, n_channels, 5, 6)
    grey = [int(sum(pixel) / n_channels + 0.5) for pixel in images[0].flatten(1).T.tolist()]
    mean = int(sum(grey) / len(grey) + 0.5)
    for rule, starts in ((ops.color, grey), (ops.contrast, [mean] * 30)):
        expected = [
            [blend_in_plain_python(start, value, factor) for start, value in zip(starts, plane, strict=True)]
            for plane in images[0].flatten(1).tolist()
        ]
        assert rule(images, torch.tensor([factor])).flatten(2)[0].tolist() == expected


LAYOUTS = {
    "channels last": lambda images: images.to(memory_format=torch.channels_last),
    "transposed": lambda images: images.transpose(2, 3).contiguous().transpose(2, 3),
    "a window of larger images": lambda images: pad(images, (3, 2, 1, 4), value=9)[:, :, 1:-4, 3:-2],
    "every second image": lambda images: images.repeat_interleave(2, 0)[::2],
    "one image expanded": lambda images: images[:1].expand(len(images), -1, -1, -1),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layout_in_memory_does_not_matter(both_backends: str, op: Op, photographs: Tensor, layout: str) -> None:
    images, (magnitudes, places) = LAYOUTS[layout](photographs[:8]), rows_for(op, 8)
    assert torch.equal(op(images, magnitudes, places), op(images.clone().contiguous(), magnitudes, places))


def test_no_images_give_no_images(both_backends: str, op: Op) -> None:
    for dtype in (torch.uint8, torch.float32):
        changed = op(torch.empty(0, 3, 8, 8, dtype=dtype), torch.empty(0), torch.empty(0, 2))
        assert changed.shape == (0, 3, 8, 8)
        assert changed.dtype == dtype


@pytest.mark.parametrize("dtype", FLOATS)
def test_float_images_give_the_bytes_within_one_step(
    both_backends: str, op: Op, photographs: Tensor, dtype: torch.dtype
) -> None:
    images, (magnitudes, places) = (photographs[:16].double() / 255).to(dtype), rows_for(op, 16)
    changed = op(images, magnitudes, places)
    # bfloat16 holds fewer than 256 steps, so its bytes are those it rounds to
    expected = op((images.double() * 255).round().to(torch.uint8), magnitudes, places)
    assert changed.dtype == dtype
    assert (changed.double() - expected.double() / 255).abs().max() <= 1 / 255
    assert (changed >= 0).all()
    assert (changed <= 1).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64])
def test_magnitudes_come_in_any_number_type(both_backends: str, photographs: Tensor, dtype: torch.dtype) -> None:
    quarter_turns = torch.tensor([0, 90, 180, -90], dtype=dtype)
    expected = [torch.rot90(photographs[i], i, (1, 2)) for i in range(4)]
    assert torch.equal(ops.rotate(photographs[:4], quarter_turns), torch.stack(expected))


def test_magnitudes_with_a_gradient_are_read_as_numbers(both_backends: str, photographs: Tensor) -> None:
    factors = torch.full((64,), 0.5, requires_grad=True)
    assert torch.equal(ops.brightness(photographs, factors), ops.brightness(photographs, factors.detach()))


TORCHVISION = {
    "Invert": lambda v2, images, m: v2.invert(images),
    "FlipX": lambda v2, images, m: v2.horizontal_flip(images),
    "FlipY": lambda v2, images, m: v2.vertical_flip(images),
    "Posterize": lambda v2, images, m: v2.posterize(images, int(m)),
    "Solarize": lambda v2, images, m: v2.solarize(images, m),
}


@pytest.mark.parametrize("name", TORCHVISION)
def test_operations_without_arithmetic_equal_torchvision(torchvision, photographs: Tensor, name: str) -> None:
    functional = pytest.importorskip("torchvision.transforms.v2.functional")
    for level in range(1, 31, 4):
        magnitude = OPS[name].magnitude(torch.tensor([level]), 31)
        expected = TORCHVISION[name](functional, photographs, magnitude.item())
        assert torch.equal(OPS[name](photographs, magnitude.expand(64)), expected)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    st.sampled_from(sorted(OPS)),
    st.tuples(st.integers(0, 3), st.integers(1, 5), st.integers(1, 24), st.integers(1, 24)),
    st.sampled_from([torch.uint8, *FLOATS]),
    st.integers(0, 2**32),
)
def test_shape_dtype_and_range_are_kept(name: str, shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    raw = torch.randint(256, shape, dtype=torch.uint8, generator=generator)
    images = raw if dtype == torch.uint8 else (raw / 255).to(dtype)
    changed = OPS[name](images, *rows_for(OPS[name], shape[0]))
    assert changed.shape == images.shape
    assert changed.dtype == images.dtype
    if images.is_floating_point() and images.numel():
        assert 0 <= changed.min() <= changed.max() <= 1


def test_level_zero_is_the_start_and_the_last_level_the_stop() -> None:
    op = Op("Grow", ops.identity, start=2.0, stop=5.0)
    assert op.magnitude(torch.arange(4), 4).tolist() == [2, 3, 4, 5]


def test_whole_steps_are_cut_towards_the_start() -> None:
    up = Op("Up", ops.identity, 0, 10, whole=True)
    down = Op("Down", ops.identity, 8, 4, whole=True)
    assert up.magnitude(torch.arange(5), 5).tolist() == [0, 2, 5, 7, 10]
    assert down.magnitude(torch.arange(6), 6).tolist() == [8, 8, 7, 6, 5, 4]


def test_operation_of_one_value_has_no_magnitude() -> None:
    assert not OPS["Equalize"].has_magnitude
    assert OPS["Solarize"].has_magnitude


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"name": ""}, ValueError, "name must not be empty"),
        ({"function": 3}, TypeError, "function of Mine must be callable, got int"),
        ({"stop": float("inf")}, ValueError, "the range of Mine must be finite, got 0.0 to inf"),
        ({"start": float("nan")}, ValueError, "the range of Mine must be finite, got nan to 0.0"),
        ({"n_magnitudes": 0}, ValueError, "n_magnitudes of Mine must be at least 1, got 0"),
        ({"n_magnitudes": 3}, ValueError, "Mine takes 3 magnitudes, but a level has one: set continuous=True"),
    ],
)
def test_operations_that_are_none_are_refused(arguments: dict, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Op(**{"name": "Mine", "function": lambda images, magnitudes: images, **arguments})


@pytest.mark.parametrize("rows", [(3,), (5,), (4, 2)])
def test_magnitudes_that_do_not_match_the_images_are_refused(
    both_backends: str, op: Op, photographs: Tensor, rows: tuple[int, ...]
) -> None:
    with pytest.raises(ValueError, match=r"magnitudes must have"):
        op(photographs[:4], torch.zeros(rows), torch.zeros(4, 2))


@pytest.mark.parametrize("name", ["Crop", "Cutout"])
def test_places_that_do_not_match_the_images_are_refused(both_backends: str, photographs: Tensor, name: str) -> None:
    with pytest.raises(ValueError, match=r"places must have"):
        OPS[name](photographs[:4], torch.ones(4), torch.zeros(3, 2))


def test_every_operation_shipped_is_a_rule(op: Op) -> None:
    assert isinstance(op.function, Rule)


MOVING = {"Rotate", "ShearX", "ShearY", "TranslateX", "TranslateY", "FlipX", "FlipY", "Crop"}


def test_operations_that_move_pixels_are_geometric(op: Op) -> None:
    assert op.geometric == (op.name in MOVING)


def test_own_operation_says_itself_whether_it_is_geometric() -> None:
    assert not Op("Mine", lambda images, magnitudes: images).geometric
    assert Op("Mine", lambda images, magnitudes: images, geometric=True).geometric
    assert Op("Turn", ops.rotate, 0, 90).geometric
