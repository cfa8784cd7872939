"""Whole checkpoints whose content is odd, sealed anew: each is refused before anything is restored, in one line."""

from __future__ import annotations

import copy
import hashlib
import json
import random
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.torch
import torch

from faults import small
from faults.harness import case
from faults.mutations import mutate
from faults.odd_states import BOMBS, FALLS_BACK, ODD, Forged
from faults.security import forget_peak, peak
from faults.zygote import STEP, Ended, run
from invaug.lab.errors import RunError, UserError
from invaug.lab.run import checkpoint
from invaug.lab.run.folder import read_config
from invaug.lab.train import command, loop
from invaug.lab.train.check_state import Length
from invaug.lab.train.one_process import OneProcess
from invaug.lab.train.state import Training, prepare

OPTIMIZERS = ("sgd", "adam")
STOPPED_AT = 8  # of 18 steps: two batches into the second epoch, with a checkpoint of the first before it
LENGTH = Length(small.EPOCHS, small.N_IMAGES // small.BATCH)
MOST_MEMORY = 512 << 20  # bytes, for a manifest of 16 MB


def stopped_run(folder: Path, optimizer: str) -> Path:
    """Train a small run and stop it within its second epoch; return its folder."""
    out, data = folder / optimizer, small.write_data(folder)
    words = small.arguments(data, out, optimizer=optimizer)
    ended = run(words, signum=signal.SIGTERM, mark=STEP.decode(), count=STOPPED_AT)
    if ended.code != 143:
        raise RuntimeError(f"the run to forge ended with {ended.code}: {ended.stderr}")
    return out


def newest(out: Path) -> Path:
    """Return the newest manifest of a run."""
    return sorted((out / "checkpoints").glob("*.json"))[-1]


def opened(manifest: Path) -> Forged:
    """Return the content of a checkpoint."""
    body = {key: value for key, value in json.loads(manifest.read_text()).items() if key != "sha256"}
    data = manifest.with_name(body["tensors"]["file"]).read_bytes()  # not mapped: the file is about to be overwritten
    return Forged(body, safetensors.torch.load(data))


def write(forged: Forged, manifest: Path) -> None:
    """Write a checkpoint with the right sizes and hashes, if its manifest still names tensors."""
    data = safetensors.torch.save({name: tensor.contiguous() for name, tensor in forged.tensors.items()})
    about = forged.body.get("tensors")
    if isinstance(about, dict) and about.get("file") == f"{manifest.stem}.safetensors":
        manifest.with_suffix(".safetensors").write_bytes(data)
        about |= {key: value for key, value in facts(data).items() if type(about.get(key)) is type(value)}
    rest = json.dumps(forged.body).encode()[1:] + b"\n"  # NaN and Infinity too, which seal() does not write
    manifest.write_bytes(checkpoint.first_line(rest) + rest)


def facts(data: bytes) -> dict[str, Any]:
    """Return what a manifest says of its tensors."""
    return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def contents(folder: Path) -> dict[str, bytes]:
    """Return the files that a refusal may not touch."""
    files = [folder / "record.jsonl", *sorted((folder / "checkpoints").iterdir())]
    return {file.name: file.read_bytes() for file in files}


def wrong_end(ended: Ended, expected: str, untouched: bool) -> str:
    """Return what is wrong with how a command ended, empty if nothing is."""
    lines, text = ended.stderr.splitlines(), ended.stderr
    if expected == FALLS_BACK:
        right = ended.code == 0 and len(lines) == 1 and f"step-{STOPPED_AT:08d} was skipped: " in text
    else:
        right = ended.code == 2 and len(lines) == 1 and text.startswith("invaug: ") and expected in text and untouched
    return "" if right and len(text) < 1000 else f"exit {ended.code}, untouched {untouched}, {text[-300:]!r}"


@case(
    "--resume of a checkpoint with an odd entry under a right hash (optimiser, EMA, tallies, counters, encoding; sgd "
    "and adam): exit 2, the entry named in one line, no file touched, or the checkpoint before is used",
    full=sum(len(table) for table in ODD.values()),
    fast=4,
)
def odd_entries(tries: int, folder: Path) -> Iterator[str]:
    """Each in a copy of a stopped run, which a real process then resumes."""
    goods: dict[str, Path] = {}
    every = [(optimizer, name, *row) for optimizer, table in ODD.items() for name, row in table.items()]
    for number in range(tries):
        optimizer, name, change, expected = every[number * len(every) // tries]
        out = folder / str(number)
        if optimizer not in goods:
            goods[optimizer] = stopped_run(folder, optimizer)
        shutil.copytree(goods[optimizer], out)
        forged = opened(newest(out))
        change(forged)
        write(forged, newest(out))
        before = contents(out)
        ended = run(small.resumed(out))
        if wrong := wrong_end(ended, expected, contents(out) == before):
            yield f"{optimizer}, {name}: {wrong}"


class Target(NamedTuple):
    """A training that restores one checkpoint after another, and the one that it comes from."""

    training: Training
    good: checkpoint.Checkpoint
    train_on: Callable[[], Any]
    """Runs the rest of the epoch."""


def target_of(out: Path) -> Target:
    """Return the training of a run, with its newest checkpoint restored."""
    torch.set_num_threads(1)
    config, fabric = read_config(out)[0], OneProcess(torch.device("cpu"))
    dataset = command.load_once(config, fabric)
    training = prepare(command.resolve_for(config, dataset, fabric), dataset, fabric)
    good = checkpoint.read(newest(out))
    training.restore(renewed(good), LENGTH)
    return Target(training, good, lambda: loop.one_epoch(config, dataset, training, loop.Watch(warn=lambda _: None)))


def renewed(saved: checkpoint.Checkpoint) -> checkpoint.Checkpoint:
    """Return the checkpoint with tensors of its own, as a training goes on to change those it restores."""
    return saved._replace(state=small.copied(saved.state))


def try_restore(target: Target, manifest: Path) -> tuple[str, str]:
    """Read and restore a checkpoint as a resume does; return what became of it, and what is wrong with that."""
    training = target.training
    before = small.copied(training.state())
    try:
        saved = checkpoint.read(manifest)
    except (checkpoint.DamageError, UserError) as error:
        return "damaged", one_line(error)
    try:
        training.restore(saved, LENGTH)
    except UserError as error:
        changed = small.summarize(small.differences(training.state(), before))
        return "refused", one_line(error) or (f"half restored: {changed}" if changed else "")
    try:
        if training.epoch < LENGTH.epochs:
            target.train_on()
    except RunError as error:  # an odd number may be too large to train on
        return "restored", one_line(error)
    finally:
        training.restore(renewed(target.good), LENGTH)
    return "restored", ""


def one_line(error: Exception) -> str:
    """Return what is wrong with a message."""
    text = str(error)
    return "" if text and text.isprintable() and len(text) < 1000 else f"message {text[:300]!r}"


@case(
    "random mutations of a checkpoint under a right hash (types, keys, tensors, huge and non-finite numbers, nesting), "
    "restored by a training with EMA, sgd and adam in turn: refused in one line and nothing changed, or it trains on",
    full=2000,
    fast=60,
)
def mutations(tries: int, folder: Path) -> Iterator[str]:
    """In this process: read, restore, and train on if that worked."""
    outs = [stopped_run(folder, optimizer) for optimizer in OPTIMIZERS]
    targets = [(target_of(out), opened(newest(out)), newest(out)) for out in outs]
    tally = dict.fromkeys(("damaged", "refused", "restored"), 0)
    for number in range(tries):
        target, content, manifest = targets[number % len(targets)]
        forged = Forged(copy.deepcopy(content.body), dict(content.tensors))
        what = mutate(forged, random.Random(number))
        try:
            write(forged, manifest)
            end, wrong = try_restore(target, manifest)
            tally[end] += 1
        except Exception as error:
            wrong = f"{type(error).__name__}: {error}"[:300]
            targets[number % len(targets)] = (target_again(target), content, manifest)
        if wrong:
            yield f"seed {number}, {what}: {wrong}"
    if tries > 100 and min(tally.values()) < tries // 100:
        yield f"the mutations are too much alike: {tally}"


def target_again(target: Target) -> Target:
    """Put a training back that a failed try has left in some state."""
    target.training.restore(renewed(target.good), LENGTH)
    return target


@case(
    f"manifests of many or nested values under a right hash: damaged in one line, less than {MOST_MEMORY >> 20} MB",
    full=len(BOMBS),
    fast=len(BOMBS),
)
def bombs(tries: int, folder: Path) -> Iterator[str]:
    """In this process, each as the state of a small checkpoint."""
    manifest = checkpoint.save(folder, {"x": torch.zeros(3)}, step=1, epoch=0, meta={})
    body = {key: value for key, value in json.loads(manifest.read_text()).items() if key not in ("sha256", "state")}
    for name, make in list(BOMBS.items())[:tries]:
        rest = json.dumps(body).encode()[1:-1] + b', "state": ' + make() + b"}\n"
        manifest.write_bytes(checkpoint.first_line(rest) + rest)
        before = forget_peak()
        try:
            checkpoint.read(manifest)
            yield f"{name}: read"
        except checkpoint.DamageError as error:
            if wrong := one_line(error) or ("out of memory" if "MemoryError" in str(error) else ""):
                yield f"{name}: {wrong}"
        if peak() - before > MOST_MEMORY:
            yield f"{name}: took {(peak() - before) >> 20} MB"
