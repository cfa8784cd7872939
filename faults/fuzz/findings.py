"""Findings as small files: the mutated files and the command that did not answer in one line, to be tried again."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import tempfile
import traceback
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from faults.fuzz import worker
from faults.fuzz.formats import Files, write_examples

FOLDER = Path("tests/fuzz_findings")
LARGEST = 20_000  # bytes of a finding that is kept; of a larger one, seed and index tell how to make it again


def key_of(found: worker.Answer) -> str:
    """Return what tells findings apart: the kind, the type of the exception and its place."""
    return f"{found.kind}: {found.text.split(': ')[0] if found.kind == 'traceback' else ''}"


def keep(name: str, found: worker.Answer, files: Files, words: Sequence[str], folder: Path) -> Path | None:
    """Write a finding, unless it is large, under a name that the same finding has again; return its path."""
    packed = {path: base64.b64encode(zlib.compress(content, 9)).decode() for path, content in files.items()}
    about = {"format": name, "words": list(words), "found": list(found), "files": packed}
    text = json.dumps(about, indent=1) + "\n"
    if len(text) > LARGEST:
        return None
    digest = hashlib.sha256(f"{name} {key_of(found)}".encode()).hexdigest()[:12]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name.replace(' ', '-')}-{digest}.json"
    path.write_text(text, encoding="utf-8")
    return path


def replay(path: Path, examples: Path, place: Path) -> worker.Answer:
    """Return what the command of a finding comes to now, in a process of its own."""
    about = json.loads(path.read_text(encoding="utf-8"))
    files = {name: zlib.decompress(base64.b64decode(content)) for name, content in about["files"].items()}
    one = worker.Job(about["format"], lambda _: (files, about["words"]), examples, place)
    return next(found for _, found in worker.attempt(one, [0]))


@contextmanager
def workshop() -> Iterator[tuple[Path, Path]]:
    """Yield a folder of good examples and one for their mutated copies, in memory if the system has that."""
    memory = Path("/dev/shm")  # noqa: S108 - only where the temporary folder goes
    base = memory if memory.is_dir() and os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="invaug-fuzz-", dir=base) as folder:
        os.environ["XDG_CACHE_HOME"] = f"{folder}/cache"
        worker.warm_up()
        make_examples(Path(folder, "good"))
        yield Path(folder, "good"), Path(folder, "odd")


def make_examples(place: Path) -> None:
    """Write the examples in a fork: training starts threads, after which this process could not fork safely."""
    child = os.fork()
    if child == 0:
        try:
            write_examples(place)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        raise RuntimeError("the good examples could not be made")
