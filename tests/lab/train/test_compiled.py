"""The compiled loops are loaded before a run; where that takes long, because they are compiled, it is announced."""

import time

import pytest

from invaug import TransformSet, sets
from invaug.lab.train import compiled


@pytest.mark.parametrize("patience", [0.01, 60])
def test_waiting_is_announced(
    patience: float, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wide = sets.wide

    def slow() -> TransformSet:
        time.sleep(0.3)
        return wide()

    monkeypatch.setattr(compiled, "PATIENCE", patience)
    monkeypatch.setattr(sets, "wide", slow)
    compiled.load_compiled_loops()
    assert ("compiling the image operations; this happens once" in capsys.readouterr().err) == (patience < 1)
