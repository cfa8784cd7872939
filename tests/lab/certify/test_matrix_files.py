"""Rows on disk: of something else, damaged, or swapped."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from invaug.lab.certify import certificate
from invaug.lab.certify import matrix as scored
from invaug.lab.certify.matrix import Exhaustive, Sample
from invaug.lab.certify.matrix_files import Cache
from invaug.lab.run.folder import Predictor
from tests.support.certificates import SMALL, fill


def test_scores_of_something_else_are_not_used_and_that_is_said(
    predictor: Predictor, sample: Sample, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    every, _ = certificate.list_transformations(SMALL)
    fill(Exhaustive(every, 18), predictor, sample, SMALL, Cache(tmp_path, {"weights": "a", "set": "s"}))
    other = Cache(tmp_path, {"weights": "b", "set": "s"})
    other.open()
    assert "belong to other weights: scoring again from the start" in capsys.readouterr().err
    assert other.read(np.empty((99, 18), np.float32), np.empty((99, 18), np.int8)) == 0


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "swap", "link"])
def test_a_damaged_file_is_made_again(
    predictor: Predictor,
    sample: Sample,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    damage: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scored, "FLUSH", -1.0)  # a file a block
    every, _ = certificate.list_transformations(SMALL)
    plan, key = Exhaustive(every, 18), {"weights": "a"}
    before = fill(plan, predictor, sample, SMALL, Cache(tmp_path / "c", key))
    files = sorted((tmp_path / "c").glob("rows-*"))
    content = files[1].read_bytes()
    middle = len(content) // 2
    changed = {
        "flip": content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :],
        "cut": content[:middle],
        "empty": b"",
        "swap": files[0].read_bytes(),
        "link": b"",
    }[damage]
    files[1].unlink()
    if damage == "link":
        files[1].symlink_to(files[0])
    else:
        files[1].write_bytes(changed)
    after = fill(plan, predictor, sample, SMALL, Cache(tmp_path / "c", key))
    assert "is damaged: it and what follows it are scored again" in capsys.readouterr().err
    assert after.losses.tobytes() == before.losses.tobytes()
