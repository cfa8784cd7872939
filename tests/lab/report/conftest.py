"""A run as files, for all tests of the report."""

from __future__ import annotations

from pathlib import Path

import pytest

from invaug.lab.report.drawing import svg
from tests.support.pages import write_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return the folder of a constrained run of six epochs that met its epsilon."""
    return write_run(tmp_path / "a")


@pytest.fixture
def small_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw PNG files at a third of their size, in a fifth of the time."""
    monkeypatch.setattr(svg, "ZOOM", 1)
