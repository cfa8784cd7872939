"""Crowds, killed workers, long runs, lost terminals, odd environments: a run goes on, or ends with one clear line."""

from __future__ import annotations

import atexit
import json
import os
import pty
import random
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from faults.harness import case

ROOT = Path(__file__).parent.parent
PATIENCE = 120.0  # seconds for a command that should end, or for workers that should
TINY = ("--model=mlp", "--batch-size=4", "--threads=1", "--only=Identity", "--n-levels=2")
DIED = "a process that decodes images died (SIGKILL"
FLAT = 16 << 20  # bytes that a process may grow by


class Forker:
    """A process with one thread that has imported everything, and forks one `invaug` after another."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "faults.operations"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment
        )
        atexit.register(self.close)

    def ask(self, name: str, *given: Any) -> list[str]:
        """Return what a function of this module yields over there."""
        if self.process.stdin is None or self.process.stdout is None:
            raise RuntimeError("no pipes")
        print(json.dumps([name, *given]), file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the forking process died in {name}")
        return list(json.loads(answer))

    def close(self) -> None:
        """Let it end."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process.wait()


@cache
def forker() -> Forker:
    """Return the one of this process."""
    return Forker()


def serve() -> None:
    """Answer each line of input with what the function it names yields."""
    import torch

    from invaug import sets
    from invaug.lab.train import command as train  # noqa: F401 - so that no child has to

    torch.set_num_threads(1)
    images, transforms = torch.zeros(2, 1, 8, 8, dtype=torch.uint8), sets.wide()
    transforms.apply(images, transforms.draw(2, generator=torch.Generator()))  # loads what is compiled
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        name, *given = json.loads(line)
        print(json.dumps(list(globals()[name](*given))), file=answers, flush=True)


def fork(words: list[str], log: Path, before: Callable[[], None] = lambda: None) -> int:
    """Start the command in a session of its own, its output to a file; return its process number."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        while os.getsid(pid) != pid:  # whoever asks for its session would find nobody
            time.sleep(0.001)
        return pid
    code = 70
    try:
        os.setsid()
        output = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        for number in (1, 2):
            os.dup2(output, number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        before()
        code = command(words)
    except BaseException as error:
        os.write(2, f"Traceback: {error!r}\n".encode())
    finally:
        os._exit(code)


def command(words: list[str]) -> int:
    """Be the command, to Python's last flush of its output; return its exit code."""
    from invaug.lab.cli.main import main

    sys.argv = ["invaug", *words]
    try:
        main()
    except SystemExit as stop:
        code = int(stop.code or 0)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    return code


def ended(pid: int) -> int:
    """Return the exit code of a child, negative if a signal ended it; whatever takes too long is killed."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    for member in session(pid):
        os.kill(member, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def session(leader: int) -> list[int]:
    """Return the living processes of a session, its leader first."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                state, _, _, number = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
            except (OSError, ValueError):
                continue  # gone meanwhile
            if int(number) == leader and state not in "ZX":
                found.append(int(folder.name))
    return sorted(found, key=lambda pid: (pid != leader, pid))


def gone(leader: int) -> list[int]:
    """Wait until nothing of a session lives; return, and kill, what still does after all patience."""
    until = time.monotonic() + PATIENCE
    while session(leader) and time.monotonic() < until:
        time.sleep(0.05)
    left = session(leader)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return left


def write_data(path: Path, n: int = 24) -> str:
    """Write an .npz of random images of 8 x 8 pixels and three classes."""
    images = np.random.default_rng(0).integers(256, size=(n, 8, 8, 1), dtype=np.uint8)
    labels = np.arange(n) % 3
    np.savez(path, x_train=images, y_train=labels, x_test=images[:24], y_test=labels[:24])
    return str(path)


def write_images(folder: Path, classes: tuple[str, ...] = ("a", "b", "c"), n: int = 12) -> str:
    """Write a folder of class folders of random images."""
    images = np.random.default_rng(0).integers(256, size=(len(classes), n, 8, 8), dtype=np.uint8)
    for name, some in zip(classes, images, strict=True):
        (folder / name).mkdir(parents=True)
        for i, image in enumerate(some):
            Image.fromarray(image).save(folder / name / f"{i}.png")
    return str(folder)


def whole(run: Path, epochs: int) -> str:
    """Return what is wrong with a run that should have ended well, empty if nothing is."""
    from invaug.lab.run import checkpoint, record
    from invaug.lab.run import folder as runs

    try:
        runs.read_config(run)
        found, n_rows = checkpoint.load(run / "checkpoints"), len(record.read(run))
    except ValueError as error:
        return str(error)
    if n_rows != epochs or found is None or found.skipped or found.epoch != epochs:
        return f"{n_rows} of {epochs} epochs in the record, the checkpoint is {found and (found.epoch, found.skipped)}"
    return ""


@case("simultaneous starts in one folder: one trains to its end, each other is refused in one line", full=50, fast=10)
def simultaneous_starts(tries: int, folder: Path) -> Iterator[str]:
    """One start is one try."""
    yield from forker().ask("crowd", tries, str(folder))


def crowd(n: int, place: str) -> Iterator[str]:
    """Fork n commands that wait at a gate, and open it."""
    folder = Path(place)
    words = ["train", write_data(folder / "data.npz"), "--out", str(folder / "run"), "--epochs=2", "--quiet", *TINY]
    gate, opener = os.pipe()

    def wait() -> None:
        os.close(opener)
        os.read(gate, 1)  # returns for all at once, when the last writer is closed

    logs = {fork(words, folder / f"{i}.log", wait): folder / f"{i}.log" for i in range(n)}
    os.close(opener)
    os.close(gate)
    codes = {pid: ended(pid) for pid in logs}
    for pid, code in codes.items():
        stderr = logs[pid].read_text()
        refused = "is in use by process" in stderr or "exists and is not empty" in stderr
        if code != 0 and not (code == 2 and refused and stderr.count("\n") == 1 and "Traceback" not in stderr):
            yield f"exit {code}: {stderr[-300:]}"
    winners = list(codes.values()).count(0)
    if winners != 1 or whole(folder / "run", 2):
        yield f"{winners} winners; {whole(folder / 'run', 2)}"


def from_files() -> None:
    """Decode images when they are needed, as if they did not fit in memory."""
    from invaug.lab.data import load

    load.MAX_RESIDENT = 0


def with_workers(place: str, name: str, epochs: int = 10_000) -> int:
    """Start a training whose images two workers decode; return its process once they live."""
    folder = Path(place)
    if not (folder / "images").exists():
        write_images(folder / "images")
    words = [
        "train",
        str(folder / "images"),
        "--out",
        str(folder / name),
        f"--epochs={epochs}",
        "--quiet",
        "--workers=2",
    ]
    pid = fork([*words, *TINY], folder / f"{name}.log", from_files)
    until = time.monotonic() + PATIENCE
    while len(session(pid)) < 3 and session(pid) and time.monotonic() < until:
        time.sleep(0.005)
    return pid


@case(
    "kill -9 of a process that decodes images: the run ends with exit 1 and one line, no process is left",
    full=20,
    fast=2,
)
def killed_workers(tries: int, folder: Path) -> Iterator[str]:
    """Kill a random worker at a random moment."""
    yield from forker().ask("kill_workers", tries, str(folder))


def kill_workers(tries: int, place: str) -> Iterator[str]:
    """Kill one worker after another until the run notices: one that had done its work is not missed."""
    chance = random.Random(0)
    for number in range(tries):
        pid, until = with_workers(place, str(number)), time.monotonic() + PATIENCE
        time.sleep(chance.uniform(0, 0.5))
        code = None
        while code is None and time.monotonic() < until:
            workers = session(pid)[1:]
            if workers:
                try:
                    os.kill(chance.choice(workers), signal.SIGKILL)
                except ProcessLookupError:
                    continue
            time.sleep(0.05)
            done, status = os.waitpid(pid, os.WNOHANG)
            code = os.waitstatus_to_exitcode(status) if done else None
        orphans = gone(pid) if code is not None else session(pid)
        stderr = (Path(place) / f"{number}.log").read_text()
        if code != 1 or orphans or stderr.count("\n") != 1 or DIED not in stderr:
            yield f"exit {code}, {len(orphans)} left, stderr {stderr[-300:]!r}"


@case("kill -9 of the run: the processes that decode images end by themselves", full=10, fast=1)
def killed_runs(tries: int, folder: Path) -> Iterator[str]:
    """Kill the main process at a random moment, and wait for its workers."""
    yield from forker().ask("kill_runs", tries, str(folder))


def kill_runs(tries: int, place: str) -> Iterator[str]:
    """Kill several runs at once, since workers look for their parent every five seconds."""
    chance = random.Random(1)
    pids = []
    for number in range(tries):
        pids.append(with_workers(place, f"main-{number}"))
        time.sleep(chance.uniform(0, 0.5))
        if not stopped_with_workers(pids[-1]):
            yield "there was no worker to outlive it"
        os.kill(pids[-1], signal.SIGKILL)
        os.waitpid(pids[-1], 0)
    for pid in pids:
        left = gone(pid)
        if left:
            yield f"{len(left)} workers still live after {PATIENCE:.0f} s"


def stopped_with_workers(pid: int) -> bool:
    """Stop a run at a moment when it has workers; return whether there was one."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        os.kill(pid, signal.SIGSTOP)
        os.waitpid(pid, os.WUNTRACED)
        if len(session(pid)) > 1:
            return True
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.005)
    return False


LOOKS = 10  # at the open files of a process


class Size(NamedTuple):
    """What a process holds."""

    memory: int
    files: int
    children: int


def size_of(pid: int) -> Size:
    """Return what a process holds now."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    files = []
    for _ in range(LOOKS):  # a checkpoint is open for a moment; a file that was forgotten is open in every look
        files.append(len(os.listdir(f"/proc/{pid}/fd")))  # noqa: PTH208
        time.sleep(0.002)
    return Size(pages * resource.getpagesize(), min(files), len(session(pid)) - 1)


@case(
    f"steps of one run: memory grows by less than {FLAT >> 20} MB from the first tenth on, open files not at all",
    full=5000,
    fast=400,
)
def flat_steps(tries: int, folder: Path) -> Iterator[str]:
    """One step is one try."""
    yield from forker().ask("grow", tries, str(folder), False)


@case(
    f"steps with processes that decode images: memory grows by less than {FLAT >> 20} MB from the first tenth on, "
    "open files not at all",
    full=1000,
    fast=0,
)
def flat_steps_from_files(tries: int, folder: Path) -> Iterator[str]:
    """The same, with workers that come and go at every epoch."""
    yield from forker().ask("grow", tries, str(folder), True)


def grow(n_steps: int, place: str, files: bool) -> Iterator[str]:
    """Train ten epochs, and look at the process from outside when each is in the record."""
    folder, per_epoch = Path(place), n_steps // 10
    n_images = per_epoch * 4
    data = write_images(folder / "images", n=n_images * 5 // 12) if files else write_data(folder / "data.npz", n_images)
    words = ["train", data, "--out", str(folder / "run"), "--epochs=10", "--quiet", f"--workers={int(files)}", *TINY]
    pid = fork(words, folder / "log", from_files if files else lambda: None)
    record, sizes = folder / "run" / "record.jsonl", []
    while len(sizes) < 10:
        lines = record.read_bytes().count(b"\n") if record.exists() else 0
        if lines > len(sizes):
            sizes += [size_of(pid)] * (lines - len(sizes))
        elif os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):  # its session may not have begun yet
            break
        time.sleep(0.001)
    code = ended(pid)
    if code or len(sizes) < 10:
        yield f"exit {code} after {len(sizes)} epochs: {(folder / 'log').read_text()[-300:]}"
        return
    growth = max(size.memory for size in sizes[1:]) - sizes[0].memory
    print(f"grew by {growth / 2**20:.1f} MB; {sizes}", file=sys.stderr)
    if growth > FLAT:
        yield f"grew by {growth >> 20} MB: {[size.memory >> 20 for size in sizes]} MB"
    first, last = (min(size.files for size in half) for half in (sizes[:5], sizes[5:]))  # a file may be open just then
    if last > first:
        yield f"open files went from {first} to {last}"


def python(*words: str) -> list[str]:
    """Return the words that start the command as a user does."""
    return [sys.executable, "-m", "invaug", *words]


STREAMS = (
    "| head -1",
    ">&- 2>&-",
    ">&-",
    "2>&-",
    "<&-",
    "<&- >&- 2>&-",
    ">/dev/full",
    "2>/dev/full",
    ">/dev/full 2>&1",
    "a terminal that goes away",
)


@case(f"a run whose output nobody can read ({', '.join(STREAMS)}) trains to its end, exit 0", full=len(STREAMS), fast=0)
def lost_output(tries: int, folder: Path) -> Iterator[str]:
    """Real processes, started by a shell where the shell does it."""
    data = write_data(folder / "data.npz")
    for number, stream in enumerate(STREAMS[:tries]):
        run, errors = folder / f"run-{number}", folder / f"{number}.log"
        words = python("train", data, "--out", str(run), "--epochs=3", *TINY)
        with errors.open("wb") as err:
            code = OUTPUTS.get(stream, redirected)(words, stream, err)
        stderr = beyond_news(errors.read_text())
        if code or stderr or whole(run, 3):
            yield f"{stream}: exit {code}, {whole(run, 3)}, {stderr[-300:]}"


def environment(**changes: str) -> dict[str, str]:
    """Return the variables of a process."""
    return {**os.environ, "OMP_NUM_THREADS": "1", **changes}


def redirected(words: list[str], stream: str, err: Any) -> int:
    """Let a shell redirect the output."""
    shell = ["sh", "-c", f'exec "$@" {stream}', "sh", *words]
    done = subprocess.run(shell, stdout=subprocess.DEVNULL, stderr=err, env=environment(), cwd=ROOT, check=False)
    return done.returncode


def headed(words: list[str], _: str, err: Any) -> int:
    """Read one line and leave."""
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=err, env=environment(), cwd=ROOT) as process:
        if process.stdout is not None:
            process.stdout.readline()
            process.stdout.close()
        return process.wait(PATIENCE)


def hung_up(words: list[str], _: str, err: Any) -> int:
    """Be the terminal, and go away after the first words."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(words, stdout=theirs, stderr=err, env=environment(), cwd=ROOT) as process:
        os.close(theirs)
        os.read(ours, 1)
        os.close(ours)
        return process.wait(PATIENCE)


@case(
    "the terminal of a run is closed: saved, exit 129 with a command that goes on; under nohup it trains to its end",
    full=10,
    fast=2,
)
def closed_terminals(tries: int, folder: Path) -> Iterator[str]:
    """Every other time under nohup."""
    yield from forker().ask("close_terminals", tries, str(folder))


def close_terminals(tries: int, place: str) -> Iterator[str]:
    """Be the terminal that controls a run, and go away when it trains; its messages go to a file."""
    chance, data = random.Random(2), write_data(Path(place) / "data.npz", 120)
    for number in range(tries):
        run, log, nohup = Path(place) / f"run-{number}", Path(place) / f"{number}.log", bool(number % 2)
        epochs = 4 if nohup else 10_000
        ours, theirs = pty.openpty()
        before = partial(take_terminal, os.ttyname(theirs), nohup)
        pid = fork(["train", data, "--out", str(run), f"--epochs={epochs}", *TINY], log, before)
        until = time.monotonic() + PATIENCE
        while not (run / "record.jsonl").exists() and time.monotonic() < until:
            while select.select([ours], [], [], 0.005)[0]:
                os.read(ours, 4096)  # or the run would wait for us to read
        time.sleep(chance.uniform(0, 0.1))
        os.close(theirs)
        os.close(ours)
        code, stderr = ended(pid), log.read_text()
        if nohup and (code or whole(run, epochs)):
            yield f"under nohup: exit {code}, {whole(run, epochs)}, {stderr[-300:]}"
        if not nohup and (code != 129 or "and saved; resume with: invaug train --resume --out" not in stderr):
            yield f"exit {code}, {stderr[-300:]!r}"


def take_terminal(name: str, nohup: bool) -> None:
    """Let the terminal control this session, and be its standard input and output."""
    terminal = os.open(name, os.O_RDWR)
    for number in (0, 1):
        os.dup2(terminal, number)
    os.closerange(3, 1000)  # the forking process's ends of terminals too, which would keep them open
    signal.signal(signal.SIGHUP, signal.SIG_IGN if nohup else signal.SIG_DFL)


OUTPUTS: dict[str, Callable[[list[str], str, Any], int]] = {"| head -1": headed, "a terminal that goes away": hung_up}
READING = (["ls"], ["ls", "--json"], ["show", "digits-cnn-small"], ["--help"], ["train", "--help"])


@case(
    "commands whose reader has left (ls, show, --help): exit 0 and not a word; on a full disk: exit 1 and one line",
    full=2 * len(READING),
    fast=2 * len(READING),
)
def left_readers(tries: int, folder: Path) -> Iterator[str]:
    """A pipe that nobody reads, or /dev/full."""
    yield from forker().ask("leave", tries, str(folder))


def leave(tries: int, place: str) -> Iterator[str]:
    """Run each command into both."""
    from invaug.lab.config.build import shipped_names

    for number in range(tries):
        words, full = READING[number // 2], bool(number % 2)
        words = ["show", shipped_names()[0]] if words[0] == "show" else words
        log = Path(place) / f"{number}.log"
        code = ended(fork(words, log, to_full if full else to_nobody))
        stderr = log.read_text()
        right = stderr == "invaug: cannot write the output: No space left on device\n" if full else not stderr
        if code != int(full) or not right:
            yield f"{' '.join(words)} to {'/dev/full' if full else 'nobody'}: exit {code}, {stderr[-300:]!r}"


def to_nobody() -> None:
    """Write to a pipe that nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    os.dup2(writer, 1)


def to_full() -> None:
    """Write to a disk that is full."""
    os.dup2(os.open("/dev/full", os.O_WRONLY), 1)


NEWS = (
    "loading PyTorch, which takes a few seconds",
    "compiling the image operations; this happens once and takes about 20 seconds",
)
LOCALES = (
    {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
    {"LC_ALL": "C", "LANG": "C"},
    {"PYTHONIOENCODING": "ascii"},
)
CLASSES = ("Käfer", "日本", "ñandú")


@case(
    "LC_ALL=C, POSIX without UTF-8 mode, output in ASCII: train, evaluate and predict with class names in any script",
    full=len(LOCALES),
    fast=0,
)
def locales(tries: int, folder: Path) -> Iterator[str]:
    """Real processes."""
    data = write_images(folder / "images", CLASSES)
    for number, changes in enumerate(LOCALES[:tries]):
        wrong = used(data, folder / f"run-{number}", environment(**changes))
        if wrong:
            yield f"{changes}: {wrong}"


def beyond_news(stderr: str) -> str:
    """Return what a command complained of: all it wrote but what it says so that nobody wonders what takes time."""
    return "\n".join(line for line in stderr.splitlines() if line not in NEWS)


def used(data: str, run: Path, variables: dict[str, str], prefix: tuple[str, ...] = ()) -> str:
    """Train, evaluate and predict in one process; return what is wrong, empty if nothing is."""
    image = next(Path(data).rglob("*.png"))
    commands = [
        ["train", data, "--out", str(run), "--epochs=1", *TINY],
        ["evaluate", str(run), "--draws=1", "--images=4"],
        ["predict", str(run), str(image)],
        ["evaluate", str(run), "--draws=1", "--images=4", "--json"],
    ]
    script = "import sys, json; from faults.operations import several; several(json.loads(sys.argv[1]))"
    words = [*prefix, sys.executable, "-c", script, json.dumps(commands, ensure_ascii=False)]
    done = subprocess.run(words, env=variables, cwd=ROOT, capture_output=True, check=False)
    said = beyond_news(done.stderr.decode(errors="replace"))
    if done.returncode or said:
        return f"exit {done.returncode}, {said[-400:]}"
    names = set(json.loads(done.stdout.splitlines()[-1])["classes"])
    return "" if names == {path.name for path in Path(data).iterdir()} else f"the classes are {names}"


def several(commands: list[list[str]]) -> None:
    """Run commands until one fails."""
    for words in commands:
        code = command(words)
        if code:
            sys.exit(code)


@case("a home folder and sources that are read-only: train, evaluate and predict work", full=1, fast=0)
def read_only_home(tries: int, folder: Path) -> Iterator[str]:
    """Mounted so for root, who may write what others may not; without permission for others."""
    home, data = folder / "home", write_images(folder / "images")
    home.mkdir()
    home.chmod(0o555)
    variables = environment(HOME=str(home), PYTHONDONTWRITEBYTECODE="1")
    for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "NUMBA_CACHE_DIR"):
        variables.pop(name, None)
    mounts = "".join(
        f'mount --bind "{path}" "{path}" && mount -o remount,ro,bind "{path}" && ' for path in (home, ROOT)
    )
    prefix = ("unshare", "--mount", "sh", "-c", f'{mounts}! touch "{home}/x" 2>/dev/null && exec "$@"', "sh")
    wrong = used(data, folder / "run", variables, prefix if os.geteuid() == 0 else ())
    if wrong or list(home.iterdir()):
        yield wrong or "something is in the home folder"


@case("umask 077: a run works, and none of its files is open to others", full=1, fast=1)
def private(tries: int, folder: Path) -> Iterator[str]:
    """Forked with the mask set."""
    yield from forker().ask("masked", str(folder))


def masked(place: str) -> Iterator[str]:
    """Train under umask 077 and look at every file."""
    folder = Path(place)
    words = ["train", write_data(folder / "data.npz"), "--out", str(folder / "run"), "--epochs=2", "--log=csv", *TINY]
    pid = fork(words, folder / "log", lambda: os.umask(0o077) and None)
    code = ended(pid)
    open_ones = [path.name for path in (folder / "run").rglob("*") if path.stat().st_mode & 0o077]
    if code or open_ones or whole(folder / "run", 2):
        yield f"exit {code}, open to others: {open_ones}; {whole(folder / 'run', 2)}"


if __name__ == "__main__":
    serve()
