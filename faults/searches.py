"""Searches that are stopped: killed, signalled, continued with more trials, started again at once; all end the same."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from faults import small
from faults.crash import EXITS
from faults.harness import case
from faults.zygote import STEP, run
from invaug.lab.run import checkpoint

ROOT = Path(__file__).parent.parent
PATIENCE = 300.0  # seconds for a search that should end, or for workers that should
SLOW, NOTES = "FAULT_SLOW", "FAULT_NOTES"
TINY = ("--epochs=1", "--batch-size=8", "--threads=1", "--only=Identity", "--n-levels=2", "--crop=0", "--folds=2")
MANY, FEW = 12, 2  # trials; Optuna draws ten at random before it models what they gave


class Slow(nn.Sequential):
    """A network each of whose passes takes as many seconds as the environment says, and is noted where it says."""

    def forward(self, images: Tensor) -> Tensor:
        """Wait, then compute."""
        if self.training and NOTES in os.environ:
            with Path(os.environ[NOTES], str(os.getpid())).open("ab") as file:
                file.write(b".")
        time.sleep(float(os.environ.get(SLOW, "0")) if self.training else 0.0)
        return super().forward(images)


def network(n_classes: int, image_shape: tuple[int, int, int]) -> nn.Module:
    """Return a small network that can be slow."""
    channels, height, width = image_shape
    return Slow(nn.Flatten(), nn.Linear(channels * height * width, n_classes))


def arguments(data: Path, out: Path, *more: str) -> list[str]:
    """Return the arguments of a small search."""
    return ["tune", str(data), "--out", str(out), "--json", *TINY, *more]


def over_lr(trials: int) -> tuple[str, ...]:
    """Return the flags of a search by Optuna."""
    return ("--model=mlp", "--search=lr=0.001:0.3", f"--trials={trials}")


def outcome(out: Path) -> Any:
    """Return every point that was tried, with what it gave, and the best."""
    return json.loads((out / "tune.json").read_text())


def finish(words: list[str], out: Path, expected: Any) -> str:
    """Run the search to its end; return how its outcome differs from the undisturbed one, empty if it does not."""
    ended = run(words)
    if ended.code:
        return f"it ended with {ended.code}: {ended.stderr[-300:]}"
    return small.summarize(small.differences(outcome(out), expected))


def whole_search(data: Path, out: Path, *more: str) -> tuple[Any, int]:
    """Search without a fault; return the outcome, and the number of training steps."""
    ended = run(arguments(data, out, *more))
    if ended.code:
        raise RuntimeError(f"the undisturbed search ended with {ended.code}: {ended.stderr}")
    return outcome(out), ended.n_steps


@case("kill -9 of a search by Optuna: continued, it tries the same points with the same outcome", full=10, fast=1)
def killed_searches(tries: int, folder: Path) -> Iterator[str]:
    """Kill at moments spread over the whole search."""
    data, flags = small.write_data(folder), over_lr(MANY if tries > 1 else FEW)
    expected, n_steps = whole_search(data, folder / "whole", *flags)
    random = np.random.default_rng(0)
    for i in range(tries):
        out, step = folder / f"search-{i}", 1 + int((i + random.random()) * n_steps / tries)
        words = arguments(data, out, *flags)
        ended = run(words, signum=signal.SIGKILL, mark=STEP.decode(), count=step, after=0.02 * random.random())
        wrong = finish(words, out, expected)
        if ended.code != -signal.SIGKILL or wrong:
            yield f"try {i}, killed in step {step} of {n_steps} (exit {ended.code}): {wrong}"


@case("--trials raised one by one: after each, the points and outcomes of the undisturbed search", full=MANY, fast=FEW)
def raised_trials(tries: int, folder: Path) -> Iterator[str]:
    """Continue one search again and again."""
    data, out = small.write_data(folder), folder / "search"
    expected = whole_search(data, folder / "whole", *over_lr(tries))[0]["trials"]
    for n in range(1, tries + 1):
        ended = run(arguments(data, out, *over_lr(n)))
        found = outcome(out)["trials"] if ended.code == 0 else []
        if wrong := small.summarize(small.differences(found, expected[: n + 1])):
            yield f"--trials {n}: exit {ended.code}: {wrong} {ended.stderr[-300:]}"


@case(
    "SIGTERM, Ctrl-C, SIGHUP and SIGUSR1 in turn stop a search at a random step: saved, exit 143, 130, 129 and 138 "
    "with a command that goes on; that command has the same outcome",
    full=20,
    fast=4,
)
def signalled_searches(tries: int, folder: Path) -> Iterator[str]:
    """Signal once, continue with the command that was printed, compare."""
    data, random = small.write_data(folder), np.random.default_rng(0)
    flags = ("--model=mlp", "--search=lr=0.05")
    expected, n_steps = whole_search(data, folder / "whole", *flags)
    for i in range(tries):
        signum, out, step = list(EXITS)[i % 4], folder / f"search-{i}", int(random.integers(1, n_steps - 1))
        ended = run(
            arguments(data, out, *flags),
            signum=signum,
            mark=STEP.decode(),
            count=step,
            after=0.004 * random.random(),
            faults={"slow_steps": 0.005},
        )
        hint = re.search(r"invaug: stopped and saved; resume with: invaug (.+)\n$", ended.stderr)
        right = ended.code == EXITS[signum] and hint and ended.stderr.count("\n") == 1
        wrong = finish(shlex.split(hint[1]), out, expected) if right and hint else f"exit {ended.code}: {ended.stderr}"
        if wrong:
            yield f"try {i}, signal {signum} in step {step}: {wrong}"


SIDE_BY_SIDE = ("--model=faults.searches:network", "--search=n_steps=1", "--jobs=2")
"""The two folds of the default, at the same time."""


def start(data: Path, out: Path, slow: float = 0.0) -> subprocess.Popen[str]:
    """Start the search of two workers in a session of its own, its training steps slowed down."""
    words = [sys.executable, "-m", "invaug", *arguments(data, out, *SIDE_BY_SIDE)]
    notes_of(out).mkdir(exist_ok=True)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", SLOW: str(slow), NOTES: str(notes_of(out))}
    nowhere = subprocess.DEVNULL
    return subprocess.Popen(
        words, cwd=ROOT, env=environment, stdout=nowhere, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def notes_of(out: Path) -> Path:
    """Return the folder where the workers of a search note their passes."""
    return out.with_name(f"{out.name}-notes")


def n_passes(out: Path, pid: int) -> int:
    """Return how many training passes a worker has begun."""
    note = notes_of(out) / str(pid)
    return note.stat().st_size if note.exists() else 0


def workers_of(out: Path) -> dict[int, Path]:
    """Return the processes that say in a lock of the search that they hold it, and the folders these are in."""
    texts = {lock.parent: lock.read_text() for lock in out.rglob(".lock")}
    return {int(json.loads(text)["pid"]): folder for folder, text in texts.items() if text}


def wait_for_workers(process: subprocess.Popen[str], out: Path, passes: int) -> dict[int, Path]:
    """Return both workers, once each has begun so many training passes."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and process.poll() is None:
        found = workers_of(out)
        if len(found) == 2 and all(n_passes(out, pid) >= passes for pid in found):
            return found
        time.sleep(0.01)
    raise RuntimeError(f"no two workers; exit {process.poll()}")


def left_of(pids: Iterable[int]) -> list[int]:
    """Wait until these processes are gone; return, and kill, those that still live after all patience."""
    until = time.monotonic() + PATIENCE
    while (left := [pid for pid in pids if Path(f"/proc/{pid}").exists()]) and time.monotonic() < until:
        time.sleep(0.05)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return left


def compare(process: subprocess.Popen[str], out: Path, expected: Any) -> str:
    """Wait for a search; return what is wrong with its end or its outcome, empty if nothing is."""
    stderr = process.communicate(timeout=PATIENCE)[1]
    if process.returncode:
        return f"exit {process.returncode}: {stderr[-300:]}"
    return small.summarize(small.differences(outcome(out), expected))


def undisturbed(folder: Path) -> tuple[Path, Any]:
    """Return the data, and the outcome of a search of two workers without a fault."""
    data = small.write_data(folder)
    with start(data, folder / "whole") as process:
        if wrong := compare(process, folder / "whole", {}) if process.wait(PATIENCE) else "":
            raise RuntimeError(f"the undisturbed search: {wrong}")
    return data, outcome(folder / "whole")


@case(
    "kill -9 of tune --jobs 2 in the middle of a long step, the same command at once: it ends with the same outcome, "
    "no worker is left",
    full=20,
    fast=0,
)
def started_again(tries: int, folder: Path) -> Iterator[str]:
    """Kill the parent while its workers are in a step that takes longer than the next start."""
    (data, expected), random = undisturbed(folder), np.random.default_rng(0)
    for i in range(tries):
        out = folder / f"search-{i}"
        with start(data, out, slow=60.0) as first:
            workers = wait_for_workers(first, out, passes=1)
            time.sleep(0.5 * random.random())
            first.kill()
            with start(data, out) as second:
                wrong, left = compare(second, out, expected), left_of(workers)
        if wrong or left:
            yield f"try {i}: {wrong}; {len(left)} workers left"


@case(
    "SIGTERM, Ctrl-C, SIGHUP and SIGUSR1 in turn to tune --jobs 2, every other time to its workers too, in the middle "
    "of an epoch: exit 143, 130, 129 and 138 with a command that goes on, each worker has saved the step it was in, "
    "none is left, the outcome is the same",
    full=8,
    fast=0,
)
def signalled_workers(tries: int, folder: Path) -> Iterator[str]:
    """Signal the search as a person does, or all of its processes as a scheduler does."""
    data, expected = undisturbed(folder)
    for i in range(tries):
        signum, out = list(EXITS)[i % 4], folder / f"search-{i}"
        with start(data, out, slow=2.0) as process:
            workers = wait_for_workers(process, out, passes=1)
            for pid in (process.pid, *(workers if i % 2 else ())):
                os.kill(pid, signum)
            stderr = process.communicate(timeout=PATIENCE)[1]
        left = left_of(workers)
        # nothing else is saved before the end of an epoch
        lost = [
            f"{saved_step(run)} of {n_passes(out, pid)} saved"
            for pid, run in workers.items()
            if saved_step(run) != n_passes(out, pid)
        ]
        hint = "invaug: stopped and saved; resume with: invaug tune" in stderr
        if process.returncode != EXITS[signum] or not hint or left or lost:
            yield f"try {i}, signal {signum}: exit {process.returncode}, {len(left)} left, {lost}: {stderr}"
        with start(data, out) as again:
            if wrong := compare(again, out, expected):
                yield f"try {i}, signal {signum}: {wrong}"


def saved_step(run: Path) -> int:
    """Return the step of a run's newest checkpoint, 0 if it has none."""
    saved = checkpoint.load(run / "checkpoints")
    return saved.step if saved else 0
