"""Hostile runs, checkpoints and names: nothing runs, nothing outside is touched, each is answered in one line."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import pickle
import re
import resource
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import torch
from PIL import Image

from faults.harness import case
from invaug.lab.config.schema import PLACES
from invaug.lab.run import checkpoint, record

SMALL = (
    "--model=cnn-small",
    "--epochs=2",
    "--batch-size=8",
    "--workers=0",
    "--threads=1",
    "--only=Identity",
    "--n-levels=2",
)
MOST_MEMORY = 64 << 20  # bytes a refusal may take beside what the process has


class Answer(NamedTuple):
    """What a command answered."""

    code: int
    out: str
    err: str


def invaug(*words: str) -> Answer:
    """Run the command in this process."""
    from invaug.lab.cli.main import main

    out, err, code = io.StringIO(), io.StringIO(), 0
    with patch.object(sys, "argv", ["invaug", *words]), redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        except Exception as error:  # what a user would see as a traceback
            code = 1
            print(f"Traceback: {error!r}", file=err)
    return Answer(code, out.getvalue(), err.getvalue())


def is_plain(text: str) -> bool:
    """Whether a terminal would show the text and do nothing else."""
    return all(character.isprintable() or character == "\n" for character in text)


def write_data(path: Path, classes: Iterable[str] = ("a", "b", "c")) -> Path:
    """Write an .npz of random images of 8 x 8 pixels; return its path."""
    names = list(classes)
    labels = np.arange(8 * len(names)) % len(names)
    images = np.random.default_rng(0).integers(256, size=(len(labels), 8, 8, 1), dtype=np.uint8)
    np.savez(path, x_train=images, y_train=labels, x_test=images, y_test=labels, classes=np.array(names))
    return path


def good_run(folder: Path) -> Path:
    """Train a small run of two checkpoints; return its folder."""
    run = folder / "good" / "run"
    answer = invaug("train", str(write_data(folder / "data.npz")), "--out", str(run), *SMALL)
    if answer.code:
        raise RuntimeError(answer.err)
    return run


class Canary:
    """Unpickling this writes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.write_text, (self.path, "sang")


class Target(NamedTuple):
    """A copy of a good run to attack, and what must stay untouched beside it."""

    run: Path
    outside: Path

    @property
    def canary(self) -> Path:
        """The file that is there once code of the attacker's has run."""
        return self.outside / "canary"

    @property
    def manifest(self) -> Path:
        """The newest manifest."""
        return sorted((self.run / "checkpoints").glob("*.json"))[-1]

    def forge(self, **changes: Any) -> None:
        """Change the newest manifest as one would who knows how it is sealed."""
        body = {key: value for key, value in json.loads(self.manifest.read_text()).items() if key != "sha256"}
        self.manifest.write_bytes(checkpoint.seal({**body, **changes}))

    def name_file(self, name: Any, content: bytes = b"") -> None:
        """Let the manifest name a file of tensors, with its right size and hash."""
        about = {"file": name, "size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        self.forge(tensors=about)

    def put_tensors(self, content: bytes) -> None:
        """Write other tensors, under their right hash."""
        self.manifest.with_suffix(".safetensors").write_bytes(content)
        self.name_file(self.manifest.with_suffix(".safetensors").name, content)

    def configure(self, **changes: str) -> None:
        """Change lines of config.toml."""
        file = self.run / "config.toml"
        text = file.read_text()
        for key, value in changes.items():
            place = PLACES.get(key)
            if place is None:
                text = f"{key} = {value}\n{text}"
            else:
                head, table, rest = text.partition(f"[{place.record}]\n")
                line = re.compile(rf"^{place.field} = .*$", re.MULTILINE)
                changed = line.sub(lambda _, p=place, v=value: f"{p.field} = {v}", rest, count=1)
                assert changed != rest
                text = f"{head}{table}{changed}"
        file.write_text(text)


def zipped(canary: Path) -> bytes:
    """Return what torch.save makes of code."""
    stream = io.BytesIO()
    torch.save({"state": Canary(canary)}, stream)
    return stream.getvalue()


def sparse(target: Target, size: int = 1 << 40) -> None:
    """Name tensors of 1 TiB, of which the disk holds nothing."""
    tensors = target.manifest.with_suffix(".safetensors")
    os.truncate(tensors, size)
    target.forge(tensors={"file": tensors.name, "size": size, "sha256": "0" * 64})


def linked(path: Path, to: Path) -> None:
    """Replace a file or folder by a link to its content elsewhere."""
    if path.exists():
        shutil.move(path, to)
    path.symlink_to(to)


def own_code(target: Target) -> None:
    """Name a module of the attacker's as the model, where Python finds it."""
    text = f"from pathlib import Path\nPath({str(target.canary)!r}).write_text('sang')\n"
    (target.run / "hostile_model.py").write_text(text)
    target.configure(model='"hostile_model:factory"')


DEEP = b'"state": ' + b"[" * 10**6
PRIVATE = "3.1415926"
FALLS_BACK, REFUSED, WORKS = "falls back", "refused", "works"
WITHOUT_RECORD = "works, or says what is not known without the record"
PASSED_OVER, REFUSED_ALWAYS = (FALLS_BACK, FALLS_BACK), (REFUSED, REFUSED)
Attack = tuple[Callable[[Target], Any], str, str]
ATTACKS: dict[str, Attack] = {  # what is done; what reading commands answer; what train --resume answers
    "a pickle": (lambda t: t.put_tensors(pickle.dumps(Canary(t.canary))), *PASSED_OVER),
    "a torch.save": (lambda t: t.put_tensors(zipped(t.canary)), *PASSED_OVER),
    "a header that is a pickle": (
        lambda t: t.put_tensors(struct.pack("<Q", len(p := pickle.dumps(Canary(t.canary)))) + p),
        *PASSED_OVER,
    ),
    "a path upwards": (lambda t: t.name_file("../../../outside/secret", PRIVATE.encode()), *PASSED_OVER),
    "an absolute path": (lambda t: t.name_file(str(t.outside / "secret"), PRIVATE.encode()), *PASSED_OVER),
    "a NUL in a file name": (lambda t: t.name_file("step-00000006.safetensors\0"), *PASSED_OVER),
    "control codes in a file name": (lambda t: t.name_file("\x1b]0;hi\x07\n\x1b[2J"), *PASSED_OVER),
    "a tensor that is not there": (lambda t: t.forge(state={"model": {"$tensor": "\x1b[2J"}}), *PASSED_OVER),
    "a tag for code": (lambda t: t.forge(state={"model": {"$python": "print(1)"}}), *PASSED_OVER),
    "an endless epoch": (lambda t: t.forge(epoch=10**400), *PASSED_OVER),
    "nested lists": (
        lambda t: t.manifest.write_bytes(checkpoint.first_line(DEEP) + DEEP),
        *PASSED_OVER,
    ),
    "nested dicts": (lambda t: t.forge(state=nested(250)), *PASSED_OVER),
    "tensors of 1 TiB": (sparse, *PASSED_OVER),
    "a manifest of 1 TiB": (lambda t: os.truncate(t.manifest, 1 << 40), *PASSED_OVER),
    "linked tensors": (
        lambda t: linked(t.manifest.with_suffix(".safetensors"), t.outside / "tensors"),
        *PASSED_OVER,
    ),
    "a linked manifest": (lambda t: linked(t.manifest, t.outside / "manifest"), *PASSED_OVER),
    "linked checkpoints": (lambda t: linked(t.run / "checkpoints", t.outside / "checkpoints"), *REFUSED_ALWAYS),
    "a linked lock": (lambda t: linked(t.run / ".lock", t.outside / "secret"), WORKS, REFUSED),
    "a linked record": (lambda t: linked(t.run / "record.jsonl", t.outside / "record"), WITHOUT_RECORD, REFUSED),
    "a linked config": (lambda t: linked(t.run / "config.toml", t.outside / "config.toml"), *REFUSED_ALWAYS),
    "a linked log": (lambda t: linked(t.run / "tensorboard", t.outside / "new"), WORKS, REFUSED),
    "a model that is code": (own_code, *REFUSED_ALWAYS),
    "a model larger than memory": (lambda t: t.configure(model='"wrn-16-999"'), *REFUSED_ALWAYS),
    "images larger than memory": (lambda t: enlarged(t.run / "config.toml"), *REFUSED_ALWAYS),
    "a preset that is code": (lambda t: t.configure(preset="\"__import__('os')\""), *REFUSED_ALWAYS),
    "a key with control codes": (lambda t: t.configure(**{'"\\u001b[2J"': "1"}), *REFUSED_ALWAYS),
    "a config of nested lists": (lambda t: t.configure(model="[" * 10**5), *REFUSED_ALWAYS),
}


def nested(depth: int) -> Any:
    """Return dicts in dicts, which json reads and our decoder may not."""
    inner: Any = {"$tuple": []}
    for _ in range(depth):
        inner = {"$tuple": [{"a": inner}]}
    return inner


def enlarged(file: Path) -> None:
    """Let the config name images of 64 Mpx."""
    text = file.read_text()
    start = text.index("image_shape")
    file.write_text(f"{text[:start]}image_shape = [1, 8192, 8192]\n{text[text.index(']', start) + 1 :]}")


WATCHED: dict[str, Path] = {}
SEEN: list[str] = []
ACTS = ("pickle.find_class", "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "socket.connect")


def watcher(event: str, given: tuple[Any, ...]) -> None:
    """Note what may not happen while a hostile run is used: code, programs, the net, files outside."""
    if not WATCHED:
        return
    if event in ACTS:
        SEEN.append(event)
    elif event == "open" and isinstance(given[0], str | bytes | Path) and not given[2] & os.O_NOFOLLOW:
        path = Path(os.path.realpath(os.fsdecode(given[0]))) if b"\0" not in os.fsencode(given[0]) else Path()
        if path.is_relative_to(WATCHED["outside"]):
            SEEN.append(f"open {path.name}")


@contextmanager
def watched(outside: Path) -> Iterator[list[str]]:
    """Yield a list of what was seen that may not happen."""
    if watcher not in INSTALLED:
        sys.addaudithook(watcher)  # for good: Python removes none
        INSTALLED.append(watcher)
    SEEN.clear()
    WATCHED["outside"] = Path(os.path.realpath(outside))
    try:
        yield SEEN
    finally:
        WATCHED.clear()


INSTALLED: list[Any] = []


def content(folder: Path) -> dict[str, bytes | str]:
    """Return every file and link below a folder and what is in it."""
    return {
        str(path): str(path.readlink()) if path.is_symlink() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


def wrong_answer(answer: Answer, expected: str) -> str:
    """Return what is wrong with an answer, empty if nothing is."""
    lines = answer.err.splitlines()
    if not is_plain(answer.err) or not is_plain(answer.out) or PRIVATE in answer.err:
        return f"stderr {answer.err!r}"
    if expected == REFUSED:
        right = answer.code == 2 and len(lines) == 1 and lines[0].startswith("invaug: ")
    elif expected == FALLS_BACK:
        right = answer.code == 0 and len(lines) == 1 and " was skipped: " in lines[0]
    elif expected == WITHOUT_RECORD:
        right = answer.code == 0 and all(line.startswith("epsilon is not known: ") for line in lines)
    else:
        right = answer.code == 0 and not lines
    return (
        ""
        if right and max(map(len, lines), default=0) < 1000
        else f"not {expected}: {answer.code}, {answer.err[:300]!r}"
    )


@case(
    "malicious run folders (pickles, paths, links, code as model, bombs): nothing runs, nothing outside is opened, "
    "one line each",
    full=len(ATTACKS),
    fast=len(ATTACKS),
)
def malicious_runs(tries: int, folder: Path) -> Iterator[str]:
    """Each attack on a copy of a good run; then evaluate, export and train --resume, with Python's audit events on."""
    good = good_run(folder)
    torch.set_num_threads(1)
    for number in range(tries):
        name, (attack, reading, resuming) = list(ATTACKS.items())[number * len(ATTACKS) // tries]
        place = folder / str(number)
        target = Target(place / "run", place / "outside")
        shutil.copytree(good, target.run)
        target.outside.mkdir()
        (target.outside / "secret").write_text(PRIVATE)
        attack(target)
        before = content(target.outside)
        with watched(target.outside) as seen, working_in(target.run), little_memory():
            answers = {
                "evaluate": wrong_answer(invaug("evaluate", str(target.run), "--draws=1", "--images=4"), reading),
                "export": wrong_answer(invaug("export", str(target.run), "-o", str(place / "model")), reading),
                "resume": wrong_answer(invaug("train", "--resume", "--out", str(target.run), "--quiet"), resuming),
            }
        wrong = [f"{command} {answer}" for command, answer in answers.items() if answer]
        wrong += [f"did {what}" for what in dict.fromkeys(seen)]
        wrong += ["changed what is outside"] if content(target.outside) != before else []
        if wrong:
            yield f"{name}: {'; '.join(wrong)}"


@contextmanager
def little_memory(more: int = 2 << 30) -> Iterator[None]:
    """Let the process take only so many bytes more: what asks for all memory must not get that of the machine."""
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (taken + more, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@contextmanager
def working_in(folder: Path) -> Iterator[None]:
    """Be in a folder, where modules are found too."""
    before, path = Path.cwd(), list(sys.path)
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        os.chdir(before)
        sys.path[:] = path


def header(entries: Any) -> bytes:
    """Return the head of a safetensors file."""
    text = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text


def entry(dtype: str = "F32", shape: Any = (1,), offsets: Any = (0, 4)) -> dict[str, Any]:
    """Return what a header says of a tensor."""
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


TWICE = b'{"a": %b, "a": %b}' % (json.dumps(entry()).encode(), json.dumps(entry(offsets=(4, 8))).encode())
HEADERS: dict[str, bytes] = {
    "a length of 2^64": struct.pack("<Q", 2**64 - 1) + b"{}",
    "a length past the end": struct.pack("<Q", 10**9) + b"{}",
    "cut in the header": header({"a": entry()})[:20],
    "cut in the data": header({"a": entry()}) + bytes(2),
    "overlapping offsets": header({"a": entry(), "b": entry()}) + bytes(4),
    "negative offsets": header({"a": entry(offsets=(-4, 0))}) + bytes(4),
    "offsets past the end": header({"a": entry(shape=(2**28,), offsets=(0, 2**30))}) + bytes(4),
    "a key twice": header(TWICE) + bytes(8),
    "an unknown type with control codes": header({"a": entry("\x1b[2J")}) + bytes(4),
    "another type than the model's": header({"a": entry("F64", offsets=(0, 8))}) + bytes(8),
    "a NaN as shape": header(b'{"a": {"dtype": "F32", "shape": [NaN], "data_offsets": [0, 4]}}') + bytes(4),
    "a shape that overflows": header({"a": entry(shape=(2**32, 2**32))}) + bytes(4),
    "10^5 nested lists": header(b"[" * 10**5),
    "a header of 200 MB": header(b" " * (200 << 20)),
}


def peak() -> int:
    """Return the most memory this process had since `forget_peak`."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def forget_peak() -> int:
    """Start to count anew; return the memory of now."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak()


@case(
    f"bad safetensors headers under a right hash: one line, less than {MOST_MEMORY >> 20} MB beside the file, the "
    "checkpoint before is used",
    full=len(HEADERS),
    fast=len(HEADERS),
)
def bad_headers(tries: int, folder: Path) -> Iterator[str]:
    """Each header in the newest checkpoint of a good run, which is then exported."""
    good = good_run(folder)
    earlier = checkpoint.read(sorted((good / "checkpoints").glob("*.json"))[0]).state["model"]
    for number, (name, data) in enumerate(list(HEADERS.items())[:tries]):
        target = Target(folder / str(number), folder / "outside")
        shutil.copytree(good, target.run)
        target.put_tensors(data)
        before = forget_peak()
        answer = invaug("export", str(target.run), "-o", str(folder / f"{number}.safetensors"))
        extra = peak() - before - len(data)
        wrong = wrong_answer(answer, FALLS_BACK)
        if not wrong and extra > MOST_MEMORY:
            wrong = f"took {extra >> 20} MB"
        if not wrong and not same_weights(earlier, folder / f"{number}.safetensors"):
            wrong = "other weights than those of the checkpoint before"
        if wrong:
            yield f"{name}: {wrong}"


def same_weights(weights: dict[str, torch.Tensor], file: Path) -> bool:
    """Whether an exported file holds these weights."""
    from safetensors.torch import load_file

    found = load_file(file)
    return found.keys() == weights.keys() and all(torch.equal(found[name], weights[name]) for name in weights)


NAMES: dict[str, str] = {  # name: what is wrong with it
    "a\0b": "NUL",
    "x" * 300: "300 characters",
    "new\nline": "a new line",
    "": "empty",
    "\x1b[2Jx": "control codes",
    "file": "a file",
    "file/run": "below a file",
    "dangling": "a dangling link",
    "dangling/run": "below one",
    "loop": "a link to itself",
    "to-file": "a link to a file",
    "new/" + "y" * 300: "300 characters in a new folder",
    "z/" * 3000: "6,000 characters",
    "\udcff": "not UTF-8",
    "pipe": "a pipe",
    "\u202egnp.x": "written backwards",
}
GOOD_NAMES = ("../beside", "sub/../other", "a b", "[bold]x[/bold]", "=1+1", "Käfer 日本")


@case(
    "names no run can have: one line, exit 2, nothing written; `../x` and absolute paths are the user's own",
    full=len(NAMES) + len(GOOD_NAMES) + 1,
    fast=len(NAMES) + 2,
)
def run_names(tries: int, folder: Path) -> Iterator[str]:
    """Train into each name."""
    data, place = write_data(folder / "data.npz"), folder / "here"
    place.mkdir()
    (place / "file").write_text("content")
    os.mkfifo(place / "pipe")
    for link, to in (("dangling", "nowhere"), ("loop", "loop"), ("to-file", "file")):
        (place / link).symlink_to(to)
    wanted = [*((name, 2) for name in NAMES), *((name, 0) for name in (str(folder / "absolute"), *GOOD_NAMES))]
    for name, code in wanted[:tries]:
        before = content(folder), sorted(folder.rglob("*"))
        with working_in(place):
            answer = invaug("train", str(data), "--out", name, "--epochs=1", *SMALL[2:], "--method=none", "--model=mlp")
            there = code == 2 or (Path(name) / "record.jsonl").is_file()
        lines = answer.err.splitlines()
        if answer.code != code or not is_plain(answer.err + answer.out) or not there or (code and len(lines) != 1):
            yield f"{name[:20]!r}: exit {answer.code}, {answer.err[:200]!r}"
        elif code and (content(folder), sorted(folder.rglob("*"))) != before:
            yield f"{name[:20]!r}: something was written"


HOSTILE = (
    "[bold]x[/bold]",
    "[/]",
    "[red]",
    "[link=file:///etc/passwd]x[/link]",
    ":skull:",
    "\x1b[31mred",
    "\x1b[2J\x1b[H",
    "\x1b]0;title\x07",
    "\x1b]8;;http://x\x1b\\y",
    "\x9b31m",
    "a\rb",
    "a\nepoch 1",
    "a\tb",
    "a\bb",
    "\x7f",
    "\u202etxt.exe",
    "\u2028x",
    "=1+1",
    "+1",
    "-1+cmd|' /C calc'!A0",
    "@SUM(A1)",
    '=HYPERLINK("http://x","y")',
    "\t=1+1",
    "\uff1d1+1",
    "a;=1+1",
    'a",=1+1,"',
    "<script>alert(1)</script>",
    "{0.__class__}",
    "%s%n",
    "Käfer 日本 🐞",
)
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


@case(
    "hostile strings as class, file and run names: the terminal shows them and does nothing, JSON gives them back, "
    "CSV has no formula",
    full=len(HOSTILE),
    fast=5,
)
def hostile_names(tries: int, folder: Path) -> Iterator[str]:
    """Train, evaluate and predict with each; every sixth in the fast part."""
    for number in range(tries):
        name = HOSTILE[number * len(HOSTILE) // tries]
        wrong = list(dict.fromkeys(misread(name, folder / str(number))))
        if wrong:
            yield f"{name!r}: {'; '.join(wrong)}"


def shown_as(text: str) -> str:
    """Return a text with a question mark for what would do something to a terminal."""
    return "".join(character if character.isprintable() else "?" for character in text)


def misread(name: str, folder: Path) -> Iterator[str]:
    """Yield what goes wrong with a name."""
    folder.mkdir()
    on_disk = name.replace("/", "_")
    data = write_data(folder / f"{on_disk}.npz", (name, f"{name}2", "c"))
    run = folder / on_disk if on_disk.isprintable() else folder / "run"
    image = folder / f"{on_disk}.png"
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(image)
    settings = ("--epochs=1", "--method=none", "--model=mlp", *SMALL[2:], "--log=csv")
    answer = {
        "train": invaug("train", str(data), "--out", str(run), *settings),
        "evaluate": invaug("evaluate", str(run), "--draws=1", "--images=2"),
        "predict": invaug("predict", str(run), str(image)),
        "ls": invaug("predict", str(run), str(folder / f"no {on_disk}.png")),
        "other data": invaug("evaluate", str(run), "--data", str(write_data(folder / "other.npz", (f"x{name}", "c")))),
    }
    for command, (code, out, err) in answer.items():
        if not is_plain(out + err) or code != (2 if command in ("ls", "other data") else 0):
            yield f"{command} ended with {code} and {err[-200:]!r}"
    shown = shown_as(name)
    if shown not in answer["predict"].out or shown_as(" ".join(f"x{name}".split())) not in answer["other data"].err:
        yield f"it was not shown as it is: {answer['predict'].out!r}"
    if shown not in answer["evaluate"].out.replace("\n", "") and len(shown) < 30:  # longer ones are folded
        yield f"evaluate does not show it: {answer['evaluate'].out!r}"
    yield from misread_files(name, run, image, folder)


def misread_files(name: str, run: Path, image: Path, folder: Path) -> Iterator[str]:
    """Yield what goes wrong where programs read a name."""
    predicted = json.loads(invaug("predict", str(run), str(image), "--json").out)
    if {guess["class"] for guess in predicted[0]["predictions"]} != {name, f"{name}2", "c"}:
        yield "JSON has another name"
    measured = json.loads(invaug("evaluate", str(run), "--draws=1", "--images=2", "--json").out)
    if set(measured["classes"]) != {name, f"{name}2", "c"}:
        yield "JSON has another name"
    record.to_csv([{"epoch": 1, name: name, "nested": {name: [name]}}], folder / "names.csv")
    for file in (folder / "names.csv", run / "record.csv"):
        cells = [cell for row in csv.reader(io.StringIO(file.read_bytes().decode(), newline="")) for cell in row]
        if any(cell.startswith(FORMULA) and not is_number(cell) for cell in cells):
            yield f"{file.name} has a formula"


def is_number(cell: str) -> bool:
    """Whether a cell is what a spreadsheet may take for a number."""
    try:
        float(cell)
    except ValueError:
        return False
    return True


MARK = "k4n4ry"


FORMATS = ("safetensors", "state-dict", "torchscript", "onnx")


@case(
    "checkpoints, and models in each exported format: no environment variable, no path of the home folder, of Python "
    "or of the sources",
    full=1 + len(FORMATS),
    fast=2,
)
def nothing_of_the_machine(tries: int, folder: Path) -> Iterator[str]:
    """Train and export in a process whose variables, home and folders all have a mark, and look for it."""
    home, root = folder / f"home-{MARK}", str(Path(__file__).parent.parent)
    home.mkdir()
    write_data(home / "data.npz")
    run, names = f"{home}/run", ("USER", "LOGNAME", "SESSION_TOKEN", "AWS_ACCESS_KEY_ID", "HOSTNAME", "WANDB_API_KEY")
    environment = {**os.environ, **{name: f"{MARK}-{name}" for name in names}, "HOME": str(home)}
    script = "import sys; from faults.security import several; sys.exit(several(sys.argv[1:]))"
    words = [f"train|{home}/data.npz|--out|{run}|" + "|".join(SMALL)]
    words += [f"export|{run}|--to|{to}|-o|{home}/model.{to}" for to in FORMATS[: tries - 1]]
    command = [sys.executable, "-W", "ignore", "-c", script, *words]
    done = subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True, check=False)
    written = [sorted((home / "run" / "checkpoints").iterdir()), *([f] for f in sorted(home.glob("model.*")))]
    if done.returncode or len(written) != tries or len(written[0]) != 4:
        yield f"exit {done.returncode}, {len(written)} of {tries} written: {done.stderr[-300:]}"
        return
    needles = (MARK, sys.prefix, root, str(Path(torch.__file__).parent))
    for files in written:
        found = [needle for needle in needles if any(needle.encode() in unpacked(file) for file in files)]
        if found:
            yield f"{files[0].name} holds {', '.join(found)}"


def several(commands: list[str]) -> int:
    """Run commands, whose words are parted by bars; return the highest of their exit codes."""
    return max(invaug(*words.split("|")).code for words in commands)


def unpacked(file: Path) -> bytes:
    """Return the bytes of a file, and of what it holds if it is a zip."""
    import zipfile

    raw = file.read_bytes()
    if not zipfile.is_zipfile(file):
        return raw
    with zipfile.ZipFile(file) as members:
        return raw + b"".join(members.read(name) for name in members.namelist())
