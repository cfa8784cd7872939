"""Small real runs for the tests of the laboratory: some digits, a small network, one or two epochs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from invaug.lab.train.command import run_one
from invaug.lab.train.compare import compare_methods
from tests.support.images import load_labelled_digits

SMALL = {"epochs": 2, "batch_size": 64, "lr": 0.05, "workers": 0, "threads": 1}


def write_digits(folder: Path, n_train: int = 256, n_test: int = 128) -> Path:
    """Write an .npz of real digits of all ten classes; return its path."""
    images, targets = load_labelled_digits()
    images = images[..., None]
    path = folder / "some-digits.npz"
    train, test = slice(0, n_train), slice(n_train, n_train + n_test)
    np.savez(path, x_train=images[train], y_train=targets[train], x_test=images[test], y_test=targets[test])
    return path


def train(data: Path, out: Path, *, resume: bool = False, compare: bool = False, **given: Any) -> list[dict[str, Any]]:
    settings = {"data": str(data), **SMALL, **given}
    if compare:
        return compare_methods(settings, out, resume=resume, quiet=True)
    return [run_one(settings, out, resume=resume, quiet=True)]
