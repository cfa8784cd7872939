"""The record: an epoch a line, none lost, none double, whatever ends the run."""

from __future__ import annotations

import csv
import errno
import json
import math
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from invaug.lab.errors import UserError
from invaug.lab.run import atomic, record

ROWS: list[dict[str, Any]] = [
    {"epoch": 1, "loss": 0.1, "gamma": [0.0, 1 / 3], "text": "ü\n", "none": None},
    {"epoch": 2, "loss": 5e-324, "gamma": [], "kept": [{"Rotate": [1, 2]}]},
    {"epoch": 3, "loss": 1e22, "slack": [-0.25]},
]


def written(folder: Path, rows: list[dict[str, Any]] = ROWS) -> Path:
    for row in rows:
        record.append(folder, row)
    return folder / record.NAME


def test_rows_come_back_as_they_were(tmp_path: Path) -> None:
    written(tmp_path)
    assert record.read(tmp_path) == ROWS


def test_each_row_is_one_line_of_json(tmp_path: Path) -> None:
    lines = written(tmp_path).read_text().splitlines()
    assert [json.loads(line) for line in lines] == ROWS


def test_nan_and_infinity_come_back(tmp_path: Path) -> None:
    written(tmp_path, [{"epoch": 1, "loss": math.nan, "slack": [math.inf, -math.inf]}])
    (row,) = record.read(tmp_path)
    assert math.isnan(row["loss"])
    assert row["slack"] == [math.inf, -math.inf]


def test_a_folder_without_a_record_has_no_rows(tmp_path: Path) -> None:
    assert record.read(tmp_path) == []
    assert record.read(tmp_path / "absent") == []


@pytest.mark.parametrize("row", [{}, {"epoch": None}, {"epoch": 1.0}, {"epoch": "1"}], ids=str)
def test_a_row_needs_an_epoch(row: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the epoch of a row must be an integer, got"):
        record.append(tmp_path, row)
    assert record.read(tmp_path) == []


def test_a_value_that_is_not_json_leaves_the_record_as_it_was(tmp_path: Path) -> None:
    path = written(tmp_path)
    before = path.read_bytes()
    with pytest.raises(TypeError, match="set is not JSON serializable"):
        record.append(tmp_path, {"epoch": 4, "x": {1}})
    assert path.read_bytes() == before


def test_a_row_is_on_the_disk_when_append_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[tuple[str, int]] = []

    def fsync(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        synced.append((path.name, path.stat().st_size if path.is_file() else 0))

    monkeypatch.setattr(os, "fsync", fsync)
    path = written(tmp_path, ROWS[:1])
    size = path.stat().st_size
    assert synced == [(record.NAME, size), (tmp_path.name, 0)]
    record.append(tmp_path, ROWS[1])
    assert synced[2:] == [(record.NAME, path.stat().st_size)]


@pytest.mark.parametrize("last_epoch", range(5))
def test_resuming_drops_the_epochs_after_the_last_one_that_counts(last_epoch: int, tmp_path: Path) -> None:
    written(tmp_path)
    record.resume(tmp_path, last_epoch)
    record.append(tmp_path, {"epoch": last_epoch + 1, "again": True})
    assert record.read(tmp_path) == [*ROWS[:last_epoch], {"epoch": last_epoch + 1, "again": True}]


def test_resuming_where_nothing_is_starts_a_record(tmp_path: Path) -> None:
    record.resume(tmp_path, 0)
    record.append(tmp_path, ROWS[0])
    assert record.read(tmp_path) == ROWS[:1]


def test_resuming_leaves_the_lines_that_stay_byte_for_byte(tmp_path: Path) -> None:
    path = written(tmp_path)
    odd = b'{"loss":0.10,  "epoch":4}\n'
    path.write_bytes(path.read_bytes() + odd)
    before = path.read_bytes()
    record.resume(tmp_path, 4)
    assert path.read_bytes() == before


def test_a_record_cut_at_any_byte_reads_up_to_its_last_whole_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # hundreds of them
    path = written(tmp_path)
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        whole = content[:length].count(b"\n")
        assert record.read(tmp_path) == ROWS[:whole]
        record.resume(tmp_path, 9)
        record.append(tmp_path, ROWS[2])
        assert record.read(tmp_path) == [*ROWS[:whole], ROWS[2]]


@pytest.mark.parametrize("tail", [b"\0" * 40, b"\0" * 40 + b"\n", b"{\n", b"[1]\n", b'{"a": 1}\n', b"\xff\xfe\n"])
def test_garbage_at_the_end_is_a_line_that_was_not_finished(tail: bytes, tmp_path: Path) -> None:
    path = written(tmp_path)
    path.write_bytes(path.read_bytes() + tail)
    assert record.read(tmp_path) == ROWS
    record.resume(tmp_path, 3)
    assert path.read_bytes().count(b"\n") == 3


@pytest.mark.parametrize("line", [b"", b"{", b"\0\0", b"[" * 10**5, b'{"loss": 1}'], ids=lambda line: repr(line[:9]))
def test_damage_in_the_middle_is_named_and_not_passed_over(line: bytes, tmp_path: Path) -> None:
    path = written(tmp_path)
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([lines[0], line, *lines[2:]]))
    with pytest.raises(UserError, match=r"record\.jsonl is damaged in line 2"):
        record.read(tmp_path)
    with pytest.raises(UserError, match=r"record\.jsonl is damaged in line 2"):
        record.resume(tmp_path, 3)


def test_a_damaged_line_before_one_that_was_not_finished_is_named(tmp_path: Path) -> None:
    path = written(tmp_path)
    path.write_bytes(path.read_bytes() + b"{\n{")
    with pytest.raises(UserError, match=r"record\.jsonl is damaged in line 4"):
        record.read(tmp_path)


def test_a_full_disk_leaves_the_record_as_it_was(tmp_path: Path) -> None:
    path = written(tmp_path)
    before = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 5, hard))
    try:
        with pytest.raises(atomic.WriteError, match=r"cannot write .*record\.jsonl: File too large") as caught:
            record.append(tmp_path, ROWS[0])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.errno == errno.EFBIG
    assert path.read_bytes() == before


WRITER = """
import sys
from pathlib import Path
from invaug.lab.run import record
for epoch in range(1, 10**6):
    record.append(Path(sys.argv[1]), {"epoch": epoch, "text": "x" * 5000})
    print(epoch, flush=True)
"""


def test_rows_survive_kill_9(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as writer:  # noqa: S603
        assert writer.stdout is not None
        for line in writer.stdout:
            if int(line) == 20:
                writer.send_signal(signal.SIGKILL)
                break
        last = max([20, *map(int, writer.stdout.read().split())])
    epochs = [row["epoch"] for row in record.read(tmp_path)]
    assert epochs in (list(range(1, last + 1)), list(range(1, last + 2)))


def table(path: Path) -> list[list[str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def test_the_table_has_a_column_for_each_nested_value(tmp_path: Path) -> None:
    rows = [
        {"epoch": 1, "gamma": [0.1, 2 / 3], "kept": [{"Rotate": [3, 4]}], "text": "a;b"},
        {"epoch": 2, "gamma": [math.nan], "slack": [-math.inf, [1]], "text": None},
    ]
    record.to_csv(rows, tmp_path / "record.csv")
    names, *cells = table(tmp_path / "record.csv")
    assert names[:4] == ["epoch", "gamma.0", "gamma.1", "kept.0.Rotate.0"]
    assert names[4:] == ["kept.0.Rotate.1", "text", "slack.0", "slack.1.0"]
    assert cells[0] == ["1", "0.1", "0.6666666666666666", "3", "4", "a;b", "", ""]
    assert cells[1] == ["2", "nan", "", "", "", "", "-inf", "1"]


@pytest.mark.parametrize("start", [*"=+-@＝＋－＠", "\t", "\r", "\n"], ids=repr)
def test_no_text_is_a_formula(start: str, tmp_path: Path) -> None:
    formula = f'{start}HYPERLINK("http://example.org","x")'
    record.to_csv([{"epoch": 1, formula: formula, "slack": -0.5}], tmp_path / "record.csv")
    names, cells = table(tmp_path / "record.csv")
    assert names == ["epoch", f"'{formula}", "slack"]
    assert cells == ["1", f"'{formula}", "-0.5"]


def test_texts_are_quoted_so_that_no_separator_splits_them(tmp_path: Path) -> None:
    record.to_csv([{"epoch": 1, "text": "a;=1+1"}], tmp_path / "record.csv")
    assert (tmp_path / "record.csv").read_text() == '"epoch","text"\n1,"a;=1+1"\n'


def test_a_table_of_nothing_is_an_empty_one(tmp_path: Path) -> None:
    record.to_csv([], tmp_path / "record.csv")
    assert not any(table(tmp_path / "record.csv"))
