"""The state of a run as JSON and named tensors, and back, bit for bit.

JSON holds what it represents exactly. Anything else is a table whose first key starts with a dollar: `$tensor` (the
name of a tensor), `$float` (not a number, or infinite), `$tuple`, and `$dict` (keys that are not plain strings).
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

DTYPES = (
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64),
)


MAX_SHOWN = 60  # characters of a name in a message
MAX_DEPTH = 32  # of containers in containers; the state of a training has 5
FLOATS = ("nan", "inf", "-inf")


class Encoder:
    """Turns values into JSON, and collects the tensors it meets under names that are their paths in the state."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self._names: dict[tuple[Any, ...], str] = {}
        self._storages: set[int] = set()

    def encode(self, value: Any, path: str) -> Any:
        """Return the JSON form of a value; `path` names it in errors."""
        if value is None or isinstance(value, bool | int | str):
            return value
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else {"$float": str(float(value))}
        if isinstance(value, Tensor):
            return self._encode_tensor(value, path)
        if isinstance(value, Mapping):
            return self._encode_mapping(value, path)
        if isinstance(value, list | tuple):
            items = [self.encode(item, f"{path}/{i}") for i, item in enumerate(value)]
            return {"$tuple": items} if isinstance(value, tuple) else items
        kinds = "tensors, numbers, strings, None, dicts, lists and tuples"
        raise TypeError(f"{path} is of type {type(value).__name__}; a checkpoint holds {kinds}")

    def _encode_mapping(self, mapping: Mapping[Any, Any], path: str) -> dict[str, Any]:
        items = [(key, self.encode(value, f"{path}/{key}")) for key, value in mapping.items()]
        if all(isinstance(key, str) and not key.startswith("$") for key in mapping):
            return dict(items)
        return {"$dict": [[self.encode(key, f"{path}: key {key!r}"), value] for key, value in items]}

    def _encode_tensor(self, tensor: Tensor, path: str) -> dict[str, Any]:
        if tensor.dtype not in DTYPES or tensor.layout != torch.strided or tensor.is_meta:
            raise TypeError(f"{path} is a tensor of {tensor.dtype} on {tensor.device}, which safetensors cannot hold")
        order = sorted(range(tensor.ndim), key=tensor.stride().__getitem__, reverse=True)
        if tensor.is_contiguous() or not tensor.permute(order).is_contiguous():
            return {"$tensor": self._collect(tensor, tensor, path)}
        # a resumed run must keep channels_last: kernels may round differently with other strides
        return {"$tensor": self._collect(tensor, tensor.permute(order), path), "order": order}

    def _collect(self, tensor: Tensor, packed: Tensor, path: str) -> str:
        """Keep the packed tensor and return its name; a tensor that was met before keeps its first name."""
        layout = (tensor.dtype, tensor.shape, tensor.stride(), tensor.is_conj(), tensor.is_neg())
        alias = (tensor.data_ptr(), tensor.device, *layout)
        if alias in self._names and tensor.numel():
            return self._names[alias]
        packed = packed.detach().cpu().resolve_conj().resolve_neg().contiguous()
        if packed.untyped_storage().data_ptr() in self._storages:
            packed = packed.clone()  # safetensors refuses views of shared memory
        name = path
        while name in self.tensors:  # the keys 0 and "0" have the same path
            name += "'"
        self._names[alias] = name
        self._storages.add(packed.untyped_storage().data_ptr())
        self.tensors[name] = packed
        return name


def decode(node: Any, tensors: Mapping[str, Tensor], depth: int = MAX_DEPTH) -> Any:
    """Return the value of a JSON form; raise ValueError for one that no value has."""
    if not isinstance(node, list | dict):
        return node
    _require(depth > 0, f"more than {MAX_DEPTH} levels of lists and tables")
    if isinstance(node, list):
        return [decode(item, tensors, depth - 1) for item in node]
    tag = next((key for key in node if key.startswith("$")), "")
    if not tag:
        return {key: decode(value, tensors, depth - 1) for key, value in node.items()}
    _require(tag in DECODERS, f"the unknown tag {tag[:MAX_SHOWN]!r}")
    _require(set(node) <= {tag, *(["order"] if tag == "$tensor" else [])}, f"{tag} beside other keys")
    return DECODERS[tag](node, tensors, depth - 1)


def _decode_tensor(node: Mapping[str, Any], tensors: Mapping[str, Tensor], _: int) -> Tensor:
    name = node["$tensor"]
    _require(isinstance(name, str) and name in tensors, f"a tensor that is not there, {str(name)[:MAX_SHOWN]!r}")
    if "order" not in node:
        return tensors[name]
    order, axes = node["order"], list(range(tensors[name].ndim))
    fits = isinstance(order, list) and all(type(axis) is int for axis in order) and sorted(order) == axes
    _require(fits, f"an order of axes that is none of tensor {name[:MAX_SHOWN]!r}")
    return tensors[name].permute(sorted(axes, key=order.__getitem__))


def _decode_float(node: Mapping[str, Any], _: Mapping[str, Tensor], __: int) -> float:
    text = node["$float"]
    _require(text in FLOATS, f"$float with another text than {', '.join(FLOATS)}")
    return float(text)


def _decode_tuple(node: Mapping[str, Any], tensors: Mapping[str, Tensor], depth: int) -> tuple[Any, ...]:
    items = node["$tuple"]
    _require(isinstance(items, list), "$tuple without a list")
    return tuple(decode(item, tensors, depth) for item in items)


def _decode_dict(node: Mapping[str, Any], tensors: Mapping[str, Tensor], depth: int) -> dict[Any, Any]:
    pairs = node["$dict"]
    _require(isinstance(pairs, list) and all(isinstance(p, list) and len(p) == 2 for p in pairs), "$dict without pairs")
    keys = [decode(key, {}, depth) for key, _ in pairs]
    _require(all(_is_key(key) for key in keys), "$dict with a key that cannot be one")
    _require(len(set(keys)) == len(keys), "$dict with a key twice")
    return {key: decode(value, tensors, depth) for key, (_, value) in zip(keys, pairs, strict=True)}


def _is_key(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_key, value))
    return value is None or isinstance(value, bool | int | float | str)


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(what)


DECODERS: dict[str, Callable[[Mapping[str, Any], Mapping[str, Tensor], int], Any]] = {
    "$tensor": _decode_tensor,
    "$float": _decode_float,
    "$tuple": _decode_tuple,
    "$dict": _decode_dict,
}
