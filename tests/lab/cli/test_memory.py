"""Memory that runs out, and absurd input that nobody foresaw, end in one line."""

import sys
from collections.abc import Callable

import numpy as np
import pytest
import torch

from invaug.lab.cli import main as command
from invaug.lab.errors import UserError, is_out_of_memory, reading, shown

HUGE = 1 << 48


def overflow() -> None:
    float(10**400)


def recurse() -> None:
    recurse()


def no_memory() -> None:
    raise OSError(12, "Cannot allocate memory")


@pytest.mark.parametrize(
    "allocate",
    [lambda: bytearray(1 << 60), lambda: np.empty(HUGE), lambda: torch.empty(HUGE), no_memory],
    ids=["Python", "numpy", "torch", "the system"],
)
def test_memory_that_runs_out_is_one_line_with_the_way_out(
    allocate: Callable[[], object], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "app", lambda **_: allocate())
    with pytest.raises(SystemExit) as stop:
        command.main()
    said = capsys.readouterr().err
    assert stop.value.code == 1
    assert said.startswith("invaug: memory ran out: lower batch_size, scoring_batch,")
    assert said.count("\n") == 1


@pytest.mark.parametrize("absurd", [overflow, recurse])
def test_absurd_input_is_one_line(
    absurd: Callable[[], None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "app", lambda **_: absurd())
    with pytest.raises(SystemExit) as stop:
        command.main()
    said = capsys.readouterr().err
    assert (stop.value.code, said.count("\n")) == (2, 1)


def test_other_errors_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(command, "app", fail)
    with pytest.raises(RuntimeError, match="a bug"):
        command.main()


def test_a_reader_without_memory_does_not_blame_the_file() -> None:
    with pytest.raises(MemoryError, match=r"while reading data\.npz"), reading("data.npz"):
        np.empty(HUGE)
    with pytest.raises(UserError, match=r"cannot read data\.npz: broken"), reading("data.npz"):
        raise ValueError("broken")


def test_only_errors_about_memory_count() -> None:
    assert not is_out_of_memory(RuntimeError("shapes differ"))
    assert is_out_of_memory(RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"))


def test_a_long_message_is_cut_in_the_middle(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(**_: object) -> None:
        raise UserError(f"start {'x' * 10_000} end")

    monkeypatch.setattr(command, "app", refuse)
    with pytest.raises(SystemExit):
        command.main()
    said = capsys.readouterr().err
    assert said.startswith("invaug: start")
    assert said.endswith("end\n")
    assert len(said) < 2100


def test_values_are_shown_shortened() -> None:
    assert shown("x" * 1000) == f"'{'x' * 79}…"
    assert shown([16**5000]) == "a list of huge numbers"
    assert sys.get_int_max_str_digits() == 4300
