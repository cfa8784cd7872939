"""Runs on disk with a checkpoint of a network that was never trained, for the tests of exports and predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from invaug.lab.config.build import build
from invaug.lab.data.load import Dataset
from invaug.lab.data.splits import Split
from invaug.lab.models.build import build_model
from invaug.lab.run import checkpoint
from invaug.lab.run import folder as run

CLASSES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
MODELS = {"cnn-small": (1, 28, 28), "resnet-8": (3, 32, 32)}
MEANS = {1: (0.13,), 3: (0.49, 0.48, 0.45), 4: (0.5,) * 4}
STDS = {1: (0.31,), 3: (0.2, 0.19, 0.21), 4: (0.25,) * 4}


class Made(NamedTuple):
    folder: Path
    network: nn.Module
    shape: tuple[int, int, int]


def some_images(digits: Tensor, n: int, shape: tuple[int, int, int]) -> Tensor:
    """Real digits in the shape of a run: padded, and each channel of its own brightness."""
    channels, height, width = shape
    canvas = torch.zeros(n, 1, height, width)
    canvas[..., :28, :28] = digits[:n]
    return (canvas * torch.linspace(1, 0.6, channels).view(1, -1, 1, 1)).to(torch.uint8)


def settled(model: str, shape: tuple[int, int, int], digits: Tensor) -> nn.Module:
    """A network whose BatchNorm has seen images, so that its buffers matter."""
    torch.manual_seed(0)
    network = build_model(model, len(CLASSES), shape)
    network.train()
    with torch.no_grad():
        network(some_images(digits, 64, shape).float() / 64)
    return network.eval()


def make_run(
    folder: Path, network: nn.Module, model: str, shape: tuple[int, int, int], ema: nn.Module | None = None
) -> Path:
    folder.mkdir()
    split = Split(torch.zeros(1, dtype=torch.long), torch.zeros(1, *shape, dtype=torch.uint8))
    dataset = Dataset("shapes", split, None, split, CLASSES, MEANS[shape[0]], STDS[shape[0]], shape)
    run.write_config(folder, build({"model": model}), dataset)
    state = {"model": network.state_dict(), "ema": ema.state_dict() if ema else None}
    checkpoint.save(folder / "checkpoints", state, step=1, epoch=1, meta={})
    return folder


@torch.no_grad()
def by_hand(network: nn.Module, images: Tensor) -> Tensor:
    """The scores from the network alone: normalised here, not there."""
    n_channels = images.shape[1]
    mean, std = (torch.tensor(numbers[n_channels]).view(1, -1, 1, 1) for numbers in (MEANS, STDS))
    return network((images / 255 - mean) / std)


def assert_same(scores: Any, expected: Tensor) -> None:
    np.testing.assert_allclose(np.asarray(scores), expected.numpy(), rtol=1e-4, atol=1e-4)
