"""DeepAA's policy files (Zheng et al. 2022): six layers, each a law over 139 operations with their magnitudes.

The file is hostile until checked: it is read without pickle, and every array and every range must obey its rule.
"""

import re
import tomllib
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from invaug import ops
from invaug.checks import check_known, require
from invaug.lab.baselines.policy import IDENTITY, Array, Policy, Rows, policy_of_rows
from invaug.lab.config.schema import Config
from invaug.lab.data.load import Dataset
from invaug.lab.data.npz import read_arrays
from invaug.lab.errors import UserError, reading
from invaug.lab.run.files import read_named
from invaug.transforms.draw import Draw
from invaug.transforms.images import luminance, on_bytes
from invaug.transforms.ops import Op
from invaug.transforms.set import TransformSet

ARRAYS = ("policy_probs", "ops", "mags", "l_mags", "op_names")
OP_NAME = re.compile(r"(\w+):\((-?\d+(?:\.\d+)?),,?\s*(-?\d+(?:\.\d+)?)\)")  # "ShearX:(-0.3,,0.3)"
MAX_BYTES = 16 << 20  # of a policy file; those published have 20 kB

FILL = (125, 123, 114)
FILLED = ("RandCutout", "RandCrop")  # the geometric operations leave black, as Pillow does

OPS = {
    name: Op(name, getattr(ops, row.pop("function")), **row)
    for name, row in tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")).items()
}
"""The operations a file may name, with the widest range it may give them; shifts are shares of the image."""

PROBABILITIES = {"RandFlip": 0.5}


def policy_of_file(config: Config, _: Dataset) -> Policy:
    """Return the policy of --method deepaa."""
    return deepaa(config.method.policy or "")


def deepaa(path: str | PathLike[str]) -> Policy:
    """Return the policy of a file: in every layer each image draws one operation at one magnitude.

    The ranges are those in the file; the public evaluation code has its own and ignores them.
    """
    with reading(f"policy {path}"):
        read_named(Path(path), MAX_BYTES)  # a config may name any file, and some have no end
    arrays = read_arrays(Path(path), ARRAYS)
    try:
        missing = [name for name in ARRAYS if name not in arrays]
        require(not missing, f"it lacks {', '.join(missing)}")
        table = _read_operations(arrays["op_names"])
        op = _read_indices("ops", arrays["ops"], len(table))
        n_levels = _read_count(arrays["l_mags"])
        level = _read_indices("mags", arrays["mags"], n_levels)
        require(len(op) == len(level), f"ops and mags must be equally long, got {len(op)} and {len(level)}")
        weight = _read_weights(arrays["policy_probs"], len(op))
    except ValueError as error:
        raise UserError(f"{path} is not a DeepAA policy file: {error}") from None
    return _build_policy(table, op, level, level / (n_levels - 1), weight)


def _build_policy(table: list[Op], op: Array, level: Array, share: Array, weight: Array) -> Policy:
    # Identity stands for flips that do not happen, so it is in the set whether the file names it or not
    used = (OPS[IDENTITY], *(each for each in table if each.name != IDENTITY))
    index = {each.name: i for i, each in enumerate(used)}
    start, stop = (np.array([getattr(each, end) for each in table])[op] for end in ("start", "stop"))
    place = np.array([index[each.name] for each in table])[op]
    probability = np.array([PROBABILITIES.get(each.name, 1.0) for each in table])[op]
    columns = (place, level, start + share * (stop - start), probability)
    drawn, levels, magnitude, chance = (np.broadcast_to(column, weight.shape) for column in columns)
    rows = Rows(drawn, levels, magnitude, chance, weight)
    policy = policy_of_rows(TransformSet(used, reference_size=1), rows)
    return replace(policy, apply=partial(_apply_with_fill, policy.transforms))


def _apply_with_fill(transforms: TransformSet, images: Tensor, draw: Draw) -> Tensor:
    """Return the images under all layers, with the fill where a cutout or a crop left nothing."""

    def apply_layers(batch: Tensor) -> Tensor:
        for i in range(draw.depth):
            batch = _fill(transforms, transforms.apply(batch, draw.layer(i)), draw.layer(i))
        return batch

    return on_bytes(images, apply_layers)


def _fill(transforms: TransformSet, changed: Tensor, draw: Draw) -> Tensor:
    filled = torch.tensor([transforms.names.index(name) for name in FILLED if name in transforms.names])
    rows = torch.isin(draw.op.flatten().cpu(), filled).nonzero().flatten()
    if not len(rows):
        return changed
    # applied to white images, the operation shows where it leaves nothing
    white = torch.full((len(rows), 1, *changed.shape[2:]), 255, dtype=torch.uint8, device=changed.device)
    empty = transforms.apply(white, draw[rows.to(draw.op.device)]) == 0
    colour = torch.tensor(FILL, dtype=torch.uint8, device=changed.device).view(1, 3, 1, 1)
    colour = colour if changed.shape[1] == 3 else luminance(colour)
    there = rows.to(changed.device)
    changed[there] = torch.where(empty, colour, changed[there])
    return changed


def _read_operations(names: Array) -> list[Op]:
    """Return the operations that the file names, with its ranges."""
    require(names.ndim == 1 and names.dtype.kind == "U", f"op_names must be a list of strings, got {names.dtype}")
    table = [_read_operation(str(name)) for name in names]
    known = [op.name for op in table]
    require(len(set(known)) == len(known), f"op_names must differ, got {', '.join(known)}")
    return table


def _read_operation(text: str) -> Op:
    found = OP_NAME.fullmatch(text)
    if found is None:
        raise ValueError(f"an operation of op_names must read Name:(low,,high), got {text!r}")
    name, low, high = found[1], float(found[2]), float(found[3])
    check_known((name,), OPS)
    widest = OPS[name]
    if not widest.has_magnitude:
        return widest
    inside = all(widest.start <= end <= widest.stop for end in (low, high))
    require(inside, f"the range of {name} must lie in {widest.start:g} to {widest.stop:g}, got {text}")
    return replace(widest, start=low, stop=high)


def _read_count(array: Array) -> int:
    """Return the number of levels."""
    whole = array.size == 1 and array.dtype.kind in "iu"
    require(whole and array.item() >= 2, f"l_mags must be a whole number of at least 2, got {array!r}")
    return int(array.item())


def _read_indices(name: str, array: Array, end: int) -> Array:
    """Return a column of indices, each below the end."""
    whole = array.dtype.kind in "iu" and array.size == max(array.shape, default=0) > 0
    require(whole, f"{name} must be a list of whole numbers, got {array.dtype} of shape {array.shape}")
    inside = array.min() >= 0 and array.max() < end
    require(inside, f"{name} must lie in 0 to {end - 1}, got {array.min()} to {array.max()}")
    return array.reshape(-1).astype(np.int64)


def _read_weights(probabilities: Array, n_rows: int) -> Array:
    shape = probabilities.shape
    fits = probabilities.dtype.kind == "f" and len(shape) == 2 and shape[0] > 0 and shape[1] == n_rows
    wanted = f"numbers, with a row for each layer and a column for each of ops ({n_rows})"
    require(fits, f"policy_probs must be {wanted}, got shape {shape}")
    weight = probabilities.astype(np.float64)
    require((weight >= 0).all(), "policy_probs must not be negative or NaN")
    worst = float(np.abs(weight.sum(axis=1) - 1).max())
    require(worst < 1e-3, f"each row of policy_probs must sum to 1, one is {worst:g} off")
    return weight
