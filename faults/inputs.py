"""Files that lie about what they hold, or are no files: one line, no traceback, and no more memory than is stated."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from faults.data import invaug as command
from faults.data import write_folder
from faults.harness import case
from faults.odd_arrays import change, members_of, write_members
from faults.small import arguments, invaug, resumed, write_data

EXTRA = 100_000  # kilobytes that a refusal may take beside the same command on an ordinary mistake
PATIENCE = 60  # seconds until a command that reads a pipe counts as waiting for ever
COMMAND = """
import sys
from invaug.lab.cli.main import main
code = 0
try:
    main()
except SystemExit as stop:
    code = stop.code
print(next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")))
raise SystemExit(code)
"""


def weigh(*words: str) -> tuple[int, int, str]:
    """Run the command in a process of its own; return its exit code, its peak of memory in kB and its stderr."""
    process = [sys.executable, "-c", COMMAND, *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(process, capture_output=True, text=True, env=environment, check=False)
    return done.returncode, int((done.stdout.split() or ["0"])[-1]), done.stderr


@case(
    "one label of 2^31 or 2^62 in an .npz: train and scan refuse it in one line, for less than 100 MB",
    full=4,
    fast=1,
)
def huge_labels(tries: int, folder: Path) -> Iterable[str]:
    """Compare the peak of memory with that of the same command on a label of -1."""
    arrays = dict(np.load(write_data(folder)))
    peaks: dict[str, int] = {}
    for i in range(tries):
        verb, label = ("scan", "train")[i % 2], (2**31, 2**62)[i // 2 % 2]
        words = ["--quiet", "--out", str(folder / "run"), "--epochs=1"] if verb == "train" else []
        for odd in (-1, label):
            labels = arrays["y_train"].copy()
            labels[5] = odd
            path = folder / f"{odd}.npz"
            np.savez(path, **{**arrays, "y_train": labels})
            code, peaks[str(odd)], said = weigh(verb, str(path), *words)
            if code != (2 if verb == "train" else 1) or "Traceback" in said:
                yield f"{verb} {odd}: exit code {code}, {said}"
        if peaks[str(label)] - peaks["-1"] > EXTRA:
            yield f"{verb} {label}: {peaks}"


@case("an odd member in an .npz under its right checksum: read, or refused in one line", full=1000, fast=60)
def odd_members(tries: int, folder: Path) -> Iterable[str]:
    """Load and scan .npz files of which one member is changed; an array may be odd and usable."""
    from invaug.lab.data.load import load_dataset
    from invaug.lab.data.scan.command import scan

    members = members_of(write_data(folder))
    for i in range(tries):
        path = write_members(folder / "odd.npz", change(members, random.Random(i)))
        yield from (f"{i}: load: {found}" for found in complaints(load_dataset, str(path)))
        yield from (f"{i}: scan: {found}" for found in complaints(scan, path))


def complaints(function: Callable[..., Any], *arguments: Any) -> Iterator[str]:
    """Call what may refuse its input in one line; yield what else it does."""
    from invaug.lab.errors import UserError

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            function(*arguments)
        except UserError as error:
            if "\n" in str(error) or len(str(error)) > 2000:
                yield f"not a line: {str(error)[:200]!r}"
        except Exception as error:  # what a user would see as a traceback
            yield f"{type(error).__name__}: {str(error)[:200]}"
    yield from (f"warns: {str(each.message)[:200]}" for each in warned)


PIXELS = """
import sys
import warnings
from pathlib import Path

import numpy as np
from PIL import Image

from invaug.lab.data import decode, memory
from invaug.lab.data.inspect_file import inspect_file

warnings.simplefilter("ignore")
SIDE = 2400
random = np.random.default_rng(0)
colour = Image.fromarray(random.integers(256, size=(SIDE // 40, SIDE // 40, 3), dtype=np.uint8)).resize((SIDE, SIDE), 0)
grey = np.asarray(colour.convert("L"))
exif = Image.Exif()
exif[0x0112] = 6
deep, real = Image.fromarray(grey.astype(np.uint16) * 257), Image.fromarray(grey.astype(np.float32) / 255)
whole = {"compression": "tiff_deflate", "strip_size": 1 << 30}
two = {"save_all": True, "append_images": [colour.rotate(180)]}
KINDS = [
    ("RGBA.png", colour.convert("RGBA"), {}),
    ("grey16.png", deep, {}),
    ("scans.jpg", colour, {"progressive": True, "subsampling": 0}),
    ("L.png", colour.convert("L"), {}),
    ("1.png", colour.convert("1"), {}),
    ("P.png", colour.quantize(64), {}),
    ("transparent.png", colour.quantize(64), {"transparency": 3}),
    ("LA.png", colour.convert("LA"), {}),
    ("RGB.png", colour, {}),
    ("CMYK.jpg", colour.convert("CMYK"), {"progressive": True}),
    ("CMYK.tiff", colour.convert("CMYK"), whole),
    ("RGBA.tiff", colour.convert("RGBA"), whole),
    ("grey16.tiff", deep, whole),
    ("grey32.tiff", Image.fromarray(grey.astype(np.int32)), whole),
    ("F.tiff", real, whole),
    ("two.gif", colour.quantize(64), {**two, "append_images": [colour.rotate(180).quantize(64)]}),
    ("two.webp", colour, {**two, "method": 0}),
    ("RGB.bmp", colour, {}),
    ("RGB.ppm", colour, {}),
]


def status(key):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(key))


def weigh(function, *arguments):
    open("/proc/self/clear_refs", "w").write("5")
    before = status("VmRSS")
    function(*arguments)
    return status("VmHWM") - before


for name, image, options in KINDS[: int(sys.argv[2])]:
    path = Path(sys.argv[1]) / name
    turned = {} if path.suffix in (".gif", ".bmp", ".ppm") else {"exif": exif}
    image.save(path, **options, **turned)
    with decode.open_stream(path) as stream, decode.open_image(stream) as opened:
        counted = memory.bytes_needed(opened, (64, 64)) // 1024
    taken = [weigh(decode.decode, path, (3, 32, 32), (0, 65535)), weigh(inspect_file, path)]
    memory.MAX_BYTES = counted * 1024 - 10_000
    refused = inspect_file(path).bad
    memory.MAX_BYTES = 512 << 20
    print(name, counted, max(taken), int("over the limit of" in refused))
"""
SLACK = 4_000  # kilobytes of a decoder's own tables


@case(
    "an image of every mode and format: it takes no more memory than is counted before a pixel is decoded, and over "
    "the limit it is refused",
    full=19,
    fast=3,
)
def counted_pixels(tries: int, folder: Path) -> Iterable[str]:
    """Decode and inspect images of 6 million pixels in a fresh process."""
    process = [sys.executable, "-c", PIXELS, str(folder), str(tries)]
    done = subprocess.run(process, capture_output=True, text=True, check=False)
    lines = [line.split() for line in done.stdout.splitlines()]
    if len(lines) != tries:
        yield f"{len(lines)} of {tries}: {done.stderr[-500:]}"
    for name, counted, taken, refused in lines:
        if int(taken) > int(counted) + SLACK or refused != "1":
            yield f"{name}: counted {counted} kB, taken {taken} kB, refused {refused}"


THREADS = """
import sys
from pathlib import Path
from invaug.lab.data import decode, memory

memory.MAX_BYTES = memory._budget.total = 128 << 20
decode.os.cpu_count = lambda: 8
decode.BLOCK = 1
decode.decode_all([Path(sys.argv[1])], (3, 32, 32))
status = lambda key: next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(key))
open("/proc/self/clear_refs", "w").write("5")
before = status("VmRSS")
decode.decode_all([Path(sys.argv[1])] * 16, (3, 32, 32))
print(status("VmHWM") - before)
"""


KEPT = 256_000  # kilobytes that glibc keeps for threads which wait; eight images at a time would take 600 MB more


@case("large images in eight threads at once: together they stay within the budget of the process", full=3, fast=1)
def shared_budget(tries: int, folder: Path) -> Iterable[str]:
    """Decode sixteen images of 108 MB each under a budget of 128 MB."""
    from PIL import Image

    Image.new("RGBA", (2400, 2500), (9, 8, 7, 6)).save(folder / "large.png")
    for _ in range(tries):
        process = [sys.executable, "-c", THREADS, str(folder / "large.png")]
        done = subprocess.run(process, capture_output=True, text=True, check=False)
        taken = int((done.stdout.split() or ["0"])[-1])
        if not 0 < taken < (128 << 10) + KEPT:
            yield f"{taken} kB, {done.stderr[-500:]}"


ODD: tuple[Any, ...] = ("x", 5, -1, True, None, 1e308, 10**4000, float("nan"), [], {}, [[1]], {"a": "b"}, [{"a": 5}])
ODD += ([None], [[]], ["x"], [True], "\ud800", "</script>", 2**63, -(10**400), [1e308, 1e308], [10**400])


def changed_document(found: Any, chance: random.Random) -> Any:
    """Return a JSON value with something in it replaced, left out or nested deeply."""
    if isinstance(found, dict) and found and chance.random() < 0.8:
        key = chance.choice(list(found))
        if chance.random() < 0.1:
            return {name: value for name, value in found.items() if name != key}
        return {**found, key: changed_document(found[key], chance)}
    if isinstance(found, list) and found and chance.random() < 0.6:
        place = chance.randrange(len(found))
        return [*found[:place], changed_document(found[place], chance), *found[place + 1 :]]
    return chance.choice(ODD)


def encoded(content: Any, chance: random.Random) -> str:
    """Return a document as text, sometimes with a key twice or nested without end."""
    with unlimited_digits():
        text = json.dumps(content)
    if chance.random() < 0.05:
        return text[:-1] + ', "epoch": 2, "deep": ' + "[" * 5000 + "]" * 5000 + "}"
    return text


@contextmanager
def unlimited_digits() -> Iterator[None]:
    """Let integers of thousands of digits be written; they are read under the usual limit."""
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        yield
    finally:
        sys.set_int_max_str_digits(before)


def small_run(folder: Path, **settings: Any) -> Path:
    """Train a small run; return its folder."""
    run = folder / "run"
    code, said = invaug(*arguments(write_data(folder), run, **settings))
    if code:
        raise RuntimeError(said)
    return run


def read_as_training_does(folder: Path, n_constraints: int) -> None:
    """Resume a record and read all of it that a training reads."""
    from invaug.lab.run import record
    from invaug.lab.train import course

    record.resume(folder, 3, n_constraints)
    rows = record.read(folder)
    if rows:
        stuck = course.out_of_reach(rows)
        [course.advice(rows[-1], k) for k, is_stuck in enumerate(stuck) if is_stuck]
        course.all_settled(rows)
        sum(row["seconds"] + row["passes"] for row in rows)
    record.to_csv(rows, folder / "record.csv")


@case(
    "a row of record.jsonl with odd values: the report has a page, and a resume refuses it in one line",
    full=1000,
    fast=40,
)
def odd_rows(tries: int, folder: Path) -> Iterable[str]:
    """Change rows of a real record, and read them as `report` and `train --resume` do."""
    from invaug.lab.report.command import report_runs
    from invaug.lab.report.read import read_run

    run = small_run(folder)
    whole = (run / "record.jsonl").read_text().splitlines()
    for i in range(tries):
        chance = random.Random(i)
        place = chance.randrange(len(whole))
        lines = [*whole]
        lines[place] = encoded(changed_document(json.loads(whole[place]), chance), chance)
        (run / "record.jsonl").write_text("\n".join(lines) + "\n")
        show = partial(report_runs, [run]) if i % 20 == 0 else partial(read_run, run)  # a page takes half a second
        yield from (f"{i}: report: {found}" for found in complaints(show))
        yield from (f"{i}: resume: {found}" for found in complaints(read_as_training_does, run, 1))
    code, said = 0, ""
    if tries > 100:  # once through the command itself
        (run / "record.jsonl").write_text(whole[0].replace('"gamma": [', '"gamma": ["x", ') + "\n")
        code, said = invaug(*resumed(run))
        if code != 2 or said.count("\n") != 1:
            yield f"train --resume: exit code {code}, {said}"


@case("evaluation.json and certificate.json with odd values: the report has a page", full=1000, fast=30)
def odd_documents(tries: int, folder: Path) -> Iterable[str]:
    """Change documents that `invaug evaluate` and `invaug certify` wrote, and write the page."""
    from invaug.lab.report.command import report_runs

    run = small_run(folder, epochs=1)
    for words in (["evaluate", str(run)], ["certify", str(run)]):
        code, said = invaug(*words, "--trust-model")
        if code:
            raise RuntimeError(said)
    documents = [run / name for name in ("evaluation.json", "certificate.json") if (run / name).exists()]
    for i in range(tries):
        chance = random.Random(i)
        path = documents[i % len(documents)]
        before = path.read_text()
        path.write_text(encoded(changed_document(json.loads(before), chance), chance))
        yield from (f"{i}: {path.name}: {found}" for found in complaints(report_runs, [run]))
        path.write_text(before)


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _folder(path: Path) -> None:
    path.mkdir()


def _vast(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


STRANGE = (_pipe, _device, _folder, _vast)
FILES = ("record.jsonl", "config.toml", "evaluation.json", "certificate.json", "insights.json", "data.npz", "image.png")
READERS = [(name, make) for name in FILES for make in STRANGE]


@contextmanager
def impatient() -> Iterator[None]:
    """Raise if what is inside waits for ever."""

    def stop(*_: Any) -> None:
        raise TimeoutError("it waits for ever")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(PATIENCE)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@case(
    "a pipe, a device, a folder or 1 TB of zeros in place of a file that is read: answered, nothing waits or fills the "
    "memory",
    full=len(READERS),
    fast=len(READERS),
)
def strange_files(tries: int, folder: Path) -> Iterable[str]:
    """Put something else in the place of each file, and run the commands that read it."""
    run = small_run(folder, epochs=1)
    for i, (name, make) in enumerate(READERS[:tries]):
        place = folder / str(i)
        if name == "data.npz":
            place.mkdir()
            make(place / name)
            orders = [["scan", str(place / name)], ["train", str(place / name), "--out", str(place / "run")]]
        elif name == "image.png":
            root = write_folder(place, 6)
            make(root / "cat" / name)
            orders = [["scan", str(root)], ["predict", str(run), str(root / "cat" / name), "--trust-model"]]
        else:
            shutil.copytree(run, place)
            (place / name).unlink(missing_ok=True)
            make(place / name)
            orders = [["report", str(place)], resumed(place)] if name in FILES[:2] else [["report", str(place)]]
        for order in orders:
            try:
                with impatient():
                    code, _, said = command(*order)
            except Exception as error:  # what a user would see as a traceback
                yield f"{name} {make.__name__}: {order[0]}: {error!r}"
                continue
            if code not in (0, 1, 2) or said.count("\n") > 1 or "Traceback" in said:
                yield f"{name} {make.__name__}: {order[0]}: exit code {code}, {said}"
