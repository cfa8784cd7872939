"""Several ranks: what all agree on, what one writes, and what becomes of the rest when one dies."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp
from typing import NamedTuple

from faults import small
from faults.harness import case
from invaug.lab.run.record import read

HERE = Path(__file__).parents[1]
# both views of every image: with one, images are assigned to views at random
NO_BATCHNORM = {"views": "both", "set": "wide", "model": "mlp", "only": "Equalize", "crop": 0, "ema": 0, "clip": 0}
"""A run that draws nothing that depends on the rank: one operation without a magnitude, no crop."""


class Ended(NamedTuple):
    """How a run of several ranks ended."""

    code: int
    stderr: str
    at: float
    log: Path
    out: Path

    def steps(self, rank: int) -> list[str]:
        """Return the number, gamma and slack of each step, in bits."""
        return (self.log / f"steps-{rank}").read_text().splitlines()

    def slacks(self) -> list[float]:
        """Return the slack of each step."""
        return [struct.unpack("d", bytes.fromhex(line.split()[2]))[0] for line in self.steps(0)]


@contextlib.contextmanager
def started(folder: Path, data: Path, n: int, *, torchrun: bool = True, nan: str = "", **settings: object) -> Iterator:
    """Yield a run of n ranks as a process group of its own, the folder of its notes and that of the run."""
    log, out = Path(mkdtemp(dir=folder)), Path(mkdtemp(dir=folder)) / "run"
    words = small.arguments(data, out, **{"batch_size": 16 // n, **settings})
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(n), "--max-restarts", "9"]
    if not torchrun:
        words += ["--devices", str(n)]
    command = [sys.executable, *(launcher if torchrun else []), "-m", "faults.rank_driver", *words]
    environment = {**os.environ, "FAULT_LOG": str(log), "OMP_NUM_THREADS": "1", **({"FAULT_NAN": nan} if nan else {})}
    process = subprocess.Popen(
        command,
        cwd=HERE,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process, log, out
    finally:
        # torchrun's workers have sessions of their own
        for kill, pid in [(os.killpg, process.pid), *((os.kill, pid) for pid in ranks_of(log).values())]:
            with contextlib.suppress(ProcessLookupError):
                kill(pid, signal.SIGKILL)
        process.wait()


def ran(folder: Path, data: Path, n: int, **settings: object) -> Ended:
    """Run n ranks to their end."""
    with started(folder, data, n, **settings) as (process, log, out):
        stderr = process.communicate(timeout=400)[1]
        return Ended(process.returncode, stderr, time.time(), log, out)


def ranks_of(log: Path) -> dict[int, int]:
    """Return the process of each rank that has noted itself."""
    return {int(p.name[4:]): int(p.read_text().split()[-1]) for p in log.glob("pid-*") if p.read_text().strip()}


def gammas(folder: Path, n_ranks: int, tries: int) -> Iterator[str]:
    data = small.write_data(folder, n_train=160)
    found = ran(folder, data, n_ranks, epochs=-(-tries // 10), checkpoint_minutes=0)
    if found.code:
        yield f"exit code {found.code}: {found.stderr[-300:]}"
        return
    yield from differing_steps(found, n_ranks, tries)


def differing_steps(found: Ended, n_ranks: int, n_steps: int) -> Iterator[str]:
    """Yield the steps in which gamma or slack is not the same on all ranks, bit for bit."""
    columns = [found.steps(rank)[:n_steps] for rank in range(n_ranks)]
    if len(columns[0]) < n_steps:
        yield f"{len(columns[0])} steps instead of {n_steps}"
    for step in zip(*columns, strict=True):
        if len(set(step)) > 1:
            yield f"step {step[0].split()[0]} differs"


@case("gamma and slack bit-equal on 2 ranks, steps", full=500, fast=0)  # `nan_on_one` has it too
def gamma_on_two(tries: int, folder: Path) -> Iterator[str]:
    yield from gammas(folder, 2, tries)


@case("gamma and slack bit-equal on 4 ranks, steps", full=500, fast=0)
def gamma_on_four(tries: int, folder: Path) -> Iterator[str]:
    yield from gammas(folder, 4, tries)


@case("two ranks of half the batch: slack of one rank of the whole to 1e-6, steps", full=60, fast=0)
def halves(tries: int, folder: Path) -> Iterator[str]:
    data, epochs = small.write_data(folder), -(-tries // 3)
    one, two = (ran(folder, data, n, **NO_BATCHNORM, epochs=epochs) for n in (1, 2))
    slacks = list(zip(one.slacks(), two.slacks(), strict=True))[:tries]
    if len(slacks) < tries:
        yield f"{len(slacks)} steps instead of {tries}"
    for i, (a, b) in enumerate(slacks):
        if abs(a - b) > 1e-6:
            yield f"step {i}: {a} on one rank, {b} on two"


@case("an uneven last batch: every image counted once on 2 ranks", full=6, fast=0)
def uneven(tries: int, folder: Path) -> Iterator[str]:
    for n_train in (49, 50, 33, 47, 63, 35)[:tries]:
        found = ran(
            folder, small.write_data(folder, n_train=n_train), 2, set="wide", views="both", no_drop_last=True, epochs=1
        )
        kept = [sum(map(sum, row["kept"][0].values())) for row in read(found.out)]
        if found.code or kept != [n_train]:
            yield f"{n_train} images: exit code {found.code}, counted {kept}: {found.stderr[-200:]}"


@case("only rank 0 writes into the run's folder", full=3, fast=0)
def one_writer(tries: int, folder: Path) -> Iterator[str]:
    logs = folder / "logs.toml"
    logs.write_text('[run]\nlog = ["csv"]\n')  # as a flag, torchrun would take --log for its own
    for n in (2, 3, 4)[:tries]:
        found = ran(folder, small.write_data(folder), n, batch_size=4, config=logs)
        written = [len((found.log / f"writes-{rank}").read_text().splitlines()) for rank in range(n)]
        if found.code or not written[0] or any(written[1:]):
            yield f"{n} ranks: exit code {found.code}, files opened for writing {written}"


@case("--devices 2 and torchrun: same bytes", full=3, fast=0)
def two_launchers(tries: int, folder: Path) -> Iterator[str]:
    for seed in range(tries):
        data = small.write_data(folder)
        one, other = (ran(folder, data, 2, torchrun=torchrun, seed=seed) for torchrun in (True, False))
        wrong = small.summarize(small.differences(small.result(one.out), small.result(other.out)))
        if one.code or other.code or wrong:
            yield f"seed {seed}: exit codes {one.code}, {other.code}; {wrong} {other.stderr[-200:]}"


@case(
    "NaN on one of 2 ranks: both stop within 30 s, named, state before it saved; gamma and slack bit-equal until then",
    full=10,
    fast=1,
)
def nan_on_one(tries: int, folder: Path) -> Iterator[str]:
    dice = random.Random(1)
    data = small.write_data(folder)
    for i in range(tries):
        bad_rank, bad_step = dice.randrange(2), dice.randrange(2, 9)
        found = ran(folder, data, 2, torchrun=False, nan=f"{bad_rank} {bad_step}")
        step = small.last(found.out).step
        named = "the loss is nan on the batch of images" in found.stderr
        waited = found.at - max(path.stat().st_mtime for path in found.log.glob("steps-*"))
        if found.code != 1 or not named or step != bad_step - 1 or waited > 30:
            what = f"exit code {found.code}, saved {step}, {waited:.0f} s after the last step: {found.stderr[-300:]}"
            yield f"try {i}: rank {bad_rank} step {bad_step}: {what}"
        yield from differing_steps(found, 2, bad_step - 1)
        if left := alive(found.log):
            yield f"try {i}: processes {left} are still there"


def alive(log: Path, patience: float = 20) -> list[int]:
    """Return the ranks that are still running after some patience."""
    end = time.monotonic() + patience
    while (left := [pid for pid in ranks_of(log).values() if is_running(pid)]) and time.monotonic() < end:
        time.sleep(0.2)
    return left


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@case("--devices 2, one rank killed with -9: the other ends too, and --resume ends with the same bytes", full=6, fast=0)
def killed_without_torchrun(tries: int, folder: Path) -> Iterator[str]:
    dice = random.Random(2)
    data = small.write_data(folder, n_train=160)
    settings = {"epochs": 12, "checkpoint_steps": 5, "torchrun": False}
    whole = small.result(ran(folder, data, 2, **settings).out)
    for i in range(tries):
        with started(folder, data, 2, **settings) as (process, log, out):
            killed = kill_one(log, i % 2, after_steps=dice.randrange(3, 90))
            stderr = process.communicate(timeout=60)[1]
            left = alive(log)
        words = ["train", "--resume", "--out", str(out), "--quiet", "--trust-model"]
        again = subprocess.run(
            [sys.executable, "-m", "invaug", *words], cwd=HERE, capture_output=True, text=True, check=False
        )
        wrong = (
            small.summarize(small.differences(whole, small.result(out)))
            if not again.returncode
            else again.stderr[-200:]
        )
        if not killed or left or wrong:
            ended = f"ended with {process.returncode}: {stderr[-200:]}"
            yield f"try {i}: killed {killed}, still there {left}; {wrong}; {ended}"


def kill_one(log: Path, rank: int, after_steps: int, patience: float = 400) -> bool:
    """Kill a rank once it has taken so many steps since it was started; return whether it was still there."""
    end, steps = time.monotonic() + patience, log / f"steps-{rank}"
    before, pid = count_lines(steps), None
    while time.monotonic() < end:
        pid = ranks_of(log).get(rank)
        if pid and is_running(pid) and count_lines(steps) >= before + after_steps:
            os.kill(pid, signal.SIGKILL)
            return True
        time.sleep(0.01)
    return False


def count_lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


@case("a rank killed with -9 is restarted by torchrun: same bytes as the uninterrupted run", full=20, fast=0)
def killed_ranks(tries: int, folder: Path) -> Iterator[str]:
    dice, per_run = random.Random(3), 5
    data = small.write_data(folder, n_train=160)
    settings = {"epochs": 30 if tries > per_run else 6, "checkpoint_steps": 7}
    reference = ran(folder, data, 2, **settings)
    yield from differing_steps(reference, 2, 10 * settings["epochs"])
    whole = small.result(reference.out)
    for first in range(0, tries, per_run):
        kills = [(dice.randrange(2), dice.randrange(1, 50)) for _ in range(min(per_run, tries - first))]
        with started(folder, data, 2, **settings) as (process, log, out):
            done = [kill_one(log, rank, steps) for rank, steps in kills]
            stderr = process.communicate(timeout=400)[1]
        wrong = small.summarize(small.differences(whole, small.result(out)))
        for kill, happened in zip(kills, done, strict=True):
            if not happened or process.returncode or wrong:
                yield f"{kill}: killed {happened}, exit code {process.returncode}; {wrong} {stderr[-200:]}"
