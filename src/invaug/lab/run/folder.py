"""A run is a folder: config.toml, record.jsonl, checkpoints/, report.html."""

from __future__ import annotations

import math
import os
import platform
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from invaug.lab.config import schema as configs
from invaug.lab.config.schema import Config
from invaug.lab.data.load import Dataset
from invaug.lab.errors import UserError
from invaug.lab.models.build import build_model, is_custom
from invaug.lab.run import atomic, checkpoint
from invaug.lab.terminal import plain, say
from invaug.lab.train.finish import Finish, Randomness
from invaug.transforms.images import MAX_SIDE

MAX_CONFIG = 16 << 20  # bytes; a thousand class names are some 20 kB
MAX_NAME = 255  # bytes of a file name on all common disks
MAX_CLASSES = 1_000_000
PACKAGES = ("invaug", "torch", "numpy", "numba", "lightning-fabric", "safetensors", "pillow")


@dataclass(frozen=True)
class DataFacts:
    """What a run must remember of its data to be used without it."""

    name: str
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    image_shape: tuple[int, int, int]

    @classmethod
    def of(cls, dataset: Dataset) -> DataFacts:
        """Return the facts of a dataset."""
        return cls(dataset.name, dataset.classes, dataset.mean, dataset.std, dataset.image_shape)

    @classmethod
    def read(cls, table: Mapping[str, Any]) -> DataFacts:
        """Return the facts a config.toml holds; ValueError, TypeError or AttributeError if it is not one of ours."""
        known: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in table.items() if k != "images"}
        facts = cls(**known)
        channels, height, width = facts.image_shape
        numbers = (*facts.mean, *facts.std)
        rules = (
            isinstance(facts.name, str) and all(isinstance(name, str) for name in facts.classes),
            all(type(side) is int and 0 < side <= MAX_SIDE for side in (channels, height, width)),
            len(facts.mean) == len(facts.std) == channels,
            all(isinstance(number, float | int) and math.isfinite(number) for number in numbers),
            all(number > 0 for number in facts.std) and 0 < len(facts.classes) <= MAX_CLASSES,
        )
        if not all(rules):
            raise ValueError("not the facts of a dataset")
        return facts


def write_config(folder: Path, config: Config, dataset: Dataset) -> None:
    """Write config.toml: every setting, the versions that ran it, what the data is."""
    facts = DataFacts.of(dataset)
    sizes = {name: len(split.targets) for name in ("train", "val", "test") if (split := getattr(dataset, name))}
    content = config.model_dump(exclude_none=True) | {
        "versions": versions(),
        "dataset": {key: list(value) if isinstance(value, tuple) else value for key, value in vars(facts).items()}
        | {"images": sizes},
    }
    try:
        text = configs.dump(content).encode()
    except UnicodeEncodeError:
        raise UserError(f"{plain(config.data)} is not a name in UTF-8, which config.toml needs: rename it") from None
    atomic.write_bytes(folder / "config.toml", text)


def read_config(folder: Path) -> tuple[Config, DataFacts]:
    """Return the config of a run and what it knows of its data."""
    content = _read_toml(folder)
    content.pop("versions", None)
    configs.refuse_removed(content, f"{folder} is a run of an older version: ")
    try:
        known = DataFacts.read(content.pop("dataset", {}))
    except (TypeError, ValueError, AttributeError):
        raise UserError(
            f"{folder / 'config.toml'} has no complete [dataset] table: was it written by invaug?"
        ) from None
    return configs.build(content), known


def _read_toml(folder: Path) -> dict[str, Any]:
    """Return the content of config.toml; not through a link, which in a run from elsewhere could lead to any file."""
    file = folder / "config.toml"
    try:
        found = file.lstat()
    except (OSError, ValueError):  # a name that is too long, or cannot be one
        raise UserError(f"{_short(folder)} is not a run: it has no config.toml") from None
    if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_CONFIG:
        raise UserError(f"{file} is not the config of a run: it is not a regular file, or over {MAX_CONFIG:,} bytes")
    return configs.read(file)


def check_usable(folder: Path) -> None:
    """Refuse what cannot be the folder of a run, or would lead its writer out of it; nothing is written."""
    for path in (folder, *folder.parents):
        reason = _unusable(path)
        if reason:
            raise UserError(f"{_short(folder)} cannot be the folder of a run, {reason}: choose another --out")
    if links := sorted(path.name for path in folder.glob("*") if path.is_symlink()):
        raise UserError(f"{_short(folder)} holds a link, {links[0]}: a run keeps its files itself; remove it")


def _unusable(path: Path) -> str | None:
    """Return why a path is not a folder and cannot become one, if so."""
    name = _short(Path(path.name))
    try:
        if path.is_dir():
            return None
        if path.is_symlink() or path.exists():
            return f"{name} is {'a link to no folder' if path.is_symlink() else 'not a folder'}"
    except OSError as error:
        return f"{name}: {error.strerror}"
    try:
        raw = os.fsencode(path.name)
        printable = raw.decode().isprintable()
    except UnicodeError:
        printable = False
    if not printable:
        return f"{name} has characters that cannot be printed"
    return f"{name} has {len(raw)} bytes, over the limit of {MAX_NAME}" if len(raw) > MAX_NAME else None


def _short(path: Path) -> str:
    name = plain(str(path))
    return name if len(name) <= 100 else f"{name[:60]}…"


def read_trusted(folder: Path, trust_model: bool) -> Config:
    """Return the config of a run to go on with; see `check_trust`."""
    config, facts = read_config(folder)
    check_trust(folder, config, trust_model)
    saved = checkpoint.load(folder / "checkpoints")
    if saved:
        check_fits(folder, config, facts, saved.state.get("model"))
    return config


def check_trust(folder: Path, config: Config, trust_model: bool) -> None:
    """Refuse to run code that a run names, unless the user said so: the folder may come from elsewhere."""
    if is_custom(config.model) and not trust_model:
        way_out = "add --trust-model (trust_model=True in Python) if you know where it comes from"
        raise UserError(f"the model of {folder} is code, {config.model}, which would run here: {way_out}")


def check_fits(folder: Path, config: Config, facts: DataFacts, weights: Any) -> None:
    """Refuse weights of another model, before a hostile config asks for more memory than there is."""
    if is_custom(config.model):
        return
    with torch.device("meta"):  # shapes without numbers
        expected = build_model(config.model, len(facts.classes), facts.image_shape).state_dict()
    if not isinstance(weights, dict) or _shapes(expected) != _shapes(weights):
        raise _misfit(folder, config, facts)


def _shapes(weights: Mapping[Any, Any]) -> dict[Any, Any]:
    return {name: (getattr(tensor, "shape", None), getattr(tensor, "dtype", None)) for name, tensor in weights.items()}


def _misfit(folder: Path, config: Config, facts: DataFacts) -> UserError:
    reason = f"does not fit the model {config.model} with {len(facts.classes)} classes: was config.toml changed?"
    return UserError(f"the checkpoint of {folder} {reason}")


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that matter."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


class Predictor(nn.Module):
    """A trained network with its normalisation: uint8 images in, class scores out."""

    def __init__(self, network: nn.Module, finish: Finish, classes: tuple[str, ...]) -> None:
        super().__init__()
        self.network = network
        self.finish = finish
        self.classes = classes

    def forward(self, images: Tensor) -> Tensor:
        """Return the scores of each class, shape (batch, classes)."""
        return self.network(self.finish.plain(images))  # type: ignore[no-any-return]


def load(
    folder: str | Path, device: str = "cpu", *, trust_model: bool = False, warn: Callable[[str], None] = say
) -> Predictor:
    """Return the model of a run, ready for use: averaged weights if the run kept them, in eval mode.

    Args:
        trust_model: Whether to import and run the `module:factory` the run names, if its model is one.
        warn: Told of every later checkpoint that is damaged.
    """
    folder = Path(folder)
    config, facts = read_config(folder)
    check_trust(folder, config, trust_model)
    saved = checkpoint.load(folder / "checkpoints")
    if saved is None:
        raise UserError(f"{folder} has no checkpoint yet: train it first, or add --resume to go on")
    for message in saved.skipped:
        warn(message)
    weights = saved.state.get("ema") or saved.state.get("model")
    check_fits(folder, config, facts, weights)
    network = build_model(config.model, len(facts.classes), facts.image_shape)
    try:
        network.load_state_dict(weights)  # type: ignore[arg-type]  # whatever it is, it is held to the network's
    except (RuntimeError, TypeError, AttributeError):
        raise _misfit(folder, config, facts) from None
    finish = Finish(facts.mean, facts.std, Randomness(0, False, 0, False))
    return Predictor(network, finish, facts.classes).to(torch.device(device)).eval()
