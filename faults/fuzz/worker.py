"""Commands on mutated files, in a forked process of limited memory and time: what each of them came to."""

from __future__ import annotations

import io
import json
import os
import random
import resource
import select
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from faults import zygote
from faults.fuzz.formats import FORMATS, Files

SECONDS = 10.0  # a mutation may take
GROWTH = 200 << 20  # bytes a mutation may take beside what the process has
ROOM = 2 << 30  # bytes after which the system itself refuses more
LIFE = 200  # mutations until a new process takes over, so that small leaks do not add up
GOOD = ("refused", "accepted")
KINDS = (*GOOD, "traceback", "hang", "growth")
CUT_OFF = ("subprocess.Popen", "os.fork", "os.posix_spawn", "os.system", "socket.connect", "socket.getaddrinfo")


class Answer(NamedTuple):
    """What a command came to."""

    kind: str
    """One of KINDS."""
    text: str = ""
    """The line of the refusal, or where the traceback ends."""


class TrainingReached(BaseException):
    """The command has taken its steps: it accepted the file."""


def answer(words: Sequence[str], place: Path, n_steps: int) -> Answer:
    """Run a command in this process and in a folder, up to so many training steps."""
    from invaug.lab.cli.main import main
    from invaug.lab.train import loop

    steps, take_step = iter(range(n_steps)), loop.take_step

    def limited(*given: Any) -> Any:
        if next(steps, None) is None:
            raise TrainingReached
        return take_step(*given)

    out, err, code = io.StringIO(), io.StringIO(), 0
    with (
        chdir(place),
        redirect_stdout(out),
        redirect_stderr(err),
        patch.object(sys, "argv", ["invaug", *words]),
        patch.object(loop, "take_step", limited),
    ):
        try:
            main()
        except TrainingReached:
            pass
        except SystemExit as stop:
            code = int(stop.code or 0)
        except BaseException as error:
            return Answer("traceback", describe(error))
    last = (err.getvalue().strip().splitlines() or [""])[-1]
    if "Traceback (most recent call last)" in err.getvalue() + out.getvalue():
        return Answer("traceback", last)
    if code and not last and not out.getvalue():
        return Answer("traceback", f"exit {code} without a word")
    return Answer("refused" if code else "accepted", last)


def warm_up() -> None:
    """Load and build what every command needs, before the forks; nothing here starts a thread or uses autograd."""
    import torch
    from typer.main import get_command

    from invaug.lab.certify import command as certify  # noqa: F401
    from invaug.lab.cli import main
    from invaug.lab.evaluate import measure  # noqa: F401
    from invaug.lab.export import predict  # noqa: F401
    from invaug.lab.run import folder
    from invaug.lab.train import command, folders
    from invaug.lab.train.finish import Finish

    torch.set_num_threads(1)
    zygote.warm_up()
    Finish((0.5,), (0.5,))(torch.zeros(2, 1, 8, 8, dtype=torch.uint8))
    command.load_compiled_loops = lambda: None  # they are
    main.app = get_command(main.app)  # which takes longer than most commands do
    folder.versions = folders.versions = cache(folder.versions)


def describe(error: BaseException) -> str:
    """Return the type and the message of an exception, and the last place in our code that it came through."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if f"{os.sep}invaug{os.sep}" in frame.filename] or frames
    file = ours[-1].filename.rpartition(f"{os.sep}invaug{os.sep}")[2]
    return f"{type(error).__name__} at {file}:{ours[-1].name}: {' '.join(str(error).split())[:200]}"


class Job(NamedTuple):
    """Mutations of a format, by their numbers, and where they are tried."""

    name: str
    make: Callable[[int], tuple[Files, Sequence[str]]]
    """A number -> files that differ from the examples, and the command that is to read them."""
    examples: Path
    place: Path


def mutations(name: str, seed: int, examples: Path, place: Path) -> Job:
    """Return the mutations of a format that a seed gives, the same on every machine; first the good example itself."""
    form = FORMATS[name]

    def make(index: int) -> tuple[Files, Sequence[str]]:
        if index < len(form.commands):  # the example as it is: if that were refused, the mutations would show nothing
            return {}, form.commands[index]
        files = form.mutate(random.Random(f"{name}/{seed}/{index}"), examples)
        return files, form.commands[index % len(form.commands)]

    return Job(name, make, examples, place)


def try_one(job: Job, index: int) -> Answer:
    """Return what a command comes to on a copy of the examples with some files changed."""
    files, words = job.make(index)
    shutil.rmtree(job.place, ignore_errors=True)
    copy_needed(job.examples, job.place, words)
    for path, content in files.items():
        (job.place / path).parent.mkdir(parents=True, exist_ok=True)
        (job.place / path).write_bytes(content)
    form = FORMATS[job.name]
    with form.trusting(job.place):
        found = answer(words, job.place, form.n_steps)
    if not files and found.kind == "refused":
        return Answer("traceback", f"the example itself is refused by {words[0]}: {found.text}")
    return found


def copy_needed(examples: Path, place: Path, words: Sequence[str]) -> None:
    """Copy those of the examples that a command names."""
    place.mkdir(parents=True)
    for path in examples.iterdir():
        if path.name in words:
            shutil.copytree(path, place / path.name) if path.is_dir() else shutil.copy(path, place)
    if "run" in words:
        shutil.copy(examples / "data.npz", place)


def confine() -> None:
    """Let this process have little memory, no further process and no network."""
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + ROOM, taken + ROOM))
    sys.addaudithook(cut_off)


def cut_off(event: str, _: tuple[Any, ...]) -> None:
    """Refuse what would leave this process, as a machine without it would."""
    if event in CUT_OFF:
        raise OSError(f"cut off: {event}")


def peak() -> int:
    """Return the most memory this process ever had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def work(job: Job, indices: Sequence[int], pipe: int) -> None:
    """Try mutations one after another; write one line about each, and end after one that took much memory."""
    confine()
    for index in indices:
        before = peak()
        found = try_one(job, index)
        grown = peak() - before
        if grown > GROWTH and found.kind != "traceback":
            found = Answer("growth", f"{grown >> 20} MB; {found.text}")
        os.write(pipe, (json.dumps(found) + "\n").encode())
        if grown > GROWTH // 4:
            return  # the next would have that much for nothing


def attempt(job: Job, indices: Iterable[int]) -> Iterator[tuple[int, Answer]]:
    """Yield the number of every mutation and what it came to; fork as often as needed."""
    left = list(indices)
    while left:
        for found in in_a_fork(job, left[:LIFE]):
            yield left.pop(0), found


def in_a_fork(job: Job, indices: Sequence[int]) -> Iterator[Answer]:
    """Yield what mutations came to, until the process that tries them ends or hangs."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            work(job, indices, writer)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    os.close(writer)
    n_found, code = 0, 0
    try:
        with os.fdopen(reader, "rb", buffering=0) as lines:
            while n_found < len(indices):
                if not select.select([lines], [], [], SECONDS)[0]:
                    yield Answer("hang", f"no answer in {SECONDS:g} s")
                    return
                line = lines.readline()
                if not line:
                    break
                n_found += 1
                yield Answer(*json.loads(line))
    finally:
        os.kill(child, signal.SIGKILL)  # not waited for yet, so the number is still the child's
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if not n_found:
        yield Answer("traceback", f"the process died: {code}")
