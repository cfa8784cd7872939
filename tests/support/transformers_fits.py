"""Small models of transformers with random weights, real digits as Hugging Face datasets, and real Trainers."""

from __future__ import annotations

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # before transformers and datasets are imported

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tests.support.images import import_torchvision, load_labelled_digits

if find_spec("torchvision"):
    import_torchvision()  # transformers imports it where it is installed

import transformers
from datasets import ClassLabel, Dataset, Features, Image
from PIL import Image as Pillow
from transformers import Trainer, TrainerCallback, TrainingArguments

from invaug import Constraint, InvarianceConstrained, sets
from invaug.integrations.collate import collate_bytes
from invaug.integrations.huggingface import InvarianceTrainer

SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}


def restored_vit(checkpoint: Path) -> nn.Module:
    return transformers.ViTForImageClassification.from_pretrained(checkpoint)


def colour_vit() -> nn.Module:
    return vit(n_channels=3)


def vit(dropout: float = 0.1, n_channels: int = 1) -> nn.Module:
    torch.manual_seed(0)
    settings = transformers.ViTConfig(
        **SIZES, image_size=28, patch_size=14, num_channels=n_channels, num_labels=10, hidden_dropout_prob=dropout
    )
    return transformers.ViTForImageClassification(settings)


def beit(dropout: float = 0.0) -> nn.Module:
    """Return a model that takes the number of images of a step and ignores it, as most image models do."""
    torch.manual_seed(0)
    settings = transformers.BeitConfig(
        **SIZES,
        image_size=28,
        patch_size=14,
        num_channels=1,
        num_labels=10,
        drop_path_rate=0.0,
        hidden_dropout_prob=dropout,
    )
    return transformers.BeitForImageClassification(settings)


def resnet(width: int = 8) -> nn.Module:
    torch.manual_seed(0)
    settings = transformers.ResNetConfig(
        num_channels=1,
        embedding_size=width,
        hidden_sizes=[width, 2 * width],
        depths=[1, 1],
        layer_type="basic",
        num_labels=10,
    )
    return transformers.ResNetForImageClassification(settings)


def digits(n: int, start: int = 0) -> Dataset:
    """Return real digits as rows with a PIL image and a label."""
    pixels, labels = (array[start : start + n] for array in load_labelled_digits())
    columns = {"image": [Pillow.fromarray(image) for image in pixels], "label": labels.tolist()}
    return Dataset.from_dict(columns, Features(image=Image(), label=ClassLabel(num_classes=10)))


def normalise(images: Tensor) -> Tensor:
    return (images.float() / 255 - 0.1307) / 0.3081


def collate_normalised(rows: Sequence[Any]) -> dict[str, Tensor]:
    """Return what people train on without us: the same images as floats."""
    batch = collate_bytes(rows)
    images = batch["pixel_values"]
    return {**batch, "pixel_values": normalise(images) if images.dtype == torch.uint8 else images}


def arguments(folder: Path, **changes: Any) -> TrainingArguments:
    settings: dict[str, Any] = {
        "output_dir": str(folder),
        "per_device_train_batch_size": 16,
        "max_steps": 6,
        "learning_rate": 1e-3,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "remove_unused_columns": False,
        "dataloader_pin_memory": False,
        "disable_tqdm": True,
        "use_cpu": True,
    }
    return TrainingArguments(**{**settings, **changes})


def make_problem(epsilon: Any = "auto", **changes: Any) -> InvarianceConstrained:
    settings: dict[str, Any] = {"finish": normalise, "dual_lr": 0.5, "gamma_init": 0.5}
    return InvarianceConstrained(Constraint(sets.wide(), epsilon), **{**settings, **changes})


def constrained(
    folder: Path,
    problem: InvarianceConstrained | None = None,
    make: Callable[[], nn.Module] = vit,
    kind: type[InvarianceTrainer] = InvarianceTrainer,
    train: Any = None,
    others: dict[str, Any] | None = None,
    **changes: Any,
) -> InvarianceTrainer:
    """Return a Trainer under constraints that has not trained yet."""
    data = {"train_dataset": digits(96) if train is None else train, "data_collator": collate_bytes}
    settings = arguments(folder, **changes)
    return kind(make(), settings, problem=problem or make_problem(), **{**data, **(others or {})})


def plain(
    folder: Path,
    make: Callable[[], nn.Module] = vit,
    train: Any = None,
    others: dict[str, Any] | None = None,
    **changes: Any,
) -> Trainer:
    """Return the Trainer that nobody has touched, on the same images."""
    data = {"train_dataset": digits(96) if train is None else train, "data_collator": collate_normalised}
    return Trainer(make(), arguments(folder, **changes), **{**data, **(others or {})})


class Recorder(TrainerCallback):
    """Writes down what a training is given and what it makes of it: rows, views, and the gradient of each step."""

    def __init__(self) -> None:
        self.given: list[dict[str, Tensor]] = []
        self.views: list[Tensor] = []
        self.gradients: list[Tensor] = []

    def collate(self, rows: Sequence[Any]) -> dict[str, Tensor]:
        self.given.append(collate_bytes(rows))
        return dict(self.given[-1])

    def watch(self, model: nn.Module) -> None:
        model.register_forward_pre_hook(self._record, with_kwargs=True)

    def _record(self, model: nn.Module, args: Any, inputs: dict[str, Any]) -> None:
        if model.training and torch.is_grad_enabled():
            self.views.append((args[0] if args else inputs["pixel_values"]).clone())

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **others: Any) -> None:
        self.gradients.append(gradient_of(model))


def gradient_of(model: nn.Module) -> Tensor:
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
