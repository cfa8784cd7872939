"""`invaug tune`: train the folds of every combination as jobs, and write the best config."""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from invaug.lab.config import methods
from invaug.lab.config.build import build, dump
from invaug.lab.config.schema import nest
from invaug.lab.data.load import Dataset
from invaug.lab.errors import RunError, UserError
from invaug.lab.jobs.job import Job
from invaug.lab.jobs.pool import PROCESSES, check_start, run_jobs
from invaug.lab.jobs.progress import bar, kept_plan, show
from invaug.lab.jobs.verbs import resume_command, write_report
from invaug.lab.report.document import Answer
from invaug.lab.report.read import place_of
from invaug.lab.run import atomic
from invaug.lab.run.folder import check_usable
from invaug.lab.train.command import load_once
from invaug.lab.train.display import Screen
from invaug.lab.train.ranks import launch
from invaug.lab.tune.outcome import Trial, as_json, as_table, find_best, format_value, summary_lines, verdict
from invaug.lab.tune.search import Search, Study
from invaug.lab.tune.space import Space, defaults, grid, parse, usual_levels

PLAN, BEST, TUNE = "plan.json", "best.toml", "tune.json"
TRIALS = 20
MACHINE = ("data_dir", "workers", "device", "threads")
"""Settings that do not affect the outcome."""


@dataclass(frozen=True)
class TuneRequest:
    """What the user asked for."""

    settings: Mapping[str, Any]
    search: tuple[str, ...] = ()
    trials: int | None = None
    folds: int = 3
    out: Path | None = None
    jobs: int = 1
    on: str = PROCESSES
    config: str | None = None

    @property
    def data(self) -> str:
        """The dataset."""
        return str(self.settings.get("data", "digits"))

    @property
    def folder(self) -> Path:
        """Where everything goes: the same for the same data, so that the same command resumes."""
        return self.out or Path("runs") / f"{Path(self.data).stem}-tune"

    def command(self) -> str:
        """Return the command that resumes."""
        flags: dict[str, Any] = {"config": self.config}
        flags |= {key: value for key, value in self.settings.items() if key not in ("data", "families")}
        flags |= {"trials": self.trials, "folds": self.folds, "out": self.folder}
        flags |= {"jobs": self.jobs, "on": self.on, "search": self.search}
        return resume_command("tune", self.data, flags, vars(TuneRequest))


def run_tune(request: TuneRequest, json_wanted: bool) -> None:
    """Search, and print what was found, for people or as one JSON document."""
    console = Screen(quiet=json_wanted)
    trials, best = tune(request, console)
    document = {"data": request.data, **as_json(trials, best)}
    atomic.write_text(request.folder / TUNE, json.dumps(document))
    if best:
        write_best(request, best)
    finished = [job.folder for trial in trials for job in trial.jobs if job.found()]
    step = next_step(request, trials, best) if best else None
    page = write_report(as_table(trials, best), finished, request.folder, step)
    lines = summary_lines(trials, best, request.data, request.folder / BEST, page)
    show(console, lines, {**document, "folder": str(request.folder), "report": page})
    if best is None:
        reasons = [reason for trial in trials for reason in trial.failures]
        raise RunError(f"no combination has all its folds, {len(reasons)} failed; the first: {''.join(reasons[:1])}")


def write_best(request: TuneRequest, best: Trial) -> None:
    """Write the config of the best combination."""
    chosen = {**request.settings, **best.params}
    values = build(chosen).flat()  # flags that are a number or a word are text until then
    atomic.write_text(request.folder / BEST, dump(nest({key: values[key] for key in chosen if key != "data_dir"})))


def next_step(request: TuneRequest, trials: Sequence[Trial], best: Trial) -> Answer:
    """Return what the page says to do next."""
    text = f"{best.name}: {verdict(trials, best)}. Train on all training images with it:"
    words = ["invaug", "train", place_of(Path(request.data)), "--config", place_of(request.folder / BEST)]
    return Answer("Next", text, shlex.join(words))


def tune(request: TuneRequest, console: Screen) -> tuple[list[Trial], Trial | None]:
    """Train every fold of every combination that is not done yet; return all of them, and the best."""
    check(request)
    check_usable(request.folder)
    settings = {"workers": 0, **request.settings}
    config = build(settings)
    dataset = load_once(config, launch(config.replaced(devices=1)), with_test=False)
    space = parse(request.search, settings) or {"epsilon": usual_levels(request.data, len(dataset.classes))}
    folds = 1 if dataset.val else request.folds
    check_folds(folds, dataset)
    plan = plan_for(request, settings, space, folds)
    search = search_for(request, settings, space, folds)
    file, most = request.folder / PLAN, search.n_trials * folds
    with kept_plan(file, plan), bar(most, console, request.command()) as shown:
        run_jobs(search.jobs(), shown, at_once=request.jobs, on=request.on, ended=lambda _: search.learn(search.trials))
    return search.trials, find_best(search.trials)


def check(request: TuneRequest) -> None:
    """Refuse what cannot be meant."""
    check_start("tune", request.on)
    for key in ("val_fraction", "val_fold"):
        if key in request.settings:
            raise UserError(f"tune holds out folds of its own: use --folds, not {key} {request.settings[key]}")
    if request.search:
        return
    if "epsilon" in request.settings:
        level = request.settings["epsilon"]
        raise UserError(f"tune chooses epsilon: leave {level} out, or name what to choose, as --search lr=0.01:0.3")
    method = request.settings.get("method", methods.DEFAULT)
    if method in methods.METHODS and not methods.holds_epsilon(method):
        raise UserError(f"method {method} has no epsilon: name what to choose, as --search lr=0.01:0.3")


def check_folds(folds: int, dataset: Dataset) -> None:
    """Refuse more folds than the smallest class has images."""
    counts = torch.bincount(dataset.train.targets, minlength=len(dataset.classes))
    least = int(counts.argmin())
    if int(counts[least]) < folds:
        smallest = f"class {dataset.classes[least]} has {int(counts[least])}"
        raise UserError(f"--folds {folds} needs as many training images of every class: {smallest}")


def plan_for(request: TuneRequest, settings: Mapping[str, Any], space: Space, folds: int) -> dict[str, Any]:
    """Return what all trainings share; refuse a folder with another search. Values may be added later."""
    essential = {key: str(value) for key, value in settings.items() if key not in MACHINE}
    plan = {"settings": essential, "searched": sorted(space), "folds": folds}
    before = atomic.read_json(request.folder / PLAN)
    if before is not None and before != plan:
        raise UserError(f"{request.folder} holds another search: choose another --out, or remove it")
    return plan


def search_for(request: TuneRequest, settings: Mapping[str, Any], space: Space, folds: int) -> Search:
    """Return a grid if every key has a list and no number of trials is given, otherwise Optuna's; the default first."""
    combinations = [] if request.trials else grid(space)
    places = {key: settings[key] for key in MACHINE if key in settings and key != "workers"}
    common = {key: value for key, value in settings.items() if key not in places and key != "seed"}
    seed = int(settings.get("seed", 0))
    held_out: list[dict[str, Any]] = [{}]
    if folds > 1:
        held_out = [{"val_fraction": round(1 / folds, 6), **({"val_fold": i} if i else {})} for i in range(folds)]

    def make_jobs(params: Mapping[str, Any], number: int) -> list[Job]:
        by_value = "-".join(f"{key}-{as_name(value)}" for key, value in params.items())
        folder = request.folder / (by_value if combinations else f"trial-{number - 1}" if number else "default")
        words = ", ".join(f"{key} {format_value(value)}" for key, value in params.items())
        parts = [f"fold {i + 1} of {folds}" if folds > 1 else "on the validation images" for i in range(folds)]
        return [
            Job(words, {**common, **params, **without}, seed, folder / f"fold-{i}", places=places, part=parts[i])
            for i, without in enumerate(held_out)
        ]

    default = defaults(space, settings)
    if combinations:
        tried = [default, *(each for each in combinations if each != default)]
        return Search(len(tried), tried, make_jobs)
    study = Study(space, request.trials or TRIALS, request.folder, seed)
    return Search(1 + study.n_trials, chain([default], study.combinations()), make_jobs, study.tell)


def as_name(value: Any) -> str:
    """Return a value as part of a folder's name."""
    return re.sub(r"[^\w.+-]", "-", repr(value) if isinstance(value, float) else str(value))
