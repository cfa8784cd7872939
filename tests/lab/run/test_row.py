"""Rows of a record: what is wrong with one is named, by its key and its value."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from invaug.lab.errors import UserError
from invaug.lab.run import atomic, record
from invaug.lab.run.row import check_complete, check_row

GOOD: dict[str, Any] = {
    "epoch": 1,
    "train_loss": 0.5,
    "slack": [None, -0.1],
    "constraint_loss": [0.2, 0.3],
    "gamma": [0.0, 1.5],
    "kept": [{"Rotate": [1, 2]}, {}],
    "entropy_uniform": [[0.1, 0.2], [0.0, 0.1]],
    "out_of_reach": [False, True],
    "seconds": 1.5,
    "passes": 4,
    "note": "text",
}


def test_a_good_row_is_good() -> None:
    assert check_row(GOOD) == check_complete(GOOD, 2) == ""


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("epoch", True, "epoch must be from 0 to 999,999,999, got True"),
        ("epoch", -1, "epoch must be from 0"),
        ("epoch", 10**400, "got an integer of more than 64 bits"),
        ("gamma", "x", "gamma must be a list of numbers, got 'x'"),
        ("gamma", [True], "gamma must be a list of numbers, got [True]"),
        ("slack", [10**400], "slack must be a list of numbers"),
        ("kept", 5, "kept must be a list of tables of counts, got 5"),
        ("kept", [{"Rotate": [-1]}], "kept must be a list of tables of counts"),
        ("entropy_uniform", [5], "entropy_uniform must be a list of intervals, got [5]"),
        ("out_of_reach", ["x"], "out_of_reach must be a list of true and false"),
        ("seconds", "long", "seconds must be a number, got 'long'"),
        ("passes", 1.5, "passes must be a whole number from 0, got 1.5"),
        ("other", [[[[[[1]]]]]], "'other' must be text, numbers and short lists of them"),
    ],
)
def test_a_value_of_another_type_is_named(key: str, value: Any, words: str) -> None:
    assert words in check_row({**GOOD, key: value})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"gamma": [1.0]}, "gamma must have 2 finite numbers, one per constraint, got [1.0]"),
        ({"slack": [1e308, 1e308]}, "slack must have 2 finite numbers"),
        ({"gamma": [float("nan"), 0.0]}, "gamma must have 2 finite numbers"),
        ({"gamma": [None, 0.0]}, "gamma must be known, got [None, 0.0]"),
        ({"seconds": None}, "seconds is missing"),
    ],
)
def test_a_row_that_training_cannot_continue_from_is_named(changes: dict[str, Any], words: str) -> None:
    assert words in check_complete({**GOOD, **changes}, 2)


def test_a_resume_names_the_line_and_leaves_the_record_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / record.NAME
    path.write_text("".join(json.dumps({**GOOD, "epoch": n, "gamma": [0.0] * (3 - n)}) + "\n" for n in (1, 2)))
    before = path.read_bytes()
    with pytest.raises(UserError, match=r"record\.jsonl is damaged in line 2: gamma must have 2 finite numbers"):
        record.resume(tmp_path, 2, n_constraints=2)
    assert path.read_bytes() == before


def test_a_record_over_its_limits_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / record.NAME
    path.write_text(f"{json.dumps(GOOD)}\n" * 3)
    monkeypatch.setattr(record, "MAX_ROWS", 2)
    with pytest.raises(UserError, match=r"has 3 lines, over the limit of 2: move it elsewhere"):
        record.read(tmp_path)
    monkeypatch.setattr(record, "MAX_BYTES", 100)
    with pytest.raises(UserError, match=r"record\.jsonl has [\d,]+ bytes, over the limit of 100: move it elsewhere"):
        record.read(tmp_path)


def test_json_that_is_a_pipe_or_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    assert atomic.read_json(tmp_path / "pipe.json") is None
    (tmp_path / "a.json").write_text('{"a": 1}')
    assert atomic.read_json(tmp_path / "a.json") == {"a": 1}
    monkeypatch.setattr(atomic, "MAX_JSON", 3)
    assert atomic.read_json(tmp_path / "a.json") is None
