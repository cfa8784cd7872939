"""The faults of `make faults`, a few tries of each."""

from pathlib import Path

import pytest

from faults.harness import Case, all_cases


@pytest.mark.parametrize("case", [c for c in all_cases() if c.fast], ids=lambda case: f"{case.group}: {case.name}")
def test_a_run_survives(case: Case, tmp_path: Path) -> None:
    assert case.failures(case.fast, tmp_path / "fault") == []
