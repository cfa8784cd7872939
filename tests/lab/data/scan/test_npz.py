"""`invaug scan` of an .npz."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from invaug.lab.data.load import load_dataset
from invaug.lab.data.scan.command import scan
from invaug.lab.errors import UserError
from tests.support.datasets import reasons, write_npz


def test_a_good_npz_is_usable_and_counted(tmp_path: Path) -> None:
    found = scan(write_npz(tmp_path / "a.npz"))
    assert (found.bad, found.notes, found.files) == ([], [], 28)
    assert found.classes["train"] == {"0": 5, "1": 5, "2": 5, "3": 5}
    assert (found.sizes, found.modes) == ({"8 x 8": 28}, {"RGB": 28})


LABELS = np.arange(20) % 4


NAN = np.full((20, 8, 8, 3), 0.5, np.float32)
NAN[[3, 7]] = np.nan


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"y_train": LABELS - 1}, "y_train must be from 0 to 2, got -1 at image 0 and 4 more"),
        ({"y_test": np.arange(8)}, "y_test must be from 0 to 3, got 4 at image 4 and 3 more"),
        ({"classes": np.array(list("abc"))}, "y_train must be from 0 to 2, got 3 at image 3 and 4 more"),
        ({"y_train": np.where(LABELS == 2, np.nan, LABELS + 0.0)}, "must be integers from 0, got float64"),
        ({"x_train": NAN}, "x_train of {path} has NaN pixels in 2 images, the first is image 3"),
        ({"y_train": None}, "{path} has no y_train"),
        ({"y_train": LABELS * 0, "y_test": np.zeros(8, int)}, "there must be at least two classes"),
        ({"y_train": np.int64(3)}, "y_train of {path} must have one label per image, got shape ()"),
    ],
)
def test_an_npz_that_training_refuses_is_bad_for_the_same_reason(
    tmp_path: Path, changes: dict[str, Any], wanted: str
) -> None:
    path = write_npz(tmp_path / "a.npz", **changes)
    (found,) = scan(path).bad
    assert found.file == "a.npz"
    assert wanted.format(path=path) in found.reason
    with pytest.raises(UserError) as caught:
        load_dataset(str(path))
    assert str(caught.value) == found.reason


def test_repeated_blank_and_foreign_parts_of_an_npz_are_noted(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(256, size=(20, 8, 8, 3), dtype=np.uint8)
    pixels[5], pixels[6] = pixels[1], 7
    found = scan(write_npz(tmp_path / "a.npz", x_train=pixels, x_test=pixels[:8] // 2, more=np.zeros(3)))
    assert not found.bad
    assert reasons(found.notes) == {
        "more": ["not one of the arrays of a dataset: left out"],
        "x_train[5]": ["a copy: same bytes as x_train[1]"],
        "x_train[6]": ["blank: all pixels are the same"],
        "x_test[5]": ["a copy: same bytes as x_test[1]"],
        "x_test[6]": ["blank: all pixels are the same"],
    }


def test_a_broken_npz_is_bad(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "a.npz")
    content = bytearray(path.read_bytes())
    content[400] ^= 1
    path.write_bytes(content)
    assert "Bad CRC-32 for file 'x_train.npy'" in reasons(scan(path).bad)["a.npz"][0]
    path.write_bytes(b"no zip")
    assert reasons(scan(path).bad)["a.npz"] == [f"cannot read {path}: File is not a zip file"]
