"""`invaug insights`: which symmetries does a network learn from this data, and what does asking for them cost?

Per seed, a small network is trained without any family and under each family alone, its level set by the resilient
rule; held-out images tell what is lost under the family, and what the family costs on clean images. Families that are
not learned are then made smaller by bisection. Every training is a job in the folder, so that a stopped search is
resumable and trainings can run side by side.
"""

import json
import math
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from invaug.lab.config.build import build, read, read_toml
from invaug.lab.data.batches import batches
from invaug.lab.data.load import load_dataset, peek_dataset
from invaug.lab.errors import UserError, nearest
from invaug.lab.insights.document import as_json
from invaug.lab.insights.examples import examples
from invaug.lab.insights.families import N_SEEN, Ranges, explicit_ranges, leave_out_idle, usual_families
from invaug.lab.insights.search import InsightsPlan, Search
from invaug.lab.insights.thresholds import MOVING, NEAR_CHANCE, TOO_FEW
from invaug.lab.insights.verdicts import Answer, as_toml
from invaug.lab.insights.words import counted, summary_lines
from invaug.lab.jobs.pool import PROCESSES, check_start, run_jobs
from invaug.lab.jobs.progress import bar, kept_plan, show
from invaug.lab.jobs.verbs import resume_command
from invaug.lab.report.command import report_runs
from invaug.lab.run import atomic
from invaug.lab.run.files import INSIGHTS
from invaug.lab.run.folder import check_usable
from invaug.lab.train.display import Screen
from invaug.lab.train.folders import free_folder

LARGEST_SIDE = 32  # of the images, so that dozens of trainings take minutes
MODEL = "cnn-small"
HELD_OUT = 0.2
SHARE = 0.5  # of a batch that is also seen transformed
BATCHES, LEAST_BATCH, LARGEST_BATCH = 16, 8, 64  # in an epoch, where the batch size allows it
STEPS, LEAST_EPOCHS, MOST_EPOCHS = 400, 8, 60
PLAN, SUGGESTED = "plan.json", "suggested.toml"


@dataclass(frozen=True)
class InsightsRequest:
    """What the user asked for; the names of the fields are those of the flags."""

    data: str
    data_dir: Path | None = None
    families: Path | None = None
    only: Sequence[str] = ()
    seeds: int = 3
    rounds: int = 3
    images: int = 5000
    epochs: int | None = None
    model: str = MODEL
    image_size: int | None = None
    out: Path | None = None
    jobs: int = 1
    on: str = PROCESSES

    def command(self, folder: Path | None) -> str:
        """Return the command that asks this, in a folder."""
        flags = {"out": folder, **{key: value for key, value in vars(self).items() if key not in ("data", "out")}}
        return resume_command("insights", self.data, flags, vars(InsightsRequest))


def run_insights(request: InsightsRequest, for_machines: bool) -> None:
    """Answer for a dataset and print what was found, for people or as one JSON document."""
    console = Screen(quiet=for_machines)
    answer, folder = insights(request, console)
    (page,) = report_runs([folder])
    *others, following = next_steps(request, answer, folder)
    ending = (*others, f"report: {page}", f"next: {following}")
    content = {key: value for key, value in read_answer(folder).items() if key != "examples"}
    show(console, (*summary_lines(answer), *ending), {**content, "folder": str(folder), "report": str(page)})


def read_answer(folder: Path) -> dict[str, Any]:
    """Return the document that a search ends with."""
    return atomic.read_json(folder / INSIGHTS) or {}


def next_steps(request: InsightsRequest, answer: Answer, folder: Path) -> list[str]:
    """Return what to do, the first thing last: ask again about what is undecided, train with what is learned."""
    places = ["--data-dir", str(request.data_dir)] if request.data_dir else []
    words = ["invaug", "train", request.data, *places]
    if answer.suggested:
        command = shlex.join([*words, "--config", str(folder / SUGGESTED)])
        return [*again(request, answer, folder), f"train with it: {command}"]
    return again(request, answer, folder) or [f"train without these families: {shlex.join(words)}"]


def again(request: InsightsRequest, answer: Answer, folder: Path) -> list[str]:
    """Return the command that asks again about the undecided families, with more of what they lack."""
    if not answer.undecided:
        return []
    lacking = {found.judgement[1] for found in answer.undecided}
    more: dict[str, Any] = {"only": tuple(found.name for found in answer.undecided), "out": None}
    if lacking & {NEAR_CHANCE, MOVING}:
        epochs = (atomic.read_json(folder / PLAN) or {})["settings"]["epochs"]
        more["epochs"] = None if epochs < LEAST_EPOCHS else 3 * epochs
    if TOO_FEW in lacking:
        more |= {"seeds": max(3, 2 * request.seeds), "images": 2 * request.images}
    return [f"ask again about what is undecided: {replace(request, **more).command(None)}"]


def insights(request: InsightsRequest, console: Screen) -> tuple[Answer, Path]:
    """Answer for a dataset; return the answer and the folder it is in."""
    check_start("insights", request.on)
    if request.out:
        check_usable(request.out)
    plan, images = plan_for(request)
    folder = folder_for(request.out, plan)
    console.print(announce(plan), highlight=False, soft_wrap=True)
    places = {"data_dir": request.data_dir} if request.data_dir else {}
    with kept_plan(folder / PLAN, asdict(plan)), bar(plan.most_jobs, console, request.command(folder)) as shown:
        train = partial(run_jobs, bar=shown, at_once=request.jobs, on=request.on)
        answer = Search(plan, folder, places, train).answer()
    content = {**as_json(answer), "examples": examples(answer, images)}
    atomic.write_text(folder / INSIGHTS, json.dumps(content))
    if answer.suggested:
        atomic.write_text(folder / SUGGESTED, as_toml(answer))
    return answer, folder


def announce(plan: InsightsPlan) -> str:
    """Return in one line what will be trained."""
    n, first = len(plan.families), plan.seeds * (1 + len(plan.families))
    what = f"{counted(plan.seeds, 'seed')}, without any family and with each of {n} alone"
    rest = f", then at most {plan.most_jobs - first} with smaller ranges" if plan.most_jobs > first else ""
    fewer = "; --only asks about fewer families" if n > 1 else ""
    return f"{first} trainings of {counted(plan.settings['epochs'], 'epoch')} ({what}){rest}{fewer}"


def plan_for(request: InsightsRequest) -> tuple[InsightsPlan, Tensor]:
    """Return what will be trained: the families that change the images, the settings of every training; some images."""
    how = data_settings(request)
    dataset = load_dataset(request.data, data_dir=request.data_dir, with_test=False, **how)
    _, height, width = dataset.image_shape
    some = next(iter(batches(dataset.train, N_SEEN, epoch=0, seed=0, shuffle=True))).images
    families, idle = leave_out_idle(chosen_families(request, height, width), some)
    if not families:
        raise UserError(f"none of the families changes the images of {request.data}: {', '.join(idle)}")
    n = len(dataset.train)
    batch = max(LEAST_BATCH, min(LARGEST_BATCH, n // BATCHES))
    settings = {
        **read(Path(__file__).with_name("training.toml")),
        "data": request.data,
        "model": request.model,
        "epochs": request.epochs or min(MOST_EPOCHS, max(LEAST_EPOCHS, math.ceil(STEPS * batch / n))),
        "batch_size": batch,
        "share": SHARE,
        **how,
    }
    return InsightsPlan(request.data, families, idle, request.seeds, request.rounds, settings), some


def data_settings(request: InsightsRequest) -> dict[str, Any]:
    """Return how the data is read: as few and as small images as will do, a fifth of them held out."""
    n_images, (_, height, width), has_own = peek_dataset(request.data, data_dir=request.data_dir)
    size = request.image_size or (LARGEST_SIDE if max(height, width) > LARGEST_SIDE else None)
    how = {"fraction": min(1.0, request.images / n_images), "val_fraction": 0.0 if has_own else HELD_OUT}
    return {**how, "image_size": size} if size else how


def chosen_families(request: InsightsRequest, height: int, width: int) -> dict[str, Ranges]:
    """Return the usual families or those of the user's file, only the named ones if some were named."""
    if request.families is None:
        families = usual_families(height, width)
    else:
        given = build({"families": read_toml(request.families).get("families", {})}).families
        if not given:
            raise UserError(f"{request.families} names no family: write tables such as [families.rotation] Rotate = 90")
        families = {name: explicit_ranges(name, ranges) for name, ranges in given.items()}
    for name in request.only:
        if name not in families:
            raise UserError(f"unknown family {name}, {nearest(name, families)}")
    return {name: ranges for name, ranges in families.items() if name in (request.only or families)}


def folder_for(out: Path | None, plan: InsightsPlan) -> Path:
    """Return the folder: one that holds the same plan resumes, one that holds another is refused."""
    stem = out or Path("runs") / f"{Path(plan.data).stem}-insights"
    wanted, before = json.loads(json.dumps(asdict(plan))), atomic.read_json(stem / PLAN)
    if before == wanted or not stem.exists() or (stem.is_dir() and not any(stem.iterdir())):
        return stem
    if out is None:
        return free_folder(stem)
    if before is None:
        raise UserError(f"{out} exists and holds no insights: choose another --out")
    changed = [key for key in wanted if before.get(key) != wanted[key]]
    raise UserError(f"{out} holds insights with other settings ({', '.join(changed)}): choose another --out")
