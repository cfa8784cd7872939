"""DeepAA's policy files (Zheng et al. 2022): six layers, each a law over 139 operations with their magnitudes.

The file is hostile until checked: read without pickle, within a size, every array and every range held to its rule.
"""

from __future__ import annotations

import re
import zipfile
from dataclasses import replace
from os import PathLike
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from invaug import ops
from invaug.lab.baselines.policy import IDENTITY, Array, Policy, Rows, layered
from invaug.lab.config.schema import Config
from invaug.lab.data.load import Dataset
from invaug.lab.errors import UserError, nearest
from invaug.transforms.draw import Draw
from invaug.transforms.images import luminance, on_bytes
from invaug.transforms.ops import Op
from invaug.transforms.set import TransformSet

ARRAYS = ("policy_probs", "ops", "mags", "l_ops", "l_mags", "op_names")
MAX_BYTES = 16 * 2**20  # a published file has some 10 kB
OP_NAME = re.compile(r"(\w+):\(([^,\s]+),,?\s*([^,\s)]+)\)")  # "ShearX:(-0.3,,0.3)"

FILL = (125, 123, 114)
FILLED = ("RandCutout", "RandCrop")  # the geometric operations leave black, as Pillow does

OPS = {
    op.name: op
    for op in (
        Op(IDENTITY, ops.identity),
        Op("ShearX", ops.shear_x, -10, 10, signed=True),
        Op("ShearY", ops.shear_y, -10, 10, signed=True),
        Op("TranslateX", ops.translate_x, -1, 1, signed=True, pixels_of="width"),
        Op("TranslateY", ops.translate_y, -1, 1, signed=True, pixels_of="height"),
        Op("Rotate", ops.rotate, -360, 360, signed=True),
        Op("AutoContrast", ops.auto_contrast),
        Op("Invert", ops.invert),
        Op("Equalize", ops.equalize),
        Op("Solarize", ops.solarize, 0, 256),
        Op("Posterize", ops.posterize, 0, 8),
        Op("Contrast", ops.contrast, 0, 10),
        Op("Color", ops.color, 0, 10),
        Op("Brightness", ops.brightness, 0, 10),
        Op("Sharpness", ops.sharpness, 0, 10),
        Op("RandFlip", ops.flip_x),
        # 16 px; the published code paints 17, because Pillow's rectangle includes its last pixel
        Op("RandCutout", ops.cutout, 16, 16, placed=True),
        Op("RandCrop", ops.crop, 4, 4, placed=True),
    )
}
"""The operations a file may name, with the widest range it may give them; shifts are shares of the image."""

PROBABILITIES = {"RandFlip": 0.5}


def deepaa(path: str | PathLike[str]) -> Policy:
    """Return the policy of a file: in every layer each image draws one operation at one magnitude.

    The ranges are those the file names; the public evaluation code has its own and ignores them.
    """
    arrays = _read(Path(path))
    try:
        table = _operations(arrays["op_names"])
        _ensure(
            _count(arrays, "l_ops") == len(table), f"l_ops must count op_names ({len(table)}), got {arrays['l_ops']}"
        )
        op = _indices(arrays, "ops", len(table))
        level = _indices(arrays, "mags", _count(arrays, "l_mags"))
        _ensure(len(op) == len(level), f"ops and mags must be equally long, got {len(op)} and {len(level)}")
        weight = _weights(arrays["policy_probs"], len(op))
    except ValueError as error:
        raise UserError(f"{path} is not a DeepAA policy file: {error}") from None
    return _policy(table, op, level, level / (_count(arrays, "l_mags") - 1), weight)


def policy_of_file(config: Config, _: Dataset) -> Policy:
    """Return the policy of --method deepaa."""
    return deepaa(config.method.policy or "")


def _policy(table: list[Op], op: Array, level: Array, share: Array, weight: Array) -> Policy:
    # Identity stands for flips that do not happen, so it is there whether the file names it or not
    used = (OPS[IDENTITY], *(each for each in table if each.name != IDENTITY))
    index = {each.name: i for i, each in enumerate(used)}
    start, stop = (np.array([getattr(each, end) for each in table])[op] for end in ("start", "stop"))
    columns = (
        np.array([index[each.name] for each in table])[op],
        level,
        start + share * (stop - start),
        np.array([PROBABILITIES.get(each.name, 1.0) for each in table])[op],
    )
    drawn, levels, magnitude, probability = (np.broadcast_to(column, weight.shape) for column in columns)
    rows = Rows(drawn, levels, magnitude, probability, weight)
    return layered(TransformSet(used, reference_size=1), rows, _apply)


def _apply(transforms: TransformSet, images: Tensor, draw: Draw) -> Tensor:
    """Return the images under one layer's draw, with the fill where a cutout or a crop left nothing."""
    return on_bytes(images, lambda batch: _fill(transforms, transforms.apply(batch, draw), draw))


def _fill(transforms: TransformSet, changed: Tensor, draw: Draw) -> Tensor:
    filled = torch.tensor([transforms.names.index(name) for name in FILLED if name in transforms.names])
    rows = torch.isin(draw.op.flatten().cpu(), filled).nonzero().flatten()
    if not len(rows):
        return changed
    # what becomes of white images shows where the operation left nothing
    white = torch.full((len(rows), 1, *changed.shape[2:]), 255, dtype=torch.uint8, device=changed.device)
    empty = transforms.apply(white, draw[rows.to(draw.op.device)]) == 0
    there = rows.to(changed.device)
    changed[there] = torch.where(empty, _colour(changed), changed[there])
    return changed


def _colour(images: Tensor) -> Tensor:
    """Return the fill for images with that many channels: its grey value for any number but three."""
    colour = torch.tensor(FILL, dtype=torch.uint8, device=images.device).view(1, 3, 1, 1)
    return colour if images.shape[1] == 3 else luminance(colour)


def _read(path: Path) -> dict[str, Array]:
    """Return the arrays of a file, or say why it has none."""
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
        _ensure(size <= MAX_BYTES, f"it unpacks to {size} bytes, more than {MAX_BYTES}")
        with np.load(path, allow_pickle=False) as arrays:
            missing = [name for name in ARRAYS if name not in arrays.files]
            _ensure(not missing, f"it lacks {', '.join(missing)}")
            return {name: arrays[name] for name in ARRAYS}
    except OSError as error:
        raise UserError(f"cannot read policy file {path}: {error.strerror or error}") from None
    except Exception as error:  # a broken archive raises whatever zipfile, zlib and numpy happen to trip over
        reason = " ".join(str(error).split())
        raise UserError(f"{path} is not a DeepAA policy file: {reason}") from None


def _operations(names: Array) -> list[Op]:
    """Return the operations the file names, with its ranges."""
    _ensure(names.ndim == 1 and names.dtype.kind == "U", f"op_names must be a list of strings, got {names.dtype}")
    table = [_operation(str(name)) for name in names]
    known = [op.name for op in table]
    _ensure(len(set(known)) == len(known), f"op_names must differ, got {', '.join(known)}")
    return table


def _operation(text: str) -> Op:
    found = OP_NAME.fullmatch(text)
    if found is None:
        raise ValueError(f"an operation of op_names must read Name:(low,,high), got {text!r}")
    name, *ends = found.groups()
    _ensure(name in OPS, f"unknown operation {name}, {nearest(name, OPS)}")
    widest = OPS[name]
    if not widest.has_magnitude:
        return widest
    low, high = (_number(end, text) for end in ends)
    inside = all(widest.start <= end <= widest.stop for end in (low, high))
    _ensure(inside, f"the range of {name} must lie in {widest.start:g} to {widest.stop:g}, got {text}")
    return replace(widest, start=low, stop=high)


def _number(text: str, whole: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"the range of {whole!r} must be two numbers") from None


def _count(arrays: dict[str, Array], name: str) -> int:
    array = arrays[name]
    _ensure(array.size == 1 and array.dtype.kind in "iu", f"{name} must be one whole number, got {array!r}")
    count = int(array.reshape(()))
    _ensure(count >= 2, f"{name} must be at least 2, got {count}")
    return count


def _indices(arrays: dict[str, Array], name: str, end: int) -> Array:
    """Return a column of indices, each below the end."""
    array = arrays[name]
    whole = array.dtype.kind in "iu" and array.size == max(array.shape, default=0) > 0
    _ensure(whole, f"{name} must be a list of whole numbers, got {array.dtype} of shape {array.shape}")
    inside = int(array.min()) >= 0 and int(array.max()) < end
    _ensure(inside, f"{name} must lie in 0 to {end - 1}, got {array.min()} to {array.max()}")
    return array.reshape(-1).astype(np.int64)


def _weights(probabilities: Array, n_rows: int) -> Array:
    shape = probabilities.shape
    fits = probabilities.dtype.kind == "f" and len(shape) == 2 and shape[0] > 0 and shape[1] == n_rows
    _ensure(
        fits, f"policy_probs must be numbers, one row a layer, one column of ops each ({n_rows}), got shape {shape}"
    )
    weight = probabilities.astype(np.float64)
    _ensure(bool((weight >= 0).all()), "policy_probs must not be negative or NaN")
    worst = float(np.abs(weight.sum(axis=1) - 1).max())
    _ensure(worst < 1e-3, f"each row of policy_probs must sum to 1, one is {worst:g} off")
    return weight


def _ensure(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)
