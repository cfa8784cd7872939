"""Checkpoints: the tensors in a safetensors file, everything else in a JSON manifest that is written last.

A checkpoint exists once its manifest does. The first line of a manifest seals the rest with its SHA-256 in every
schema to come, so that a changed byte is told from a newer version before anything is parsed. Nothing is unpickled.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.torch
import torch
from torch import Tensor

from invaug.lab.errors import UserError
from invaug.lab.run import atomic
from invaug.lab.terminal import plain

SCHEMA = 1
N_KEPT = 2
MAX_MANIFEST = 64 << 20  # bytes; those of large networks have some 100 kB
MAX_SHOWN = 300  # characters of an error's own words: a hostile file may put anything into them
MANIFEST = re.compile(r"step-(\d{8,})\.json")
TENSORS = re.compile(r"step-(\d{8,})(\.\d+)?\.safetensors")
DTYPES = (
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64),
)


class Checkpoint(NamedTuple):
    """What was saved, on the CPU, and what had to be passed over to find it."""

    state: dict[str, Any]
    step: int
    epoch: int
    meta: dict[str, Any]
    path: Path
    skipped: tuple[str, ...] = ()
    """One line for each later checkpoint that could not be used."""


class DamageError(Exception):
    """The file is not what was written."""


def save(folder: Path, state: Mapping[str, Any], *, step: int, epoch: int, meta: Mapping[str, Any]) -> Path:
    """Write the checkpoint of a step and return its manifest; of the earlier ones the last stays, later ones go.

    The folder must have one writer. A save that fails or is killed leaves the checkpoints before it untouched.

    Args:
        state: Dicts, lists and tuples of tensors, numbers, strings and None; one tensor met twice comes back as one.
        meta: What the caller wants to know before using the state, of the same kinds.
    """
    if step < 0:
        raise ValueError(f"step must not be negative, got {step}")
    tensors = _Tensors()
    content = {"meta": tensors.encode(meta, "meta"), "state": tensors.encode(state, "state")}
    _refuse_link(folder)
    try:
        with atomic.reporting(folder):
            folder.mkdir(parents=True, exist_ok=True)
            _sweep(folder)
            return _write(folder, content, safetensors.torch.save(tensors.by_name), step, epoch)
    except atomic.WriteError as error:
        last = latest(folder)
        note = f"; {last.stem}, the last checkpoint, is intact" if last else ""
        raise atomic.WriteError(f"{error}{note}", error.errno) from error


def load(folder: Path) -> Checkpoint | None:
    """Return the newest checkpoint that is whole, None if none was ever finished; a newer schema is refused."""
    _refuse_link(folder)
    skipped: list[str] = []
    for path in reversed(_manifests(folder)):
        try:
            return _read(path)._replace(skipped=tuple(skipped))
        except PermissionError as error:  # the user can mend this, and would not want to lose the later steps
            raise UserError(f"cannot read {error.filename}: {error.strerror}") from error
        except (DamageError, OSError) as error:
            skipped.append(plain(f"{path.stem} was skipped: {error}"))
    if skipped:
        raise UserError(f"no checkpoint in {folder} can be used: {'; '.join(skipped)}")
    return None


def _refuse_link(folder: Path) -> None:
    """Refuse a folder that leads elsewhere: in a run from elsewhere it could lead to any folder of the user's."""
    if folder.is_symlink():
        raise UserError(f"{folder} is a link, and a run keeps its checkpoints itself: link to the whole run instead")


def latest(folder: Path) -> Path | None:
    """Return the manifest of the newest checkpoint, unverified, or None."""
    return next(reversed(_manifests(folder)), None)


def seal(body: Mapping[str, Any]) -> bytes:
    """Return the bytes of a manifest: valid JSON whose first line is the SHA-256 of all that follows."""
    rest = json.dumps(body, allow_nan=False).encode()[1:] + b"\n"
    return _first_line(rest) + rest


def _first_line(rest: bytes) -> bytes:
    return b'{"sha256": "%s",\n' % hashlib.sha256(rest).hexdigest().encode()


def _write(folder: Path, content: Mapping[str, Any], data: bytes, step: int, epoch: int) -> Path:
    manifest = folder / f"step-{step:08d}.json"
    file = _free_name(manifest)
    about = {"file": file.name, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    try:
        atomic.write_bytes(file, data)
        head = {"schema": SCHEMA, "step": step, "epoch": epoch, "tensors": about}
        sealed = seal({**head, **content})
        if len(sealed) > MAX_MANIFEST:
            raise ValueError(f"the state beside its tensors takes {len(sealed):,} bytes, over {MAX_MANIFEST:,}")
        atomic.write_bytes(manifest, sealed)
    except BaseException:
        with suppress(OSError):
            _sweep(folder)  # tensors that no manifest names; a full disk needs the space
        raise
    _forget(folder, step, file)
    return manifest


def _free_name(manifest: Path) -> Path:
    """Return a name for the tensors: saving a step again must not touch those its present manifest speaks of."""
    names = (f"{manifest.stem}{f'.{i}' if i else ''}.safetensors" for i in range(2**31))
    return next(path for path in map(manifest.with_name, names) if not path.exists())


def _forget(folder: Path, step: int, file: Path) -> None:
    """Remove what the checkpoint of this step replaces; later steps are of a run that was left behind."""
    earlier = [path for path in _manifests(folder) if _step(path) < step]
    later = [path for path in _manifests(folder) if _step(path) > step]
    for path in [*earlier[: 1 - N_KEPT], *later]:
        path.unlink(missing_ok=True)
    for path in list(folder.glob(f"step-{step:08d}*.safetensors")):
        if path != file:
            path.unlink(missing_ok=True)
    _sweep(folder)


def _sweep(folder: Path) -> None:
    """Remove temporary files, and tensors without a manifest."""
    atomic.sweep(folder)
    steps = {_step(path) for path in _manifests(folder)}
    for path in list(folder.iterdir()):
        match = TENSORS.fullmatch(path.name)
        if match and int(match[1]) not in steps:
            path.unlink(missing_ok=True)


def _manifests(folder: Path) -> list[Path]:
    """Return the manifests in the order of their steps."""
    if not folder.is_dir():
        return []
    return sorted(
        (p for p in folder.iterdir() if MANIFEST.fullmatch(p.name) and (p.is_file() or p.is_symlink())), key=_step
    )


def _step(path: Path) -> int:
    return int(path.stem.removeprefix("step-"))


def _read(path: Path) -> Checkpoint:
    body = _open_seal(_bytes(path, MAX_MANIFEST))
    _check_schema(path, body)
    try:
        file, size, digest = (body["tensors"][key] for key in ("file", "size", "sha256"))
        data = _read_tensors(path, file, size, digest)
        # clones, because torch aligns its own memory, and kernels may round by alignment
        tensors = {name: tensor.clone() for name, tensor in safetensors.torch.load(data).items()}
        state, meta = decode(body["state"], tensors), decode(body["meta"], tensors)
        if not (isinstance(state, dict) and isinstance(meta, dict) and _counts(body) and body["step"] == _step(path)):
            raise DamageError("its manifest is not one of ours")
        return Checkpoint(state, body["step"], body["epoch"], meta, path)
    except (OSError, DamageError):
        raise
    except Exception as error:  # whatever a hostile file provokes
        reason = f"{type(error).__name__}: {error}"[:MAX_SHOWN]
        raise DamageError(f"its content cannot be read ({reason})") from error


def _counts(body: Mapping[str, Any]) -> bool:
    """Whether step and epoch are numbers one can count to."""
    return all(type(body[key]) is int and 0 <= body[key] < 2**63 for key in ("step", "epoch"))


def _bytes(path: Path, most: int) -> bytes:
    """Return the content of a regular file that is not too large; a link could lead to any file of the user's."""
    found = path.lstat()
    if not stat.S_ISREG(found.st_mode):
        raise DamageError(f"{path.name} is not a regular file")
    if found.st_size > most:
        raise DamageError(f"{path.name} has {found.st_size:,} bytes, over the limit of {most:,}")
    return path.read_bytes()


def _memory() -> int:
    """Return the bytes of memory of this machine, where it tells."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 1 << 63


def _open_seal(raw: bytes) -> dict[str, Any]:
    head, newline, rest = raw.partition(b"\n")
    if head + newline != _first_line(rest):
        raise DamageError("its manifest was changed or cut (SHA-256 differs)")
    try:
        return dict(json.loads(b"{" + rest))
    except (ValueError, RecursionError) as error:
        raise DamageError(f"its manifest is not JSON ({error})") from error


def _check_schema(path: Path, body: Mapping[str, Any]) -> None:
    schema = body.get("schema")
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
        raise DamageError(f"its manifest has no schema (got {schema!r})")
    if schema > SCHEMA:
        raise UserError(f"{path} is of a newer invaug (schema {schema}, this one reads {SCHEMA}): upgrade invaug")


def _read_tensors(manifest: Path, name: str, size: int, digest: str) -> bytes:
    path = manifest.with_name(name) if TENSORS.fullmatch(name) else None
    if path is None or not path.is_file():
        raise DamageError(f"its tensors are missing ({name[:MAX_SHOWN]})")
    if path.stat().st_size != size:
        raise DamageError(f"{name} has {path.stat().st_size} bytes instead of {size}")
    data = _bytes(path, _memory())
    if hashlib.sha256(data).hexdigest() != digest:
        raise DamageError(f"{name} was changed (SHA-256 differs)")
    return data


class _Tensors:
    """Turns a state into JSON, and keeps the tensors it meets under names that are paths."""

    def __init__(self) -> None:
        self.by_name: dict[str, Tensor] = {}
        self._names: dict[tuple[Any, ...], str] = {}
        self._storages: set[int] = set()

    def encode(self, value: Any, path: str) -> Any:
        """Return the JSON form: plain where JSON is exact, tagged by a key with a dollar where it is not."""
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
        dense = not tensor.is_contiguous() and tensor.permute(order).is_contiguous()
        node: dict[str, Any] = {"$tensor": self._keep(tensor, tensor.permute(order) if dense else tensor, path)}
        # a resumed run must not lose channels_last: other strides may round otherwise
        return {**node, "order": order} if dense else node

    def _keep(self, tensor: Tensor, packed: Tensor, path: str) -> str:
        layout = (tensor.dtype, tensor.shape, tensor.stride(), tensor.is_conj(), tensor.is_neg())
        alias = (tensor.data_ptr(), tensor.device, *layout)
        if alias in self._names and tensor.numel():
            return self._names[alias]
        packed = packed.detach().cpu().resolve_conj().resolve_neg().contiguous()
        if packed.untyped_storage().data_ptr() in self._storages:
            packed = packed.clone()  # safetensors refuses views of one memory
        name = path
        while name in self.by_name:  # the keys 0 and "0" make the same path
            name += "'"
        self._names[alias] = name
        self._storages.add(packed.untyped_storage().data_ptr())
        self.by_name[name] = packed
        return name


def decode(node: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Return the value of its JSON form."""
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
