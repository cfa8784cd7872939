"""A folder of real images, a training made of timm's own parts, and timm's train.py in a process of its own."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from tests.support.images import import_torchvision, load_labelled_digits

KEEP = import_torchvision()

import timm  # noqa: E402 - needs torchvision
from timm.data import create_dataset, create_loader, resolve_data_config  # noqa: E402
from timm.loss import LabelSmoothingCrossEntropy  # noqa: E402
from timm.optim import create_optimizer_v2  # noqa: E402
from timm.task import TrainingTask, load_task_ema_checkpoint, resume_task_checkpoint  # noqa: E402
from timm.utils import CheckpointSaver, random_seed  # noqa: E402

ROOT = Path(__file__).parent.parent.parent
MODEL = "test_efficientnet"
SCRIPT = "https://raw.githubusercontent.com/huggingface/pytorch-image-models/v{}/train.py"
WITHOUT = (
    "NOT RUN THROUGH TIMM'S train.py: it is not in timm's wheel and could not be downloaded; TIMM_TRAIN=path names one"
)
State = dict[str, Tensor]


def write_digits(folder: Path, n_train: int, n_test: int) -> Path:
    """Write digits as `split/class/number.png`, as timm reads them; return the folder."""
    pixels, labels = load_labelled_digits()
    for i in range(n_train + n_test):
        place = folder / ("train" if i < n_train else "validation") / str(labels[i]) / f"{i}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels[i]).save(place)
    return folder


def make_loader(folder: Path, split: str = "train", **settings: Any) -> Any:
    """Return a loader as train.py makes it: timm's prefetcher and its normalisation."""
    training = split == "train"
    config = resolve_data_config({"img_size": 28, "crop_pct": 1.0}, model=timm.create_model(MODEL))
    how = {name: config[name] for name in ("input_size", "mean", "std", "interpolation")}
    dataset = create_dataset("", root=str(folder), split=split, is_training=training, input_img_mode="RGB")
    usual = {
        "batch_size": 32,
        "no_aug": True,
        "num_workers": 0,
        "persistent_workers": False,
        "device": torch.device("cpu"),
        "crop_pct": 1.0,
    }
    return create_loader(dataset, is_training=training, **how | usual | settings)


def fit(
    folder: Path,
    task_of: Callable[..., TrainingTask],
    epochs: int = 1,
    *,
    output: Path | None = None,
    resume: Path | None = None,
) -> TrainingTask:
    """Train as train.py does, with EMA, and return the task; batches depend on the epoch alone, so it can resume."""
    random_seed(42)
    model = timm.create_model(MODEL, num_classes=10)
    task = task_of(model, LabelSmoothingCrossEntropy(0.1), verbose=False)
    optimizer = create_optimizer_v2(model, "sgd", lr=0.02, momentum=0.9, weight_decay=1e-4)
    start = resume_task_checkpoint(task, resume, optimizer, log_info=False) if resume else 0
    task.setup_ema(decay=0.9)
    if resume:
        load_task_ema_checkpoint(task, resume)
    saver = CheckpointSaver(model, optimizer, args=argparse.Namespace(model=MODEL), task=task, checkpoint_dir=output)
    loader = make_loader(folder)
    for epoch in range(start, epochs):
        task.get_trainable_module().train()
        torch.manual_seed(epoch)
        for i, (images, targets) in enumerate(loader):
            task(images, targets)["loss"].backward()
            optimizer.step()
            optimizer.zero_grad()
            task.update_ema(step=i + 1)
        if output:
            saver.save_checkpoint(epoch, metric=epoch)
    return task


def fit_on_a_rank(rank: int, folder: Path, meeting: Path, task_of: Callable[..., TrainingTask]) -> None:
    """Take four steps of two accumulated batches as one of two ranks; save weights and gamma."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    torch.manual_seed(0)
    model = timm.create_model(MODEL, num_classes=10)
    task = task_of(model, LabelSmoothingCrossEntropy(0.1), verbose=False).prepare_distributed()
    optimizer = create_optimizer_v2(model, "sgd", lr=0.02)
    torch.manual_seed(rank)
    for i, (images, targets) in enumerate(islice(make_loader(folder, batch_size=16), 8)):
        with nullcontext() if i % 2 else task.no_sync():
            (task(images, targets)["loss"] / 2).backward()
        if i % 2:
            optimizer.step()
            optimizer.zero_grad()
            task.update_ema(step=i)
    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    np.savez(folder / f"rank{rank}.npz", weights=weights, gamma=task.problem.gamma)
    torch.distributed.destroy_process_group()


@torch.inference_mode()
def accuracy(model: nn.Module, folder: Path) -> float:
    """Return the share of right answers on the validation images, as train.py measures it."""
    model.eval()
    right = [model(images).argmax(1) == targets for images, targets in make_loader(folder, "validation")]
    return float(torch.cat(right).float().mean())


def find_train_script(folder: Path) -> Path:
    """Return timm's train.py of the installed version: that of TIMM_TRAIN, or downloaded; skip aloud without."""
    if "TIMM_TRAIN" in os.environ:
        return Path(os.environ["TIMM_TRAIN"])
    try:
        with urllib.request.urlopen(SCRIPT.format(timm.__version__), timeout=20) as answer:  # noqa: S310 - https
            text = answer.read()
    except OSError as error:
        # CI has a network, so there it is a failure
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"{WITHOUT} ({error})")
    place = folder / "train.py"
    place.write_bytes(text)
    return place


def start(script: Path, *words: str, **settings: Any) -> subprocess.Popen[str]:
    """Start a script in a process of its own, in which torchvision can be imported."""
    command = [sys.executable, str(ROOT / "tests/support/with_torchvision.py"), str(script), *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(  # noqa: S603
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **settings
    )


def run(script: Path, *words: str) -> str:
    """Run a script to its end and return what it printed."""
    with start(script, *words) as process:
        printed, _ = process.communicate(timeout=600)
    assert process.returncode == 0, printed[-3000:]
    return printed


def read_checkpoint(path: Path) -> dict[str, Any]:
    with torch.serialization.safe_globals([argparse.Namespace]):
        return torch.load(path, weights_only=True)
