"""The fuzzer itself, and everything it has ever found."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from faults.fuzz import bytewise, findings, packed, trees, worker
from faults.fuzz.__main__ import table
from faults.fuzz.formats import FORMATS
from faults.fuzz.server import ask
from invaug.lab.run import checkpoint

FOUND = sorted(findings.FOLDER.glob("*.json"))


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_what_was_found_once_is_answered_in_one_line(path: Path) -> None:
    assert ask(str(path.resolve()))[0].kind in worker.GOOD


def test_a_finding_is_kept_and_tried_again(tmp_path: Path) -> None:
    answer = worker.Answer("traceback", "ValueError at x.py:f: message")
    path = findings.keep("npz", answer, {"data.npz": b"no zip"}, ("scan", "data.npz"), tmp_path)
    assert path is not None
    again = findings.keep("npz", answer._replace(text="ValueError at x.py:f: other"), {}, (), tmp_path)
    assert again == path
    findings.keep("npz", answer, {"data.npz": b"no zip"}, ("scan", "data.npz"), tmp_path)
    assert ask(str(path))[0].kind == "refused"


def test_an_exception_is_a_traceback_and_names_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from invaug.lab.cli import main

    def broken(**_: object) -> None:
        raise KeyError("hole")

    monkeypatch.setattr(main, "app", broken)
    found = worker.answer(("ls",), tmp_path, 0)
    assert found.kind == "traceback"
    assert found.text == "KeyError at lab/cli/main.py:_run: 'hole'"


def test_a_command_that_is_refused_says_why(tmp_path: Path) -> None:
    found = worker.answer(("scan", "nothing"), tmp_path, 0)
    assert found == worker.Answer("refused", "invaug: nothing does not exist")


def test_hangs_growth_and_deaths_are_noticed() -> None:
    script = "from tests.support.odd_worker import main; main()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)  # noqa: S603
    kinds = [kind for kind, _ in json.loads(done.stdout)]
    assert kinds == ["accepted", "hang", "accepted", "growth", "accepted", "traceback", "accepted"]


def test_an_example_that_is_refused_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "good").mkdir()
    job = worker.Job("npz", lambda _: ({}, ("scan", "data.npz")), tmp_path / "good", tmp_path / "odd")
    found = worker.try_one(job, 0)
    assert found.kind == "traceback"
    assert found.text.startswith("the example itself is refused by scan: invaug: data.npz does not exist")


def test_mutations_depend_on_seed_and_index_alone() -> None:
    content = json.dumps({"a": [1, 2.5, "x"], "b": {"c": None}}).encode()
    first, again = ([trees.mutate_json(random.Random(i), content) for i in range(50)] for _ in range(2))
    assert first == again
    assert len({*first}) > 40


def test_a_mutated_png_has_right_checksums() -> None:
    import io

    from PIL import Image

    buffer = io.BytesIO()
    Image.new("RGB", (4, 4)).save(buffer, "PNG")
    chunks = bytewise.chunks_of(buffer.getvalue())
    assert bytewise.join_chunks(chunks) == buffer.getvalue()
    changed = [bytewise.mutate_png(random.Random(i), buffer.getvalue()) for i in range(40)]
    assert all(bytewise.join_chunks(bytewise.chunks_of(content)) == content for content in changed)


def test_a_mutated_manifest_has_the_right_seal() -> None:
    sealed = checkpoint.seal({"schema": 1, "step": 3, "state": {"a": [1, 2]}})
    for i in range(40):
        changed = packed.mutate_manifest(random.Random(i), sealed)
        line, rest = changed.split(b"\n", 1)
        assert line + b"\n" == checkpoint.first_line(rest)


def test_the_table_has_a_row_per_format() -> None:
    from collections import Counter

    text = table({name: Counter(accepted=2, hang=1) for name in FORMATS})
    assert text.count("| 3 | 0 | 2 | 0 | 1 | 0 |") == len(FORMATS)
