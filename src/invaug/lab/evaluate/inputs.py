"""What a trained run is measured with: a device that exists, and test images that fit the run."""

from pathlib import Path

import torch

from invaug.lab.config.schema import Config
from invaug.lab.data.load import Dataset, load_dataset
from invaug.lab.errors import UserError, nearest
from invaug.lab.run.folder import DataFacts

TRAINING_SUBSET = ("fraction", "per_class", "subset", "val_fraction", "val_fold", "on_bad", "max_bad")
"""Settings that choose the training images of a run."""


def check_device(name: str) -> str:
    """Return the name of a device, or raise if this machine does not have it."""
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    kind, _, index = name.partition(":")
    if kind not in available:
        raise UserError(f"unknown device {name}, {nearest(kind, available)}")
    count = torch.cuda.device_count() if kind == "cuda" else 1
    if not available[kind] or (index and not (index.isdecimal() and int(index) < count)):
        known = ", ".join(found for found, is_available in available.items() if is_available)
        raise UserError(f"device {name} is not available: choose one of {known}")
    return name


def load_test_data(config: Config, facts: DataFacts, data: str | None, data_dir: Path | None) -> Dataset:
    """Return the run's dataset, or another one with the same classes, resized to the run's images.

    A dataset that only the run names is not downloaded into a folder that only the run names.
    """
    _, height, width = facts.image_shape
    # the test images do not depend on which training images are chosen, but fewer of these are read sooner
    subset = {key: getattr(config.data, key) for key in TRAINING_SUBSET} | {"seed": config.run.seed}
    dataset = load_dataset(
        data or config.data.name,
        data_dir=data_dir or config.data.data_dir,
        download=data_dir is not None or config.data.data_dir is None,
        image_size=height if height == width else None,
        grey_range=facts.grey_range,
        **({} if data else subset),
    )
    _check_classes(dataset, facts)
    if dataset.image_shape != facts.image_shape:
        shapes = [" x ".join(map(str, shape)) for shape in (dataset.image_shape, facts.image_shape)]
        raise UserError(f"{dataset.name} has images of {shapes[0]}, the run was trained on {shapes[1]}")
    return dataset


def _check_classes(dataset: Dataset, facts: DataFacts) -> None:
    if dataset.classes == facts.classes:
        return
    missing, extra = set(facts.classes) - set(dataset.classes), set(dataset.classes) - set(facts.classes)
    differences = [
        f"{word} {', '.join(sorted(names)[:5])}" for word, names in (("without", missing), ("with", extra)) if names
    ]
    how = " and ".join(differences) or "in another order"
    raise UserError(f"{dataset.name} has other classes than the run: {how}; choose data with the same classes")
