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


def decode(node: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Return the value of a JSON form; a malformed one may raise anything."""
    if isinstance(node, list):
        return [decode(item, tensors) for item in node]
    if not isinstance(node, dict):
        return node
    tag = next(iter(node), "")
    if not tag.startswith("$"):
        return {key: decode(value, tensors) for key, value in node.items()}
    return DECODERS[tag](node, tensors)


def _decode_tensor(node: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Tensor:
    tensor = tensors[node["$tensor"]]
    if "order" not in node:
        return tensor
    order = node["order"]
    return tensor.permute(sorted(range(len(order)), key=order.__getitem__))


DECODERS: dict[str, Callable[[Mapping[str, Any], Mapping[str, Tensor]], Any]] = {
    "$tensor": _decode_tensor,
    "$float": lambda node, _: float(node["$float"]),
    "$tuple": lambda node, tensors: tuple(decode(node["$tuple"], tensors)),
    "$dict": lambda node, tensors: {decode(key, tensors): decode(value, tensors) for key, value in node["$dict"]},
}
