"""Signals: the first asks to save, the second ends the process, and what the user ignores stays ignored."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from invaug.lab.train.signals import ECHO, EXITS, Signals

ALL = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
WAIT = """
import time
from invaug.lab.train.signals import Signals
with Signals() as signals:
    print("ready", flush=True)
    while not signals.caught:
        time.sleep(0.01)
    print("caught", flush=True)
    for _ in range(6000):  # short sleeps: a signal just before a long one is handled only after it
        time.sleep(0.01)
"""


@pytest.mark.parametrize("signum", ALL)
def test_a_signal_is_noted_and_the_handlers_are_put_back(signum: int) -> None:
    before = [signal.getsignal(number) for number in ALL]
    with Signals() as signals:
        os.kill(os.getpid(), signum)
        assert signals.caught == signum
    assert [signal.getsignal(number) for number in ALL] == before
    assert 128 + signum in EXITS


@pytest.mark.parametrize("signum", ALL)
def test_the_second_signal_ends_the_process_at_once(signum: int) -> None:
    with subprocess.Popen([sys.executable, "-c", WAIT], stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signum)
        assert process.stdout.readline() == "caught\n"
        time.sleep(ECHO if signum == signal.SIGHUP else 0)
        process.send_signal(signum)
        assert process.wait(30) == -signum


def test_the_hangup_that_shell_and_kernel_both_send_is_one_signal() -> None:
    with Signals() as signals:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGHUP)
        assert signals.caught == signal.SIGHUP


@pytest.mark.parametrize("signum", [signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_that_was_ignored_at_the_start_stays_ignored(signum: int) -> None:
    before = signal.signal(signum, signal.SIG_IGN)  # as nohup does with SIGHUP
    try:
        with Signals() as signals:
            os.kill(os.getpid(), signum)
            assert signals.caught == 0
        assert signal.getsignal(signum) is signal.SIG_IGN
    finally:
        signal.signal(signum, before)


def test_what_a_run_has_caught_counts_for_the_search_around_it() -> None:
    with Signals() as search:
        with Signals() as training:
            os.kill(os.getpid(), signal.SIGUSR1)
        assert (training.caught, search.caught) == (signal.SIGUSR1, signal.SIGUSR1)


def test_a_worker_bears_a_second_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Signals, "second_ends", False)
    with Signals() as signals:
        os.kill(os.getpid(), signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.caught == signal.SIGTERM
