"""`invaug insights`: which symmetries does a network learn from this data, and how fully?

One small network is trained under one constraint per family at once, over several seeds, each with a level of its own
by the resilient rule; the gamma of a family at the end is the invariance gap that is left on training images. Families
with a large gap are then made smaller, all at once and by bisection, to find how far each is learned. Every training is
a run of its own in the folder, so that a stopped search is resumable.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from lightning_fabric import Fabric
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from invaug.lab.config import build as configs
from invaug.lab.config.levels import RESILIENT
from invaug.lab.config.schema import Config
from invaug.lab.data.load import Dataset, load_dataset, peek_dataset
from invaug.lab.data.splits import Split
from invaug.lab.errors import RunError, UserError, nearest
from invaug.lab.insights.families import Ranges, explicit, is_graded, scaled, usable, usual
from invaug.lab.insights.verdicts import NOT, Answer, Finding, lines, toml
from invaug.lab.report.command import report_runs
from invaug.lab.report.read import INSIGHTS
from invaug.lab.report.sections.insights import MOSTLY
from invaug.lab.run import atomic
from invaug.lab.run.folder import check_usable
from invaug.lab.train import command as train
from invaug.lab.train import ranks
from invaug.lab.train.display import Screen
from invaug.lab.train.folders import free_folder
from invaug.lab.train.measured import Measured
from invaug.lab.train.signals import Stopped
from invaug.lab.train.summary import summarise

RULE = {"rule": RESILIENT, "alpha": 1.0, "base": "clean", "cap": 1.0}
"""With alpha 1, gamma is the gap itself, as a share of the loss of a guess. The cap keeps a symmetry that the labels do
not have at most as heavy as the images as they are, so that it spoils nothing for the others."""
LARGEST_SIDE = 64  # of the images of the small network
HELD_OUT = 0.2
LOOKS = 1.0  # transformed images per clean one, shared by all families
PLAN, SUGGESTED = "plan.json", "suggested.toml"


@dataclass(frozen=True)
class Plan:
    """What is asked, which decides the answer."""

    data: str
    families: dict[str, Ranges]
    idle: list[str]
    seeds: int
    rounds: int
    settings: dict[str, Any]
    """The config of each training, but for its seed and its families."""


@dataclass(frozen=True)
class Asked:
    """What the user gave."""

    data: str
    data_dir: Path | None = None
    families: Path | None = None
    only: Sequence[str] = ()
    seeds: int = 3
    rounds: int = 3
    images: int = 5000
    epochs: int = 8
    model: str = "auto"
    image_size: int | None = None


def insights(asked: Asked, out: Path | None, console: Screen, *, quiet: bool = False) -> tuple[Answer, Path]:
    """Answer for a dataset; return what was found and the folder it is in."""
    if out:
        check_usable(out)
    given: dict[str, Any] = {"data": asked.data, "data_dir": asked.data_dir, "image_size": asked.image_size}
    fabric = ranks.launch(configs.build({key: value for key, value in given.items() if value}))
    dataset = held_out(asked, 0)
    plan = plan_for(asked, dataset)
    folder = folder_for(out, plan)
    folder.mkdir(parents=True, exist_ok=True)
    atomic.write_text(folder / PLAN, json.dumps(asdict(plan)))
    with progress_of(plan, console, quiet) as epoch_done:
        trainer = Trainer(asked, plan, folder, fabric, console, epoch_done)
        try:
            answer = search(plan, trainer)
        except Stopped as error:
            raise Stopped(error.signum, f"stopped and saved; go on with: {command(asked, folder)}") from None
    atomic.write_text(folder / INSIGHTS, json.dumps(answer.as_json()))
    return answer, folder


def run_insights(asked: Asked, out: Path | None, as_json: bool) -> None:
    """Answer for a dataset and print what was found, for people or as one JSON document."""
    console = Screen()
    answer, folder = insights(asked, out, console, quiet=as_json)
    if answer.suggested:
        atomic.write_text(folder / SUGGESTED, toml(answer))
    (page,) = report_runs([folder])
    if as_json:
        print(json.dumps({**answer.as_json(), "folder": str(folder), "report": str(page)}))
        return
    for line in lines(answer):
        console.print(line, highlight=False, soft_wrap=True)
    if answer.suggested:
        console.print(f"config: {folder / SUGGESTED}, for invaug train --config", soft_wrap=True, highlight=False)
    console.print(f"report: {page}", soft_wrap=True, highlight=False)


def settings_of_data(asked: Asked) -> dict[str, Any]:
    """Return how the data is read: as few and as small images as will do, a fifth of them held out."""
    n_images, (_, height, width), has_own = peek_dataset(asked.data, data_dir=asked.data_dir)
    too_large = asked.image_size is None and max(height, width) > LARGEST_SIDE
    size = LARGEST_SIDE if too_large else asked.image_size
    share = 0.0 if has_own else HELD_OUT
    return {"fraction": min(1.0, asked.images / n_images), "val_fraction": share, "image_size": size}


def held_out(asked: Asked, seed: int) -> Dataset:
    """Return the data with a part held out, on which the families are judged; test images are not touched."""
    options = {"data_dir": asked.data_dir, "seed": seed, "with_test": False, **settings_of_data(asked)}
    dataset = load_dataset(asked.data, **options)
    if len(dataset.classes) < 2:
        raise UserError(
            f"{asked.data} has one class ({dataset.classes[0]}): labels that never differ have no symmetry to learn"
        )
    return dataset


def held_out_split(dataset: Dataset) -> Split:
    """Return the images on which families are judged: held-out training images, or validation images of the data."""
    return dataset.val or dataset.test


def plan_for(asked: Asked, dataset: Dataset) -> Plan:
    """Return what will be done: the families that change the images, and the settings of every training."""
    _, height, width = dataset.image_shape
    families = chosen(asked, height, width)
    images = next(iter(_some_images(dataset)))
    kept, idle = usable(families, images)
    if not kept:
        raise UserError(f"none of the families changes the images of {asked.data}: {', '.join(idle)}")
    n_images = len(dataset.train)
    batch = max(8, min(128, n_images // 16))
    settings = {
        "data": asked.data, "method": "constrained", "views": "both", "epsilon": RULE, "model": asked.model,
        "epochs": asked.epochs, "batch_size": batch, "share": min(1.0, max(LOOKS / len(kept), 8 / batch)),
        "crop": 0, "cutout": 0, "flip": "no", "resized_crop": "no", "checkpoint_minutes": 1.0,
        **settings_of_data(asked),
    }  # fmt: skip
    settings = {key: value for key, value in settings.items() if value is not None}
    return Plan(asked.data, kept, idle, asked.seeds, asked.rounds, settings)


def chosen(asked: Asked, height: int, width: int) -> dict[str, Ranges]:
    """Return the usual families or those of the user's file, only those that were named if some were."""
    if asked.families is None:
        families = usual(height, width)
    else:
        given = configs.build({"families": configs.read(asked.families).get("families", {})}).families
        if not given:
            raise UserError(f"{asked.families} names no family: write tables such as [families.rotation] Rotate = 90")
        families = {name: explicit(name, ranges) for name, ranges in given.items()}
    for name in asked.only:
        if name not in families:
            raise UserError(f"unknown family {name}, {nearest(name, families)}")
    return {name: ranges for name, ranges in families.items() if name in (asked.only or families)}


def _some_images(dataset: Dataset) -> Iterator[Any]:
    from invaug.lab.data.batches import batches
    from invaug.lab.insights.families import N_LOOKED_AT

    for batch in batches(dataset.train, N_LOOKED_AT, epoch=0, seed=0, shuffle=True):
        yield batch.images


def folder_for(out: Path | None, plan: Plan) -> Path:
    """Return the folder: one that holds the same plan goes on, one that holds another is refused."""
    stem = out or Path("runs") / f"{Path(plan.data).stem}-insights"
    wanted = json.loads(json.dumps(asdict(plan)))
    if atomic.read_json(stem / PLAN) == wanted or not stem.exists() or (stem.is_dir() and not any(stem.iterdir())):
        return stem
    if out is None:
        return free_folder(stem)
    before = atomic.read_json(stem / PLAN)
    if before is None:
        raise UserError(f"{out} exists and holds no insights: choose another --out")
    changed = [key for key in wanted if before.get(key) != wanted[key]]
    raise UserError(f"{out} holds insights with other settings ({', '.join(changed)}): choose another --out")


def command(asked: Asked, folder: Path) -> str:
    """Return the command that goes on."""
    words = ["invaug", "insights", asked.data, "--out", str(folder)]
    for key, default in asdict(Asked("")).items():
        value = getattr(asked, key)
        if key != "data" and value != default:
            for each in value if key == "only" else [value]:
                words += [f"--{key.replace('_', '-')}", str(each)]
    return shlex.join(words)


@dataclass(frozen=True)
class Trainer:
    """Trains one network under a constraint per family, in a folder of its own; what is done is read again."""

    asked: Asked
    plan: Plan
    folder: Path
    fabric: Fabric
    console: Screen
    epoch_done: Callable[[], None]

    def __call__(self, name: str, seed: int, families: Mapping[str, Ranges]) -> dict[str, Any]:
        """Return the summary of the training."""
        folder = self.folder / name
        done = folder / "summary.json"
        if (before := atomic.read_json(done)) is not None:
            for _ in range(self.asked.epochs):
                self.epoch_done()
            return before
        dataset = held_out(self.asked, seed)
        config = configs.build({**self.plan.settings, "seed": seed, "families": families})
        config = train.resolve_for(config.replaced(data_dir=self.asked.data_dir), dataset, self.fabric)
        found = self._train(config, dataset, folder)
        if not all(math.isfinite(gamma) for gamma in found["gamma"]):
            raise RunError(f"the gammas of {folder} are not finite: remove the folder and start again")
        atomic.write_text(done, json.dumps(found))
        return found

    def _train(self, config: Config, dataset: Dataset, folder: Path) -> dict[str, Any]:
        training = train.train_one(
            config,
            dataset,
            folder,
            self.fabric,
            self.console,
            quiet=True,
            resume=(folder / "config.toml").exists(),
            measured=Measured({"val": held_out_split(dataset)}, {}),
            on_epoch=self.epoch_done,
        )
        return summarise(config, dataset, folder, training, held_out_split(dataset))


def search(plan: Plan, training: Callable[[str, int, Mapping[str, Ranges]], dict[str, Any]]) -> Answer:
    """Return the gamma of every family, and how far each is learned."""
    trained = [training(f"seed-{seed}", seed, plan.families) for seed in range(plan.seeds)]
    names = list(plan.families)
    findings = {
        name: Finding(
            name, plan.families[name],
            gammas=[row["gamma"][k] for row in trained],
            losses=[row["families"][name]["uniform"]["loss"] for row in trained],
            accuracies=[row["families"][name]["uniform"]["accuracy"] for row in trained],
        )
        for k, name in enumerate(names)
    }  # fmt: skip
    far = learned_ranges(plan, training, findings)
    found = [replace(finding, factor=far[name]) for name, finding in findings.items()]
    clean = [row["val_accuracy"] for row in trained]
    seconds = sum(row["seconds"] for row in trained)
    return Answer(plan.data, trained[0]["model"], clean, found, plan.idle, seconds)


def learned_ranges(
    plan: Plan, training: Callable[[str, int, Mapping[str, Ranges]], dict[str, Any]], findings: Mapping[str, Finding]
) -> dict[str, float]:
    """Return the part of its range up to which each family is learned: bisection, all families in one training."""
    low = {name: 0.0 if finding.verdict == NOT else 1.0 for name, finding in findings.items()}
    high = dict.fromkeys(findings, 1.0)
    open_ones = [name for name in findings if low[name] < 1 and is_graded(plan.families[name])]
    for number in range(plan.rounds if open_ones else 0):
        tried = {name: (low[name] + high[name]) / 2 for name in open_ones}
        factors = {name: tried.get(name, low[name]) for name in findings}
        families = {
            name: plan.families[name] if factor == 1 else scaled(plan.families[name], factor)
            for name, factor in factors.items()
            if factor > 0
        }
        row = training(f"round-{number + 1}", 0, families)
        for name, gamma in zip(families, row["gamma"], strict=True):
            if name in tried:
                (low if gamma <= MOSTLY else high)[name] = tried[name]
    return low


@contextmanager
def progress_of(plan: Plan, console: Screen, quiet: bool) -> Iterator[Callable[[], None]]:
    """Show one bar for all trainings; yield what moves it by an epoch."""
    epochs = int(plan.settings["epochs"])
    with Progress(
        TextColumn("training {task.fields[number]} of at most {task.fields[most]}"), BarColumn(), TimeElapsedColumn(),
        TimeRemainingColumn(), console=console, transient=True, disable=quiet or not console.is_terminal,
    ) as progress:  # fmt: skip
        most = plan.seeds + plan.rounds
        task = progress.add_task("", total=most * epochs, number=1, most=most)
        done = 0

        def step() -> None:
            nonlocal done
            done += 1
            progress.update(task, completed=done, number=min(done // epochs + 1, most))

        yield step
