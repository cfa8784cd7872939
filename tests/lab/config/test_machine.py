"""What this machine can bear is checked where something is started, and says the way out."""

from pathlib import Path
from typing import Any

import pytest

from invaug.lab.config import machine
from invaug.lab.config.build import build
from invaug.lab.errors import UserError
from invaug.lab.train.ranks import launch


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine.os, "cpu_count", lambda: 2)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"devices": 9}, "devices 9 is more than this machine can bear, at most 8 with 2 cores: lower --devices"),
        ({"threads": 9}, "threads 9 .* at most 8 with 2 cores: lower --threads"),
        ({"workers": 9}, "workers 9 .* at most 8 with 2 cores: lower --workers"),
    ],
)
def test_a_launch_is_refused_before_anything_starts(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        launch(build({"device": "cpu", **given}))


def test_more_devices_than_there_are_are_refused() -> None:
    with pytest.raises(UserError, match="devices 3 is more than this machine can bear, at most 2 of cuda"):
        machine.check_devices(3, "cuda", 2)
    machine.check_devices(2, "cuda", 2)


def test_jobs_are_limited_on_this_machine_alone() -> None:
    with pytest.raises(UserError, match="jobs 9 is more than this machine can bear"):
        machine.check_jobs(9, "processes")
    machine.check_jobs(9, "ray://head:10001")
    machine.check_jobs(8, "processes")


def test_reading_commands_use_fewer_workers_rather_than_refuse() -> None:
    assert machine.usable_workers(4000) == 8
    assert machine.usable_workers(2) == 2


def test_a_config_of_a_larger_machine_stays_readable() -> None:
    assert build({"devices": 512, "threads": 1024, "workers": 256}).run.devices == 512


def test_an_unreadable_count_of_cores_is_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(machine.os, "cpu_count", lambda: None)
    assert machine.n_cores() == 1
