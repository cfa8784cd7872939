"""A LightningModule as people write them, a quiet Trainer, and digits in batches."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.support.images import import_torchvision, load_labelled_digits

if find_spec("torchvision"):
    import_torchvision()  # Lightning imports it where it is installed
from lightning.pytorch import LightningModule, Trainer


def make_network(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    convolution = [nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU()]
    return nn.Sequential(*convolution, nn.Dropout(0.1), nn.Flatten(), nn.Linear(8 * 14 * 14, 10))


class Classifier(LightningModule):
    """A network with a mean loss, momentum, and a schedule per step; nothing in it knows of invaug."""

    def __init__(self, network: nn.Module | None = None, total_steps: int = 100) -> None:
        super().__init__()
        self.network, self.total_steps = network or make_network(), total_steps
        self.validated: list[Tensor] = []

    def forward(self, images: Tensor) -> Any:
        return self.network(images)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        images, targets = batch
        return F.cross_entropy(self(images), targets)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.validated.append(batch[0])
        self.log("accuracy", (self(batch[0]).argmax(1) == batch[1]).float().mean())

    def configure_optimizers(self) -> dict[str, Any]:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, self.total_steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def digits(start: int, stop: int) -> tuple[Tensor, Tensor]:
    """Return some digits, uint8, shape (n, 1, 28, 28), and their labels."""
    pixels, labels = load_labelled_digits()
    return torch.from_numpy(pixels[start:stop]).unsqueeze(1), torch.from_numpy(labels[start:stop])


def as_they_are(images: Tensor) -> Tensor:
    return images


def to_floats(images: Tensor) -> Tensor:
    return images.float() / 255


def loader(n: int = 64, batch_size: int = 16, make: Callable[[Tensor], Tensor] = as_they_are, **options: Any):
    images, targets = digits(0, n)
    return DataLoader(TensorDataset(make(images), targets), batch_size, **options)


def quiet_trainer(*callbacks: Any, **options: Any) -> Trainer:
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    settings = {"accelerator": "cpu", "devices": 1, "max_epochs": 2, "enable_model_summary": False, **quiet, **options}
    return Trainer(callbacks=list(callbacks), **settings)


def fit(*callbacks: Any, module: LightningModule | None = None, data: Any = None, val: Any = None, **options: Any):
    """Fit a module, by default a new one on 64 digits; return it."""
    module = module or Classifier()
    torch.manual_seed(7)  # dropout
    quiet_trainer(*callbacks, **options).fit(module, data if data is not None else loader(), val)
    return module
