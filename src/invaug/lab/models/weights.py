"""Starting from given weights: read without pickle, fitted by name and shape, with a new head for other classes."""

import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.torch
import torch
from torch import Tensor, nn

from invaug.lab.config.schema import Model
from invaug.lab.errors import UserError, reading
from invaug.lab.models.build import build_model, is_custom
from invaug.lab.models.networks import Shape
from invaug.lab.run import files
from invaug.lab.terminal import plain

MAX_BYTES = 8 << 30  # the largest networks of timm take 4 GiB
LARGE = 64 << 20  # bytes from which the start of a file is checked first
MAX_UNFILLED = 0.5  # share of a network's tensors, its head aside, that a file may lack
N_NAMED = 5  # names in a message
NESTED = ("state_dict", "model")  # what training scripts call the weights in what they save
PREFIXES = ("_orig_mod.", "module.")  # put before names by torch.compile and by DistributedDataParallel


class Weights(NamedTuple):
    """Named tensors, and the classes of their head if the file says."""

    tensors: dict[str, Tensor]
    classes: tuple[str, ...] | None = None


def new_model(
    settings: Model, classes: Sequence[str], image_shape: Shape, say: Callable[[str], None] = lambda _: None
) -> nn.Module:
    """Return the model that a training starts with; `say` is told what was taken from a file of weights, if any."""
    model = build_model(settings.name, len(classes), image_shape)
    if settings.weights:
        found = read_weights(settings.weights, settings.weights_sha256)
        head = _head_of(settings.name, model, len(classes), image_shape)
        left_out = set() if found.classes in (None, tuple(classes)) else head
        tensors = {name: tensor for name, tensor in found.tensors.items() if name not in left_out}
        say(f"{_named(settings.weights)}: {fill(model, tensors, head, settings)}")
    return model


def _head_of(name: str, model: nn.Module, n_classes: int, image_shape: Shape) -> set[str]:
    """Return the names of the tensors whose shape depends on the number of classes."""
    with nullcontext() if is_custom(name) else torch.device("meta"):
        other = build_model(name, n_classes + 1, image_shape).state_dict()
    return {key for key, tensor in model.state_dict().items() if key not in other or other[key].shape != tensor.shape}


def fill(model: nn.Module, tensors: Mapping[str, Tensor], head: Set[str], settings: Model) -> str:
    """Load what fits into the model; return in one line what did and what did not, or raise if too little did."""
    expected, where = model.state_dict(), _named(settings.weights)
    taken = {name for name, tensor in expected.items() if name in tensors and tensors[name].shape == tensor.shape}
    body, unused = expected.keys() - head, [name for name in tensors if name not in taken | head]
    unfilled = [name for name in expected if name in body - taken]
    if len(unfilled) > MAX_UNFILLED * len(body):
        fit = f"{len(body) - len(unfilled)} of its {len(body)} tensors are there by name and shape"
        raise UserError(f"{where} do not fit model {settings.name}: {fit}; it has {_some(unfilled)}, {_unused(unused)}")
    for name in taken:
        if not tensors[name].float().isfinite().all():
            raise UserError(f"{where} are not finite in {name}: choose another file")
    model.load_state_dict({name: tensors[name] for name in taken}, strict=False)
    notes = ["a new head" if head - taken else "", f"not in the file: {_some(unfilled)}" if unfilled else ""]
    notes.append(_unused(unused) if unused else "")
    return "; ".join([f"{len(taken)} of {len(expected)} tensors loaded", *filter(None, notes)])


def _unused(names: Sequence[str]) -> str:
    return f"in the file alone: {_some(names)}"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - N_NAMED} more" if len(names) > N_NAMED else ""
    return (plain(", ".join(name[:80] for name in names[:N_NAMED])) or "nothing") + more


def _named(path: Path | None) -> str:
    return f"weights {files.shorten(path or Path())}"


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file of weights."""
    return hashlib.sha256(_read(path)).hexdigest()


def read_weights(path: Path, sha256: str | None = None) -> Weights:
    """Return the weights of a .safetensors file, or of a state dict saved by torch, which is read without pickle.

    Args:
        sha256: What the file must have; a run that is resumed must not start from other weights.
    """
    data = _read(path)
    found = hashlib.sha256(data).hexdigest()
    if sha256 and found != sha256:
        differ = f"its SHA-256 is {found[:12]}…, weights_sha256 is {sha256[:12]}…"
        raise UserError(
            f"{_named(path)} is another file: {differ}; give the file the run began with, or leave weights_sha256 out"
        )
    with reading(_named(path)):
        return _of_safetensors(data) if path.suffix == ".safetensors" else _of_torch(data)


def _read(path: Path) -> bytes:
    if path.is_dir():
        raise UserError(f"{_named(path)} is a folder: of a run, write the file with invaug export {path}")
    with reading(_named(path)):
        _check_start(path)
        return files.read_named(path, MAX_BYTES)


def _check_start(path: Path) -> None:
    """Refuse a file of gigabytes by its first bytes, before the others are read."""
    size = path.stat().st_size if path.is_file() else 0
    if size <= LARGE:
        return
    with path.open("rb") as file:
        start = file.read(9)
    is_safetensors = int.from_bytes(start[:8], "little") < size and start[8:] == b"{"
    if not is_safetensors and not start.startswith((b"PK", b"\x80")):
        raise UserError("it begins neither like a .safetensors file nor like a state dict saved by torch")


def _of_safetensors(data: bytes) -> Weights:
    tensors = safetensors.torch.load(data)  # first, because it checks the header
    about = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")]).get("__metadata__", {})
    ours = {"classes", "image_shape"} <= about.keys()
    return Weights(tensors, tuple(json.loads(about["classes"])) if ours else None)


def _of_torch(data: bytes) -> Weights:
    _check_size(data)
    try:
        content: Any = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
        content = next((content[key] for key in NESTED if isinstance(content.get(key), dict)), content)
        return Weights({_bare(key): tensor for key, tensor in content.items() if isinstance(tensor, Tensor)})
    except Exception as error:  # torch's own words suggest to read it with pickle
        way_out = "write it with torch.save(model.state_dict(), FILE), or as .safetensors"
        raise UserError(f"not a state dict of tensors alone: {way_out}") from error


def _check_size(data: bytes) -> None:
    """Refuse an archive that unpacks to too much."""
    if zipfile.is_zipfile(io.BytesIO(data)):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            size = sum(member.file_size for member in archive.infolist())
        if size > MAX_BYTES:
            raise UserError(f"it unpacks to {size:,} bytes, over the limit of {MAX_BYTES:,}")


def _bare(name: str) -> str:
    for prefix in PREFIXES:
        name = name.removeprefix(prefix)
    return name
