"""The contract that ships: it passes what we ship, and names what an operation of one's own does wrong."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from invaug import Op, TransformSet, sets
from invaug.testing import check_op, check_set

SHIPPED = {
    "standard": sets.standard(),
    "wide": sets.wide(),
    "authors": sets.wide(30, identity=False, min_level=1),
    "relative": sets.wide(relative_to=32),
    "extra": TransformSet(sets.EXTRA),
    "rotations": sets.rotations(3.14),
    "translations": sets.translations(7),
    "scalings": sets.scalings(0.7),
    "mixed": TransformSet((*sets.rotations(1).ops, *sets.wide().ops[:4])),
}


@pytest.mark.parametrize("name", SHIPPED)
def test_every_set_shipped_keeps_the_contract(both_backends: str, name: str) -> None:
    check_set(SHIPPED[name])


@pytest.mark.parametrize("name", SHIPPED)
def test_every_set_shipped_keeps_the_contract_on_real_images(digits: Tensor, photographs: Tensor, name: str) -> None:
    check_set(SHIPPED[name], digits)
    check_set(SHIPPED[name], photographs / 255)


@pytest.mark.parametrize("op", [*sets.wide().ops, *sets.EXTRA], ids=lambda op: op.name)
def test_every_operation_shipped_keeps_the_contract(op: Op) -> None:
    check_op(op)
    check_op(op, n_levels=5)


def darken(images: Tensor, magnitudes: Tensor) -> Tensor:
    return (images * (1 - magnitudes.view(-1, 1, 1, 1))).to(images.dtype)


def test_good_operation_of_ones_own_passes() -> None:
    check_op(Op("Darken", darken, 0, 0.9))


def writes_in_place(images: Tensor, magnitudes: Tensor) -> Tensor:
    return images.bitwise_xor_(torch.tensor(1, dtype=torch.uint8))


def writes_and_returns_another(images: Tensor, magnitudes: Tensor) -> Tensor:
    changed = images.clone()
    images.zero_()
    return changed


def halves(images: Tensor, magnitudes: Tensor) -> Tensor:
    return images[..., ::2]


def drops_images(images: Tensor, magnitudes: Tensor) -> Tensor:
    return images[1:]


def makes_floats(images: Tensor, magnitudes: Tensor) -> Tensor:
    return images / 255


def rolls_dice(images: Tensor, magnitudes: Tensor) -> Tensor:
    return torch.randint_like(images, 256)


def subtracts_the_mean_of_the_batch(images: Tensor, magnitudes: Tensor) -> Tensor:
    return (images - images.float().mean(dim=0)).clamp(0, 255).to(images.dtype)


def swaps_neighbours(images: Tensor, magnitudes: Tensor) -> Tensor:
    return images.roll(1, 0)


BROKEN = {
    writes_in_place: "Mine must not write to its input",
    writes_and_returns_another: "Mine must not write to its input",
    halves: r"Mine must keep the shape .*32, 32.* got .*32, 16",
    drops_images: r"Mine must keep the shape .*64, 3.* got .*63, 3",
    makes_floats: r"Mine must keep the dtype torch\.uint8, got torch\.float32",
    rolls_dice: "Mine must give the same for the same draw",
    subtracts_the_mean_of_the_batch: "Mine .*must do to one image what it does in a batch",
    swaps_neighbours: "Mine .*must do to one image what it does in a batch",
}


@pytest.mark.parametrize("function", BROKEN, ids=lambda function: function.__name__)
def test_broken_operation_is_told_what_is_wrong(function) -> None:
    with pytest.raises(AssertionError, match=BROKEN[function]):
        check_op(Op("Mine", function, 0, 1))


# a set of several operations hands each a copy of its images, so writing to them does no harm
FOUND_IN_COMPANY = [function for function in BROKEN if not function.__name__.startswith("writes")]


@pytest.mark.parametrize("function", FOUND_IN_COMPANY, ids=lambda function: function.__name__)
def test_broken_operation_is_found_among_good_ones(function) -> None:
    with pytest.raises(AssertionError, match="Mine"):
        check_set(TransformSet((Op("Mine", function, 0, 1), Op("Darken", darken, 0, 0.9))))


def test_contract_is_checked_on_the_images_given(photographs: Tensor) -> None:
    only_for_colour = Op("Colour", lambda images, magnitudes: images[:, [2, 1, 0]])
    check_op(only_for_colour, photographs)
    with pytest.raises((AssertionError, IndexError)):
        check_op(only_for_colour)
