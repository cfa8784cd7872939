"""Reading runs: which folders are runs, and what becomes of missing and damaged files."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from invaug.lab.errors import UserError
from invaug.lab.report.command import report_runs
from invaug.lab.report.read import read_run, read_runs
from tests.support.pages import (
    Tags,
    html_of,
    rows_of,
    write_rows,
    write_run,
)


def test_a_folder_of_runs_stands_for_them_and_the_same_run_counts_once(tmp_path: Path) -> None:
    for name in ("none", "trivial"):
        write_run(tmp_path / name, method=name)
    assert [run.name for run in read_runs([tmp_path, tmp_path / "none"])] == ["none", "trivial"]


def test_runs_of_the_same_name_are_told_apart_by_the_folders_above(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / "x" / "run"), write_run(tmp_path / "y" / "run")]
    assert [run.name for run in read_runs(runs)] == ["x/run", "y/run"]


def test_a_folder_that_is_no_run_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"is not a run: it has no config\.toml"):
        report_runs([tmp_path])


def test_a_config_that_is_a_link_is_refused(run: Path, tmp_path: Path) -> None:
    (run / "config.toml").rename(tmp_path / "elsewhere")
    (run / "config.toml").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="not a regular file"):
        read_run(run)


def test_a_run_without_a_record_has_a_page_that_says_so(run: Path) -> None:
    (run / "record.jsonl").unlink()
    text = html_of(run)
    assert "has no record.jsonl yet" in text
    assert "Nothing to judge yet" in text
    assert Tags(text).count("svg") == 0


def test_a_record_without_an_epoch_has_a_page_that_says_so(run: Path) -> None:
    (run / "record.jsonl").write_text("")
    assert "the record holds no whole epoch yet" in html_of(run)


def test_a_last_line_cut_by_a_kill_is_left_out_and_named(run: Path) -> None:
    with (run / "record.jsonl").open("a") as file:
        file.write('{"epoch": 7, "train_lo')
    found = read_run(run)
    assert len(found.epochs) == 6
    assert "the last line of the record is incomplete and was left out" in found.notes


def test_a_record_damaged_in_the_middle_has_a_page_that_says_where_in_it(run: Path) -> None:
    lines = (run / "record.jsonl").read_text().splitlines()
    (run / "record.jsonl").write_text("\n".join([lines[0], "{", *lines[2:]]) + "\n")
    assert "record.jsonl is damaged in line 2" in html_of(run)
    assert str(run) not in html_of(run)


def test_nan_and_infinity_break_lines_and_are_named(run: Path) -> None:
    rows = rows_of(run)
    rows[2] |= {"train_loss": math.nan, "gamma": [math.inf], "test_accuracy": None}
    write_rows(run, rows)
    text = html_of(run)
    assert "epochs without a finite training loss: 1, the first is 3" in text
    assert not re.search(r"\b(nan|inf)\b", text[: text.index("<script>")])


def test_a_run_that_stopped_early_says_how_far_it_came(tmp_path: Path) -> None:
    assert "4 of 9 epochs are recorded" in html_of(write_run(tmp_path / "a", epochs=4, planned=9))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


KEYS = st.sampled_from(
    [
        "train_loss",
        "test_accuracy",
        "slack",
        "gamma",
        "constraint_loss",
        "kept",
        "entropy",
        "seconds",
        "out_of_reach",
        "skipped_batches",
        "acceptance",
        "val_loss",
    ]
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.dictionaries(KEYS, json_values, max_size=6), max_size=4), st.dictionaries(st.text(), json_values))
def test_whatever_a_record_and_an_evaluation_say_there_is_a_page(
    tmp_path: Path, changes: list[dict[str, Any]], evaluation: dict[str, Any]
) -> None:
    folder = write_run(tmp_path / "a", n_levels=3)
    write_rows(folder, [row | change for row, change in zip(rows_of(folder), changes, strict=False)])
    nested = dict.fromkeys(("levels", "classes", "clean", "transformed"), evaluation)
    lists = {key: [evaluation] for key in ("gallery", "calibration", "hardest")}
    (folder / "evaluation.json").write_text(json.dumps(nested | lists))
    assert html_of(folder).endswith("</html>")


@pytest.mark.parametrize("read", [read_run, lambda folder: read_runs([folder])])
def test_a_run_of_an_older_version_is_refused_in_one_line(tmp_path: Path, read) -> None:
    run = write_run(tmp_path / "old")
    config = run / "config.toml"
    config.write_text(f"price = 3.0\n{config.read_text()}")
    with pytest.raises(UserError, match=r"old is a run of an older version: price was removed: use epsilon = "):
        read(run)
