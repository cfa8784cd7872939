"""One writer per run folder: a live owner is never robbed, a dead one never in the way."""

from __future__ import annotations

import errno
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from invaug.lab.errors import UserError
from invaug.lab.run import lock
from invaug.lab.run.lock import run_lock

HOLD = """
import os, sys, time
from pathlib import Path
from invaug.lab.run.lock import run_lock
from invaug.lab.run.owner import work_for
if sys.argv[2:] and sys.argv[2].isdecimal():
    work_for(int(sys.argv.pop()))
with run_lock(Path(sys.argv[1])):
    child = os.fork() if len(sys.argv) > 2 else -1  # as a data worker that outlives its parent
    if child:
        print(child, flush=True)
    time.sleep(60)
"""

RACE = """
import os, sys
from pathlib import Path
from invaug.lab.errors import UserError
from invaug.lab.run.lock import run_lock

def say(text):
    os.write(1, f"{text}\\n".encode())  # one call, so that lines do not mix

def start(gate, end):
    os.read(gate, 1)  # returns for all at once, when the last writer is closed
    try:
        with run_lock(Path(sys.argv[1])):
            say(f"won {os.getpid()}")
            os.read(end, 1)
    except UserError as error:
        say(error)
    os._exit(0)

gate, opener = os.pipe()
end, ender = os.pipe()
n = int(sys.argv[2])
for _ in range(n):
    if os.fork() == 0:
        os.close(opener)
        os.close(ender)
        start(gate, end)
os.close(opener)
for _ in range(n - 1):
    os.wait()
os.close(ender)
os.wait()
"""


@contextmanager
def owner(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Run a process that holds the folder, and give it and what it says first."""
    command = [sys.executable, "-c", HOLD, str(folder), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
        assert process.stdout is not None
        try:
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


def test_the_folder_is_made_and_free_again_afterwards(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "a"
    for _ in range(3):
        with run_lock(folder):
            assert (folder / ".lock").exists()


def test_the_folder_is_free_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), run_lock(tmp_path):
        raise ZeroDivisionError
    with run_lock(tmp_path):
        pass


def test_a_second_lock_in_one_process_is_refused(tmp_path: Path) -> None:
    message = rf"{re.escape(str(tmp_path))} is in use by process {os.getpid()} on .*: wait for it to end, or choose"
    with run_lock(tmp_path):
        with pytest.raises(UserError, match=message), run_lock(tmp_path):
            pass
        with run_lock(tmp_path / "another"):
            pass
        with pytest.raises(UserError, match="in use"), run_lock(tmp_path):
            pass


def test_a_live_owner_is_named_and_a_dead_one_forgotten(tmp_path: Path) -> None:
    with owner(tmp_path) as (process, _):
        with pytest.raises(UserError, match=f"is in use by process {process.pid} on "), run_lock(tmp_path):
            pass
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert str(process.pid) in (tmp_path / ".lock").read_text()
        with run_lock(tmp_path):
            assert str(os.getpid()) in (tmp_path / ".lock").read_text()


def test_a_child_that_outlives_its_killed_parent_does_not_keep_the_folder(tmp_path: Path) -> None:
    with owner(tmp_path, "fork") as (process, child):
        try:
            with pytest.raises(UserError, match=f"process {process.pid} on "), run_lock(tmp_path):
                pass
            process.send_signal(signal.SIGKILL)
            process.wait()
            os.kill(child, 0)  # it lives
            with run_lock(tmp_path):
                pass
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_worker_whose_search_is_gone_is_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    search = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with owner(tmp_path, str(search.pid)) as (process, _):
        with pytest.raises(UserError, match=f"process {process.pid} on "), run_lock(tmp_path):
            pass
        assert capsys.readouterr().err == ""
        search.kill()  # not waited for: it may stay a zombie
        timer = threading.Timer(0.5, process.kill)
        timer.start()
        with run_lock(tmp_path):
            assert process.wait(10) == -signal.SIGKILL
        timer.join()
    search.communicate()
    waiting = f"invaug: waiting for process {process.pid} on {socket.gethostname()}, which is ending, to release"
    assert capsys.readouterr().err == f"{waiting} {tmp_path}\n"


def test_a_worker_that_does_not_end_with_its_search_is_named_after_some_patience(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "DYING", 0.2)
    search = subprocess.Popen([sys.executable, "-c", ""])
    search.wait()
    with (
        owner(tmp_path, str(search.pid)) as (process, _),
        pytest.raises(UserError, match=f"in use by process {process.pid} on "),
        run_lock(tmp_path),
    ):
        pass


def test_a_child_that_leaves_the_block_does_not_free_the_folder(tmp_path: Path) -> None:
    script = """
import os, sys
from pathlib import Path
from invaug.lab.errors import UserError
from invaug.lab.run.lock import run_lock
with run_lock(Path(sys.argv[1])):
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        try:
            with run_lock(Path(sys.argv[1])):
                print("stolen")
        except UserError as error:
            print(error)
"""
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True)  # noqa: S603
    assert "is in use by process" in done.stdout
    assert done.stderr == ""


def test_of_fifty_that_start_at_once_one_wins_and_the_others_name_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", RACE, str(tmp_path / "run"), "50"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)  # noqa: S603
    lines = done.stdout.splitlines()
    winners = [line.split()[1] for line in lines if line.startswith("won")]
    refusals = [line for line in lines if f"run is in use by process {winners[0]} on " in line]
    assert (len(winners), len(refusals), len(lines)) == (1, 49, 50), lines


@pytest.mark.parametrize("content", ["", "x", "[]", '{"pid": "x"}', '{"pid": 1}', '{"pid": 99999999999, "host": ""}'])
def test_whatever_a_lock_file_says_it_is_taken_if_nobody_holds_it(content: str, tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text(content)
    with run_lock(tmp_path):
        pass


def test_an_owner_that_has_not_yet_written_its_name_is_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "PATIENCE", 0.05)
    with run_lock(tmp_path):
        (tmp_path / ".lock").write_text("")
        with pytest.raises(UserError, match="is in use by another process"), run_lock(tmp_path):
            pass


def test_an_owner_on_another_machine_is_named(tmp_path: Path) -> None:
    with run_lock(tmp_path):
        (tmp_path / ".lock").write_text('{"pid": 4, "host": "elsewhere"}')
        with pytest.raises(UserError, match="process 4 on elsewhere"), run_lock(tmp_path):
            pass


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("content")
    (tmp_path / ".lock").symlink_to("precious")
    with pytest.raises(UserError, match="cannot lock"), run_lock(tmp_path):
        pass
    assert (tmp_path / "precious").read_text() == "content"


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(UserError, match=r"cannot lock .*file/run: Not a directory"),
        run_lock(tmp_path / "file" / "run"),
    ):
        pass


def test_a_disk_without_locks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(descriptor: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(lock, "_seize", unsupported)
    with pytest.raises(UserError, match="No locks available; choose a folder on another disk"), run_lock(tmp_path):
        pass


def test_locks_leave_no_open_files(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(20):
        with run_lock(tmp_path), pytest.raises(UserError, match="in use"), run_lock(tmp_path):
            pass
    assert len(list(Path("/proc/self/fd").iterdir())) == before
