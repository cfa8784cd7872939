"""The state of a checkpoint: every bit comes back, with its type, its order and its strides."""

from __future__ import annotations

import math
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.support.checkpoints import bits, same, save, save_and_load

DTYPES = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64]


def random_values(dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    """Any bit pattern, NaN payloads among them; booleans only 0 and 1."""
    size = math.prod(shape) * torch.empty((), dtype=dtype).element_size()
    content = torch.from_numpy(np.random.default_rng(0).integers(256, size=size, dtype=np.uint8))
    return (content > 127).view(shape) if dtype == torch.bool else content.view(dtype).view(shape)


@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 0, 2), (5, 3), (2, 3, 4, 5)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES + FLOATS, ids=str)
def test_a_tensor_comes_back_bit_for_bit(dtype: torch.dtype, shape: tuple[int, ...], tmp_path: Path) -> None:
    if math.prod(shape):
        tensor = random_values(dtype, (*shape, 1))[..., 0]
    else:
        tensor = torch.empty(shape, dtype=dtype)
    assert bits(save_and_load(tmp_path, {"x": tensor})["x"]) == bits(tensor)


def test_special_floats_come_back_bit_for_bit(tmp_path: Path) -> None:
    floats = [math.nan, math.inf, -math.inf, -0.0, 0.1, 5e-324, 1.7976931348623157e308, 2 / 3, 1e22]
    floats += np.random.default_rng(0).integers(2**63, size=2000).view(np.float64).tolist()
    floats = [math.nan if math.isnan(value) else value for value in floats]
    assert same(save_and_load(tmp_path, {"x": floats})["x"], floats)


def test_structure_comes_back_with_its_kinds_and_order(tmp_path: Path) -> None:
    state: dict[str, Any] = {
        "z": None,
        "a": True,
        "int": 2**70,
        "float": 1.0,
        "text": 'ü\ud800\n\x00"',
        "": {},
        "empty": [[], (), {}],
        "tuple": (1, [2.0, (None,)], "x"),
        "keys": {0: "int", "0": "text", True: 1, (1, "a"): 2, None: 3, 1.5: 4},
        "$tensor": "not a tag",
        "nested": {"$float": {"$dict": [1]}},
    }
    assert same(save_and_load(tmp_path, state), state)


def test_keys_that_make_the_same_path_keep_their_own_tensors(tmp_path: Path) -> None:
    ones = [torch.tensor(float(i)) for i in range(6)]
    state = {"a": {0: ones[0], "0": ones[1], "b/c": ones[2], "b": {"c": ones[3]}}, "__metadata__": ones[4], "": ones[5]}
    assert same(save_and_load(tmp_path, state), state)


def test_mappings_of_other_kinds_come_back_as_dicts(tmp_path: Path) -> None:
    assert same(save_and_load(tmp_path, {"x": OrderedDict(b=1, a=2)}), {"x": {"b": 1, "a": 2}})


def test_one_tensor_met_twice_is_stored_once_and_comes_back_as_one(tmp_path: Path) -> None:
    tied = torch.randn(1000)
    state = save_and_load(tmp_path, {"encoder": tied, "decoder": {"weight": tied.view(-1)}})
    assert state["encoder"] is state["decoder"]["weight"]
    assert (tmp_path / "step-00000001.safetensors").stat().st_size < 5000


def test_views_of_one_memory_come_back_with_their_own_values(tmp_path: Path) -> None:
    base = torch.arange(24.0)
    state = {
        "base": base,
        "part": base[3:9],
        "other": base[5:],
        "strided": base[::5],
        "matrix": base.view(4, 6),
        "turned": base.view(4, 6).t(),
        "flipped": base.view(2, 3, 4).permute(2, 0, 1),
        "expanded": base[:3].expand(5, 3),
        "bytes": base.view(torch.int32),
        "complex": torch.view_as_complex(base.view(12, 2)),
        "conjugate": torch.view_as_complex(base.view(12, 2)).conj(),
    }
    expected = {key: tensor.clone().resolve_conj() for key, tensor in state.items()}
    assert same(save_and_load(tmp_path, state), expected)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 3, 1), (3, 1, 0, 2)])
def test_dense_tensors_come_back_with_their_strides(order: tuple[int, ...], tmp_path: Path) -> None:
    tensor = torch.randn(2, 3, 4, 5).permute(order)
    found = save_and_load(tmp_path, {"x": tensor})["x"]
    assert bits(found) == bits(tensor)
    assert found.stride() == tensor.stride()


def test_what_needs_gradients_is_saved_without_them(tmp_path: Path) -> None:
    parameter = nn.Parameter(torch.randn(3))
    found = save_and_load(tmp_path, {"leaf": parameter, "result": parameter * 2})
    assert bits(found["leaf"]) == bits(parameter)
    assert not found["result"].requires_grad


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({1, 2}, "state/a/1 is of type set; a checkpoint holds tensors, numbers"),
        (np.float32(1), "state/a/1 is of type float32"),
        (np.zeros(2), "state/a/1 is of type ndarray"),
        (nn.Linear(1, 1), "state/a/1 is of type Linear"),
        (torch.zeros(2, dtype=torch.complex128), "state/a/1 is a tensor of torch.complex128"),
        (torch.zeros(2).to_sparse(), "state/a/1 is a tensor of torch.float32"),
        (torch.zeros(2, device="meta"), "on meta"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_cannot_be_saved_is_named_before_anything_is_written(value: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=message):
        save(tmp_path / "checkpoints", 1, {"a": [0, value]})
    assert not (tmp_path / "checkpoints").exists()
