"""A run is a folder: config.toml, record.jsonl, checkpoints/, report.html."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from invaug.lab import atomic, checkpoint, models
from invaug.lab import config as configs
from invaug.lab.config import Config
from invaug.lab.datasets import Dataset
from invaug.lab.errors import UserError
from invaug.lab.finish import Finish, Randomness

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
        channels, _, _ = map(int, facts.image_shape)
        if not len(facts.mean) == len(facts.std) == channels or not all(isinstance(c, str) for c in facts.classes):
            raise ValueError("mean, std and image_shape disagree")
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
    atomic.write_text(folder / "config.toml", configs.dump(content))


def read_config(folder: Path) -> tuple[Config, DataFacts]:
    """Return the config of a run and what it knows of its data."""
    if not (folder / "config.toml").exists():
        raise UserError(f"{folder} is not a run: it has no config.toml")
    content = configs.read(folder / "config.toml")
    content.pop("versions", None)
    try:
        known = DataFacts.read(content.pop("dataset", {}))
    except (TypeError, ValueError, AttributeError):
        raise UserError(
            f"{folder / 'config.toml'} has no complete [dataset] table: was it written by invaug?"
        ) from None
    return configs.build(content), known


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


def load(folder: str | Path, device: str = "cpu") -> Predictor:
    """Return the model of a run, ready for use: averaged weights if the run kept them, in eval mode."""
    folder = Path(folder)
    config, facts = read_config(folder)
    saved = checkpoint.load(folder / "checkpoints")
    if saved is None:
        raise UserError(f"{folder} has no checkpoint yet: train it first, or add --resume to go on")
    network = models.build(config.model, len(facts.classes), facts.image_shape)
    try:
        network.load_state_dict(saved.state["ema"] or saved.state["model"])
    except (KeyError, RuntimeError, TypeError):
        reason = f"does not fit the model {config.model} with {len(facts.classes)} classes: was config.toml changed?"
        raise UserError(f"the checkpoint of {folder} {reason}") from None
    finish = Finish(facts.mean, facts.std, Randomness(0, False, 0, False))
    return Predictor(network, finish, facts.classes).to(torch.device(device)).eval()
