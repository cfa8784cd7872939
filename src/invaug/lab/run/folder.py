"""A run is a folder: config.toml, record.jsonl, checkpoints/, report.html."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import BaseModel, Field, ValidationError, model_validator
from torch import Tensor, nn

from invaug.lab.config import build
from invaug.lab.config.schema import Config
from invaug.lab.data.load import Dataset
from invaug.lab.errors import UserError
from invaug.lab.models.build import build_model, is_custom
from invaug.lab.models.check import check_model
from invaug.lab.run import atomic, checkpoint, files
from invaug.lab.run.files import shorten
from invaug.lab.terminal import plain, say
from invaug.lab.train.finish import Finish
from invaug.transforms.images import MAX_SIDE

MAX_NAME = 255  # bytes, on all common file systems
MAX_CLASSES = 1_000_000
MIN_STD = 1e-12  # of pixels in 0 to 1: one among a billion that is one level off has 1e-7
PACKAGES = ("invaug", "torch", "numpy", "numba", "lightning-fabric", "safetensors", "pillow")

Side = Annotated[int, Field(strict=True, gt=0, le=MAX_SIDE)]
Level = Annotated[int, Field(strict=True, ge=0, le=65535)]
Finite = Annotated[float, Field(strict=True, allow_inf_nan=False)]


class DataFacts(BaseModel, frozen=True):
    """What a run must know about its data to be used without it: the table [dataset] of config.toml."""

    name: str
    classes: Annotated[tuple[str, ...], Field(min_length=1, max_length=MAX_CLASSES)]
    mean: tuple[Annotated[Finite, Field(ge=0, le=2)], ...]
    std: tuple[Annotated[Finite, Field(ge=MIN_STD, le=2)], ...]
    image_shape: tuple[Side, Side, Side]
    grey_range: tuple[Level, Level] | None = None

    @classmethod
    def of(cls, dataset: Dataset) -> DataFacts:
        """Return the facts of a dataset."""
        return cls.model_construct(**{name: getattr(dataset, name) for name in cls.model_fields})

    @model_validator(mode="after")
    def _check_channels(self) -> DataFacts:
        if not len(self.mean) == len(self.std) == self.image_shape[0]:
            raise ValueError("mean and std must have one number per channel")
        return self


def write_config(folder: Path, config: Config, dataset: Dataset) -> None:
    """Write config.toml: every setting, the versions of what ran it, and the facts of the data."""
    sizes = {name: len(split.targets) for name in ("train", "val", "test") if (split := getattr(dataset, name))}
    facts = DataFacts.of(dataset).model_dump(exclude_none=True) | {"images": sizes}
    content = config.model_dump(exclude_none=True) | {"versions": versions(), "dataset": facts}
    try:
        text = build.dump(content).encode()
    except UnicodeEncodeError:
        message = f"{plain(config.data.name)} is not a name in UTF-8, which config.toml needs: rename it"
        raise UserError(message) from None
    atomic.write_bytes(folder / files.CONFIG, text)


def read_config(folder: Path) -> tuple[Config, DataFacts]:
    """Return the config of a run and the facts of its data."""
    content = files.read_run_config(folder)
    content.pop("versions", None)
    try:
        facts = DataFacts.model_validate(content.pop("dataset", {}))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in ("dataset", *first["loc"]))
        why = f"{shorten(Path(key))} {first['msg'].removeprefix('Input ').removeprefix('Value error, ')}"
        message = f"{folder / files.CONFIG} has no complete [dataset] table, {why}: was it written by invaug?"
        raise UserError(message) from None
    return build.build(build.flatten(content, f"{shorten(folder)} is a run of an older version: ")), facts


def check_usable(folder: Path) -> None:
    """Refuse a path that cannot become the folder of a run, or would lead its writer elsewhere; write nothing."""
    for path in (folder, *folder.parents):
        if reason := _obstacle(path):
            raise UserError(f"{shorten(folder)} cannot be the folder of a run, {reason}: choose another --out")
    kept = chain(folder.glob("*"), folder.glob("mlruns/**/*"))  # MLflow writes into folders that it finds there
    if links := sorted(path.name for path in kept if path.is_symlink()):
        raise UserError(f"{shorten(folder)} contains a link, {links[0]}, but a run keeps its own files: remove it")


def _obstacle(path: Path) -> str | None:
    """Return why a path is not a folder and cannot become one, or None."""
    name = shorten(Path(path.name))
    try:
        if path.is_dir():
            return None
        if path.is_symlink() or path.exists():
            return f"{name} is {'a broken link' if path.is_symlink() else 'not a folder'}"
    except OSError as error:
        return f"{name}: {error.strerror}"
    if not path.name.isprintable():  # surrogates, which stand for bytes that are not UTF-8, are not
        return f"{name} contains characters that cannot be printed"
    n_bytes = len(os.fsencode(path.name))
    return f"{name} has {n_bytes} bytes, over the limit of {MAX_NAME}" if n_bytes > MAX_NAME else None


def open_run(folder: Path, trust_model: bool) -> tuple[Config, DataFacts, checkpoint.Checkpoint | None]:
    """Return the config of a run, the facts of its data and its newest checkpoint, once they are safe to use."""
    config, facts = read_config(folder)
    check_trust(folder, config.model.name, trust_model)
    saved = checkpoint.load(folder / "checkpoints")
    if saved:
        _check_fits(folder, config, facts, saved.state.get("model"))
    return config, facts, saved


def check_trust(folder: Path, model: str, trust_model: bool) -> None:
    """Refuse to run code that a run names without the user's consent: the folder may come from elsewhere."""
    if is_custom(model) and not trust_model:
        way_out = "add --trust-model (trust_model=True in Python) if you know where it comes from"
        raise UserError(f"the model of {folder} is code, {model}, which would run here: {way_out}")


def _check_fits(folder: Path, config: Config, facts: DataFacts, weights: Any) -> None:
    """Refuse weights that do not fit the model, before a hostile config can ask for too much memory."""
    if not isinstance(weights, dict):
        raise _misfit(folder, config, facts)
    if is_custom(config.model.name):
        return
    with torch.device("meta"):  # shapes only, no memory
        expected = build_model(config.model.name, len(facts.classes), facts.image_shape).state_dict()
    if shapes_of(expected) != shapes_of(weights):
        raise _misfit(folder, config, facts)


def shapes_of(weights: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return the shape and the type of each tensor, None for anything else."""
    return {name: (getattr(tensor, "shape", None), getattr(tensor, "dtype", None)) for name, tensor in weights.items()}


def _misfit(folder: Path, config: Config, facts: DataFacts) -> UserError:
    reason = f"does not fit the model {config.model.name} with {len(facts.classes)} classes: was config.toml changed?"
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


def load(folder: str | Path, device: str = "cpu", *, trust_model: bool = False) -> Predictor:
    """Return the model of a run, ready for use: averaged weights if the run kept them, in eval mode.

    One line on stderr names each later checkpoint that is damaged.

    Args:
        trust_model: Whether to import and run the `module:factory` the run names, if its model is one.
    """
    folder = Path(folder)
    config, facts, saved = open_run(folder, trust_model)
    if saved is None:
        raise UserError(f"{folder} has no checkpoint yet: train it first, or add --resume to continue")
    for message in saved.skipped:
        say(message)
    weights: Any = saved.state.get("model") if saved.state.get("ema") is None else saved.state["ema"]
    _check_fits(folder, config, facts, weights)
    network, finish = (
        build_model(config.model.name, len(facts.classes), facts.image_shape),
        Finish(facts.mean, facts.std),
    )
    if is_custom(config.model.name):
        images = finish.plain(torch.zeros(2, *facts.image_shape, dtype=torch.uint8))
        check_model(config.model.name, network, images, len(facts.classes))
    try:
        network.load_state_dict(weights)
    except Exception:  # whatever a model of the user's own makes of weights that are not its
        raise _misfit(folder, config, facts) from None
    return Predictor(network, finish, facts.classes).to(torch.device(device)).eval()
