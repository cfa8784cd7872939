"""Data that is bad, hostile or changed: found before the first step, named, and never able to do anything."""

from __future__ import annotations

import io
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from faults.archives import (
    SECRET,
    TARS,
    ZIPS,
    cifar10_files,
    jpeg,
    tiny_entries,
    trusted,
    write_cached,
    write_tar,
    write_zip,
)
from faults.bad_images import KINDS, Kind, flat_bmp, flat_gif, flat_png, flat_tiff, unprivileged, write_folder
from faults.harness import case
from faults.small import SETTINGS, flags, write_data

EXTRA = 100_000  # kilobytes an image may cost before it is refused
HERE = {"OMP_NUM_THREADS": "1"}


def invaug(*words: str) -> tuple[int, str, str]:
    """Run the command in this process, without the superuser's rights; return exit code, output and errors."""
    from invaug.lab.cli.main import main

    out, error = io.StringIO(), io.StringIO()
    with patch.object(sys, "argv", ["invaug", *words]), redirect_stdout(out), redirect_stderr(error), unprivileged():
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = int(stop.code or 0)
    return code, out.getvalue(), error.getvalue()


def train(data: Path, out: Path, **settings: Any) -> tuple[int, str]:
    """Train a small network in this process; return the exit code and what was said on stderr."""
    code, _, error = invaug(
        "train", str(data), "--out", str(out), "--quiet", *flags({**SETTINGS, "epochs": 1, **settings})
    )
    return code, error


def shown_name(kind: Kind) -> str:
    """Return the name of a file as the tools show it."""
    return kind.name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


@case(
    "bad and odd image files: `invaug scan` names each with its reason, and whether training stops on it",
    full=40,
    fast=40,
)
def scan_names_all(tries: int, folder: Path) -> Iterable[str]:
    """Scan one folder that holds them all."""
    root = write_folder(folder / "data", 20, *KINDS[:tries])
    code, output, error = invaug("scan", str(root), "--json")
    report = json.loads(output) if code == 1 else {"bad": [], "notes": [], "files": f"exit code {code} {error}"}
    found: dict[tuple[str, bool], list[str]] = {}
    for bad, entries in ((True, report["bad"]), (False, report["notes"])):
        for entry in entries:
            found.setdefault((entry["file"].split("/", 1)[-1], bad), []).append(entry["reason"])
    good = {name for name, _ in found if name.startswith("0")}
    for kind in KINDS[:tries]:
        reasons = found.get((shown_name(kind), kind.bad), [])
        if not any(kind.reason.lower() in reason.lower() and reason for reason in reasons):
            yield f"{kind.name!a}: {reasons or 'not named'} ({report['files']})"
        elif not kind.bad and (shown_name(kind), True) in found:
            yield f"{kind.name!a} is called bad"
    yield from (f"{name} is good but named" for name in sorted(good))


@case(
    "an image file that cannot be used among good ones: `invaug train` names it and stops before the run's folder is "
    "made",
    full=25,
    fast=25,
)
def train_refuses(tries: int, folder: Path) -> Iterable[str]:
    """Train on folders with one bad file each."""
    for i, kind in enumerate([kind for kind in KINDS if kind.bad][:tries]):
        root = write_folder(folder / str(i), 10, kind)
        code, said = train(root, folder / "run")
        if code != 2 or f"1 of 11 image files in {root}" not in said or kind.name not in said or said.count("\n") != 1:
            yield f"{kind.name}: exit code {code}, {said}"
        elif (folder / "run").exists():
            yield f"{kind.name}: the run was begun"


@case(
    "bad image files and --on-bad skip: up to 1 % are left out and named and training ends well, one more is refused",
    full=8,
    fast=2,
)
def skip_has_a_quota(tries: int, folder: Path) -> Iterable[str]:
    """Train on folders of 100 or 200 files of which as many as allowed, or one more, are bad."""
    chosen = [kind for kind in KINDS if kind.bad]
    for i in range(tries):
        n_files, too_many = (100, 200)[i // 2 % 2], i % 2
        kinds = random.Random(i).sample(chosen, n_files // 100 + too_many)
        root = write_folder(folder / f"data-{i}", n_files - len(kinds), *kinds)
        code, said = train(root, folder / f"run-{i}", on_bad="skip")
        named = all(kind.name in said for kind in kinds) and f"{len(kinds)} of {n_files} image files" in said
        ended = (folder / f"run-{i}" / "record.jsonl").exists()
        if (code, named, ended) != ((2, True, False) if too_many else (0, True, True)):
            yield f"{len(kinds)} of {n_files}: exit code {code}, {said}"


BOMBS = [(make, side) for make in (flat_png, flat_gif, flat_bmp, flat_tiff) for side in (12000, 30000)]
WEIGH = """
import sys
from pathlib import Path
from invaug.lab.data.check import check_files
from invaug.lab.data.decode import decode
from invaug.lab.errors import UserError
from invaug.lab.data.scan.command import scan

def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))

root, bomb = Path(sys.argv[1]), Path(sys.argv[2])
scan(root)
open("/proc/self/clear_refs", "w").write("5")  # the peak is from here
before = peak()
bomb.rename(root / "cat" / "bomb")
path = (root / "cat" / "bomb").rename(root / "cat" / ("bomb" + bomb.suffix))
reasons = [*check_files(list(root.rglob("*.*"))).bad.values(), *(found.reason for found in scan(root).bad)]
try:
    decode(path, (3, 32, 32))
except UserError as error:
    reasons.append(str(error))
print(peak() - before, sum("limit of" in reason for reason in reasons))
"""


@case(
    "a PNG, GIF, BMP or TIFF of 144 or 900 million pixels: what training, scan and predict call refuses it by its "
    "header, for less than 100 MB",
    full=8,
    fast=2,
)
def bombs(tries: int, folder: Path) -> Iterable[str]:
    """Look at a bomb in a fresh process and read its peak of memory."""
    for i, (make, side) in enumerate(BOMBS[:tries]):
        root = write_folder(folder / str(i), 4)
        bomb = folder / f"bomb.{make.__name__.removeprefix('flat_')}"
        bomb.write_bytes(make(side))
        command = [sys.executable, "-c", WEIGH, str(root), str(bomb)]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **HERE}, check=False)
        extra, refused = map(int, done.stdout.split() or (0, 0))
        if refused != 3 or extra > EXTRA:
            yield f"{bomb.name} {side}: {extra} kB, refused {refused} of 3 times, {done.stderr}"


def changed(**changes: Any) -> Callable[[Path], Path]:
    """Return what writes an .npz with some arrays changed, or missing where they are None."""

    def write(folder: Path) -> Path:
        arrays = {**np.load(write_data(folder)), **changes}
        np.savez(folder / "data.npz", **{name: array for name, array in arrays.items() if array is not None})
        return folder / "data.npz"

    return write


def one_class(folder: Path) -> Path:
    """Write a folder of images with one class."""
    root = write_folder(folder / "data", 6)
    for path in (root / "dog").iterdir():
        path.rename(root / "cat" / f"of-a-dog-{path.name}")
    (root / "dog").rmdir()
    return root


def empty_class(folder: Path) -> Path:
    """Write a folder of images with a class without any."""
    root = write_folder(folder / "data", 6)
    (root / "emu").mkdir()
    return root


LABELS = np.arange(48) % 3
WRONG_LABELS: dict[str, tuple[Callable[[Path], Path], str]] = {
    "-1": (changed(y_train=LABELS - 1), "got -1 at image 0"),
    "-1 in the test set": (changed(y_test=np.arange(16) % 3 - 1), "got -1 at image 0"),
    "too large": (changed(y_test=np.arange(16)), "got 3 at image 3"),
    "too large for the named classes": (changed(classes=np.array(["a", "b"])), "got 2 at image 2"),
    "float": (changed(y_train=LABELS / 1.0), "must be integers from 0, got float64"),
    "NaN": (changed(y_train=np.where(LABELS, LABELS, np.nan)), "got float64, for example nan"),
    "missing": (changed(y_train=None), "has no y_train"),
    "too few": (changed(y_train=LABELS[:-1]), "48 images and 47 labels"),
    "a class without images": (changed(y_train=2 * LABELS, y_test=np.zeros(16, int)), "class 1 has no training image"),
    "one class": (changed(y_train=0 * LABELS, y_test=np.zeros(16, int)), "at least two classes"),
    "a class folder without images": (empty_class, "emu holds no image"),
    "one class folder": (one_class, "has one class, cat"),
}


@case(
    "labels -1, too large, float, NaN, missing, a class without images, one class: one line before the first step; "
    "`invaug scan` exits with 1",
    full=12,
    fast=12,
)
def labels(tries: int, folder: Path) -> Iterable[str]:
    """Train on and scan data with wrong labels."""
    for i, (name, (write, reason)) in enumerate(list(WRONG_LABELS.items())[:tries]):
        (folder / str(i)).mkdir()
        path = write(folder / str(i))
        code, said = train(path, folder / str(i) / "run")
        if code != 2 or reason not in said or said.count("\n") != 1 or (folder / str(i) / "run").exists():
            yield f"{name}: exit code {code}, {said}"
        code, output, said = invaug("scan", str(path))
        if code != 1 or "not usable" not in output:
            yield f"{name}: scan ends with {code}, {output} {said}"


def tree(folder: Path) -> dict[str, bytes]:
    """Return everything below a folder."""
    return {str(path): path.read_bytes() if path.is_file() else b"" for path in sorted(folder.rglob("*"))}


def harmless(name: str, folder: Path, known: str, wanted: bytes) -> Iterator[str]:
    """Load a known dataset from `folder`/data; say what is wrong with it, or was written anywhere near."""
    from invaug.lab.data.load import load_dataset
    from invaug.lab.errors import UserError

    before = tree(folder)
    with trusted(known, folder / "data"), chdir(folder / "data"):
        try:
            images = load_dataset(known, data_dir=folder / "data", download=False).train.images
            if images is None or images.numpy().tobytes() != wanted:
                yield f"{name}: other images than those of the dataset"
        except UserError as error:
            if "\n" in str(error):
                yield f"{name}: {error}"
    if tree(folder) != before:
        yield f"{name}: something was written"


@case(
    "hostile tars (outward names and links, devices, pipes, sizes that lie): refused or read right, and no file is "
    "written",
    full=14,
    fast=14,
)
def tars(tries: int, folder: Path) -> Iterable[str]:
    """Load a dataset from tars that mean harm."""
    true = [cifar10_files()[f"data_batch_{i}.bin"] for i in range(1, 6)]
    wanted = b"".join(np.frombuffer(part, np.uint8).reshape(-1, 3073)[:, 1:].tobytes() for part in true)
    for i, (name, head) in enumerate(list(TARS.items())[:tries]):
        (folder / str(i) / "data").mkdir(parents=True)
        (folder / str(i) / "secret").write_bytes(SECRET)
        write_tar(folder / str(i) / "data" / "cifar-10-binary.tar.gz", head(folder / str(i)))
        yield from harmless(name, folder / str(i), "cifar10", wanted)


@case("hostile zips (outward names, links, NUL, bombs): refused or read right, and no file is written", full=6, fast=6)
def zips(tries: int, folder: Path) -> Iterable[str]:
    """Load a dataset from zips that mean harm."""
    from invaug.lab.data.load import load_dataset

    (folder / "true").mkdir()
    write_zip(folder / "true" / "tiny-imagenet-200.zip", tiny_entries())
    with trusted("tiny-imagenet", folder / "true"):
        images = load_dataset("tiny-imagenet", data_dir=folder / "true").train.images
    for i, (name, extra) in enumerate(list(ZIPS.items())[:tries]):
        (folder / str(i) / "data").mkdir(parents=True)
        (folder / str(i) / "secret.JPEG").write_bytes(jpeg(77))
        write_zip(folder / str(i) / "data" / "tiny-imagenet-200.zip", [*extra(folder / str(i)), *tiny_entries()])
        yield from harmless(name, folder / str(i), "tiny-imagenet", images.numpy().tobytes())


def change_one_byte(path: Path, chance: random.Random) -> bytes:
    """Change a random byte of a file to another; return what it held before."""
    before = path.read_bytes()
    place, other = chance.randrange(len(before)), chance.randrange(1, 256)
    path.write_bytes(before[:place] + bytes([before[place] ^ other]) + before[place + 1 :])
    return before


@case(
    "one changed byte in a cached official file (IDX, CIFAR, SVHN, Tiny ImageNet): refused at load", full=100, fast=100
)
def changed_bytes(tries: int, folder: Path) -> Iterable[str]:
    """Change a byte, load, put it back, load."""
    from invaug.lab.data.load import load_dataset
    from invaug.lab.errors import UserError

    cached, chance = write_cached(folder), random.Random(0)
    for i in range(tries):
        known, root = cached[i % len(cached)]
        path = chance.choice([path for path in sorted(root.rglob("*")) if path.is_file()])
        with trusted(known, root):
            load_dataset(known, data_dir=root, download=False)
            before = change_one_byte(path, chance)
            try:
                load_dataset(known, data_dir=root, download=False)
                yield f"{path.name}: loaded"
            except UserError as error:
                if f"{path.name} is not the official file" not in str(error):
                    yield f"{path.name}: {error}"
            path.write_bytes(before)


@case("one changed byte in an .npz: refused, or images and labels are the same", full=300, fast=100)
def changed_npz(tries: int, folder: Path) -> Iterable[str]:
    """Change a byte anywhere in the file, in what surrounds the arrays too."""
    from invaug.lab.data.load import load_dataset
    from invaug.lab.errors import UserError

    path, chance = write_data(folder), random.Random(0)
    whole = load_dataset(str(path))
    for _ in range(tries):
        before = change_one_byte(path, chance)
        try:
            found = load_dataset(str(path))
            pairs = [
                (getattr(a, name), getattr(b, name))
                for name in ("images", "targets")
                for a, b in ((whole.train, found.train), (whole.test, found.test))
            ]
            if not all(a.equal(b) for a, b in pairs):
                yield "loaded, and other images or labels"
        except UserError as error:
            if "\n" in str(error):
                yield f"more than a line: {error}"
        path.write_bytes(before)


@case(
    "an image damaged after it was found good, its size and time of modification put back: found again",
    full=40,
    fast=10,
)
def damaged_later(tries: int, folder: Path) -> Iterable[str]:
    """Check folders, wait until that is remembered for good, damage one image of each, check again."""
    from invaug.lab.data import cache, check

    wait = cache.FRESH / 1e9 + 0.3
    sets = [sorted(write_folder(folder / str(i), 6).rglob("*.png")) for i in range(tries)]
    time.sleep(wait)
    with patch.dict(os.environ, {"XDG_CACHE_HOME": str(folder / "cache")}):
        for files in sets:
            check.check_files(files)
        with patch.object(check, "inspect_file", side_effect=RuntimeError("looked at again")):
            if any(check.check_files(files).bad for files in sets):
                yield "good files are called bad"
        for i, files in enumerate(sets):
            damage(files[i % len(files)])
        time.sleep(wait)
        for i, files in enumerate(sets):
            if list(check.check_files(files).bad) != [files[i % len(files)]]:
                yield f"folder {i}: the damage was not found"


def damage(path: Path) -> None:
    """Overwrite the end of a file with zeros and put its times back."""
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(before.st_size // 2)
        file.write(bytes(before.st_size - before.st_size // 2))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@case("kill -9 of a process that decodes images, at a random moment: exit 1 and one line that says so", full=10, fast=1)
def killed_worker(tries: int, folder: Path) -> Iterable[str]:
    """Train with two workers in a process of its own and kill one of them."""
    root, chance = write_folder(folder / "data", 60), random.Random(0)
    settings = flags({**SETTINGS, "epochs": 10_000, "workers": 2, "batch_size": 4})
    for i in range(tries):
        words = ["train", str(root), "--out", str(folder / f"run-{i}"), "--quiet", *settings]
        with subprocess.Popen(
            [sys.executable, "-c", STREAMING, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as child:
            kill_workers(child, chance)
            said = child.communicate()[1]
        clear = "a process that decodes images died (SIGKILL" in said and said.count("\n") == 1
        if child.returncode != 1 or not clear:
            yield f"exit code {child.returncode}: {said}"


STREAMING = """
from invaug.lab.cli.main import main
from invaug.lab.data import load
load.MAX_RESIDENT = 0  # nothing fits, so that two workers decode images all the time
main()
"""


def kill_workers(child: subprocess.Popen[str], chance: random.Random) -> None:
    """Kill a worker of a training, and another if the first had no work left, until the training ends."""
    while True:
        time.sleep(0.2 + chance.random())
        if child.poll() is not None:
            return
        workers = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
        if workers:
            os.kill(int(chance.choice(workers)), signal.SIGKILL)
