"""`invaug certify`: how invariant the model of a run is, with bounds that hold, as sentences and tables or as JSON."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from invaug import TransformSet
from invaug.lab.certify import bounds, certificate, sampled
from invaug.lab.certify import matrix as scored
from invaug.lab.certify.certificate import Question
from invaug.lab.certify.matrix import Adaptive, Exhaustive, Matrix, Plan, Sample
from invaug.lab.certify.matrix_files import Cache
from invaug.lab.certify.tables import show
from invaug.lab.config.methods import METHODS, holds_epsilon
from invaug.lab.config.schema import Config
from invaug.lab.errors import UserError
from invaug.lab.evaluate import command as inspect_run
from invaug.lab.evaluate.pictures import finite
from invaug.lab.report.command import report_runs
from invaug.lab.report.read import CERTIFICATE
from invaug.lab.run import atomic
from invaug.lab.run.folder import DataFacts, Predictor, load, read_config, versions
from invaug.lab.run.lock import RunLock
from invaug.lab.run.record import read
from invaug.lab.terminal import say
from invaug.lab.train import malloc, problem
from invaug.lab.train.sets import transform_sets
from invaug.lab.train.signals import Signals, Stopped
from invaug.lab.train.tally import finite as finite_number
from invaug.scoring import Loss

FOLDER = "certificate"
SCHEMA = 1
N_IMAGES = 512  # unless told: an interval of a share is then at most ±4.4 points wide
FEW = 30  # images that leave intervals wide enough to say so
CAP, CAP_OF_GUESS = 10.0, 4.0  # losses are cut at the larger of CAP and this many times the loss of a guess
THEOREMS = {
    "shares": "Clopper and Pearson 1934: exact binomial interval over independent images",
    "means": "Waudby-Smith and Ramdas 2024, hedged capital: betting interval of a bounded mean, losses cut",
    "stopping": "Robbins 1970, Ville 1939: beta-binomial mixture, valid at the moment the draws of an image stop",
}
Step = Callable[[str, int, int], None]


def certify_run(
    run: Path, images: int | None, data: str | None, data_dir: Path | None, confidence: float, device: str,
    as_json: bool, *, trust_model: bool = False,
) -> None:  # fmt: skip
    """Certify a run on its held-out images or on those of another dataset; print it, and keep it for the report."""
    try:
        bounds.check_confidence(confidence)
    except ValueError as error:
        raise UserError(str(error)) from None
    config, facts = read_config(run)
    _check_classes(run, facts)
    predictor = load(run, inspect_run.checked_device(device), trust_model=trust_model)
    dataset = inspect_run.test_data(config, facts, data, data_dir)
    sample = scored.choose(
        dataset.test, _n_images(images, len(dataset.test), dataset.name), config.data.workers, device
    )
    again = _command(run, images, data, data_dir, confidence, device, trust_model)
    question = _question(config, facts, sample, confidence)
    found = _certificates(run, config, predictor, sample, question, own=data is None, again=again)
    about = {
        "data": dataset.name,
        "model": config.model.name,
        "method": config.method.name,
        "preset": config.method.preset,
    }
    report = finite({
        "schema": SCHEMA, **about, "images": len(sample.targets), "of": len(dataset.test), "confidence": confidence,
        "epsilon": found[0]["epsilon"], "loss_function": _loss_name(config), "cap": question.cap, "theorems": THEOREMS,
        "notes": _notes(sample, facts, found, config), "constraints": found,
    })  # fmt: skip
    if data is None:  # the page of a run is about its own held-out images
        _keep(run, report)
    if as_json:
        print(json.dumps({"run": str(run), **report}))
    else:
        show(run, report, Console(highlight=False, emoji=False))


def _check_classes(run: Path, facts: DataFacts) -> None:
    if len(facts.classes) < 2:
        raise UserError(f"{run} knows one class, {facts.classes[0]}: every answer is right, and nothing to certify")


def _n_images(asked: int | None, there: int, name: str) -> int:
    if asked is not None and not 1 <= asked <= there:
        raise UserError(f"--images must be 1 to {there}, the held-out images of {name}, got {asked}")
    if not there:
        raise UserError(f"{name} has no held-out images: choose other data with --data")
    return asked or min(N_IMAGES, there)


def _question(config: Config, facts: DataFacts, sample: Sample, confidence: float) -> Question:
    cap = max(CAP, CAP_OF_GUESS * math.log(len(facts.classes)))
    return Question(
        transform_sets(config)[0][1], sample.targets.cpu().numpy(), facts.classes, facts.image_shape,
        confidence, cap, None, _n_steps(config),
    )  # fmt: skip


def held_to(config: Config, rows: Sequence[Mapping[str, Any]]) -> list[float | None]:
    """Return the epsilon of each constraint of a run; None for methods without one, or with a fixed gamma.

    One that was chosen while training is what the last epoch says. One for several operations in a row says nothing of
    each by itself, which is what is certified.
    """
    if not holds_epsilon(config.method.name) or int(config.method.depth) > 1:
        return [None] * max(len(config.families), 1)
    ended = problem.final_epsilon(config, rows)
    return [finite_number(level) if isinstance(level, float) else ended for level in problem.epsilons(config)]


def _n_steps(config: Config) -> int:
    """Return how many transitions the chains of a run had; 0 if it had none."""
    row = METHODS[config.method.name]
    return config.method.n_steps if row.is_constrained and row.sampler == "metropolis_hastings" else 0


def _loss_name(config: Config) -> str:
    smoothing = f" with label smoothing {config.train.label_smoothing:g}" if config.train.label_smoothing else ""
    return f"cross-entropy{smoothing}"


@dataclass(frozen=True)
class Job:
    """What all constraints of a run are scored with."""

    predictor: Predictor
    sample: Sample
    loss_fn: Loss
    step: Step
    stopping: Callable[[], bool]

    def fill(self, plan: Plan, transforms: TransformSet, cache: Cache, name: str) -> Matrix | None:
        """Return the scores a plan asks for; None if it was asked to stop."""
        cache.open()
        return scored.fill(
            plan, len(self.sample.targets), cache,
            lambda block: scored.score(self.predictor, self.sample, block, transforms, self.loss_fn),
            lambda done, total: self.step(inspect_run.safe(name), done, total), self.stopping,
        )  # fmt: skip


def _certificates(
    run: Path, config: Config, predictor: Predictor, sample: Sample, question: Question, *, own: bool, again: str
) -> list[dict[str, Any]]:
    """Return the certificate of each constraint of a run; what was scored before is not scored again."""
    folder = run / FOLDER
    if folder.is_symlink():
        raise UserError(f"{folder} is a link, and a run keeps its certificate itself: remove it")
    malloc.keep_freed()
    predictor.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    key = _key(predictor, sample, config)
    found = []
    with RunLock(folder), Signals() as signals, inspect_run.progress_bars() as step:
        job = Job(predictor, sample, problem.loss_function(config), step, lambda: bool(signals.caught))
        levels = held_to(config, read(run))
        for i, ((name, transforms), level) in enumerate(zip(transform_sets(config), levels, strict=True), 1):
            place = folder / f"{'own' if own else 'other'}-{i}"
            asked = replace(question, transforms=transforms, epsilon=level)
            certified = _certified(job, name, asked, place, key)
            if certified is None:
                stopped = Stopped(signals.caught)
                raise Stopped(signals.caught, f"{stopped}; what was scored is kept, go on with: {again}")
            found.append({"name": name, "epsilon": level, **certified})
    return found


def _certified(job: Job, name: str, question: Question, place: Path, key: dict[str, str]) -> dict[str, Any] | None:
    """Return the certificate of one constraint, None if it was asked to stop."""
    transforms, n = question.transforms, len(job.sample.targets)
    key = key | {"set": scored.describe(transforms)}
    if certificate.is_listed(transforms):
        every, probability = certificate.members(transforms)
        matrix = job.fill(Exhaustive(every, n), transforms, Cache(place, key), name)
        return None if matrix is None else certificate.exact(matrix, every, probability, question)
    plan = Adaptive(transforms, n)
    matrix = job.fill(plan, transforms, Cache(place, key | {"draws": plan.identity}), name)
    return None if matrix is None else sampled.sampled(matrix, plan.first(), question)


def _key(predictor: Predictor, sample: Sample, config: Config) -> dict[str, str]:
    """Return what scores depend on, by the word that is said when it has changed."""
    finish = {f"finish.{name}": value for name, value in predictor.finish.state_dict().items()}
    chosen = {"images": sample.images, "targets": sample.targets, "indices": torch.from_numpy(sample.indices)}
    ran_with = {name: found for name, found in versions().items() if name in ("invaug", "torch")}
    return {
        "weights": scored.digest_of({**predictor.network.state_dict(), **finish}),
        "model": config.model.name,
        "images": scored.digest_of(chosen),
        "loss function": _loss_name(config),
        "versions": json.dumps(ran_with),
    }


def _command(
    run: Path, images: int | None, data: str | None, data_dir: Path | None, confidence: float, device: str, trust: bool
) -> str:
    """Return the command that goes on."""
    options: dict[str, Any] = {"--images": images, "--data": data, "--data-dir": data_dir}
    options |= {
        "--confidence": confidence if confidence != 0.95 else None,
        "--device": device if device != "cpu" else None,
    }
    words = [word for flag, value in options.items() if value is not None for word in (flag, str(value))]
    return shlex.join(["invaug", "certify", str(run), *words, *(["--trust-model"] if trust else [])])


def _notes(sample: Sample, facts: DataFacts, found: Sequence[dict[str, Any]], config: Config) -> list[str]:
    """Return what a reader must know of the numbers."""
    depth = int(config.method.depth) if METHODS[config.method.name].is_constrained else 1
    n, there = len(sample.targets), sample.targets.unique().tolist()
    lost = any(not math.isfinite(row[law]["loss"]) for row in found for law in ("uniform", "lambda_c", "worst"))
    said = {
        f"only {n} image{'s' * (n > 1)}: the intervals are wide": n < FEW,
        f"all images are of class {facts.classes[there[0]]}: nothing is said of the others": len(there) == 1,
        "some losses are not finite: they count as infinite, and their answers as wrong": lost,
        f"trained with {depth} operations in a row, certified under each by itself: epsilon is not for these": depth
        > 1,
    }
    return [text for text, holds in said.items() if holds]


def _keep(run: Path, report: dict[str, Any]) -> None:
    """Write certificate.json and the page; a page that cannot be made does not take the certificate with it."""
    atomic.write_text(run / CERTIFICATE, json.dumps(report, allow_nan=False))
    try:
        report_runs([run])
    except (OSError, UserError) as error:
        say(f"the report could not be written: {error}; try invaug report {run}")
