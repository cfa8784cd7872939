"""A set draws uniformly, tells what it drew, and applies it: its own operations and those of others."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch import Tensor

from invaug import Draw, Op, TransformSet, sets
from tests.support.pillow_reference import by_pillow

N = 200_000
EVERY = TransformSet(sets.wide().ops + sets.EXTRA)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def p_of_uniform(values: Tensor, n: int) -> float:
    return chisquare(torch.bincount(values, minlength=n).numpy()).pvalue


def test_operations_levels_and_signs_are_uniform_and_independent() -> None:
    draw = sets.wide().draw(N, generator=seeded())
    op, level, magnitude = draw.op[:, 0], draw.level[:, 0], draw.magnitude[:, 0, 0]
    assert p_of_uniform(op, 14) > 0.01
    assert p_of_uniform(level, 31) > 0.01
    assert p_of_uniform(op * 31 + level, 14 * 31) > 0.01
    signed = torch.tensor([op.signed for op in sets.wide().ops])[op] & (magnitude != 0)
    assert p_of_uniform((magnitude[signed] > 0).long(), 2) > 0.01


def test_only_signed_operations_have_negative_magnitudes() -> None:
    draw = sets.wide().draw(N, generator=seeded())
    negative = set(draw.op[draw.magnitude[..., 0] < 0].tolist())
    assert {sets.wide().names[i] for i in negative} == {"Rotate", "ShearX", "ShearY", "TranslateX", "TranslateY"}


def test_magnitude_of_a_draw_is_that_of_its_level() -> None:
    draw = sets.wide().draw(1000, generator=seeded())
    for op, level, magnitude in zip(draw.op, draw.level, draw.magnitude.flatten().tolist(), strict=True):
        assert abs(magnitude) == sets.wide().ops[op].magnitude(level, 31).item()


def test_no_magnitude_is_minus_zero() -> None:
    draw = sets.wide().draw(N, generator=seeded())
    assert not (draw.magnitude.signbit() & (draw.magnitude == 0)).any()


def test_places_are_uniform_in_the_unit_square() -> None:
    place = EVERY.draw(N, generator=seeded()).place[:, 0]
    assert 0 <= place.min() <= place.max() < 1
    cells = (place * 8).long()
    assert p_of_uniform(cells[:, 0] * 8 + cells[:, 1], 64) > 0.01


def test_only_and_without_split_a_set() -> None:
    some, rest = sets.wide(30).only("ShearX", "Rotate"), sets.wide(30).without("ShearX", "Rotate")
    assert some.names == ("Rotate", "ShearX")
    assert set(some.names) | set(rest.names) == set(sets.wide().names)
    assert len(rest.ops) == 12
    assert some.n_levels == rest.n_levels == 30


@pytest.mark.parametrize("pick", ["only", "without"])
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Rotat", r"unknown operation Rotat, did you mean Rotate\?"),
        ("Colour", r"unknown operation Colour, did you mean Color\?"),
        ("translateX", r"unknown operation translateX, did you mean TranslateX\?"),
        ("qqq", r"unknown operation qqq, choose one of AutoContrast, Brightness, .*TranslateY"),
    ],
)
def test_unknown_name_is_met_with_the_nearest(pick: str, name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        getattr(sets.wide(), pick)("Equalize", name)


def same_function(images: Tensor, magnitudes: Tensor) -> Tensor:
    return images.clone()


A, B = Op("A", same_function), Op("B", same_function)
TWO = Op("Two", same_function, continuous=True, n_magnitudes=2)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"ops": ()}, ValueError, "ops must hold at least one operation, got none"),
        ({"ops": ("Rotate",)}, TypeError, r"ops must be invaug\.Op, got \['str'\]"),
        ({"ops": (A, A)}, ValueError, "ops must have different names, got A, A"),
        ({"ops": (A, TWO)}, ValueError, "ops of one set must take equally many magnitudes, got A, Two"),
        ({"n_levels": 1}, ValueError, "n_levels must be at least 2, got 1"),
        ({"depth": 0}, ValueError, "depth must be at least 1, got 0"),
        ({"min_level": 31}, ValueError, "min_level must lie in 0 to 30, got 31"),
        ({"reference_size": -3}, ValueError, "reference_size must be a positive number of pixels, got -3"),
    ],
)
def test_sets_that_are_none_are_refused(arguments: dict, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        TransformSet(**{"ops": (A, B), **arguments})


def test_leaving_no_operation_is_refused() -> None:
    with pytest.raises(ValueError, match="ops must hold at least one operation"):
        sets.wide().without(*sets.wide().names)


def test_negative_number_of_images_is_refused() -> None:
    with pytest.raises(ValueError, match="n must not be negative, got -1"):
        sets.wide().draw(-1)


CONSUMERS = [
    sets.standard(),
    sets.wide(),
    sets.wide(5, min_level=3).only("Rotate"),
    sets.wide().without("Color"),
    TransformSet(sets.EXTRA),
    sets.rotations(1),
    sets.translations(1),
    sets.scalings(1),
    TransformSet((A, B)),
]


@pytest.mark.parametrize("n", [0, 1, 7, 128])
def test_every_set_of_up_to_two_magnitudes_takes_the_same_from_the_generator(n: int) -> None:
    states = []
    for transforms in CONSUMERS:
        generator = seeded()
        transforms.draw(n, generator=generator)
        states.append(generator.get_state())
    assert all(torch.equal(state, states[0]) for state in states)


def test_seed_decides_the_draw_and_nothing_else_does() -> None:
    first = sets.wide().draw(100, generator=seeded(3))
    torch.manual_seed(99)
    again, other = sets.wide().draw(100, generator=seeded(3)), sets.wide().draw(100, generator=seeded(4))
    assert torch.equal(first.op, again.op)
    assert torch.equal(first.magnitude, again.magnitude)
    assert not torch.equal(first.op, other.op)


def test_without_a_generator_torchs_own_is_used() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(5)
        first = sets.wide().draw(50)
        torch.manual_seed(5)
        again = sets.wide().draw(50)
    assert torch.equal(first.magnitude, again.magnitude)


def test_drawing_with_a_generator_leaves_the_global_one_alone() -> None:
    before = torch.get_rng_state()
    sets.wide().draw(50, generator=seeded())
    assert torch.equal(torch.get_rng_state(), before)


def layer_by_pillow(transforms: TransformSet, images: Tensor, draw: Draw) -> Tensor:
    """Return what Pillow makes of the images under a draw of depth 1."""
    names = [transforms.names[i] for i in draw.op[:, 0]]
    return by_pillow(names, images, draw.magnitude[:, 0, 0], draw.place[:, 0])


def test_mixed_batch_equals_pillow_image_by_image(both_backends: str, photographs: Tensor) -> None:
    draw = EVERY.draw(64, generator=seeded())
    assert torch.equal(EVERY.apply(photographs, draw), layer_by_pillow(EVERY, photographs, draw))


def test_operations_in_a_row_equal_pillow_one_after_the_other(both_backends: str, photographs: Tensor) -> None:
    pairs = replace(EVERY, depth=3)
    draw = pairs.draw(64, generator=seeded())
    expected = photographs
    for i in range(3):
        expected = layer_by_pillow(EVERY, expected, draw.layer(i))
    assert torch.equal(pairs.apply(photographs, draw), expected)


def test_operations_in_a_row_are_drawn_independently() -> None:
    draw = sets.mild().draw(N, generator=seeded())
    assert draw.depth == 2
    assert p_of_uniform(draw.op[:, 0] * 14 + draw.op[:, 1], 14 * 14) > 0.01
    assert p_of_uniform(draw.level[:, 1], 31) > 0.01


def test_what_comes_first_does_not_depend_on_what_follows() -> None:
    one, two = (replace(EVERY, depth=depth).draw(50, generator=seeded()) for depth in (1, 2))
    first = two.layer(0)
    assert torch.equal(one.op, first.op)
    assert torch.equal(one.magnitude, first.magnitude)
    assert torch.equal(one.place, first.place)


def test_draw_of_any_depth_is_applied(both_backends: str, photographs: Tensor) -> None:
    wide, deep = sets.wide(), replace(sets.wide(), depth=4)
    draw = deep.draw(64, generator=seeded())
    assert torch.equal(wide.apply(photographs, draw), deep.apply(photographs, draw))


def test_operations_in_a_row_are_described_in_order() -> None:
    pairs = sets.mild().only("Rotate", "Equalize")
    op = torch.tensor([[pairs.names.index(name) for name in ("Rotate", "Equalize")]])
    draw = Draw(op, torch.zeros_like(op), torch.tensor([[-9.0, 0.0]]))
    assert pairs.describe(draw) == ["Rotate -9, Equalize"]


def test_a_set_of_pairs_is_not_listed() -> None:
    with pytest.raises(ValueError, match=r"^a set of depth 2 is not listed"):
        sets.mild().every()


def test_batch_gives_what_its_images_give_one_by_one(both_backends: str, photographs: Tensor) -> None:
    draw = EVERY.draw(64, generator=seeded(1))
    single = [EVERY.apply(photographs[i : i + 1], draw[i]) for i in range(64)]
    assert torch.equal(EVERY.apply(photographs, draw), torch.cat(single))


def test_apply_writes_to_nothing_and_gives_the_same_again(both_backends: str, photographs: Tensor) -> None:
    images, draw = photographs.clone(), EVERY.draw(64, generator=seeded())
    before = draw.magnitude.clone()
    first = EVERY.apply(images, draw)
    assert torch.equal(first, EVERY.apply(images, draw))
    first.zero_()
    assert torch.equal(images, photographs)
    assert torch.equal(draw.magnitude, before)


def test_identity_alone_gives_new_images(both_backends: str, photographs: Tensor) -> None:
    identity = sets.wide().only("Identity")
    same = identity.apply(photographs, identity.draw(64))
    assert torch.equal(same, photographs)
    assert same.data_ptr() != photographs.data_ptr()


def test_apply_takes_any_layout(both_backends: str, photographs: Tensor) -> None:
    draw = EVERY.draw(64, generator=seeded())
    expected = EVERY.apply(photographs, draw)
    assert torch.equal(EVERY.apply(photographs.to(memory_format=torch.channels_last), draw), expected)
    assert torch.equal(EVERY.apply(photographs.transpose(2, 3).contiguous().transpose(2, 3), draw), expected)
    assert torch.equal(EVERY.apply(photographs.repeat_interleave(2, 0)[::2], draw), expected)


@pytest.mark.parametrize("transforms", [EVERY, sets.rotations(1), TransformSet((A, B))], ids=["bytes", "warp", "own"])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_no_images_give_no_images(both_backends: str, transforms: TransformSet, dtype: torch.dtype) -> None:
    changed = transforms.apply(torch.empty(0, 3, 8, 8, dtype=dtype), transforms.draw(0))
    assert changed.shape == (0, 3, 8, 8)
    assert changed.dtype == dtype
    assert transforms.describe(transforms.draw(0)) == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_float_images_give_the_bytes_within_one_step(
    both_backends: str, photographs: Tensor, dtype: torch.dtype
) -> None:
    draw = EVERY.draw(64, generator=seeded())
    images = (photographs.double() / 255).to(dtype)
    changed = EVERY.apply(images, draw)
    assert changed.dtype == dtype
    expected = EVERY.apply((images.double() * 255).round().to(torch.uint8), draw)
    assert (changed.double() - expected.double() / 255).abs().max() <= 1 / 255


SCALED = {"TranslateX": 1, "TranslateY": 0, "Crop": None, "Cutout": None}  # the side of (height, width) they count


@pytest.mark.parametrize("name", SCALED)
@pytest.mark.parametrize(("height", "width"), [(64, 64), (224, 224), (16, 16), (48, 100), (100, 48), (33, 31)])
def test_relative_pixels_are_absolute_pixels_of_a_scaled_image(
    both_backends: str, make_images, name: str, height: int, width: int
) -> None:
    images = make_images(20, height, width, 3)
    relative = TransformSet((*sets.wide().ops, *sets.EXTRA), reference_size=32).only(name)
    draw = relative.draw(20, generator=seeded())
    side = min(height, width) if SCALED[name] is None else (height, width)[SCALED[name]]
    scaled = torch.tensor([int(m * side / 32) for m in draw.magnitude.flatten().tolist()], dtype=torch.float64)
    assert torch.equal(relative.apply(images, draw), by_pillow([name] * 20, images, scaled, draw.place[:, 0]))


def test_relative_set_is_the_absolute_one_at_its_reference_size(both_backends: str, photographs: Tensor) -> None:
    draw = sets.wide().draw(64, generator=seeded())
    relative = sets.wide(relative_to=32)
    assert relative.reference_size == 32
    assert torch.equal(relative.apply(photographs, draw), sets.wide().apply(photographs, draw))


def test_relative_set_scales_nothing_but_pixels(both_backends: str, make_images) -> None:
    images = make_images(64, 50, 70, 3)
    turned = sets.wide(relative_to=32).without("TranslateX", "TranslateY")
    draw = turned.draw(64, generator=seeded())
    assert torch.equal(turned.apply(images, draw), sets.wide().without("TranslateX", "TranslateY").apply(images, draw))


def test_description_says_name_and_magnitude() -> None:
    ops = torch.tensor(
        [sets.wide().names.index(n) for n in ("Rotate", "Rotate", "Equalize", "Color", "Posterize", "ShearX")]
    )
    draw = Draw(ops, torch.zeros(6, dtype=torch.int64), torch.tensor([-90.0, 4, 0, 0.21, 3, 0.0330001]))
    assert sets.wide().describe(draw) == [
        "Rotate -90",
        "Rotate +4",
        "Equalize",
        "Color 0.21",
        "Posterize 3",
        "ShearX +0.033",
    ]
    zero = torch.zeros(1, dtype=torch.int64)
    assert sets.translations(9).describe(Draw(zero, zero, torch.tensor([[1.5, -2.0]]))) == ["Translation +1.5 -2"]


def test_descriptions_of_distinct_transformations_differ() -> None:
    names = sets.wide().describe(sets.wide().every())
    assert len(set(names)) == len(names)


def test_draw_of_another_set_is_refused(photographs: Tensor) -> None:
    draw = Draw(torch.full((64,), 13), torch.zeros(64, dtype=torch.int64), torch.zeros(64))
    with pytest.raises(ValueError, match=r"draw\.op must lie in 0 to 2, got 13: was it drawn from this set\?"):
        sets.wide().only("Rotate", "Color", "Equalize").apply(photographs, draw)
    with pytest.raises(ValueError, match=r"draw\.op must lie in 0 to 13, got -1"):
        sets.wide().apply(photographs, Draw(draw.op - 14, draw.level, draw.magnitude))
    with pytest.raises(ValueError, match=r"draw\.op must lie in 0 to 2, got 13"):
        sets.wide().only("Rotate", "Color", "Equalize").describe(draw)


@pytest.mark.parametrize("n", [0, 63, 65])
def test_draw_of_another_number_of_images_is_refused(photographs: Tensor, n: int) -> None:
    with pytest.raises(ValueError, match=rf"draw must have one row per image, got {n} rows for 64 images"):
        sets.wide().apply(photographs, sets.wide().draw(n))


def test_what_is_no_draw_is_refused(photographs: Tensor) -> None:
    with pytest.raises(TypeError, match=r"draw must be .*Draw, got list"):
        sets.wide().apply(photographs[:2], [1, 2])


def darken(images: Tensor, magnitudes: Tensor) -> Tensor:
    return (images * (1 - magnitudes.view(-1, 1, 1, 1))).to(images.dtype)


def test_set_of_ones_own_takes_three_lines(photographs: Tensor) -> None:
    mine = TransformSet((Op("Darken", darken, start=0.0, stop=0.8),), n_levels=5)
    draw = mine.draw(64, generator=seeded())
    assert torch.equal(mine.apply(photographs, draw), darken(photographs, draw.magnitude[:, 0, 0]))
    assert draw.magnitude.unique().tolist() == pytest.approx([0, 0.2, 0.4, 0.6, 0.8])


def test_own_operation_mixes_with_byte_operations(both_backends: str, photographs: Tensor) -> None:
    mine = TransformSet((Op("Darken", darken, 0, 0.8), *sets.wide().ops))
    draw = mine.draw(64, generator=seeded())
    dark = draw.op[:, 0] == 0
    assert 0 < dark.sum() < 64
    changed = mine.apply(photographs, draw)
    rest = Draw(draw.op[~dark] - 1, draw.level[~dark], draw.magnitude[~dark], draw.place[~dark])
    assert torch.equal(changed[dark], darken(photographs[dark], draw.magnitude[dark, 0, 0]))
    assert torch.equal(changed[~dark], sets.wide().apply(photographs[~dark], rest))


def test_own_operation_may_take_places(photographs: Tensor) -> None:
    seen: list[Tensor] = []

    def note(images: Tensor, magnitudes: Tensor, places: Tensor) -> Tensor:
        seen.append(places)
        return images.clone()

    mine = TransformSet((Op("Note", note, placed=True),))
    draw = mine.draw(64, generator=seeded())
    mine.apply(photographs, draw)
    assert torch.equal(seen[0], draw.place[:, 0])


def test_continuous_and_levelled_operations_share_a_set(photographs: Tensor) -> None:
    mixed = TransformSet(
        (Op("Glow", same_function, 0.5, 2.0, continuous=True), *sets.wide().ops, *sets.rotations(3).ops)
    )
    draw = mixed.draw(N, generator=seeded())
    glow, turn = draw.op[:, 0] == 0, draw.op[:, 0] == 15
    assert (draw.level[glow | turn] == -1).all()
    assert (draw.level[~(glow | turn)] >= 0).all()
    assert 0.5 <= draw.magnitude[glow].min() < 0.51 < 1.99 < draw.magnitude[glow].max() <= 2
    assert -3 <= draw.magnitude[turn].min() < -2.9 < 2.9 < draw.magnitude[turn].max() <= 3
    assert mixed.apply(photographs, draw[:64]).shape == photographs.shape


def test_shift_of_ones_own_in_relative_pixels_grows_with_the_image(make_bytes) -> None:
    (shift,) = sets.translations(4).ops
    own = Op("Shift", shift.function, 0, 4, signed=True, continuous=True, n_magnitudes=2, pixels_of="width")
    images, zero = make_bytes(1, 1, 64, 64), torch.zeros(1, dtype=torch.int64)
    once, twice = (Draw(zero, zero, torch.tensor([[x, -1.0 * x]], dtype=torch.float64)) for x in (2.0, 4.0))
    assert torch.equal(
        TransformSet((own,), reference_size=32).apply(images, once), sets.translations(4).apply(images, twice)
    )


BROKEN = {
    "shape": (lambda images, _: images[..., 1:], ValueError, r"Mine must keep the shape .* got \(2, 3, 32, 31\)"),
    "dtype": (lambda images, _: images / 255, TypeError, r"Mine must keep the dtype torch\.uint8, got torch\.float32"),
    "no tensor": (lambda images, _: None, TypeError, r"Mine must return a tensor of shape .* got NoneType"),
}


@pytest.mark.parametrize("companions", [(), (B,)], ids=["alone", "in company"])
@pytest.mark.parametrize("kind", BROKEN)
def test_own_operation_that_breaks_the_batch_is_named(
    photographs: Tensor, kind: str, companions: tuple[Op, ...]
) -> None:
    function, error, message = BROKEN[kind]
    mine = TransformSet((Op("Mine", function), *companions))
    two = torch.zeros(2, dtype=torch.int64)
    with pytest.raises(error, match=message):
        mine.apply(photographs[:2], Draw(two, two, torch.zeros(2)))


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    st.sampled_from(CONSUMERS),
    st.tuples(st.integers(1, 6), st.integers(1, 5), st.integers(1, 20), st.integers(1, 20)),
    st.sampled_from([torch.uint8, torch.float32, torch.float64, torch.float16, torch.bfloat16]),
    st.integers(0, 2**32),
)
def test_shape_dtype_and_range_are_kept(
    transforms: TransformSet, shape: tuple[int, ...], dtype: torch.dtype, seed: int
) -> None:
    raw = torch.randint(256, shape, dtype=torch.uint8, generator=seeded(seed))
    images = raw if dtype == torch.uint8 else (raw / 255).to(dtype)
    changed = transforms.apply(images, transforms.draw(shape[0], generator=seeded(seed)))
    assert changed.shape == images.shape
    assert changed.dtype == images.dtype
    assert changed.min() >= 0
    assert changed.max() <= (255 if dtype == torch.uint8 else 1 + 1e-6)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.integers(2, 60), st.integers(0, 59), st.integers(0, 200), st.integers(0, 2**32))
def test_levels_lie_between_the_lowest_and_the_last(n_levels: int, min_level: int, n: int, seed: int) -> None:
    min_level = min(min_level, n_levels - 1)
    draw = sets.standard(n_levels, min_level=min_level).draw(n, generator=seeded(seed))
    assert len(draw) == n
    assert all(min_level <= level < n_levels for level in draw.level.flatten().tolist())
    assert draw.place.shape == (n, 1, 2)
