"""`invaug certify`: how invariant the model of a run is, with bounds that hold, as a text or as JSON."""

import json
import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from invaug import TransformSet
from invaug.lab.certify import bounds, certificate, matrix, sampled
from invaug.lab.certify.certificate import Question
from invaug.lab.certify.matrix import Adaptive, Exhaustive, Matrix, Strategy
from invaug.lab.certify.verdict import judge
from invaug.lab.config.machine import usable_workers
from invaug.lab.config.methods import METHODS
from invaug.lab.config.schema import Config
from invaug.lab.data.batches import Batch
from invaug.lab.data.load import Dataset
from invaug.lab.errors import UserError
from invaug.lab.evaluate.inputs import check_device, load_test_data
from invaug.lab.report.command import report_runs
from invaug.lab.report.sections.certificate import document
from invaug.lab.report.terminal import print_document
from invaug.lab.run.files import CERTIFICATE, json_safe, write_document
from invaug.lab.run.folder import Predictor, load, read_config, versions
from invaug.lab.run.lock import run_lock
from invaug.lab.run.record import read
from invaug.lab.terminal import plain, progress_bars, say
from invaug.lab.train import malloc, problem
from invaug.lab.train.sets import transform_sets
from invaug.lab.train.signals import Signals, Stopped
from invaug.lab.train.tally import finite_or_none

FOLDER = "certificate"
ALONE = "each operation alone"
SCHEMA = 2
N_IMAGES = 512  # by default: an interval of a share is then at most ±4.4 points wide
FEW = 30  # images; with fewer the intervals are so wide that a note says so
Fill = Callable[[str, TransformSet, Strategy], Matrix]
CAP, CAP_OF_GUESS = 10.0, 4.0  # losses are clipped at the larger of CAP and this many times the loss of a guess
THEOREMS = {
    "shares": "Clopper and Pearson 1934: exact binomial interval over independent images",
    "means": "Waudby-Smith and Ramdas 2024, hedged capital: betting interval of a bounded mean, losses clipped",
    "stopping": "Robbins 1970, Ville 1939: beta-binomial mixture, valid at the moment the draws of an image stop",
}


def certify_run(
    run: Path,
    images: int | None,
    data: str | None,
    data_dir: Path | None,
    confidence: float,
    device: str,
    as_json: bool,
    *,
    trust_model: bool = False,
) -> None:
    """Certify a run on its held-out images or on those of another dataset; print it, and keep it for the report."""
    bounds.check_confidence(confidence)
    config, facts = read_config(run)
    if len(facts.classes) < 2:
        raise UserError(f"{run} has one class, {facts.classes[0]}: every answer is right, there is nothing to certify")
    predictor = load(run, check_device(device), trust_model=trust_model)
    dataset = load_test_data(config, facts, data, data_dir)
    n_images = _n_images(images, len(dataset.test), dataset.name)
    sample = matrix.choose_sample(dataset.test, n_images, usable_workers(config.data.workers), device)
    cap = max(CAP, CAP_OF_GUESS * math.log(len(facts.classes)))
    asked = (transform_sets(config)[0][1], sample.targets.cpu().numpy(), facts.classes, facts.image_shape)
    sampler, n_steps = METHODS[config.method.name].sampler, _n_steps(config)
    question = Question(*asked, confidence, cap, len(dataset.test), n_steps=n_steps, sampler=sampler)
    found = _certify_constraints(run, config, predictor, sample, question, own=data is None)
    report = json_safe(_describe(config, dataset, question, found))
    if data is None:  # the page of a run is about its own held-out images
        _keep_for_page(run, report)
    if as_json:
        print(json.dumps({"run": str(run), **report}))
    else:
        print_document(document(report, str(run)), Console(highlight=False, emoji=False))
        if data is None:
            print(f"\nreport: {plain(str(run / 'report.html'))}\nnext: {_next_step(run, config, found, question)}")


def _next_step(run: Path, config: Config, found: Sequence[dict[str, Any]], question: Question) -> str:
    """Return the command to run next: more images if they decide it, what costs so much if it fails, else export."""
    answers, needed = {entry["verdict"]["answer"] for entry in found}, [e["verdict"]["images_needed"] for e in found]
    enough = max((n for n in needed if n), default=0)
    if 0 < enough <= question.available:
        return plain(shlex.join(["invaug", "certify", str(run), "--images", str(enough)]))
    if answers & {"does not hold", "cannot tell"}:
        return plain(shlex.join(["invaug", "insights", config.data.name]))
    return plain(shlex.join(["invaug", "export", str(run)]))


def _describe(config: Config, dataset: Dataset, question: Question, found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the certificate of a run: its scope, and the certificates of its constraints."""
    return {
        "schema": SCHEMA,
        "data": dataset.name,
        "model": config.model.name,
        "method": config.method.name,
        "preset": config.method.preset,
        "images": len(question.targets),
        "of": len(dataset.test),
        "confidence": question.confidence,
        "epsilon": found[0]["epsilon"],
        "loss_function": _loss_name(config),
        "cap": question.cap,
        "theorems": THEOREMS,
        "notes": _notes(question, found),
        "constraints": found,
    }


def _n_images(asked: int | None, available: int, name: str) -> int:
    if asked is not None and not 1 <= asked <= available:
        raise UserError(f"--images must be 1 to {available}, the held-out images of {name}, got {asked}")
    if not available:
        raise UserError(f"{name} has no held-out images: choose other data with --data")
    return asked or min(N_IMAGES, available)


def epsilons_at_end(config: Config, rows: Sequence[Mapping[str, Any]]) -> list[float | None]:
    """Return the epsilon of each constraint of a run; None for methods without one, or with a fixed gamma.

    One that a rule set while training is that of the last epoch.
    """
    if not METHODS[config.method.name].holds_epsilon:
        return [None] * max(len(config.families), 1)
    ended = problem.final_epsilon(config, rows)
    return [finite_or_none(level) if isinstance(level, float) else ended for level in problem.epsilons(config)]


def _n_steps(config: Config) -> int:
    """Return how many transitions the chains of a run had; 0 if it had none."""
    return config.method.n_steps if METHODS[config.method.name].is_constrained else 0


def _depth(config: Config) -> int:
    """Return how many operations in sequence a run was trained on; 1 for methods that do not draw from its set."""
    return int(config.method.depth) if METHODS[config.method.name].is_constrained else 1


def _loss_name(config: Config) -> str:
    smoothing = f" with label smoothing {config.train.label_smoothing:g}" if config.train.label_smoothing else ""
    return f"cross-entropy{smoothing}"


def _certify_constraints(
    run: Path, config: Config, predictor: Predictor, sample: Batch, question: Question, *, own: bool
) -> list[dict[str, Any]]:
    """Return the certificate of each constraint of a run."""
    folder = run / FOLDER
    if folder.is_symlink():  # in a run from elsewhere it could lead anywhere
        raise UserError(f"{folder} is a link, but a run keeps its certificate itself: remove the link")
    malloc.keep_freed()
    predictor.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    key, loss_fn = _key(predictor, sample, config), problem.loss_function(config)
    rows, found = read(run), list[dict[str, Any]]()
    levels, reached = epsilons_at_end(config, rows), (rows[-1].get("constraint_loss") or [] if rows else [])
    with run_lock(folder), Signals() as signals, progress_bars() as progress:

        def fill(at: str, name: str, transforms: TransformSet, strategy: Strategy) -> Matrix:
            return matrix.fill_matrix(
                strategy,
                folder=folder / f"{'own' if own else 'other'}-{at}{'-alone' * (name == ALONE)}",
                key=key | {"set": matrix.describe_set(transforms)},
                score=partial(matrix.score_block, predictor, sample, transforms, loss_fn),
                progress=partial(progress, name),
                check_stop=partial(_check_stop, signals),
            )

        for i, ((name, transforms), level) in enumerate(zip(transform_sets(config), levels, strict=True), 1):
            asked = replace(question, transforms=replace(transforms, depth=_depth(config)), epsilon=level)
            asked = replace(asked, reached=reached[i - 1] if i <= len(reached) else None)
            certified = _certify(partial(fill, str(i)), name, asked)
            found.append({"name": name, "epsilon": level, "depth": _depth(config), **certified})
    return found


def _check_stop(signals: Signals) -> None:
    if signals.caught:
        stopped = Stopped(signals.caught)
        raise Stopped(signals.caught, f"{stopped}; the scores so far are kept: run the same command again to resume")


def _certify(fill: Fill, name: str, question: Question) -> dict[str, Any]:
    """Return the certificate of one constraint: of the draws it was trained on, and of each operation alone."""
    transforms, finite = question.transforms, certificate.is_finite_set(question.transforms)
    if finite and transforms.depth == 1:
        found = _certify_all(fill, name, question)
        return {"verdict": judge(found, question), **found}
    strategy = Adaptive(transforms, len(question.targets), n_steps=question.n_steps)
    found = sampled.certify_from_draws(fill(name, transforms, strategy), strategy.first_draws(), question)
    # a level for sequences says nothing about one operation
    alone = replace(question, transforms=replace(transforms, depth=1), epsilon=None, n_steps=0)
    return {"verdict": judge(found, question), **found} | (
        {"alone": _certify_all(fill, ALONE, alone)} if finite else {}
    )


def _certify_all(fill: Fill, name: str, question: Question) -> dict[str, Any]:
    """Return the certificate of a finite set of single operations."""
    every, probability = certificate.list_transformations(question.transforms)
    scores = fill(name, question.transforms, Exhaustive(every, len(question.targets)))
    return certificate.certify_exactly(scores, every, probability, question)


def _key(predictor: Predictor, sample: Batch, config: Config) -> dict[str, str]:
    """Return what scores depend on, each under the word for it in a message."""
    return {
        "weights": matrix.digest_tensors(predictor.state_dict()),
        "model": config.model.name,
        "images": matrix.digest_tensors(sample._asdict()),
        "loss function": _loss_name(config),
        "draws": matrix.DRAW_RULE,
        "versions": json.dumps({name: versions().get(name) for name in ("invaug", "torch")}),
    }


def _notes(question: Question, found: Sequence[dict[str, Any]]) -> list[str]:
    """Return what a reader must know about the numbers."""
    n, present = len(question.targets), sorted(set(question.targets.tolist()))
    infinite = any(not math.isfinite(row[law]["loss"]) for row in found for law in ("uniform", "lambda_c", "worst"))
    notes = {
        f"only {n} image{'s' * (n > 1)}: the intervals are wide": n < FEW,
        f"all images are of class {question.classes[present[0]]}: nothing is known about the others": len(present) == 1,
        "some losses are not finite: they count as infinite, and their predictions as wrong": infinite,
    }
    return [text for text, holds in notes.items() if holds]


def _keep_for_page(run: Path, report: dict[str, Any]) -> None:
    """Write certificate.json and the page; if the page fails, the certificate is still kept."""
    write_document(run, CERTIFICATE, report)
    try:
        report_runs([run])
    except (OSError, UserError) as error:
        say(f"the report could not be written: {error}; try invaug report {run}")
