"""`invaug report` and `invaug watch` as a user runs them: another process, its lines and its exit code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.pages import rows_of, write_rows, write_run

INVAUG = [sys.executable, "-m", "invaug"]


def invaug(*arguments: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603
        [*INVAUG, *map(str, arguments)], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "a")


def test_report_says_where_the_page_the_figures_and_the_tables_are(run: Path, tmp_path: Path) -> None:
    write_run(tmp_path / "b", method="trivial")
    said = invaug("report", "a", "b", "-o", "out/r.html", "--figures", "figs", "--tables", "tabs", folder=tmp_path)
    assert (said.returncode, said.stderr) == (0, "")
    assert said.stdout.splitlines() == ["out/r.html", "figs", "tabs"]
    assert (tmp_path / "out" / "r.html").read_text().startswith("<!doctype html>")
    stems = [{path.stem for path in (tmp_path / "figs").glob(f"*.{kind}")} for kind in ("svg", "png")]
    assert stems[0] == stems[1]
    assert {"gamma", "accuracy", "error", "pareto"} <= stems[0]
    assert {"experiments.csv", "experiments.md", "experiments.tex"} <= {p.name for p in (tmp_path / "tabs").iterdir()}


def test_report_of_one_run_goes_into_it_and_of_several_beside_them(run: Path, tmp_path: Path) -> None:
    write_run(tmp_path / "b")
    assert invaug("report", "a", folder=tmp_path).stdout == "a/report.html\n"
    assert invaug("report", "a", "b", folder=tmp_path).stdout == "report.html\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["report", "nowhere"], "nowhere is not a run: it has no config.toml"),
        (["report", "a", "-o", "a/config.toml/r.html"], "choose another -o"),
        (["report", "a", "-o", "."], "is a folder: name a file for the page, for example report.html"),
        (["report", "a", "-o", "a/record.jsonl"], "is where a run keeps its own file: choose another -o"),
        (["report", "a", "--figures", "a/config.toml"], "choose another --figures"),
        (["report"], "Missing argument"),
        (["watch", "nowhere"], "nowhere is not a run: it has no config.toml"),
        (["watch", "a", "--port", "70000"], "Invalid value for '--port'"),
    ],
    ids=lambda value: "-".join(value)[:30] if isinstance(value, list) else "",
)
def test_a_mistake_is_one_line_and_code_2(run: Path, tmp_path: Path, arguments: list[str], said: str) -> None:
    found = invaug(*arguments, folder=tmp_path)
    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr.count("\n") == 1
    assert said in found.stderr


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda run: (run / "record.jsonl").unlink(), "no record.jsonl yet"),
        (lambda run: (run / "record.jsonl").write_text(""), "no whole epoch yet"),
        (lambda run: (run / "record.jsonl").write_text('{"epoch": 1, "tr'), "no whole epoch yet"),
        (lambda run: (run / "record.jsonl").write_bytes(b"\xff\n\xff\n"), "is damaged in line 1"),
        (lambda run: write_rows(run, [row | {"gamma": [float("nan")]} for row in rows_of(run)]), "finite slack"),
        (lambda run: (run / "evaluation.json").write_text("{"), "evaluation.json is damaged"),
    ],
    ids=["no record", "no epoch", "cut", "damaged", "nan", "bad evaluation"],
)
def test_a_run_in_a_bad_state_has_a_page_that_says_so(run: Path, tmp_path: Path, damage, said: str) -> None:
    damage(run)
    found = invaug("report", "a", "--figures", "figs", "--tables", "tabs", folder=tmp_path)
    assert (found.returncode, found.stderr) == (0, "")
    assert said in (run / "report.html").read_text()


# the live view in another process


@contextmanager
def watching(*runs: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Yield a running `invaug watch` and its address."""
    command = [*INVAUG, "watch", *map(str, runs)]
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(  # noqa: S603
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("watching at http://127.0.0.1:")
        yield process, line.split()[2]
    finally:
        process.kill()
        process.communicate()


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310
        return answer.read().decode()


def grow(run: Path) -> None:
    """Add an epoch, as the training loop does."""
    rows = rows_of(run)
    with (run / "record.jsonl").open("a") as file:
        file.write(json.dumps(rows[-1] | {"epoch": len(rows) + 1}) + "\n")


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_watch_follows_a_run_that_grows_and_ends_without_a_word(tmp_path: Path, signum: signal.Signals) -> None:
    run = write_run(tmp_path / "a", epochs=3, planned=9)
    with watching(run) as (process, address):
        assert "3 of 9 epochs" in get(address)
        before = get(address + "stamp")
        grow(run)
        assert get(address + "stamp") != before
        assert "4 of 9 epochs" in get(address)
        process.send_signal(signum)
        out, errors = process.communicate(timeout=60)
        assert (out, errors) == ("", "")
        assert process.returncode == {signal.SIGINT: 0, signal.SIGTERM: -signal.SIGTERM}[signum]


def test_watch_waits_for_runs_that_have_not_begun_their_record(tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs" / "a", epochs=3)
    (run / "record.jsonl").rename(tmp_path / "later")
    with watching(tmp_path / "runs") as (_, address):
        assert "no record.jsonl yet" in get(address)
        (tmp_path / "later").rename(run / "record.jsonl")
        write_run(tmp_path / "runs" / "b", method="trivial", epochs=2)  # as --compare goes on to the next
        assert "2 runs on digits" in get(address)
