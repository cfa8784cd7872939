"""`invaug gallery`: the transformations of a set, a config or a run, on some images, as one page."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import numpy as np
import torch
from torch import Tensor

from invaug.lab.config import build
from invaug.lab.config.resolve import Facts, resolve
from invaug.lab.config.schema import PLACES, Config
from invaug.lab.data.batches import batches
from invaug.lab.data.decode import choose_shape, decode_all
from invaug.lab.data.folder import is_image_name
from invaug.lab.data.known import SOURCES
from invaug.lab.data.load import load_dataset
from invaug.lab.errors import UserError, nearest
from invaug.lab.evaluate.pictures import MODES
from invaug.lab.gallery.pages import document_of
from invaug.lab.report.command import write_page
from invaug.lab.report.read import read_run
from invaug.lab.report.runs import Run
from invaug.lab.run import files
from invaug.lab.run.folder import read_config

NAME = "gallery.html"
CLASSES = ("", "")  # their number decides levels, which no page here shows
SETS = get_args(PLACES["set"].info.annotation)[1:]  # the first is auto


@dataclass(frozen=True)
class Subject:
    """What is shown: the config that names the transformations, and the run it belongs to."""

    config: Config
    run: Run | None = None
    image_size: int | None = None


def write_gallery(name: str, data: str | None, data_dir: Path | None, n_images: int, output: Path | None) -> Path:
    """Write the page and return where it is."""
    subject = find_subject(name)
    target = output or (Path(name) / NAME if subject.run else Path(NAME))
    path = Path(data or "").expanduser()
    loose = loose_files(path) if data and data not in SOURCES else []
    shown, images = load_files(path, loose, n_images) if loose else load_some(subject, data, data_dir, n_images)
    n_channels, height, width = images.shape[1:]
    if n_channels not in MODES:
        raise UserError(f"{shown} has images of {n_channels} channels: a page shows 1 or 3")
    config = resolve(subject.config, Facts(CLASSES, len(images), (n_channels, height, width)))
    return write_page(document_of(config, images, shown, subject.run), target)


def find_subject(name: str) -> Subject:
    """Return what a name stands for: a set, a run, or a config."""
    if name in SETS:
        return Subject(build.build({"set": name}))
    if (Path(name) / files.CONFIG).exists():
        config, facts = read_config(Path(name))
        _, height, width = facts.image_shape
        return Subject(config, read_run(Path(name)), height if height == width else None)
    if name in build.shipped_names() or Path(name).is_file():
        return Subject(build.build(build.read(name)))
    raise UserError(f"unknown set {name}, and no such config or run: {nearest(name, SETS)}")


def loose_files(path: Path) -> list[Path]:
    """Return the image file itself, or those of a folder without class folders."""
    if path.is_dir():
        entries = sorted(path.iterdir())
        return [] if any(entry.is_dir() for entry in entries) else [e for e in entries if is_image_name(e.name)]
    return [path] if path.is_file() and is_image_name(path.name) else []


def load_files(path: Path, loose: Sequence[Path], n: int) -> tuple[str, Tensor]:
    """Return the name of a file or folder, and some of the images, of the size that training would choose."""
    chosen = [loose[row] for row in _spread(len(loose), n)]
    return path.resolve().name, torch.from_numpy(decode_all(chosen, choose_shape(loose, None)))


def load_some(subject: Subject, data: str | None, data_dir: Path | None, n: int) -> tuple[str, Tensor]:
    """Return the name of a dataset, by default the run's or config's, and training images of different classes."""
    own = subject.config.data
    dataset = load_dataset(
        data or own.name,
        data_dir=data_dir or own.data_dir,
        per_class=1,
        image_size=subject.image_size or own.image_size,
        download=data_dir is not None or own.data_dir is None,
        on_bad="skip",
        max_bad=1.0,
        with_test=False,
    )
    batch = next(iter(batches(dataset.train, len(dataset.train), epoch=0, seed=0, shuffle=False)))
    return dataset.name, batch.images[_spread(len(dataset.train), n)]


def _spread(n_all: int, n: int) -> list[int]:
    """Return up to n rows from the first to the last."""
    return sorted({round(row) for row in np.linspace(0, n_all - 1, n).tolist()})
