"""Numbers, files and memory without measure: absurd flags, mutated configs, folders of strangers, no memory left."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import tomli_w

from faults import security
from faults.harness import case
from faults.small import write_data
from invaug.lab.config.schema import PLACES

ROOT = Path(__file__).parent.parent
PATIENCE = 180  # seconds for a command that must fail, most of which are imports


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    err: str


def command(*words: str, memory: int) -> Ended:
    """Run the real command in a process of its own, with a limit on its addresses and on its time."""
    first = f"import resource; resource.setrlimit(resource.RLIMIT_AS, ({memory}, {memory}))\n"
    text = f"{first}from invaug.cli import main\nmain()"
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    own = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            [sys.executable, "-c", text, *words],
            capture_output=True,
            text=True,
            env=own,
            timeout=PATIENCE,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return Ended(-1, f"no answer in {PATIENCE} s")
    return Ended(done.returncode, done.stderr)


def wrong(code: int, err: str, expected: int) -> str:
    """Return what is wrong with an answer that should be one line and an exit code, empty if nothing is."""
    lines = [line for line in err.splitlines() if not line.startswith("loading PyTorch")]
    one = len(lines) == 1 and lines[0].startswith("invaug: ") and len(lines[0]) < 2500
    return "" if code == expected and one and "Traceback" not in err else f"{code}, {err[-300:]!r}"


# every number of the config, and of the commands' own flags

HUGE = ("1" + "0" * 30, "1e308", "inf", "nan", "-1", "-inf", "9" * 5000)


def number_flags() -> Iterator[tuple[str, str]]:
    """Yield every setting that is a number as a flag, with each absurd value; epsilon may be inf."""
    for name, place in PLACES.items():
        kind = str(place.info.annotation)
        if ("int" in kind or "float" in kind) and name != "log":
            for value in HUGE:
                if (name, value) != ("epsilon", "inf"):
                    yield name, value


MORE: list[tuple[str, ...]] = [
    ("train", "digits", "--seed", str(2**64)),
    ("train", "digits", "--threads", str(10**11)),
    ("train", "digits", "--threads", "4000"),
    ("train", "digits", "--devices", "4000"),
    ("train", "digits", "--workers", "4000"),
    ("train", "digits", "--set", "scalings", "--range", "100"),
    ("train", "digits", "--compare", "--jobs", "1000"),
    ("tune", "digits", "--jobs", "1000"),
    ("tune", "digits", "--trials", "1" + "0" * 20),
    ("tune", "digits", "--folds", "1" + "0" * 20),
    ("insights", "digits", "--jobs", "1000"),
    ("insights", "digits", "--images", "1" + "0" * 20),
    ("insights", "digits", "--epochs", "1" + "0" * 20),
    ("insights", "digits", "--seeds", "1" + "0" * 20),
    ("insights", "digits", "--rounds", "1" + "0" * 20),
    ("insights", "digits", "--image-size", "1" + "0" * 20),
    ("reproduce", "table-1", "--jobs", "1000"),
    ("reproduce", "table-1", "--seeds", "1" + "0" * 20),
    ("evaluate", "run", "--draws", "1" + "0" * 20),
    ("evaluate", "run", "--images", "1" + "0" * 20),
    ("certify", "run", "--images", "1" + "0" * 20),
    ("certify", "run", "--confidence", "inf"),
    ("certify", "run", "--confidence", "nan"),
    ("predict", "run", "image.png", "--top", "1" + "0" * 20),
    ("gallery", "mild", "--images", "1" + "0" * 20),
    ("watch", "run", "--port", "1" + "0" * 20),
]
FLAGS: list[tuple[str, ...]] = [
    *(("train", "digits", f"--{name.replace('_', '-')}={value}") for name, value in number_flags()),
    *MORE,
]


@case(
    "absurd values of every numeric flag: exit code 2, one line, nothing left",
    full=len(FLAGS),
    fast=24,
)
def absurd_flags(tries: int, folder: Path) -> Iterator[str]:
    """Try each flag with each value; a few of them in `make test`, spread over all."""
    with security.working_in(folder):
        for i in range(tries):
            words = FLAGS[i * len(FLAGS) // tries]
            answer = security.invaug(*words)
            bad = wrong(answer.code, answer.err, 2)
            left = [path.name for path in folder.iterdir()]
            if bad or left:
                yield f"{' '.join(words)[:80]}: {bad} {left or ''}"
                for path in folder.iterdir():
                    shutil.rmtree(path)


# mutations of config.toml

VALUES: tuple[Any, ...] = (
    *(-1, 0, 1, 2**31, 2**63, 2**64, 10**30, 10**400, -(10**400), 0.0, -1.0, 1e30, 1e308),
    *(float("inf"), float("-inf"), float("nan"), "", "auto", "x" * 5000, "\x1b[2J", "\0", "../..", "/dev/zero"),
    *([], [[]], [1e308], [None], {}, {"a": {}}, {"rule": "resilient", "alpha": 1e308}, True, False),
    *([0.5] * 3, [1e30], [10**400], {"name": []}),
)
RAW = ("9" * 5000, "0x" + "f" * 5000, "[" * 500, "1979-05-27T07:32:00Z", "inf", "nan", '"' + "\\u0000" * 3 + '"')


def mutate(text: str, chance: random.Random) -> str:
    """Return a config with one or two entries replaced, removed, moved or added."""
    content = tomllib.loads(text)
    for _ in range(chance.choice((1, 1, 2))):
        _change(content, chance)
    lines = tomli_w.dumps(content).splitlines()
    if chance.random() < 0.2:
        which = [i for i, line in enumerate(lines) if " = " in line]
        row = chance.choice(which) if which else 0
        lines[row] = f"{lines[row].partition(' = ')[0]} = {chance.choice(RAW)}"
    return "\n".join(lines) + "\n"


def _change(content: dict[str, Any], chance: random.Random) -> None:
    tables = [content, *(table for table in content.values() if isinstance(table, dict))]
    table = chance.choice(tables)
    key = chance.choice([*table] or ["new"])
    value = chance.choice([value for value in VALUES if value != [None]])
    act = chance.choice(("replace", "replace", "replace", "inside", "remove", "add", "move", "family"))
    if act == "replace":
        table[key] = value
    elif act == "inside" and isinstance(table.get(key), list) and table[key]:
        table[key] = [*table[key][:-1], value]
    elif act == "remove":
        table.pop(key, None)
    elif act == "move":
        chance.choice(tables)[key] = table.pop(key, value) if table is not content else value
    elif act == "family":
        content["families"] = chance.choice(({"a": {"Rotate": value}}, {"a": {"epsilon": value}}, {"a": value}, value))
    else:
        table[chance.choice(("new", *PLACES))] = value


@case(
    "structural mutations of config.toml (wrong types, huge numbers, moved and missing keys): read well, or one line",
    full=1000,
    fast=60,
)
def mutated_configs(tries: int, folder: Path) -> Iterator[str]:
    """Change the config of a run, and open it as evaluate, report and train --resume do."""
    from invaug.lab.errors import UserError
    from invaug.lab.run.folder import load
    from invaug.lab.train.folders import stored_settings

    good = security.good_run(folder)
    before, chance, run = (good / "config.toml").read_text(), random.Random(22), folder / "run"
    shutil.copytree(good, run)
    refused = 0
    for i in range(tries):
        text = mutate(before, chance)
        (run / "config.toml").write_text(text)
        for read in (lambda: load(run), lambda: stored_settings(run, {}, False)):
            try:
                read()
            except UserError as error:
                refused += 1
                if len(str(error)) > 20_000:
                    yield f"mutation {i}: {len(str(error))} characters"
            except BaseException as error:
                (folder / f"failed-{i}.toml").write_text(text)
                yield f"mutation {i}: {type(error).__name__} {str(error)[:200]}"
        if i % 10 == 0:
            answer = security.invaug("report", str(run), "-o", str(folder / "report.html"))
            if (answer.code == 1 and "Traceback" in answer.err) or len(answer.err.splitlines()) > 1:
                yield f"mutation {i}, report: {answer.err[-300:]!r}"
    if refused < tries // 4:
        yield f"only {refused} of {2 * tries} readings were refused: the mutations do not reach"


# what a stranger's folder names


class Stranger(NamedTuple):
    """A copy of a run, a place that must stay empty, and what is about the machine."""

    run: Path
    outside: Path

    def configure(self, table: str, **changes: Any) -> None:
        """Change entries of one table of the config."""
        content = tomllib.loads((self.run / "config.toml").read_text())
        content[table] |= changes
        (self.run / "config.toml").write_text(tomli_w.dumps(content))


def policy(path: str) -> Callable[[Stranger], None]:
    """Let the config name a policy."""
    return lambda who: who.configure("method", name="deepaa", policy=path.format(outside=who.outside))


def weights(path: str) -> Callable[[Stranger], None]:
    """Let the config name weights."""
    return lambda who: who.configure("model", weights=path.format(outside=who.outside))


def data(name: str) -> Callable[[Stranger], None]:
    """Let the config name a dataset to download into a folder outside."""
    return lambda who: who.configure("data", name=name, data_dir=str(who.outside / "new" / "folder"))


HOSTILE: dict[str, Callable[[Stranger], None]] = {
    "a policy without an end": policy("/dev/zero"),
    "4,000 devices": lambda who: who.configure("run", devices=4000),
    "a folder to download MNIST into": data("mnist"),
    "a policy that is a pipe": policy("{outside}/pipe"),
    "a policy that is standard input": policy("/dev/stdin"),
    "a policy of 10 GB": policy("{outside}/sparse"),
    "a policy that is a folder": policy("{outside}"),
    "weights without an end": weights("/dev/zero"),
    "weights that are a pipe": weights("{outside}/pipe"),
    "weights of 10 GB": weights("{outside}/sparse"),
    "weights of 5 GB": weights("{outside}/half"),
    "100,000 devices": lambda who: who.configure("run", devices=100_000),
    "4,000 threads": lambda who: who.configure("run", threads=4000),
    "4,000 workers": lambda who: who.configure("data", workers=4000),
    "a folder to download CIFAR-10 into": data("cifar10"),
    "data that is a device": lambda who: who.configure("data", name="/dev/zero"),
    "data that is a pipe": lambda who: who.configure("data", name=str(who.outside / "pipe.npz")),
}
NO_NET = {"http_proxy": "http://localhost:9", "https_proxy": "http://localhost:9"}  # the port that discards


def outside_of(folder: Path) -> Path:
    """Make a folder with what a config may name: a pipe, and files of gigabytes that take no room."""
    outside = folder / "outside"
    outside.mkdir()
    os.mkfifo(outside / "pipe")
    os.mkfifo(outside / "pipe.npz")
    for name, size in (("sparse", 10 << 30), ("half", 5 << 30)):
        with (outside / name).open("wb") as file:
            file.truncate(size)
    return outside


def in_time(*words: str) -> security.Answer:
    """Run the command in this process; what takes longer than a minute has failed."""

    def give_up(signum: int, frame: Any) -> None:
        raise TimeoutError("no answer in a minute")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(60)
    try:
        return security.invaug(*words)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@case(
    "train --resume of a stranger's folder that names devices, pipes, huge files, thousands of processes, folders to "
    "write: one line, in time, little memory, nothing written outside",
    full=len(HOSTILE),
    fast=3,
)
def strangers(tries: int, folder: Path) -> Iterator[str]:
    """Resume each, with one more gigabyte of addresses than the process has."""
    good, outside = security.good_run(folder), outside_of(folder)
    shutil.rmtree(good / "checkpoints")  # a run that has not saved yet, so that nothing hides what its config asks for
    home = folder / "home"
    home.mkdir()
    own = {"HOME": str(home), "XDG_CACHE_HOME": str(home), **NO_NET}
    for name in [*HOSTILE][:tries]:
        run = folder / "stranger"
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(good, run)
        HOSTILE[name](Stranger(run, outside))
        before = sorted(outside.rglob("*"))
        with patch.dict(os.environ, own), security.working_in(folder), security.little_memory(1 << 30):
            answer = in_time("train", "--resume", "--quiet", "--out", str(run))
        said = [line for line in answer.err.splitlines() if "which only the run names" not in line]
        bad = wrong(answer.code, "\n".join(said), 2)
        if sorted(outside.rglob("*")) != before:
            bad += " wrote outside"
        if bad:
            yield f"{name}: {bad}"


# no memory


def large_data(path: Path) -> Path:
    """Write an .npz of images that take more memory than a process gets."""
    import numpy as np

    n = 40_000
    images, labels = np.zeros((n, 64, 64, 3), np.uint8), np.arange(n) % 3
    np.savez(path, x_train=images, y_train=labels, x_test=images, y_test=labels)
    return path


def memory_of_imports() -> int:
    """Return the bytes of addresses that a command has before it reads anything."""
    text = "import invaug.lab.train.command\nprint(open('/proc/self/statm').read().split()[0])"
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    own = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, env=own, check=True)
    return int(done.stdout) * resource.getpagesize()


@case("memory that runs out in a command: exit code 1, one line with the way out", full=5, fast=0)
def no_memory(tries: int, folder: Path) -> Iterator[str]:
    """Give commands fewer addresses than their data takes."""
    run, large = security.good_run(folder), large_data(folder / "large.npz")
    small = write_data(folder)
    limit = memory_of_imports() + (400 << 20)
    commands = [
        ("train", str(large), "--out", str(folder / "new"), "--quiet", "--threads=1"),
        ("train", str(small), "--out", str(folder / "wide"), "--quiet", "--threads=1", "--model=wrn-16-300"),
        ("evaluate", str(run), "--data", str(large)),
        ("certify", str(run), "--data", str(large)),
        ("gallery", "mild", str(large), "-o", str(folder / "gallery.html")),
    ]
    for words in commands[:tries]:
        ended = command(*words, memory=limit)
        bad = wrong(ended.code, ended.err, 1)
        if bad or "memory ran out" not in ended.err:
            yield f"{' '.join(words)[:60]}: {bad or ended.err}"
