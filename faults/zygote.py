"""A process that has imported everything and forks one `invaug` after another: real processes, for real signals.

It reads one JSON object per line on its standard input (see `Order`), forks, lets the child run the command line's own
main, sends the signals asked for, and answers with one JSON object (see `Ended`). It ends when its input does.
"""

from __future__ import annotations

import atexit
import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

READY, STEP, SAVE, SAVED = b"r", b"t", b"s", b"e"
ASKING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
PATIENCE = 120.0  # seconds for a command that is not killed


@dataclass(frozen=True)
class Order:
    """What the child is to run, and what is to happen to it."""

    words: list[str]
    signum: int = 0
    """Signal to send; 0 lets the command end."""
    mark: str = READY.decode()
    """Wait for the `count`th mark of this kind (command, step or save begun) before `after` seconds are counted."""
    count: int = 1
    after: float = 0.0
    again: float = -1.0
    """Seconds until the signal is sent a second time; negative: never."""
    faults: dict[str, Any] = field(default_factory=dict)
    """Names in FAULTS and their arguments: what is changed in the child before it starts."""
    patience: float = PATIENCE
    """Seconds after which it is killed."""


class Ended(NamedTuple):
    """How the command ended."""

    code: int
    """Exit code; negative: the signal that killed it."""
    stderr: str
    """What it wrote to stderr."""
    seconds: float
    n_steps: int
    """Steps it began."""
    n_saved: int
    """Saves that ended well."""
    in_save: bool
    """Whether a save had begun and not ended."""
    sent: int
    """Signals that were sent."""


class Zygote:
    """The other process, from this side."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "faults.zygote"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        root = Path(__file__).parent.parent
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root, env=environment
        )
        atexit.register(self.close)

    def run(self, order: Order) -> Ended:
        """Fork, run, wait."""
        if self.process.stdin is None or self.process.stdout is None:
            raise RuntimeError("no pipes")
        self.process.stdin.write(json.dumps(asdict(order)) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError("the zygote died")
        return Ended(**json.loads(answer))

    def close(self) -> None:
        """Let it end."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process.wait()


@cache
def zygote() -> Zygote:
    """Return the one of this process."""
    return Zygote()


def run(words: list[str], **how: Any) -> Ended:
    """Run `invaug` with these words in a process of its own."""
    return zygote().run(Order(words, **how))


def serve() -> None:
    """Fork a child per line of input."""
    import torch

    from invaug.lab.train import command, loop  # noqa: F401 - so that no child has to

    torch.set_num_threads(1)
    warm_up()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        answers.write(json.dumps(obey(Order(**json.loads(line)))._asdict()) + "\n")
        answers.flush()


def warm_up() -> None:
    """Load what is compiled, before the forks; nothing here starts a thread or uses autograd."""
    import torch

    from invaug import sets

    images = torch.zeros(2, 1, 8, 8, dtype=torch.uint8)
    transforms = sets.wide()
    transforms.apply(images, transforms.draw(2, generator=torch.Generator()))


def obey(order: Order) -> Ended:
    """Run one command and do to it what is ordered."""
    # pipes, because a limit on the size of files would hold for these too
    (marks, marker), (words, stderr) = os.pipe(), os.pipe()
    started = time.monotonic()
    signal.pthread_sigmask(signal.SIG_BLOCK, ASKING)  # until the child is the command
    child = os.fork()
    if child == 0:
        os.close(marks)
        os.close(words)
        become(order, stderr, marker)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ASKING)
    os.close(marker)
    os.close(stderr)
    seen, sent, code = watch(order, child, marks, started)
    text = new_bytes(words).decode(errors="replace")
    os.close(marks)
    os.close(words)
    n_saves, n_saved = seen.count(SAVE), seen.count(SAVED)
    return Ended(code, text, time.monotonic() - started, seen.count(STEP), n_saved, n_saves > n_saved, sent)


def watch(order: Order, child: int, marks: int, started: float) -> tuple[bytes, int, int]:
    """Wait for the moment, send the signals, wait for the end; return the marks, the signals sent, the exit code."""
    seen, sent, due = b"", 0, None
    while True:
        seen += new_bytes(marks)
        if due is None and seen.count(order.mark.encode()) >= order.count:
            due = time.monotonic() + order.after
        if order.signum and due is not None and time.monotonic() >= due:
            os.kill(child, order.signum)  # not waited for yet, so the number is still the child's
            sent += 1
            due = time.monotonic() + order.again if order.again >= 0 and sent == 1 else float("inf")
        elif time.monotonic() - started > order.patience:
            os.kill(child, signal.SIGKILL)
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return seen + new_bytes(marks), sent, os.waitstatus_to_exitcode(status)
        time.sleep(0.0005)


def new_bytes(pipe: int) -> bytes:
    """Return what the child has written since; its own children may keep the pipe open."""
    found = b""
    while select.select([pipe], [], [], 0)[0]:
        part = os.read(pipe, 65536)
        if not part:
            break
        found += part
    return found


def become(order: Order, stderr: int, marker: int) -> None:
    """Be the command: its messages and the marks of its steps and saves into pipes, its faults in place."""
    from invaug.lab.cli.main import main

    try:
        os.dup2(stderr, 2)
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        os.dup2(1, 0)
        # new ones: the old still believe that they are the files or terminals this process was started with
        sys.stdout, sys.stderr = (open(number, "w", buffering=1, closefd=False) for number in (1, 2))  # noqa: SIM115
        mark_steps(marker)
        for name, argument in order.faults.items():
            FAULTS[name](argument)
        mark_saves(marker)
        sys.argv = ["invaug", *order.words]
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ASKING)
        os.write(marker, READY)
        main()
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 1
    finally:
        signal.pthread_sigmask(signal.SIG_BLOCK, ASKING)
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def mark_steps(marker: int) -> None:
    """Write a mark whenever a batch is about to be trained on."""
    from invaug import InvarianceConstrained

    forward = InvarianceConstrained.forward

    def marked(*given: Any, **named: Any) -> Any:
        os.write(marker, STEP)
        return forward(*given, **named)

    InvarianceConstrained.forward = marked  # type: ignore[method-assign]


def mark_saves(marker: int) -> None:
    """Write a mark when a checkpoint begins and when it is there."""
    from invaug.lab.run import checkpoint

    save = checkpoint.save

    def marked(*given: Any, **named: Any) -> Path:
        os.write(marker, SAVE)
        path = save(*given, **named)
        os.write(marker, SAVED)
        return path

    checkpoint.save = marked


def slow_save(seconds: float) -> None:
    """Make each of about ten moments of a save last so long."""
    from invaug.lab.run import atomic

    write_all, sync_folder, replace = atomic.write_all, atomic.sync_folder, Path.replace

    def slow_write_all(descriptor: int, data: bytes) -> None:
        half = len(data) // 2
        for part in (data[:half], data[half:]):
            time.sleep(seconds)
            write_all(descriptor, part)
        time.sleep(seconds)

    def slow_sync_folder(folder: Path) -> None:
        time.sleep(seconds)
        sync_folder(folder)
        time.sleep(seconds)

    def slow_replace(path: Path, target: Path) -> Path:
        time.sleep(seconds)
        return replace(path, target)

    only_in_saves(
        {
            (atomic, "write_all"): slow_write_all,
            (atomic, "sync_folder"): slow_sync_folder,
            (Path, "replace"): slow_replace,
        }
    )


def only_in_saves(changes: dict[tuple[Any, str], Callable[..., Any]], which: Callable[[int], bool] = bool) -> None:
    """Make the changes while a checkpoint is saved; `which` says for the first, second, … save whether."""
    from unittest.mock import patch

    from invaug.lab.run import checkpoint

    save, number = checkpoint.save, iter(range(1, 2**31))

    def changed(*given: Any, **named: Any) -> Path:
        if not which(next(number)):
            return save(*given, **named)
        patches = [patch.object(owner, name, new) for (owner, name), new in changes.items()]
        for one in patches:
            one.start()
        try:
            return save(*given, **named)
        finally:
            for one in patches:
                one.stop()

    checkpoint.save = changed


POINTS = (
    "tensors half written",
    "tensors written, not synced",
    "tensors synced, not named",
    "tensors named, no manifest",
    "manifest half written",
    "manifest synced, not named",
    "manifest named, older ones not removed",
)


def die_at(argument: list[int]) -> None:
    """Kill this process at one of POINTS of the nth save."""
    from invaug.lab.run import atomic

    point, save_number = argument
    write, fsync, replace = os.write, os.fsync, Path.replace
    files, calls = iter(range(2**31)), {"written": 0, "renamed": 0}

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def dying_write_all(descriptor: int, data: bytes) -> None:
        manifest = next(files) == 1
        if point == (4 if manifest else 0):
            write(descriptor, data[: len(data) // 2])
            die()
        rest = memoryview(data)
        while rest:
            rest = rest[write(descriptor, rest) :]
        if point == 1 and not manifest:
            die()
        fsync(descriptor)

    def dying_replace(path: Path, target: Path) -> Path:
        calls["renamed"] += 1
        if point == {1: 2, 2: 5}[calls["renamed"]]:
            die()
        done = replace(path, target)
        if point == {1: 3, 2: 6}[calls["renamed"]]:
            die()
        return done

    only_in_saves(
        {(atomic, "write_all"): dying_write_all, (Path, "replace"): dying_replace}, lambda number: number == save_number
    )


MOMENTS = ("half written", "written, not synced", "synced")


def die_at_write(argument: list[int]) -> None:
    """Kill this process at one of MOMENTS of the nth write that is not of a checkpoint."""
    from unittest.mock import patch

    from invaug.lab.run import atomic, checkpoint

    number, moment = argument
    save, write_all, writes = checkpoint.save, atomic.write_all, iter(range(1, 2**31))

    def dying(descriptor: int, data: bytes) -> None:
        if next(writes) == number:
            os.write(descriptor, data[: len(data) // 2] if moment == 0 else data)
            if moment == 2:
                os.fsync(descriptor)
            os.kill(os.getpid(), signal.SIGKILL)
        write_all(descriptor, data)

    def as_before(*given: Any, **named: Any) -> Path:
        with patch.object(atomic, "write_all", write_all):
            return save(*given, **named)

    atomic.write_all, checkpoint.save = dying, as_before


def limit_files(argument: list[int]) -> None:
    """Let no file grow past so many bytes from the nth save on."""
    limit, first = argument
    from_save(first, lambda: limit_all_files(limit))


def limit_all_files(limit: int) -> None:
    """Let no file grow past so many bytes."""
    # Python would write cut byte code of modules not compiled yet, which breaks every process after this one
    sys.dont_write_bytecode, os.environ["PYTHONDONTWRITEBYTECODE"] = True, "1"
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))


def fill_disk(argument: list[Any]) -> None:
    """Fill the disk with a file of zeros at the nth save, but for so many bytes."""
    filler, spare, first = argument
    from_save(first, lambda: fill(Path(filler), int(spare)))


def fill(filler: Path, spare: int) -> None:
    """Write zeros until nothing goes in, then give so many bytes back."""
    with filler.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            file.truncate(max(file.tell() - spare, 0))


def to_dev_full(argument: list[int]) -> None:
    """Make the nth save write the tensors (0) or the manifest (1) to /dev/full."""
    which, save_number = argument
    created, open_file = iter(range(2**31)), Path.open

    def open_full(path: Path, mode: str = "r", **named: Any) -> Any:
        if mode == "xb" and next(created) == which:
            open_file(path, mode, **named).close()  # the file exists, as it would on a full disk
            return open_file(Path("/dev/full"), "wb", **named)
        return open_file(path, mode, **named)

    only_in_saves({(Path, "open"): open_full}, lambda number: number == save_number)


def from_save(first: int, act: Callable[[], None]) -> None:
    """Do something when the nth save begins."""
    from invaug.lab.run import checkpoint

    save, number = checkpoint.save, iter(range(1, 2**31))

    def after(*given: Any, **named: Any) -> Path:
        if next(number) == first:
            act()
        return save(*given, **named)

    checkpoint.save = after


def prefetch(n: int) -> None:
    """Let each worker be so many batches ahead."""
    from invaug.lab.data import batches

    batches.PREFETCH = n


def slow_steps(seconds: float) -> None:
    """Make each step last longer, so that more of the moments of a run lie in its training."""
    from invaug import InvarianceConstrained

    forward = InvarianceConstrained.forward

    def slow(*given: Any, **named: Any) -> Any:
        time.sleep(seconds)
        return forward(*given, **named)

    InvarianceConstrained.forward = slow  # type: ignore[method-assign]


def gauge(file: str) -> None:
    """Write down memory, open files and time, every hundred steps."""
    from faults import haul

    haul.gauge(Path(file))


FAULTS: dict[str, Callable[[Any], None]] = {
    "gauge": gauge,
    "slow_save": slow_save,
    "die_at": die_at,
    "die_at_write": die_at_write,
    "limit_files": limit_files,
    "limit_all_files": limit_all_files,
    "fill_disk": fill_disk,
    "to_dev_full": to_dev_full,
    "prefetch": prefetch,
    "slow_steps": slow_steps,
}


if __name__ == "__main__":
    serve()
