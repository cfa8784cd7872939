"""The long haul: one run of many steps, stopped and resumed over and over; `python -m faults.haul` prints a table."""

from __future__ import annotations

import json
import random
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from faults import zygote
from faults.harness import case
from faults.small import BATCH, arguments, differences, invaug, result, resumed, summarize, write_data
from invaug.lab.run import checkpoint

PER_EPOCH, PER_LIFE = 200, 650  # steps
EVERY = 100  # steps between two looks at the process
MOST_MEMORY = 24 << 20  # bytes a run may have more than at the first look
MOST_DESCRIPTORS = 2  # which may happen to be open more at one look than at another
MOST_FILES = 16  # in the folder of a run, with what a kill leaves behind
PATIENCE = 3600.0  # seconds
EXIT_CODES = {0: 0, signal.SIGTERM: 128 + signal.SIGTERM, signal.SIGKILL: -signal.SIGKILL}
SETTINGS = {"n_steps": 1, "only": "Rotate"}


class Look(NamedTuple):
    """The process at a step of one of its lives."""

    step: int
    memory: int
    descriptors: int
    seconds: float
    """Since the look before."""


def gauge(file: Path) -> None:
    """Append a line about this process to a file, every so many steps."""
    from invaug import InvarianceConstrained

    forward, steps, before = InvarianceConstrained.forward, iter(range(1, 2**62)), [time.monotonic()]

    def gauged(*given: Any, **named: Any) -> Any:
        step = next(steps)
        if step % EVERY == 0:
            memory = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
            now = time.monotonic()
            look = Look(step, memory, len([*Path("/proc/self/fd").iterdir()]), now - before[0])
            before[0] = now
            with file.open("a") as out:
                out.write(json.dumps(look) + "\n")
        return forward(*given, **named)

    InvarianceConstrained.forward = gauged  # type: ignore[method-assign]


class Life(NamedTuple):
    """From the start of a process to its end."""

    signum: int
    """What ended it; 0: it had done everything."""
    looks: list[Look]
    n_files: int
    """In the folder of the run afterwards."""


def live(words: list[str], folder: Path, run: Path, n_steps: int = 0, signum: int = 0) -> Life:
    """Run a command until so many steps have begun, or to its end."""
    file = folder / "looks"
    file.unlink(missing_ok=True)
    how: dict[str, Any] = {"signum": signum, "mark": zygote.STEP.decode(), "count": n_steps}
    ended = zygote.run(words, faults={"gauge": str(file)}, patience=PATIENCE, **(how if signum else {}))
    expected = EXIT_CODES[signum]
    if ended.code != expected:
        raise RuntimeError(f"exit {ended.code}, not {expected}: {ended.stderr[-300:]}")
    looks = [Look(*json.loads(line)) for line in file.read_text().splitlines()] if file.exists() else []
    return Life(signum, looks, sum(path.is_file() for path in run.rglob("*")))


class Haul(NamedTuple):
    """An uninterrupted run, the same with stops, and the lives it took."""

    whole: Path
    stopped: Path
    alone: Life
    lives: list[Life]


def haul(n_steps: int, folder: Path) -> Haul:
    """Train once without and once with stops, by SIGTERM and kill -9 in turn at random moments."""
    data = write_data(folder, n_train=PER_EPOCH * BATCH)
    whole, stopped = folder / "whole" / "run", folder / "stopped" / "run"
    settings = {**SETTINGS, "epochs": n_steps // PER_EPOCH}
    alone = live(arguments(data, whole, **settings), folder, whole)
    chance, lives, words = random.Random(0), [], arguments(data, stopped, **settings)
    n_stops = max(n_steps // PER_LIFE, 1)
    for left in range(n_stops, 0, -1):
        saved = checkpoint.load(stopped / "checkpoints")
        done = saved.step if saved else 0
        share = (n_steps - done) // (left + 1)
        until = max(EVERY + 1, min(int(share * chance.uniform(0.8, 1.2)), n_steps - done - 1))
        signum = (signal.SIGTERM, signal.SIGKILL)[left % 2]
        lives.append(live(words, folder, stopped, until, signum))
        words = resumed(stopped)
    lives.append(live(words, folder, stopped))
    return Haul(whole, stopped, alone, lives)


def wrongs(found: Haul, n_steps: int, folder: Path) -> Iterator[str]:
    """Yield what is not as it should be."""
    yield from leaks(found)
    most = max(life.n_files for life in found.lives)
    if most > MOST_FILES:
        yield f"{most} files in the folder of the run, over {MOST_FILES}"
    names = [sorted(str(path.relative_to(run)) for path in run.rglob("*")) for run in (found.whole, found.stopped)]
    if names[0] != names[1]:
        yield f"files differ: {sorted({*names[0]} ^ {*names[1]})}"
    lines = (found.stopped / "record.jsonl").read_text().splitlines()
    if [json.loads(line)["epoch"] for line in lines] != list(range(1, n_steps // PER_EPOCH + 1)):
        yield "the record does not have every epoch once"
    if wrong := summarize(differences(result(found.whole), result(found.stopped))):
        yield f"another result: {wrong}"
    tables = [tables_of(run, folder / f"tables-{run.parent.name}") for run in (found.whole, found.stopped)]
    if not tables[0] or tables[0] != tables[1]:
        yield f"the report has other numbers: {sorted({*tables[0].items()} ^ {*tables[1].items()})[:1]}"


def leaks(found: Haul) -> Iterator[str]:
    """Yield what grew: within a life, or from the first life to another, at the same step."""
    first = found.lives[0].looks[0]
    for number, life in enumerate([found.alone, *found.lives]):
        if not life.looks:
            continue
        start, name = life.looks[0], f"life {number}" if number else "the uninterrupted run"
        within = max(look.memory for look in life.looks) - start.memory
        if within > MOST_MEMORY:
            yield f"{name} grew by {within >> 20} MB after step {start.step}"
        if start.memory - first.memory > MOST_MEMORY:
            yield f"{name} has {(start.memory - first.memory) >> 20} MB more at step {start.step} than the first had"
        most = max(look.descriptors for look in life.looks)
        if most > first.descriptors + MOST_DESCRIPTORS:
            yield f"{name} has {most} open files, the first had {first.descriptors}"


def tables_of(run: Path, folder: Path) -> dict[str, str]:
    """Return the tables of a run's report, without what the clock measured."""
    code, message = invaug("report", str(run), "--tables", str(folder))
    if code:
        raise RuntimeError(message)
    return {path.name: without_clock(path.read_text()) for path in sorted(folder.glob("*.csv"))}


def without_clock(table: str) -> str:
    """Return a table without lines that speak of seconds."""
    return "\n".join(line for line in table.splitlines() if "second" not in line)


def table(found: Haul) -> str:
    """Return the lives in groups of five, as a Markdown table."""
    rows = ["| lives | ended by | steps | MB at step 100 | most MB | open files | files of the run | ms per step |"]
    rows.append("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    groups = [("uninterrupted", [found.alone])]
    groups += [
        (f"{i + 1}-{min(i + 5, len(found.lives))}", found.lives[i : i + 5]) for i in range(0, len(found.lives), 5)
    ]
    return "\n".join([*rows, *(row(name, [life for life in lives if life.looks]) for name, lives in groups)])


def row(name: str, lives: list[Life]) -> str:
    """Return a line of the table."""
    looks = [look for life in lives for look in life.looks]
    ends = [signal.Signals(life.signum).name.removeprefix("SIG") if life.signum else "end" for life in lives]
    cells = [
        name,
        " ".join(ends),
        str(sum(life.looks[-1].step for life in lives)),
        f"{median(life.looks[0].memory for life in lives) / 2**20:.0f}",
        f"{max(look.memory for look in looks) / 2**20:.0f}",
        str(max(look.descriptors for look in looks)),
        str(max(life.n_files for life in lives)),
        f"{1000 * median(look.seconds for look in looks) / EVERY:.1f}",
    ]
    return f"| {' | '.join(cells)} |"


@case(
    "the long haul, in steps (100 checkpoints, 30 resumes after SIGTERM or kill -9): memory, open files and files of "
    "the run stay the same; record, weights and report as of the uninterrupted run",
    full=20_000,
    fast=400,
)
def long_haul(tries: int, folder: Path) -> Iterator[str]:
    """Train the same run twice; any growth or difference counts."""
    yield from wrongs(haul(tries, folder), tries, folder)


def main() -> int:
    """Print a table, and what is wrong; 1 if anything is."""
    n_steps = int(sys.argv[1]) if sys.argv[1:] else 20_000
    with tempfile.TemporaryDirectory(prefix="invaug-haul-") as name:
        folder, started = Path(name), time.monotonic()
        found = haul(n_steps, folder)
        print(table(found))
        wrong = list(wrongs(found, n_steps, folder))
    n_kills = sum(life.signum == signal.SIGKILL for life in found.lives)
    print(
        f"{n_steps} steps, {n_steps // PER_EPOCH} epochs, {len(found.lives) - 1} resumes ({n_kills} after kill -9)",
        end=", ",
    )
    print(f"{time.monotonic() - started:.0f} s: {'; '.join(wrong) or 'nothing grew, same bytes, same report'}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
