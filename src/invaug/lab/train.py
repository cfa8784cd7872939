"""`invaug train`: from what the user gave to runs on disk and a table at the end."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import torch

from invaug.lab import checkpoint, datasets, loop, methods, models, run
from invaug.lab import config as configs
from invaug.lab.config import Config
from invaug.lab.display import Display, Screen, summary_table
from invaug.lab.errors import UserError
from invaug.lab.evaluate import under
from invaug.lab.finish import Finish, Randomness
from invaug.lab.lock import RunLock
from invaug.lab.loggers import open_loggers
from invaug.lab.record import read
from invaug.lab.tally import finite

COMPARED = ("none", "trivial")


def run_all(
    given: Mapping[str, Any], out: Path | None, *, resume: bool, compare: bool, quiet: bool
) -> list[dict[str, Any]]:
    """Train what was asked for, and with `compare` the two baselines under the same budget; return their summaries."""
    if resume and out is None:
        raise UserError("nothing to resume: name the folder of the run with --out")
    stored = out / str(given.get("method", "constrained")) if out and compare else out
    if resume and stored and (stored / "config.toml").exists():
        given = {**run.read_config(stored)[0].model_dump(exclude_none=True), **given}
    config = decide(configs.build(given))
    root = out or free_folder(Path("runs") / f"{Path(config.data).stem}-{config.method}")
    wanted = dict.fromkeys([*COMPARED, config.method]) if compare else {config.method: None}
    folders = {method: root / method if compare else root for method in wanted}
    for folder in folders.values():
        check_folder(folder, resume)
    dataset = datasets.load(
        config.data, data_dir=config.data_dir, fraction=config.fraction, per_class=config.per_class,
        val_fraction=config.val_fraction, image_size=config.image_size, seed=config.seed,
    )  # fmt: skip
    console = Screen()
    plans = {method: decide_for(config, dataset, method) for method in folders}
    for plan in plans.values():  # an unknown model or operation must show before anything is written
        models.build(plan.model, len(dataset.classes), dataset.image_shape)
        methods.problem(plan, dataset, Finish(dataset.mean, dataset.std, Randomness(0, False, 0, False)))
        methods.transform_set(plan)
    rows = [
        train_one(plans[method], dataset, folder, console, quiet=quiet, resume=resume)
        for method, folder in folders.items()
    ]
    if not quiet:
        console.print(summary_table([_in_words(row) for row in rows]))
        for row in rows:
            console.print(f"run: {row['run']}", soft_wrap=True, highlight=False)
    return rows


def free_folder(folder: Path) -> Path:
    """Return the folder, or the first of folder-2, folder-3, … that is not there yet."""
    names = (folder.with_name(f"{folder.name}-{n}") if n > 1 else folder for n in count(1))
    return next(name for name in names if not name.exists())


def decide(config: Config) -> Config:
    """Return the config with what depends on the machine filled in."""
    if config.threads:
        torch.set_num_threads(config.threads)
    kinds = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if config.device != "auto" and not kinds.get(config.device, False):
        there = ", ".join(kind for kind, found in kinds.items() if found)
        raise UserError(f"device {config.device} is not there: choose auto or one of {there}")
    return config


def decide_for(config: Config, dataset: datasets.Dataset, method: str) -> Config:
    """Return the config with what depends on the data filled in: the model and epsilon."""
    changes: dict[str, Any] = {"method": method}
    if config.model == "auto":
        changes["model"] = "cnn-small" if dataset.image_shape[0] == 1 else "resnet-8"
    if methods.METHODS[method].constrains:
        changes["epsilon"] = methods.epsilon(config.model_copy(update=changes), len(dataset.classes))
    return config.model_copy(update=changes)


def check_folder(folder: Path, resume: bool) -> None:
    """Refuse a folder that holds another run, or nothing to resume."""
    if resume and not (folder / "config.toml").exists():
        raise UserError(f"nothing to resume in {folder}: no config.toml there; leave out --resume to start")
    found = [] if not folder.exists() else list(folder.iterdir()) if folder.is_dir() else [folder]
    if not resume and any(path.name != ".lock" for path in found):
        raise UserError(f"{folder} exists and is not empty: add --resume to go on, or choose another --out")


def train_one(
    config: Config, dataset: datasets.Dataset, folder: Path, console: Screen, *, quiet: bool, resume: bool
) -> dict[str, Any]:
    """Train one run in its folder; return its summary."""
    from lightning_fabric import Fabric  # two seconds, and only training needs it

    os.environ.setdefault("OMP_NUM_THREADS", str(torch.get_num_threads()))
    fabric = Fabric(accelerator=config.device, devices=config.devices, precision=config.precision)
    fabric.launch()
    training, finish = loop.prepare(config, dataset, fabric)
    folder.mkdir(parents=True, exist_ok=True)
    with RunLock(folder):
        check_folder(folder, resume)  # again: another process may have used it since
        refuse_changes(folder, config)
        run.write_config(folder, config, dataset)
        done = len(read(folder))
        if not quiet:
            console.print(_headline(config, dataset), highlight=False, soft_wrap=True)
        meta = {"versions": run.versions(), "method": config.method, "preset": config.preset}
        with Display(config.epochs, done, quiet=quiet, console=console) as display, logging(config, folder) as log:

            def on_epoch(row: dict[str, Any]) -> None:
                display.epoch(row)
                log(row)

            warn = partial(print, file=sys.stderr)
            loop.fit(config, dataset, folder, fabric, training, finish, display.batch, on_epoch, meta, warn)
        return summary(config, dataset, folder, training)


@contextmanager
def logging(config: Config, folder: Path) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Yield what writes an epoch to every further log; close them whatever happens."""
    loggers = open_loggers(config.log, folder, config.model_dump(mode="json", exclude_none=True))

    def log(row: Mapping[str, Any]) -> None:
        for logger in loggers:
            logger.log(row, int(row["epoch"]))

    try:
        yield log
    finally:
        for logger in loggers:
            logger.close()


def refuse_changes(folder: Path, config: Config) -> None:
    """Refuse to go on with a run under another config; more epochs would change the schedule too."""
    if not (folder / "config.toml").exists() or checkpoint.load(folder / "checkpoints") is None:
        return
    before = run.read_config(folder)[0].model_dump()
    free = {"workers", "data_dir", "threads", "log", "device", "scoring_batch"}
    changed = [
        f"{key}: {before[key]!r} -> {value!r}"
        for key, value in config.model_dump().items()
        if before[key] != value and key not in free
    ]
    if changed:
        raise UserError(f"{folder} was started with another config ({'; '.join(changed)}): use a new --out")


def summary(config: Config, dataset: datasets.Dataset, folder: Path, training: loop.Training) -> dict[str, Any]:
    """Return what a run ends with: accuracy clean and under the set, gamma, whether the constraint holds."""
    rows = read(folder)
    plain = Finish(dataset.mean, dataset.std, Randomness(0, False, 0, False)).to(training.problem.gamma.device)
    network = training.average.module if training.average else training.model
    transforms = methods.transform_set(config)
    changed = under(network, plain, dataset.test, transforms, n_draws=4, seed=config.seed, workers=config.workers)
    last = rows[-1]
    return {
        "run": str(folder), "method": config.method, "data": dataset.name, "model": config.model,
        "preset": config.preset, "epochs": len(rows),
        "test_accuracy": last["test_accuracy"], "test_loss": last["test_loss"],
        "transformed_accuracy": changed["uniform"]["accuracy"], "transformed_loss": changed["uniform"]["loss"],
        "gamma": last["gamma"], "slack": last["slack"], "epsilon": finite(config.epsilon),
        "feasible": feasible(last["slack"]) if config.epsilon else None,
        "seconds": sum(row["seconds"] for row in rows),
    }  # fmt: skip


def feasible(slacks: list[float | None]) -> bool | None:
    """Return whether every constraint held in the last epoch; None where there is none. No slack means no bound."""
    return all(slack is None or slack <= 0 for slack in slacks) if slacks else None


def _headline(config: Config, dataset: datasets.Dataset) -> str:
    constraint = ""
    if methods.METHODS[config.method].constrains:
        constraint = f", {config.set} set, epsilon {config.epsilon:g}"
    return f"{config.method}: {config.model} on {len(dataset.train.targets):,} images of {dataset.name}{constraint}"


def _in_words(row: Mapping[str, Any]) -> dict[str, str]:
    loss = [slack + row["epsilon"] for slack in row["slack"] if slack is not None and row["feasible"] is not None]
    held = {True: "feasible", False: "violated", None: "-"}[row["feasible"]]
    numbers = " ".join(f"{value:.2f} vs {row['epsilon']:g}" for value in loss)
    return {
        "method": row["method"],
        "clean": f"{row['test_accuracy']:.1%}",
        "transformed": f"{row['transformed_accuracy']:.1%}",
        "gamma": " ".join(f"{gamma:.3f}" for gamma in row["gamma"]) or "-",
        "constraint": f"{held} ({numbers})" if numbers else held,
        "seconds": f"{row['seconds']:.0f}",
    }
