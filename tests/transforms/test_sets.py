"""The named sets against TrivialAugment's table, written out here a second time."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from scipy.stats import chisquare, kstest

from invaug import TransformSet, sets
from tests.support.operations import TRIVIAL_AUGMENT

SIGNED = {"Rotate", "ShearX", "ShearY", "TranslateX", "TranslateY"}
MAKERS = {"standard": sets.standard, "wide": sets.wide}


def nothing(_: Any, level: int, last: int) -> float:
    return 0.0


def whole(most: float, level: int, last: int) -> float:
    return int(level * most / last)


def even(most: float, level: int, last: int) -> float:
    return level * most / last


def threshold(most: float, level: int, last: int) -> float:
    return 256 - int(level * most / last)


def bits(dropped: float, level: int, last: int) -> float:
    return 8 - int(level * dropped / last)


def factor(ends: tuple[float, float], level: int, last: int) -> float:
    return ends[0] + level * (ends[1] - ends[0]) / last


VALUES = {  # what the level becomes, and its range in the standard and in the wide set
    "Identity": (nothing, None, None),
    "AutoContrast": (nothing, None, None),
    "Equalize": (nothing, None, None),
    "Rotate": (whole, 30, 135),
    "Solarize": (threshold, 256, 256),
    "Posterize": (bits, 4, 6),
    **dict.fromkeys(["Color", "Contrast", "Brightness", "Sharpness"], (factor, (0.1, 1.9), (0.01, 2.0))),
    **dict.fromkeys(["ShearX", "ShearY"], (even, 0.3, 0.99)),
    **dict.fromkeys(["TranslateX", "TranslateY"], (whole, 10, 32)),
}


def written_out(kind: str, name: str, n_levels: int) -> list[float]:
    value, *ranges = VALUES[name]
    return [value(ranges[kind == "wide"], level, n_levels - 1) for level in range(n_levels)]


def written_transforms(kind: str, n_levels: int) -> set[tuple[str, float]]:
    """Return every operation and signed value there is."""
    unsigned = {(name, float(value)) for name in TRIVIAL_AUGMENT for value in written_out(kind, name, n_levels)}
    return unsigned | {(name, -value + 0.0) for name, value in unsigned if name in SIGNED}


@pytest.mark.parametrize("n_levels", [2, 10, 30, 31, 100])
@pytest.mark.parametrize("kind", MAKERS)
def test_every_level_has_trivial_augments_value(kind: str, n_levels: int) -> None:
    transforms = MAKERS[kind](n_levels)
    assert list(transforms.names) == TRIVIAL_AUGMENT
    for op in transforms.ops:
        values = op.magnitude(torch.arange(n_levels), n_levels).tolist()
        assert values == pytest.approx(written_out(kind, op.name, n_levels), rel=1e-14), op.name
        assert op.signed == (op.name in SIGNED)


LITERAL = {
    ("standard", "Rotate"): [*range(31)],
    ("standard", "Posterize"): [8] * 8 + [7] * 7 + [6] * 8 + [5] * 7 + [4],
    ("standard", "TranslateX"): [level // 3 for level in range(31)],
    ("wide", "Posterize"): [8] * 5 + [7] * 5 + [6] * 5 + [5] * 5 + [4] * 5 + [3] * 5 + [2],
    ("wide", "Rotate"): [9 * level // 2 for level in range(31)],
    ("wide", "TranslateY"): [*range(15), *range(16, 31), 32],
    ("wide", "Solarize"): [256 - 128 * level // 15 for level in range(31)],
}


@pytest.mark.parametrize(("kind", "name"), LITERAL)
def test_whole_values_of_31_levels_are_these(kind: str, name: str) -> None:
    transforms = MAKERS[kind]()
    assert transforms.n_levels == 31
    op = transforms.ops[transforms.names.index(name)]
    assert op.magnitude(torch.arange(31), 31).tolist() == LITERAL[kind, name]


@pytest.mark.parametrize("n_levels", [30, 31])
@pytest.mark.parametrize("kind", MAKERS)
def test_every_lists_each_distinct_transformation_once(kind: str, n_levels: int) -> None:
    transforms = MAKERS[kind](n_levels)
    every = transforms.every()
    listed = [
        (transforms.names[op], magnitude)
        for op, magnitude in zip(every.op, every.magnitude.flatten().tolist(), strict=True)
    ]
    assert len(listed) == len(set(listed))
    written = written_transforms(kind, n_levels)
    assert len(listed) == len(written)
    assert sorted(listed) == [(name, pytest.approx(value, rel=1e-14)) for name, value in sorted(written)]


def test_wide_set_has_470_transformations() -> None:
    # 3 without a magnitude, 61 rotations, 31 thresholds, 7 depths, 4 × 31 factors, 2 × 61 shears, 2 × 61 shifts
    assert len(sets.wide().every()) == 3 + 61 + 31 + 7 + 4 * 31 + 2 * 61 + 2 * 61 == 470


def test_levels_of_every_belong_to_its_magnitudes() -> None:
    transforms = sets.wide(30, min_level=1)
    every = transforms.every()
    assert every.level.min() == 1
    for op, level, magnitude in zip(
        every.op, every.level.flatten().tolist(), every.magnitude.flatten().tolist(), strict=True
    ):
        assert abs(magnitude) == pytest.approx(written_out("wide", transforms.names[op], 30)[level])


@pytest.mark.parametrize("kind", MAKERS)
def test_authors_proposals_are_13_operations_at_levels_1_to_29(kind: str) -> None:
    transforms = MAKERS[kind](30, identity=False, min_level=1)
    assert list(transforms.names) == TRIVIAL_AUGMENT[1:]
    draw = transforms.draw(100_000, generator=torch.Generator().manual_seed(0))
    cells = torch.bincount((draw.op * 29 + draw.level - 1).flatten(), minlength=13 * 29)
    assert len(cells) == 13 * 29
    assert draw.level.min() == 1
    assert chisquare(cells).pvalue > 0.01


def test_mild_set_has_three_fifths_of_the_standard_ranges() -> None:
    mild, standard = sets.mild(), sets.standard()
    assert (mild.names, mild.depth, standard.depth) == (standard.names, 2, 1)
    for soft, op in zip(mild.ops, standard.ops, strict=True):
        assert soft.start - soft.stop == pytest.approx(0.6 * (op.start - op.stop), abs=0.5), op.name  # whole ones round
        assert (soft.signed, soft.whole, soft.function) == (op.signed, op.whole, op.function)
    assert "Identity" not in sets.mild(30, identity=False, min_level=1).names


def test_extra_operations_stay_out_of_the_named_sets() -> None:
    extra = {op.name for op in sets.EXTRA}
    assert extra == {"Invert", "FlipX", "FlipY", "Cutout", "Crop"}
    assert not extra & set(sets.standard().names + sets.wide().names)


CONTINUOUS = {"max_radians": sets.rotations, "max_pixels": sets.translations, "max_log": sets.scalings}


@pytest.mark.parametrize("argument", CONTINUOUS)
@pytest.mark.parametrize("most", [0.0, -1.0, math.inf, math.nan])
def test_continuous_sets_refuse_ranges_that_are_none(argument: str, most: float) -> None:
    with pytest.raises(ValueError, match=rf"{argument} must be positive and finite, got {most}"):
        CONTINUOUS[argument](most)


@pytest.mark.parametrize("argument", CONTINUOUS)
def test_continuous_magnitudes_are_uniform_over_the_whole_range(argument: str) -> None:
    draw = CONTINUOUS[argument](2.5).draw(50_000, generator=torch.Generator().manual_seed(0))
    assert (draw.level == -1).all()
    for column in draw.magnitude.view(50_000, -1).T:
        assert kstest(column.numpy(), "uniform", (-2.5, 5.0)).pvalue > 0.01


def test_both_axes_of_a_shift_are_drawn_apart() -> None:
    x, y = sets.translations(8).draw(50_000, generator=torch.Generator().manual_seed(0)).magnitude[:, 0].T
    assert abs(torch.corrcoef(torch.stack([x, y]))[0, 1]) < 0.02


@pytest.mark.parametrize("make", CONTINUOUS.values())
def test_continuous_sets_cannot_be_listed(make) -> None:
    with pytest.raises(ValueError, match="a continuous set cannot be listed"):
        make(1.0).every()


@pytest.mark.parametrize("make", MAKERS.values())
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_levels": 1}, "n_levels must be at least 2, got 1"),
        ({"min_level": -1}, "min_level must lie in 0 to 30, got -1"),
        ({"n_levels": 10, "min_level": 10}, "min_level must lie in 0 to 9, got 10"),
        ({"relative_to": 0}, "reference_size must be a positive number of pixels, got 0"),
    ],
)
def test_named_sets_refuse_arguments_out_of_range(make, arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**arguments)


def test_named_sets_are_values() -> None:
    assert isinstance(sets.wide(), TransformSet)
    assert sets.wide() == sets.wide()
    assert sets.wide() != sets.standard()
    assert hash(sets.wide()) == hash(sets.wide())


@pytest.mark.parametrize(
    ("name", "given", "ends"),
    [
        ("Rotate", 90, (0, 90)),
        ("Rotate", (10, 90), (10, 90)),
        ("Rotate", True, (0, 135)),
        ("Color", 0.5, (0.5, 1.5)),
        ("Color", (0.2, 1.1), (0.2, 1.1)),
        ("Posterize", 4, (8, 4)),
        ("Cutout", 8, (0, 8)),
        ("Scale", 0.3, (0, 0.3)),
        ("FlipX", True, (0, 0)),
    ],
)
def test_own_ranges_are_the_ends_of_the_magnitudes(name, given, ends):
    (op,) = sets.of({name: given}).ops
    assert (op.name, op.start, op.stop) == (name, *ends)


def test_own_set_of_wide_ranges_is_the_wide_set():
    assert sets.of(dict.fromkeys(TRIVIAL_AUGMENT, True)) == sets.wide()


def test_byte_and_continuous_operations_share_a_set():
    own = sets.of({"Scale": 0.5, "Rotate": 45, "FlipX": True})
    images = torch.randint(256, (300, 1, 9, 9), dtype=torch.uint8)
    draw = own.draw(300, generator=torch.Generator().manual_seed(0))
    changed = own.apply(images, draw)
    for i, op in enumerate(own.ops):
        rows = draw.op[:, 0] == i
        assert torch.equal(changed[rows], op(images[rows], draw.magnitude[rows, 0, 0]))


@pytest.mark.parametrize(
    ("ranges", "message"),
    [
        ({"Rotat": 90}, "unknown operation Rotat, did you mean Rotate"),
        ({"Dance": 90}, "unknown operation Dance, choose one of AutoContrast"),
        ({"FlipX": 3}, "FlipX has no magnitude: its range must be true, got 3"),
        ({"Rotate": 0}, "the range of Rotate must be positive and not empty, got 0"),
        ({"Rotate": -9}, "must be positive and not empty, got -9"),
        ({"Rotate": (1, 2, 3)}, "must be true, a number or two"),
        ({"Rotate": False}, "must be true, a number or two, got False"),
        ({"Rotate": "far"}, "must be true, a number or two, got 'far'"),
        ({"Rotate": math.nan}, "must be true, a number or two, got nan"),
        ({}, "at least one operation"),
        ({"Rotate": 90, "Translation": 3}, "equally many magnitudes"),
    ],
)
def test_own_ranges_that_are_none_are_refused(ranges, message):
    with pytest.raises(ValueError, match=message):
        sets.of(ranges)


GEOMETRIC = {
    "wide": (sets.wide(), True),
    "colours": (sets.wide().only("Color", "Equalize", "Solarize"), False),
    "one flip among colours": (sets.of({"FlipX": True, "Color": 0.5}), True),
    "cutout": (sets.of({"Cutout": 8}), False),
    "rotations": (sets.rotations(1.0), True),
    "translations": (sets.translations(1.0), True),
    "scalings": (sets.of({"Scale": 0.3}), True),
}


@pytest.mark.parametrize("name", GEOMETRIC)
def test_set_is_geometric_if_some_operation_moves_pixels(name: str) -> None:
    transforms, geometric = GEOMETRIC[name]
    assert any(op.geometric for op in transforms.ops) is geometric
