"""`invaug evaluate`: a run measured from every side, as tables for people or one JSON document for machines."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

from invaug.lab.config.methods import METHODS
from invaug.lab.config.schema import Config
from invaug.lab.data.load import Dataset, load_dataset
from invaug.lab.errors import UserError, nearest
from invaug.lab.evaluate import measure
from invaug.lab.evaluate import pictures as measuring
from invaug.lab.run.folder import DataFacts, load, read_config
from invaug.lab.run.record import read
from invaug.lab.terminal import plain, say
from invaug.lab.train import problem
from invaug.lab.train.sets import set_name, transform_sets

COLUMNS = ("low", "25 %", "50 %", "75 %", "high")  # magnitudes shown per operation
N_CLASSES = 10  # classes shown, the worst first
LAWS = {"uniform": "uniform", "lambda_c": "λ_c", "worst": "worst"}
Rows = Sequence[Mapping[str, float]]
Report = Mapping[str, Any]
Step = Callable[[str, int, int], None]
Titled = tuple[str, Table]
THINNED = ("fraction", "per_class", "subset", "val_fraction", "val_fold", "on_bad")
"""Settings that say which training images a run read."""


def evaluate_run(
    run: Path, data: str | None, data_dir: Path | None, draws: int, images: int, device: str, as_json: bool, *,
    trust_model: bool = False,
) -> None:  # fmt: skip
    """Measure a run on its own test images or on those of another dataset, and print what was found."""
    config, facts = read_config(run)
    predictor = load(run, checked_device(device), trust_model=trust_model)
    dataset, spec = test_data(config, facts, data, data_dir), METHODS[config.method.name]
    with progress_bars() as step:
        found = measure.whole(
            predictor.network, predictor.finish, dataset.test, facts.classes,
            [transforms for _, transforms in transform_sets(config)],
            n_draws=draws, n_images=images, n_steps=config.method.n_steps, sampler=problem.sampler_of(spec),
            workers=config.data.workers, progress=step,
        )  # fmt: skip
    about = {"run": str(run), "data": dataset.name, "model": config.model.name, "method": config.method.name}
    about["set"] = set_name(config)
    report = {
        **about,
        "preset": config.method.preset,
        "epsilon": problem.final_epsilon(config, read(run)),
        "draws": draws,
        **found,
    }
    if data is None:  # the page of a run is about its own test images
        _keep_for_the_page(run, report)
    for pictures in ("gallery", "hardest"):  # for the page alone
        report.pop(pictures, None)
    if as_json:
        print(json.dumps(measuring.finite(report)))
        return
    show(report, Console(highlight=False, emoji=False))


def _keep_for_the_page(run: Path, report: Report) -> None:
    """Write evaluation.json beside the record; a folder that cannot be written to only costs the page its figures."""
    try:
        measuring.write(run, report)
    except OSError as error:
        say(f"kept for no report: {error}")


def checked_device(name: str) -> str:
    """Return the name of a device that is there."""
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    kind, _, index = name.partition(":")
    if kind not in there:
        raise UserError(f"unknown device {name}, {nearest(kind, there)}")
    count = torch.cuda.device_count() if kind == "cuda" else 1
    if not there[kind] or (index and not (index.isdecimal() and int(index) < count)):
        known = ", ".join(found for found, is_there in there.items() if is_there)
        raise UserError(f"device {name} is not there: choose one of {known}")
    return name


def test_data(config: Config, facts: DataFacts, data: str | None, data_dir: Path | None) -> Dataset:
    """Return the run's dataset, or another one with its classes, brought to the size of its images.

    What the run itself names is only read, as images: a download goes where the user says, not where a run says.
    """
    _, height, width = facts.image_shape
    # the test images do not depend on how the training images were thinned, but fewer of these are read sooner
    thinned = {key: getattr(config.data, key) for key in THINNED} | {"seed": config.run.seed}
    dataset = load_dataset(
        data or config.data.name,
        data_dir=data_dir or config.data.data_dir,
        download=data_dir is not None or config.data.data_dir is None,
        image_size=height if height == width else None,
        **({} if data else thinned),
    )
    _check_same(dataset, facts)
    return dataset


def _check_same(dataset: Dataset, facts: DataFacts) -> None:
    if dataset.classes != facts.classes:
        there, here = set(dataset.classes), set(facts.classes)
        lost, extra = sorted(here - there), sorted(there - here)
        differ = [f"{word} {', '.join(names[:5])}" for word, names in (("without", lost), ("with", extra)) if names]
        how = " and ".join(differ) or "in another order"
        raise UserError(f"{dataset.name} has other classes than the run: {how}; choose data with the same classes")
    if dataset.image_shape != facts.image_shape:
        shapes = [" x ".join(map(str, shape)) for shape in (dataset.image_shape, facts.image_shape)]
        raise UserError(f"{dataset.name} has images of {shapes[0]}, the run was trained on {shapes[1]}")


@contextmanager
def progress_bars() -> Iterator[Step]:
    """Show bars on stderr, if that is a terminal; yield the function that moves them."""
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        tasks: dict[str, Any] = {}

        def step(name: str, done: int, total: int) -> None:
            if name not in tasks:
                tasks[name] = progress.add_task(name)
            progress.update(tasks[name], completed=done, total=total)

        yield step


def show(report: Report, console: Console) -> None:
    """Print a report: headline, laws, operations, classes."""
    parts = [_headline(report), _laws(report), _operations(report), _classes(report)]
    for title, table in filter(None, parts):
        # not the table's own title, which would break at the width of the table
        console.print(f"[bold]{safe(title)}[/bold]", soft_wrap=True)
        console.print(table)
        console.print()


def _headline(report: Report) -> Titled:
    table = plain_table("", "")
    loss, accuracy = report["clean"]["loss"], report["clean"]["accuracy"]
    lines = {
        "trained": f"{report['method']} ({report['preset']} preset), {report['model']}",
        "test images": f"{report['images']:,} of {report['data']}",
        "accuracy": f"{accuracy:.2%}",
        "loss": f"{loss:.4f}",
        "calibration error": f"{report['calibration_error']:.2%}",
    }
    for name, value in lines.items():
        table.add_row(name, safe(value))
    return str(report["run"]), table


def _laws(report: Report) -> Titled | None:
    if "transformed" not in report:
        return None
    epsilon = "" if report["epsilon"] is None else f", epsilon {report['epsilon']:g}"
    title = f"under the {report['set']} set, {report['draws']} draws an image{epsilon}"
    table = plain_table("law", "accuracy", "loss")
    for key, name in LAWS.items():
        found = report["transformed"][key]
        table.add_row(name, f"{found['accuracy']:.2%}", f"{found['loss']:.4f}")
    return title, table


def _operations(report: Report) -> Titled | None:
    if "levels" not in report:
        return None
    table = plain_table("operation", *COLUMNS, "worst", "at")
    for name, rows in report["levels"].items():
        shown = ["" if accuracy is None else f"{accuracy:.1%}" for accuracy in at_five(rows)]
        lowest = min(rows, key=lambda row: row["accuracy"])
        place = f"{lowest['magnitude']:.4g}" if len(rows) > 1 else ""
        table.add_row(safe(name), *shown, f"{lowest['accuracy']:.1%}", place)
    return "accuracy by operation, magnitudes from low to high", table


def at_five(rows: Rows) -> list[float | None]:
    """Return the accuracy at five levels from the lowest to the highest, both signs of a level averaged.

    An operation with fewer levels leaves places empty; one without a magnitude has the first alone.
    """
    levels = sorted({row["level"] for row in rows})
    n_shown = min(len(COLUMNS), len(levels))
    shown: list[float | None] = [None] * len(COLUMNS)
    for i in range(n_shown):
        share = i / max(n_shown - 1, 1)
        level = levels[round(share * (len(levels) - 1))]
        shown[round(share * (len(COLUMNS) - 1))] = fmean(row["accuracy"] for row in rows if row["level"] == level)
    return shown


def _classes(report: Report) -> Titled:
    classes: Mapping[str, Mapping[str, float]] = report["classes"]
    worst = sorted(classes.items(), key=lambda item: item[1]["accuracy"])[:N_CLASSES]
    title = "classes, worst first" + (f": {len(worst)} of {len(classes)}" if len(worst) < len(classes) else "")
    table = plain_table("class", "accuracy", "images")
    for name, found in worst:
        table.add_row(safe(name), f"{found['accuracy']:.1%}", f"{found['images']:,}")
    return title, table


def plain_table(first: str, *others: str) -> Table:
    """Return an empty table without lines: names on the left, numbers on the right."""
    table = Table(box=None, pad_edge=False, show_header=any((first, *others)))
    table.add_column(first, overflow="fold")
    for name in others:
        table.add_column(name, justify="right" if table.show_header else "left", overflow="fold")
    return table


def safe(text: str) -> str:
    """Return text that a terminal shows as it is: names of classes and files may hold markup or control codes."""
    return escape(plain(text))
