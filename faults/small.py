"""Small real runs to break: a few tiny images, a network with BatchNorm and dropout, and what two runs differ in."""

from __future__ import annotations

import io
import struct
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn

from invaug.lab.run import checkpoint
from invaug.lab.run.record import read

CLOCK = ("seconds", "images_per_second")  # the only keys that may differ between two runs of one config
N_IMAGES, BATCH, EPOCHS = 48, 8, 3
N_STEPS = EPOCHS * N_IMAGES // BATCH
SETTINGS = {
    "model": "faults.small:network",
    "epochs": EPOCHS,
    "batch_size": BATCH,
    "lr": 0.05,
    "epsilon": 0.7,
    "dual_lr": 0.05,
    "ema": 0.9,
    "n_steps": 2,
    "crop": 1,
    "workers": 0,
    "threads": 1,
}


def network(n_classes: int, image_shape: tuple[int, int, int]) -> nn.Module:
    """Return a network with BatchNorm and dropout, in which a step could leave a trace."""
    channels, height, width = image_shape
    first = [nn.Conv2d(channels, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.2), nn.Flatten()]
    return nn.Sequential(*first, nn.Linear(4 * height * width, 8), nn.BatchNorm1d(8), nn.Linear(8, n_classes))


def write_data(folder: Path, n_train: int = N_IMAGES, n_alike: int = 1) -> Path:
    """Write an .npz of random images of three classes, each image so many times in a row; return its path."""
    random = np.random.default_rng(0)
    path = folder / "data.npz"
    arrays: dict[str, Any] = {}
    for part, n in (("train", n_train), ("test", 16)):
        images = random.integers(256, size=(-(-n // n_alike), 8, 8, 1), dtype=np.uint8)
        arrays[f"x_{part}"] = images.repeat(n_alike, axis=0)[:n]
        arrays[f"y_{part}"] = np.arange(n) % 3
    np.savez(path, **arrays)
    return path


def arguments(data: Path, out: Path, **settings: Any) -> list[str]:
    """Return the arguments of `invaug train` for a small run."""
    return ["train", str(data), "--out", str(out), "--quiet", *flags({**SETTINGS, **settings})]


def resumed(out: Path) -> list[str]:
    """Return the arguments that resume a run."""
    return ["train", "--resume", "--quiet", "--trust-model", "--out", str(out)]


def flags(settings: dict[str, Any]) -> list[str]:
    """Return settings as flags; True is a flag without a value."""
    words = []
    for key, value in settings.items():
        flag = f"--{key.replace('_', '-')}"
        words += [flag] if value is True else [f"{flag}={value}"]
    return words


def invaug(*words: str) -> tuple[int, str]:
    """Run the command in this process; return its exit code and its stderr."""
    from invaug.lab.cli.main import main

    stderr = io.StringIO()
    with patch.object(sys, "argv", ["invaug", *words]), redirect_stderr(stderr), redirect_stdout(io.StringIO()):
        try:
            main()
        except SystemExit as stop:
            return int(stop.code or 0), stderr.getvalue()
    return 0, stderr.getvalue()


def last(run: Path) -> checkpoint.Checkpoint:
    """Return the newest checkpoint of a run that has one."""
    found = checkpoint.load(run / "checkpoints")
    if found is None:
        raise FileNotFoundError(f"{run} has no checkpoint")
    return found


def result(run: Path) -> dict[str, Any]:
    """Return all that must be the same however the run came about: the last checkpoint and the record."""
    found = last(run)
    return {"step": found.step, "epoch": found.epoch, "state": found.state, "record": read(run)}


def differences(one: Any, other: Any, where: str = "") -> Iterator[str]:
    """Yield where two nested values differ in a bit, a type or a key; the clock does not count."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in dict.fromkeys([*one, *other]):
            if key in CLOCK:
                continue
            if key not in one or key not in other:
                yield f"{where}/{key} is only in one"
            else:
                yield from differences(one[key], other[key], f"{where}/{key}")
    elif isinstance(one, list | tuple) and type(one) is type(other) and len(one) == len(other):
        for i, (first, second) in enumerate(zip(one, other, strict=True)):
            yield from differences(first, second, f"{where}/{i}")
    elif bits(one) != bits(other):
        yield f"{where} differs"


def bits(value: Any) -> Any:
    """Return a leaf as something that is equal only if every bit is."""
    if isinstance(value, Tensor):
        return value.dtype, tuple(value.shape), value.detach().cpu().contiguous().numpy().tobytes()
    return type(value), struct.pack("d", value) if isinstance(value, float) else value


def summarize(found: Iterator[str], limit: int = 3) -> str:
    """Return the first differences in one line, empty if there are none."""
    lines = [line for line, _ in zip(found, range(limit + 1), strict=False)]
    return ", ".join(lines[:limit] + (["…"] if len(lines) > limit else []))


def copied(state: Any) -> Any:
    """Return the state with tensors of its own, as a later step would change these."""
    if isinstance(state, dict):
        return {key: copied(value) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return type(state)(copied(value) for value in state)
    return state.detach().clone() if isinstance(state, Tensor) else state


def one_thread() -> None:
    """Compute on one thread, as the runs we compare with do."""
    torch.set_num_threads(1)
