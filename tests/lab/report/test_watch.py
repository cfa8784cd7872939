"""`invaug watch` as a user runs it: another process that follows a run."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.pages import rows_of, write_run

INVAUG = [sys.executable, "-m", "invaug"]


@contextmanager
def watching(*words: Path | str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Yield a running `invaug watch` and its address."""
    command = [*INVAUG, "watch", *map(str, words)]
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


def test_watch_may_be_started_before_the_run_and_says_what_it_waits_for(tmp_path: Path) -> None:
    run = tmp_path / "new"
    with watching(run) as (process, address):
        assert process.stdout is not None
        wanted = f"waiting for {run}, which does not exist yet; start it with: invaug train --out {run}\n"
        assert process.stdout.readline() == wanted
        before, waiting = get(address + "stamp"), get(address)
        assert "<h1>Waiting for new</h1>" in waiting
        assert str(tmp_path) not in waiting
        run.mkdir()
        (run / ".lock").write_text("")  # what training leaves before its config
        assert "<h1>Waiting for new</h1>" in get(address)
        write_run(run, epochs=3, planned=9)
        assert process.stdout.readline() == f"{run} has begun\n"
        assert get(address + "stamp") != before
        assert "3 of 9 epochs" in get(address)


def test_runs_that_have_begun_are_shown_beside_the_name_of_one_that_has_not(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", epochs=3, planned=9)
    with watching(run, tmp_path / "b") as (_, address):
        page = get(address)
        assert "3 of 9 epochs" in page
        assert '<p class="note">waiting for b</p>' in page


def test_the_address_has_a_token_that_is_new_each_time_and_not_in_the_page(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a")
    tokens = []
    for _ in range(2):
        with watching(run) as (_, address):
            tokens.append(address.split("/")[3])
            assert tokens[-1] not in get(address)
    assert len({*tokens}) == 2
    assert all(re.fullmatch("[0-9a-f]{32}", token) for token in tokens)


def test_without_a_token_the_page_is_at_the_root(tmp_path: Path) -> None:
    with watching(write_run(tmp_path / "a", epochs=3, planned=9), "--no-token") as (_, address):
        assert address.count("/") == 3
        assert "3 of 9 epochs" in get(address)
        assert get(address + "stamp")
