"""The command: folds as jobs, what came out as a table, a page and a config to train with."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from invaug.lab.config import build as configs
from invaug.lab.config import methods
from invaug.lab.data.load import Dataset, load_dataset
from invaug.lab.environment import under_torchrun
from invaug.lab.errors import RunError, UserError
from invaug.lab.jobs.job import Job
from invaug.lab.jobs.pool import PROCESSES, check_place, run_jobs
from invaug.lab.jobs.progress import bar
from invaug.lab.report import tables
from invaug.lab.report.command import report_runs
from invaug.lab.report.tables import Table
from invaug.lab.run import atomic
from invaug.lab.run.folder import check_usable
from invaug.lab.terminal import say
from invaug.lab.train.display import Screen
from invaug.lab.train.signals import Stopped
from invaug.lab.tune.search import OptunaSearch, Search, Trial, best_of, shown
from invaug.lab.tune.space import Space, is_grid, parse, usual_levels

PLAN, BEST, TUNE = "plan.json", "best.toml", "tune.json"
TRIALS = 20
MACHINE = ("data_dir", "workers", "device", "threads")
"""Settings that do not decide what comes out."""


@dataclass(frozen=True)
class Asked:
    """What the user gave."""

    settings: Mapping[str, Any]
    search: tuple[str, ...] = ()
    trials: int | None = None
    folds: int = 3
    out: Path | None = None
    at_once: int = 1
    on: str = PROCESSES
    config: str | None = None

    @property
    def data(self) -> str:
        """The dataset."""
        return str(self.settings.get("data", "digits"))

    @property
    def folder(self) -> Path:
        """Where everything goes: the same for the same data, so that the command again goes on."""
        return self.out or Path("runs") / f"{Path(self.data).stem}-tune"


def run_tune(asked: Asked, as_json: bool) -> None:
    """Search, and print what was found, for people or as one JSON document."""
    console = Screen()
    trials, best = tune(asked, console, quiet=as_json)
    page = _write(asked, trials, best)
    if as_json:
        print(json.dumps({**told(asked, trials, best), "folder": str(asked.folder), "report": page}))
    else:
        for line in lines(asked, trials, best):
            console.print(line, highlight=False, soft_wrap=True)
        if page:
            console.print(f"report: {page}", highlight=False, soft_wrap=True)
    if best is None:
        reasons = [reason for trial in trials for reason in trial.failures]
        raise RunError(f"no combination has all its folds, {len(reasons)} failed; the first: {''.join(reasons[:1])}")


def tune(asked: Asked, console: Screen, *, quiet: bool = False) -> tuple[list[Trial], Trial | None]:
    """Train every fold of every combination that is not done yet; return all of them, and the best."""
    check(asked)
    check_usable(asked.folder)
    settings = {"workers": 0, **asked.settings}
    config = configs.build(settings)
    loaded = load_dataset(
        config.data.name, data_dir=config.data.data_dir, fraction=config.data.fraction,
        per_class=config.data.per_class, subset=config.data.subset, image_size=config.data.image_size,
        seed=config.run.seed, on_bad=config.data.on_bad, with_test=False,
    )  # fmt: skip
    space = parse(asked.search, settings)
    if not asked.search:
        space = {"epsilon": usual_levels(asked.data, len(loaded.classes))}
    folds = 1 if loaded.val else asked.folds
    check_folds(folds, loaded)
    keep_plan(asked, settings, space, folds)
    search = search_for(asked, settings, space, folds)
    n_trials = math.prod(len(found.values) for found in space.values() if hasattr(found, "values"))
    most = (search.n_trials if isinstance(search, OptunaSearch) else n_trials) * folds
    with bar(most, 0, float(most), lambda _: 1.0, console, quiet) as progress:
        search.skip = progress.skip
        try:
            run_jobs(search.jobs(), progress, at_once=asked.at_once, on=asked.on, ended=lambda _: search.tell())
        except Stopped as error:
            raise Stopped(error.signum, f"stopped and saved; go on with: {command(asked)}") from None
    return search.trials, best_of(search.trials)


def check(asked: Asked) -> None:
    """Refuse what cannot be meant."""
    if under_torchrun():
        raise UserError("tune starts processes of its own: start it without torchrun, with --jobs for several")
    check_place(asked.on)
    for key in ("val_fraction", "val_fold"):
        if key in asked.settings:
            raise UserError(f"tune holds out folds of its own: use --folds, not {key} {asked.settings[key]}")
    if not asked.search and "epsilon" in asked.settings:
        level = asked.settings["epsilon"]
        raise UserError(f"tune chooses epsilon: leave {level} out, or name what to choose, as --search lr=0.01:0.3")
    method = asked.settings.get("method", methods.DEFAULT)
    if not asked.search and method in methods.METHODS and not methods.holds_epsilon(method):
        raise UserError(f"method {method} has no epsilon: name what to choose, as --search lr=0.01:0.3")


def check_folds(folds: int, dataset: Dataset) -> None:
    """Refuse more folds than the smallest class has images."""
    counts = torch.bincount(dataset.train.targets, minlength=len(dataset.classes))
    least = int(counts.argmin())
    if int(counts[least]) < folds:
        way_out = f"class {dataset.classes[least]} has {int(counts[least])}"
        raise UserError(f"--folds {folds} needs as many training images of every class: {way_out}")


def keep_plan(asked: Asked, settings: Mapping[str, Any], space: Space, folds: int) -> None:
    """Write what all trainings share into the folder; refuse one that holds another search. Values may be added."""
    essential = {key: str(value) for key, value in settings.items() if key not in MACHINE}
    plan = {"settings": essential, "searched": sorted(space), "folds": folds}
    there = atomic.read_json(asked.folder / PLAN)
    if there is not None and there != plan:
        raise UserError(f"{asked.folder} holds another search: choose another --out, or remove it")
    asked.folder.mkdir(parents=True, exist_ok=True)
    atomic.write_text(asked.folder / PLAN, json.dumps(plan))


def search_for(asked: Asked, settings: Mapping[str, Any], space: Space, folds: int) -> Search:
    """Return a grid where every key has a list and no number of trials is given, else Optuna's search."""
    places = {key: settings[key] for key in MACHINE if key in settings and key != "workers"}
    common = {key: value for key, value in settings.items() if key not in places and key != "seed"}
    held_out = {"val_fraction": round(1 / folds, 6)} if folds > 1 else {}
    seed = int(settings.get("seed", 0))

    def make(params: Mapping[str, Any], number: int) -> list[Job]:
        named = is_grid(space) and asked.trials is None
        label = "-".join(f"{key}-{name_of(value)}" for key, value in params.items()) if named else f"trial-{number}"
        return [
            Job(
                f"{label} fold {fold}", {**common, **params, **held_out, **({"val_fold": fold} if fold else {})}, seed,
                asked.folder / label / f"fold-{fold}", places=places,
            )
            for fold in range(folds)
        ]  # fmt: skip

    if is_grid(space) and asked.trials is None:
        return Search(space, make)
    return OptunaSearch(space, make, n_trials=asked.trials or TRIALS, folder=asked.folder, seed=seed)


def name_of(value: Any) -> str:
    """Return a value as part of a folder's name."""
    text = repr(value) if isinstance(value, float) else str(value)
    return re.sub(r"[^\w.+-]", "-", text)


def command(asked: Asked) -> str:
    """Return the command that goes on."""
    words = ["invaug", "tune", asked.data, *(["--config", asked.config] if asked.config else [])]
    flags = {key: value for key, value in asked.settings.items() if key not in ("data", "families")}
    flags |= {"trials": asked.trials, "folds": asked.folds, "out": asked.folder, "jobs": asked.at_once, "on": asked.on}
    usual = {"folds": 3, "jobs": 1, "on": PROCESSES}
    for key, value in flags.items():
        name = key.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{name}" if value else f"--no-{name}")
        elif isinstance(value, list):
            words += [word for part in value for word in (f"--{name}", str(part))]
        elif value is not None and value != usual.get(key):
            words += [f"--{name}", str(value)]
    for text in asked.search:
        words += ["--search", text]
    return shlex.join(words)


def table_of(trials: Sequence[Trial], best: Trial | None) -> Table:
    """Return every combination, the most accurate first."""
    keys = list(trials[0].params) if trials else []
    rows = []
    for trial in sorted(trials, key=lambda each: -(e.mean if (e := each.estimate("held_out_accuracy")) else -1)):
        accuracy, loss, gamma = (trial.estimate(key) for key in ("held_out_accuracy", "held_out_loss", "gamma"))
        rows.append((
            *(shown(trial.params[key]) for key in keys), accuracy.text(".2f", 100) if accuracy else None,
            loss.text(".3f") if loss else None, gamma.text(".3f") if gamma else None,
            len(trial.numbers("held_out_accuracy")), len(trial.failures), "best" if trial is best else "",
        ))  # fmt: skip
    titles = ("held-out accuracy (%)", "held-out loss", "γ", "folds", "failed", "")
    return Table("Cross-validation", (*keys, *titles), tuple(rows))


def told(asked: Asked, trials: Sequence[Trial], best: Trial | None) -> dict[str, Any]:
    """Return everything as plain values."""
    keys = ("held_out_accuracy", "held_out_loss", "gamma")
    every = [
        {"params": trial.params, **{key: trial.numbers(key) for key in keys}, "failed": trial.failures}
        for trial in trials
    ]
    return {"data": asked.data, "best": best.params if best else None, "trials": every}


def lines(asked: Asked, trials: Sequence[Trial], best: Trial | None) -> Iterator[str]:
    """Return the table in columns, the best, and how to train with it."""
    yield from tables.in_columns(table_of(trials, best))
    if best and (accuracy := best.estimate("held_out_accuracy")):
        yield f"best: {best.name}, {accuracy.text('.2f', 100)} % of held-out images right"
        data = "" if asked.data == "digits" else f" {shlex.quote(asked.data)}"
        yield f"train with: invaug train{data} --config {shlex.quote(str(asked.folder / BEST))}"


def _write(asked: Asked, trials: list[Trial], best: Trial | None) -> str | None:
    """Write the config of the best, all numbers, and the page; a search that is done never fails by its page."""
    atomic.write_text(asked.folder / TUNE, json.dumps(told(asked, trials, best)))
    if best:
        chosen = {key: value for key, value in {**asked.settings, **best.params}.items() if key != "data_dir"}
        atomic.write_text(asked.folder / BEST, configs.dump(configs.nest(chosen)))
    folders = [job.folder for trial in trials for job in trial.jobs if job.found()]
    if not folders:
        return None
    try:
        tables.write(table_of(trials, best), asked.folder, "table")
        return str(report_runs(folders, asked.folder / "report.html")[0])
    except Exception as error:
        say(f"the report could not be written: {error}")
        return None
