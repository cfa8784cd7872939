"""Sets of one's own on other inputs than images: signals, volumes, tables, any dtype, any number of magnitudes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from scipy.stats import kstest
from torch import Tensor

from invaug import Draw, Op, TransformSet, ops, sets
from invaug.testing import check_op, check_set


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def column(numbers: Tensor, like: Tensor) -> Tensor:
    """Return numbers, one per sample, in a shape that broadcasts over samples."""
    return numbers.view(-1, *[1] * (like.ndim - 1))


def scale(inputs: Tensor, magnitudes: Tensor) -> Tensor:
    return (inputs * column(magnitudes, inputs)).to(inputs.dtype)


def negate(inputs: Tensor, magnitudes: Tensor) -> Tensor:
    return -inputs


def bend(inputs: Tensor, magnitudes: Tensor) -> Tensor:
    """Add a polynomial along the last dimension, of as many coefficients as there are magnitudes."""
    assert magnitudes.ndim == 2
    time = torch.linspace(0, 1, inputs.shape[-1], dtype=torch.float64)
    curves = sum(magnitudes[:, i : i + 1] * time**i for i in range(magnitudes.shape[1]))
    return (inputs + curves.view(len(inputs), *[1] * (inputs.ndim - 2), -1)).to(inputs.dtype)


SCALE, NEGATE = Op("Scale", scale, 0.5, 2.0), Op("Negate", negate)
BEND = Op("Bend", bend, 0.0, 0.3, signed=True, continuous=True, n_magnitudes=3)
INPUTS = {
    "signals": torch.randn(6, 2, 20_000, generator=seeded()),
    "volumes": torch.randn(6, 1, 5, 6, 7, generator=seeded()),
    "tables": torch.randn(6, 11, dtype=torch.float64, generator=seeded()),
    "numbers": torch.randn(6, generator=seeded()),
    "counts": torch.randint(-99, 99, (6, 4, 9), generator=seeded()),
    "half precision": torch.randn(6, 3, 8, 8, generator=seeded()).half(),
    "complex": torch.randn(6, 8, dtype=torch.complex64, generator=seeded()),
}


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("kind", INPUTS)
def test_own_operations_take_any_tensor_with_a_batch_dimension(kind: str, depth: int) -> None:
    inputs, mine = INPUTS[kind], TransformSet((SCALE, NEGATE), depth=depth)
    draw = mine.draw(6, generator=seeded())
    expected = inputs
    for i in range(depth):
        factors = torch.where(draw.op[:, i] == 0, draw.magnitude[:, i, 0], -1.0)
        expected = (expected * column(factors, inputs)).to(inputs.dtype)
    changed = mine.apply(inputs, draw)
    assert changed.dtype == inputs.dtype
    assert torch.equal(changed, expected)


@pytest.mark.parametrize("kind", INPUTS)
def test_contract_is_checked_on_any_inputs(kind: str) -> None:
    check_op(NEGATE, INPUTS[kind])
    check_set(TransformSet((SCALE, NEGATE), depth=2), INPUTS[kind])


def test_contract_names_what_is_wrong_with_signals() -> None:
    with pytest.raises(AssertionError, match=r"Cut must keep the shape .* got \(6, 2, 19999\)"):
        check_op(Op("Cut", lambda inputs, magnitudes: inputs[..., 1:]), INPUTS["signals"])
    with pytest.raises(AssertionError, match="must do to one image what it does in a batch"):
        check_op(Op("Roll", lambda inputs, magnitudes: inputs.roll(1, 0)), INPUTS["counts"])


@pytest.mark.parametrize("kind", ["signals", "volumes", "tables"])
def test_byte_operations_and_warps_want_images(kind: str) -> None:
    for transforms in (sets.wide(), sets.rotations(1.0), TransformSet((NEGATE, Op("Turn", ops.rotate, 0, 90)))):
        draw = transforms.draw(6, generator=seeded())
        draw = replace(draw, op=torch.full_like(draw.op, len(transforms.ops) - 1))
        with pytest.raises(ValueError, match=r"images must have shape \(batch, channels, height, width\), got \(6,"):
            transforms.apply(INPUTS[kind], draw)


def test_single_number_is_refused_with_the_way_out() -> None:
    with pytest.raises(ValueError, match=r"images must have a batch dimension, .* unsqueeze\(0\) adds one"):
        TransformSet((NEGATE,)).apply(torch.tensor(3.0), TransformSet((NEGATE,)).draw(1))


def test_pixels_relative_to_the_image_want_images() -> None:
    with pytest.raises(ValueError, match="images must have shape"):
        TransformSet((SCALE,), reference_size=32).apply(INPUTS["signals"], TransformSet((SCALE,)).draw(6))


@pytest.mark.parametrize("k", [2, 3, 4, 9])
def test_operation_gets_as_many_magnitudes_as_it_takes(k: int) -> None:
    seen: list[Tensor] = []

    def note(inputs: Tensor, magnitudes: Tensor) -> Tensor:
        seen.append(magnitudes)
        return inputs.clone()

    mine = TransformSet((Op("Note", note, -1.0, 1.0, continuous=True, n_magnitudes=k),))
    draw = mine.draw(6, generator=seeded())
    mine.apply(INPUTS["tables"], draw)
    assert seen[0].shape == (6, k)
    assert torch.equal(seen[0], draw.magnitude[:, 0])


def test_several_magnitudes_are_uniform_and_independent() -> None:
    mine = TransformSet((BEND,), depth=2)
    magnitudes = mine.draw(20_000, generator=seeded()).magnitude.flatten(1)
    assert magnitudes.shape == (20_000, 6)
    for numbers in magnitudes.T:
        assert kstest(numbers.numpy(), "uniform", (-0.3, 0.6)).pvalue > 0.001
    assert (torch.corrcoef(magnitudes.T) - torch.eye(6)).abs().max() < 0.04


def test_several_magnitudes_are_decided_by_the_seed_and_described() -> None:
    mine = TransformSet((BEND,))
    first, again, other = (mine.draw(3, generator=seeded(seed)) for seed in (1, 1, 2))
    assert torch.equal(first.magnitude, again.magnitude)
    assert (first.magnitude != other.magnitude).all()
    zero = torch.zeros(1, dtype=torch.int64)
    assert mine.describe(Draw(zero, zero, torch.tensor([[0.1, -0.25, 0.0]]))) == ["Bend +0.1 -0.25 +0"]


def test_operation_of_several_magnitudes_keeps_the_contract() -> None:
    check_op(BEND, INPUTS["signals"])
    check_set(TransformSet((BEND,), depth=2), INPUTS["volumes"])


def test_magnitudes_of_another_number_are_refused() -> None:
    draw = sets.translations(1.0).draw(6)
    with pytest.raises(ValueError, match=r"magnitude must have 3 per operation for Bend, got 2: was it drawn from"):
        TransformSet((BEND,)).apply(INPUTS["signals"], draw)
