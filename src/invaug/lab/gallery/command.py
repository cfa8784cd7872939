"""`invaug gallery`: the transformations of a set, a config or a run, on some images, as one page."""

from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import numpy as np

from invaug.lab.config import build
from invaug.lab.config.resolve import Facts, resolve
from invaug.lab.config.schema import PLACES, Config
from invaug.lab.data.load import Dataset, load_dataset
from invaug.lab.errors import UserError, nearest
from invaug.lab.evaluate.pictures import MODES
from invaug.lab.gallery.pages import document_of
from invaug.lab.report.command import write_page
from invaug.lab.report.read import read_run
from invaug.lab.report.runs import Run
from invaug.lab.run import files
from invaug.lab.run.folder import read_config

NAME = "gallery.html"
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
    dataset = load_some(subject, data, data_dir)
    config = resolve(subject.config, Facts(dataset.classes, len(dataset.train), dataset.image_shape))
    rows = np.linspace(0, len(dataset.train) - 1, n_images).round().astype(np.int64)
    images = dataset.train.take(np.unique(rows)).images
    if images is None or images.shape[1] not in MODES:
        raise UserError(f"{dataset.name} has images of {dataset.image_shape[0]} channels: a page shows 1 or 3")
    return write_page(document_of(config, images, dataset.name, subject.run), target)


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


def load_some(subject: Subject, data: str | None, data_dir: Path | None) -> Dataset:
    """Return one training image of each class of the dataset that was named, or else of the run's or config's."""
    own = subject.config.data
    return load_dataset(
        data or own.name,
        data_dir=data_dir or own.data_dir,
        per_class=1,
        image_size=subject.image_size or own.image_size,
        download=data_dir is not None or own.data_dir is None,
        on_bad="skip",
        max_bad=1.0,
        with_test=False,
    )
