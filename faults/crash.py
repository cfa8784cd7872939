"""Runs that die: kill -9 at any moment, full disks, damaged checkpoints, signals; and what is left of them."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from faults import ranks, small
from faults.harness import case
from faults.zygote import MOMENTS, POINTS, SAVE, STEP, Ended, run
from invaug.lab.run import checkpoint
from invaug.lab.train.signals import ECHO

PAGE = 4096
EXITS = {signal.SIGTERM: 143, signal.SIGINT: 130, signal.SIGHUP: 129, signal.SIGUSR1: 138}


def whole_run(folder: Path, **settings: Any) -> tuple[Path, dict[str, Any], Ended]:
    """Train without a fault; return the data, what came out, and how it went."""
    data = small.write_data(folder)
    ended = run(small.arguments(data, folder / "whole", **settings))
    if ended.code:
        raise RuntimeError(f"the undisturbed run ended with {ended.code}: {ended.stderr}")
    return data, small.result(folder / "whole"), ended


def resume_and_compare(words: list[str], out: Path, expected: dict[str, Any], *more: str) -> str:
    """Resume a run, or start it if it had not begun; return how it differs from the undisturbed one."""
    ended = run([*small.resumed(out), *more] if (out / "config.toml").exists() else words)
    if ended.code:
        return f"resuming ended with {ended.code}: {ended.stderr}"
    return small.summarize(small.differences(small.result(out), expected))


def killed(words: list[str], whole: Ended, random: np.random.Generator, inside: bool) -> tuple[str, Ended]:
    """Kill a run at a random time, inside a slowed save or anywhere; return when and how it ended."""
    while True:
        if inside:
            number, after = 1 + int(random.integers(whole.n_saved)), 0.1 * random.random()
            when = f"{after:.4f} s into save {number}"
            how: dict[str, Any] = {"mark": SAVE.decode(), "count": number, "faults": {"slow_save": 0.01}}
        else:
            after = whole.seconds * random.random()
            when, how = f"after {after:.4f} s", {}
        shutil.rmtree(words[words.index("--out") + 1], ignore_errors=True)
        ended = run(words, signum=signal.SIGKILL, after=after, **how)
        if ended.code == -signal.SIGKILL and (ended.in_save or not inside):
            return when, ended
        if ended.code not in (0, -signal.SIGKILL):
            return when, ended


@case(
    "kill -9 at a random moment, every third inside a slowed save: weights, optimiser, gamma, EMA and record as of "
    "the uninterrupted run",
    full=60,
    fast=10,
)
def kills(tries: int, folder: Path) -> Iterable[str]:
    """Kill, resume, compare."""
    data, expected, whole = whole_run(folder, checkpoint_steps=2)
    random = np.random.default_rng(0)
    for i in range(tries):
        out = folder / f"run-{i}"
        words = small.arguments(data, out, checkpoint_steps=2)
        when, ended = killed(words, whole, random, inside=i % 3 == 2)
        wrong = resume_and_compare(words, out, expected) if ended.code < 0 else f"exit {ended.code}: {ended.stderr}"
        if wrong:
            yield f"try {i}, killed {when}: {wrong}"


@case("kill -9 again and again in one run: it ends as the uninterrupted one", full=25, fast=5)
def many_kills(tries: int, folder: Path) -> Iterable[str]:
    """Kill one run that many times, a few steps apart."""
    settings = {"epochs": 12, "checkpoint_steps": 1}
    data, expected, _ = whole_run(folder, **settings)
    out, random = folder / "run", np.random.default_rng(0)
    words, when = small.arguments(data, out, **settings), []
    for i in range(tries):
        step, after = int(random.integers(1, 4)), 0.01 * random.random()
        when.append(f"{after:.4f} s into step {step}")
        started = (out / "config.toml").exists()
        ended = run(
            small.resumed(out) if started else words, signum=signal.SIGKILL, mark=STEP.decode(), count=step, after=after
        )
        if ended.code != -signal.SIGKILL:
            yield f"kill {i} ({when[-1]}): exit {ended.code}: {ended.stderr}"
    wrong = resume_and_compare(words, out, expected)
    if wrong:
        yield f"after the kills {'; '.join(when)}: {wrong}"


@case(
    "killed at each of 7 points of the first, a middle and the last save: no damaged checkpoint is left, the run "
    "goes on to the same bytes",
    full=21,
    fast=7,
)
def points_of_a_save(tries: int, folder: Path) -> Iterable[str]:
    """Die between two system calls of a save."""
    data, expected, whole = whole_run(folder, checkpoint_steps=2)
    saves = (1, whole.n_saved // 2, whole.n_saved)
    for i in range(tries):
        point, number = i % len(POINTS), saves[(i + i // len(POINTS)) % 3]
        out = folder / f"run-{i}"
        words = small.arguments(data, out, checkpoint_steps=2)
        ended = run(words, faults={"die_at": [point, number]})
        found = checkpoint.load(out / "checkpoints")
        wrong = "; ".join(found.skipped) if found else ""
        if ended.code != -signal.SIGKILL or not ended.in_save:
            wrong = f"exit {ended.code}: {ended.stderr}"
        wrong = wrong or resume_and_compare(words, out, expected)
        if wrong:
            yield f"save {number}, {POINTS[point]}: {wrong}"


@case(
    "killed at 3 moments of writing config.toml or a line of the record: the same command, or --resume, goes on to "
    "the same bytes",
    full=3 * (1 + small.EPOCHS),
    fast=4,
)
def points_of_other_writes(tries: int, folder: Path) -> Iterable[str]:
    """Die in whatever is written besides checkpoints."""
    data, expected, _ = whole_run(folder)
    n_writes = 1 + small.EPOCHS
    for i in range(tries):
        number, moment = 1 + i % n_writes, (i + 1 + i // n_writes) % len(MOMENTS)
        words = small.arguments(data, folder / f"run-{i}")
        ended = run(words, faults={"die_at_write": [number, moment]})
        wrong = "" if ended.code == -signal.SIGKILL else f"exit {ended.code}: {ended.stderr}"
        wrong = wrong or resume_and_compare(words, folder / f"run-{i}", expected)
        if wrong:
            yield f"write {number} {MOMENTS[moment]}: {wrong}"


def full_disk(
    folder: Path,
    tries: int,
    reason: str,
    fault: Callable[[Path, int, int, np.random.Generator], dict[str, Any]],
    room: Callable[[Path], None],
) -> Iterator[str]:
    """Let the disk be full from some save on, make room, resume; the last good checkpoint must be as it was."""
    data, expected, whole = whole_run(folder, checkpoint_steps=2)
    size = max(file.stat().st_size for file in (folder / "whole" / "checkpoints").iterdir())
    random = np.random.default_rng(0)
    for i in range(tries):
        number, out = 1 + int(random.integers(whole.n_saved)), folder / f"run-{i}"
        words, made = small.arguments(data, out, checkpoint_steps=2), fault(out, number, size, random)
        ended = run(words, faults=made)
        wrong = badly_told(ended, out, reason)
        room(out)
        wrong = wrong or resume_and_compare(words, out, expected)
        shutil.rmtree(out)
        if wrong:
            yield f"save {number}, {made}: {wrong}"


def badly_told(ended: Ended, out: Path, reason: str) -> str:
    """Return what is wrong with the message or with the checkpoint it names; empty if nothing."""
    found = checkpoint.load(out / "checkpoints")
    hint = re.search(r"(step-\d+), the last checkpoint, is intact", ended.stderr)
    right = hint[1] == found.path.stem if hint and found else not found and not hint
    named = re.search(rf"cannot write .+/step-\d+(\.\d+)?\.(safetensors|json): {reason}", ended.stderr)
    if ended.code != 1 or ended.stderr.count("\n") != 1 or not named or not right:
        return f"exit {ended.code}: {ended.stderr}"
    return "; ".join(found.skipped) if found else ""


@case(
    "files may not grow (RLIMIT_FSIZE) from a random save on: one line that names the file, the last checkpoint "
    "intact, with room again --resume ends with the same bytes",
    full=20,
    fast=2,
)
def small_files(tries: int, folder: Path) -> Iterable[str]:
    """Limit the size of files to less than the tensors need."""

    def fault(out: Path, number: int, size: int, random: np.random.Generator) -> dict[str, Any]:
        return {"limit_files": [int(random.integers(size)), number]}

    return full_disk(folder, tries, "File too large", fault, lambda _: None)


@case(
    "tensors or manifest of a random save written to /dev/full: one line that names the file, the last checkpoint "
    "intact, --resume ends with the same bytes",
    full=20,
    fast=2,
)
def dev_full(tries: int, folder: Path) -> Iterable[str]:
    """Let the system itself say that there is no space."""

    def fault(out: Path, number: int, size: int, random: np.random.Generator) -> dict[str, Any]:
        return {"to_dev_full": [int(random.integers(2)), number]}

    return full_disk(folder, tries, "No space left on device", fault, lambda _: None)


@contextmanager
def mounted(folder: Path) -> Iterator[None]:
    """Put a disk of one megabyte on the folder."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], check=True)  # noqa: S607
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)  # noqa: S607


@case(
    "a disk of 1 MB (tmpfs) that fills up at a random save: one line that names the file, the last checkpoint intact, "
    "with room again --resume ends with the same bytes",
    full=20,
    fast=2 if os.geteuid() == 0 else 0,
)
def small_disk(tries: int, folder: Path) -> Iterable[str]:
    """Fill the disk to less than the tensors need."""
    disk = folder / "disk"
    filler = disk / "filler"

    def fault(out: Path, number: int, size: int, random: np.random.Generator) -> dict[str, Any]:
        return {"fill_disk": [str(filler), int(random.integers(size)), number]}

    with mounted(disk):
        yield from full_disk(disk, tries, "No space left on device", fault, lambda _: filler.unlink(missing_ok=True))


LIMITS = (0, 16, 60, 200, 700, 1500, 3000, 6000)  # bytes that a file may have
WRITERS: dict[str, list[str]] = {
    "train": ["train", "DATA", "--out=OUT", *small.flags(small.SETTINGS), "--quiet", "--log=csv", "--log=tensorboard"],
    "tune": ["tune", "DATA", "--out=OUT", "--json", "--model=mlp", "--epochs=1", "--search=lr=0.01:0.1", "--trials=1"],
    "export": ["export", "RUN", "--trust-model", "-o", "OUT"],
    "report": ["report", "RUN", "-o", "OUT"],
    "certify": ["certify", "RUN", "--trust-model"],
}


@case(
    "train, tune, export, report and certify where no file may be larger than 0 to 6,000 bytes (RLIMIT_FSIZE): one "
    "line that names the file which cannot be written",
    full=len(WRITERS) * len(LIMITS),
    fast=3,
)
def named_files(tries: int, folder: Path) -> Iterable[str]:
    """Whatever is written first in vain is named: lock, config, record, checkpoint, plan, log, page."""
    data, _, _ = whole_run(folder)
    every = [(name, limit) for limit in LIMITS for name in WRITERS]
    for name, limit in every[:tries]:
        words, out = WRITERS[name], folder / f"{name}-{limit}"
        for what, path in (("DATA", data), ("RUN", folder / "whole"), ("OUT", out)):
            words = [word.replace(what, str(path)) for word in words]
        ended = run(words, faults={"limit_all_files": limit})
        file = re.search(r"cannot write (\S+): File too large", ended.stderr)
        right = file and not Path(file[1]).is_dir() and ended.stderr.count("\n") == 1
        if ended.code not in (1, 2) or not right:
            yield f"{name}, {limit} bytes: exit {ended.code}: {ended.stderr[-300:]}"


def damaged(
    folder: Path, tries: int, damage: Callable[[bytes, np.random.Generator], tuple[str, bytes]], tensors: int = 0
) -> Iterator[str]:
    """Damage the newest checkpoint; loading must skip it, report that, and use the one before."""
    older, newer = ({"x": random_tensor(step, tensors), "n": step, "f": 0.5} for step in (1, 2))
    checkpoint.save(folder, older, step=1, epoch=0, meta={})
    checkpoint.save(folder, newer, step=2, epoch=1, meta={})
    files = [folder / "step-00000002.safetensors", folder / "step-00000002.json"]
    contents, random = [file.read_bytes() for file in files], np.random.default_rng(0)
    for i in range(tries):
        which = 0 if tensors else int(random.integers(2))
        what, content = damage(contents[which], random)
        files[which].write_bytes(content)
        found = checkpoint.load(folder)
        noticed = found is not None and found.step == 1 and len(found.skipped) == 1
        if found is None or not noticed or small.summarize(small.differences(found.state, older)):
            yield f"try {i}, {files[which].name} {what}: {found and (found.step, found.skipped)}"
        files[which].write_bytes(contents[which])


def random_tensor(seed: int, n: int) -> torch.Tensor:
    """Return numbers none of whose bytes is zero."""
    size = n or 100
    return torch.randint(1, 256, (8 * size,), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


@case("a checkpoint cut at a random length: noticed, the one before is used", full=64, fast=64)
def truncations(tries: int, folder: Path) -> Iterable[str]:
    """Cut the tensors or the manifest."""

    def cut(content: bytes, random: np.random.Generator) -> tuple[str, bytes]:
        length = int(random.integers(len(content)))
        return f"cut to {length} bytes", content[:length]

    return damaged(folder, tries, cut)


@case("a checkpoint with one random byte changed: noticed, the one before is used", full=1000, fast=1000)
def byte_flips(tries: int, folder: Path) -> Iterable[str]:
    """Change a byte of the tensors or of the manifest."""

    def flip(content: bytes, random: np.random.Generator) -> tuple[str, bytes]:
        position, change = int(random.integers(len(content))), int(random.integers(1, 256))
        changed = bytearray(content)
        changed[position] ^= change
        return f"byte {position} ^ {change}", bytes(changed)

    return damaged(folder, tries, flip)


@case("a checkpoint of 1 MB with a random page of zeros: noticed, the one before is used", full=200, fast=50)
def zeroed_pages(tries: int, folder: Path) -> Iterable[str]:
    """Lose a page of the tensors."""

    def zero(content: bytes, random: np.random.Generator) -> tuple[str, bytes]:
        start = PAGE * int(random.integers(len(content) // PAGE))
        return f"zeros at {start}", content[:start] + bytes(PAGE) + content[start + PAGE :]

    return damaged(folder, tries, zero, tensors=2**17)


@case(
    "--resume with the newest checkpoint damaged: says so, goes on from the one before to the same bytes",
    full=20,
    fast=2,
)
def damage_and_resume(tries: int, folder: Path) -> Iterable[str]:
    """Kill a run, cut or change its newest checkpoint, resume."""
    data, expected, _ = whole_run(folder, checkpoint_steps=2)
    random = np.random.default_rng(0)
    for i in range(tries):
        out, step = folder / f"run-{i}", int(random.integers(7, small.N_STEPS + 1))
        words = small.arguments(data, out, checkpoint_steps=2)
        run(words, signum=signal.SIGKILL, mark=STEP.decode(), count=step)
        newest = checkpoint.latest(out / "checkpoints")
        if newest is None:
            yield f"try {i}: no checkpoint after step {step}"
            continue
        file = newest.with_suffix((".json", ".safetensors")[i % 2])
        content = file.read_bytes()
        file.write_bytes(content[: int(random.integers(len(content)))])
        ended = run(small.resumed(out))
        wrong = small.summarize(small.differences(small.result(out), expected)) if ended.code == 0 else ""
        if ended.code or f"{newest.stem} was skipped" not in ended.stderr or wrong:
            yield f"try {i}, {file.name} cut: exit {ended.code}: {ended.stderr} {wrong}"


@case(
    "SIGTERM, Ctrl-C, SIGHUP and SIGUSR1 in turn, at a random step: saved, exit 143, 130, 129 and 138 with a command "
    "that goes on; that command ends with the same bytes",
    full=40,
    fast=4,
)
def signals(tries: int, folder: Path) -> Iterable[str]:
    """Signal once, resume, compare."""
    data, expected, _ = whole_run(folder)
    random = np.random.default_rng(0)
    for i in range(tries):
        signum, out = list(EXITS)[i % 4], folder / f"run-{i}"
        words = small.arguments(data, out)
        step, after = int(random.integers(1, small.N_STEPS - 4)), 0.01 * random.random()
        ended = run(words, signum=signum, mark=STEP.decode(), count=step, after=after, faults={"slow_steps": 0.005})
        hint = re.search(r"resume with: invaug (.+)\n", ended.stderr)
        if ended.code != EXITS[signum] or hint is None or small.last(out).step != ended.n_steps:
            wrong = f"exit {ended.code} after {ended.n_steps} steps: {ended.stderr}"
        else:
            ended = run([*hint[1].split(), "--quiet"])
            wrong = ended.stderr if ended.code else small.summarize(small.differences(small.result(out), expected))
        if wrong:
            yield f"try {i}, signal {signum} {after:.4f} s into step {step}: {wrong}"


@case(
    "SIGTERM, Ctrl-C, SIGHUP or SIGUSR1 at a random moment from the start of the process to its end: 143, 130, 129 or "
    "138, or done; going on gives the same bytes",
    full=40,
    fast=4,
)
def early_signals(tries: int, folder: Path) -> Iterable[str]:
    """Signal anywhere, also before and after the training; death by the signal is 128 more than it to a shell."""
    data, expected, whole = whole_run(folder)
    random = np.random.default_rng(0)
    for i in range(tries):
        signum, out, after = list(EXITS)[i % 4], folder / f"run-{i}", whole.seconds * random.random()
        words = small.arguments(data, out)
        ended = run(words, signum=signum, after=after)
        right = ended.code in (0, EXITS[signum], -signum) and "Traceback" not in ended.stderr
        wrong = resume_and_compare(words, out, expected) if right else f"exit {ended.code}: {ended.stderr}"
        if wrong:
            yield f"try {i}, signal {signum} after {after:.4f} s: {wrong}"


@case(
    "a second signal while the first one's state is being saved: exit 143, 130, 129 or 138 before that save ends; "
    "going on gives the same bytes",
    full=12,
    fast=4,
)
def second_signal(tries: int, folder: Path) -> Iterable[str]:
    """Signal twice into a save of more than two seconds."""
    data, expected, _ = whole_run(folder)
    random = np.random.default_rng(0)
    for i in range(tries):
        signum, out, again = list(EXITS)[i % 4], folder / f"run-{i}", 0.3 + 0.3 * random.random()
        again += ECHO * (signum == signal.SIGHUP)
        words = small.arguments(data, out)
        ended = run(words, signum=signum, mark=STEP.decode(), count=3, again=again, faults={"slow_save": 0.25})
        right = ended.sent == 2 and ended.code in (EXITS[signum], -signum) and not ended.n_saved
        wrong = "" if right else f"exit {ended.code}, {ended.sent} signals, {ended.n_saved} saved: {ended.stderr}"
        wrong = wrong or resume_and_compare(words, out, expected)
        if wrong:
            yield f"try {i}, signal {signum} twice, {again:.4f} s apart: {wrong}"


@case(
    "SIGTERM, Ctrl-C, SIGHUP and SIGUSR1 in turn to one or both ranks of --devices 2: saved, exit 143, 130, 129 and "
    "138 with a command that goes on, no rank is left; that command ends with the same bytes",
    full=8,
    fast=0,
)
def signalled_ranks(tries: int, folder: Path) -> Iterable[str]:
    """Signal the first rank, or both as a terminal and a scheduler do."""
    data = small.write_data(folder, n_train=160)
    expected = small.result(ranks.ran(folder, data, 2, torchrun=False).out)
    for i in range(tries):
        signum = list(EXITS)[i % 4]
        with ranks.started(folder, data, 2, torchrun=False) as (process, log, out):
            while process.poll() is None and ranks.count_lines(log / "steps-1") < 2 + i:
                time.sleep(0.01)
            for pid in [process.pid, *(ranks.ranks_of(log).values() if i % 2 else ())][-2:]:
                os.kill(pid, signum)
            stderr = process.communicate(timeout=120)[1]
            left = ranks.alive(log)
        hint = re.search(r"resume with: invaug (.+)\n", stderr)
        if process.returncode != EXITS[signum] or hint is None or left:
            yield f"try {i}, signal {signum}: exit {process.returncode}, {left} left: {stderr[-300:]}"
            continue
        words = [sys.executable, "-m", "invaug", *hint[1].split(), "--quiet"]
        again = subprocess.run(words, cwd=ranks.HERE, capture_output=True, text=True, check=False)
        wrong = again.stderr if again.returncode else small.summarize(small.differences(small.result(out), expected))
        if wrong:
            yield f"try {i}, signal {signum}: {wrong[-300:]}"


def write_pictures(folder: Path) -> Path:
    """Write the small data as a folder of PNG files; return it."""
    with np.load(small.write_data(folder), allow_pickle=False) as arrays:
        for part, (i, label) in product(("train", "test"), enumerate(range(48))):
            if i >= len(arrays[f"y_{part}"]):
                continue
            file = folder / "pictures" / part / f"class-{arrays[f'y_{part}'][i]}" / f"{label:03d}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(arrays[f"x_{part}"][i, :, :, 0]).save(file)
    return folder / "pictures"


@case(
    "0, 1, 2 or 3 workers, 1, 4 or 7 batches ahead, with a kill -9 and another number of workers after it: the same "
    "bytes",
    full=24,
    fast=2,
)
def workers(tries: int, folder: Path) -> Iterable[str]:
    """Decode files in any number of processes."""
    pictures = write_pictures(folder)
    if run(small.arguments(pictures, folder / "whole", checkpoint_steps=2)).code:
        raise RuntimeError("the undisturbed run failed")
    expected, random = small.result(folder / "whole"), np.random.default_rng(0)
    for i in range(tries):
        before, after = (int(n) for n in random.permutation(4)[:2])
        step, ahead, out = int(random.integers(1, small.N_STEPS)), (1, 4, 7)[i % 3], folder / f"run-{i}"
        words = small.arguments(pictures, out, checkpoint_steps=2, workers=before)
        run(words, signum=signal.SIGKILL, mark=STEP.decode(), count=step, faults={"prefetch": ahead})
        wrong = resume_and_compare(words, out, expected, f"--workers={after}")
        if wrong:
            yield f"try {i}, {before} workers killed at step {step}, then {after}, prefetch {ahead}: {wrong}"


CHANGES: dict[str, Any] = {
    "lr": 0.1,
    "epochs": 4,
    "batch_size": 16,
    "epsilon": 0.9,
    "dual_lr": 0.1,
    "ema": 0.5,
    "n_steps": 1,
    "views": "both",
    "crop": 2,
    "seed": 1,
    "momentum": 0.5,
    "weight_decay": 0.1,
    "schedule": "constant",
    "warmup": 1.0,
    "clip": 1.0,
    "label_smoothing": 0.1,
    "accumulate": 2,
    "method": "worst",
    "set": "standard",
    "optimizer": "adam",
    "cutout": 2,
    "model": "mlp",
    "gamma_init": 1.0,
    "min_lr": 0.01,
    "scoring": "train",
}


def contents(folder: Path) -> dict[str, bytes]:
    """Return every file of a run but its lock."""
    return {str(f): f.read_bytes() for f in sorted(folder.rglob("*")) if f.is_file() and f.name != ".lock"}


@case(
    "--resume with one or two keys changed: exit 2, the keys and both values named, no file touched",
    full=len(CHANGES),
    fast=3,
)
def changed_config(tries: int, folder: Path) -> Iterable[str]:
    """Change each key, every other time together with the next."""
    data, out, keys = small.write_data(folder), folder / "run", list(CHANGES)
    run(small.arguments(data, out, checkpoint_steps=2), signum=signal.SIGKILL, mark=STEP.decode(), count=5)
    before = contents(out)
    for i, key in enumerate(keys[:tries]):
        changes = {name: CHANGES[name] for name in ([key] if i % 2 else [key, keys[(i + 1) % len(keys)]])}
        ended = run([*small.resumed(out), *small.flags(changes)])
        named = all(re.search(rf"\b{name}: .+ -> '?{value}", ended.stderr) for name, value in changes.items())
        if ended.code != 2 or not named or ended.stderr.count("->") != len(changes) or contents(out) != before:
            yield f"{changes}: exit {ended.code}: {ended.stderr}"


@case(
    "--resume of a run saved by a newer version (schema 2, 3, 1000): exit 2 and `upgrade`, no file touched",
    full=3,
    fast=1,
)
def newer_schema(tries: int, folder: Path) -> Iterable[str]:
    """Seal the newest manifest as a newer version would."""
    data, out = small.write_data(folder), folder / "run"
    run(small.arguments(data, out, checkpoint_steps=2), signum=signal.SIGKILL, mark=STEP.decode(), count=7)
    manifest = checkpoint.latest(out / "checkpoints")
    if manifest is None:
        raise RuntimeError("no checkpoint to change")
    body = {key: value for key, value in json.loads(manifest.read_text()).items() if key != "sha256"}
    for schema in (2, 3, 1000)[:tries]:
        manifest.write_bytes(checkpoint.seal({**body, "schema": schema}))
        before = contents(out)
        ended = run(small.resumed(out))
        if ended.code != 2 or f"schema {schema}" not in ended.stderr or "upgrade" not in ended.stderr:
            yield f"schema {schema}: exit {ended.code}: {ended.stderr}"
        if contents(out) != before:
            yield f"schema {schema}: files were changed"
