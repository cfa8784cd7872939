"""Datasets as one .npz: the forms they come in, and what is refused."""

from __future__ import annotations

import os
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from faults.odd_arrays import encoded, members_of, with_header, write_members
from invaug.lab.data import npz
from invaug.lab.data.load import load_dataset
from invaug.lab.errors import UserError
from tests.support.datasets import RNG, images, write_npz

HEADER = "{{'descr': {}, 'fortran_order': False, 'shape': {}}}\n"


@pytest.mark.parametrize("form", ["NHWC", "NCHW", "NHW", "float", "int64 pixels", "column labels"])
def test_npz_files_come_in_several_forms(tmp_path: Path, form: str) -> None:
    x, y = images(20, 1 if form == "NHW" else 3, 8), np.arange(20) % 4
    forms = {
        "NHWC": x.transpose(0, 2, 3, 1),
        "NCHW": x,
        "NHW": x[:, 0],
        "float": x.transpose(0, 2, 3, 1) / np.float32(255),
        "int64 pixels": x.transpose(0, 2, 3, 1).astype(np.int64),
        "column labels": x.transpose(0, 2, 3, 1),
    }
    labels = y[:, None].astype(np.uint8) if form == "column labels" else y
    path = write_npz(tmp_path / "mine.npz", x_train=forms[form], y_train=labels, x_test=forms[form], y_test=labels)
    dataset = load_dataset(str(path))
    assert dataset.name == "mine"
    assert (dataset.train.images.numpy() == x).all()
    assert dataset.train.targets.tolist() == y.tolist()
    assert dataset.train.images.dtype == torch.uint8
    assert dataset.train.targets.dtype == torch.int64
    assert dataset.classes == ("0", "1", "2", "3")
    assert dataset.image_shape == x.shape[1:]


def test_npz_files_may_name_their_classes_and_have_many_channels(tmp_path: Path) -> None:
    x = images(20, 13, 16)
    path = write_npz(tmp_path / "a.npz", x_train=x, x_test=x[:8], classes=np.array(["a", "b", "c", "d"]))
    dataset = load_dataset(str(path), image_size=8)
    assert dataset.classes == ("a", "b", "c", "d")
    assert dataset.image_shape == (13, 8, 8)


def nan_at(row: int) -> np.ndarray:
    pixels = RNG.random((20, 8, 8, 3), np.float32)
    pixels[row, 2, 2, 1] = np.nan
    return pixels


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y_train": np.arange(20) % 4 - 1}, r"y_train must be from 0 to 2, got -1 at image 0"),
        ({"y_test": np.arange(8)}, r"y_test must be from 0 to 3, got 4 at image 4"),
        (
            {"y_train": np.arange(20) % 4 / 1.0},
            r"y_train of .*a\.npz must be integers from 0, got float64, for example 0\.0",
        ),
        ({"y_train": np.full(20, np.nan)}, r"must be integers from 0, got float64, for example nan"),
        ({"y_train": np.array(["cat", "dog"] * 10)}, r"must be integers from 0, got <U3, for example cat"),
        ({"y_train": np.zeros(20, int)}, r"at least two classes, every label of y_train is 0"),
        ({"y_train": np.arange(20) % 4 * 2}, r"class 1 has no training image: y_train is never 1"),
        ({"y_train": np.arange(19) % 4}, r"x_train and y_train must have the same length, got 20 images and 19 labels"),
        ({"y_test": np.eye(8, dtype=int)}, r"y_test of .* must have one label per image, got shape \(8, 8\)"),
        ({"y_train": None}, r"has no y_train: it holds x_train, x_test, y_test"),
        ({"x_train": nan_at(7)}, r"x_train of .* has NaN pixels in 1 images, the first is image 7"),
        (
            {"x_train": np.full((20, 8, 8, 3), 255.0)},
            r"\(float64\) must lie in 0 to 1, got 255 to 255: save it as uint8",
        ),
        ({"x_train": np.full((20, 8, 8, 3), 300)}, r"\(int64\) must lie in 0 to 255, got 300 to 300"),
        ({"x_train": np.zeros((20, 64), np.uint8)}, r"must be images of shape .*, got shape \(20, 64\)"),
        ({"x_train": np.zeros((0, 8, 8, 3), np.uint8)}, r"got shape \(0, 8, 8, 3\)"),
        ({"x_train": np.zeros((20, 8, 8, 3), complex)}, r"must be uint8, or float in \[0, 1\], got complex128"),
        (
            {"x_test": np.zeros((8, 9, 9, 3), np.uint8)},
            r"must have the same .*, got \(3, 8, 8\) and \(3, 9, 9\)",
        ),
        ({"classes": np.array(["a", "b", "c"])}, r"y_train must be from 0 to 2, got 3 at image 3"),
        ({"classes": np.array(list("abcde"))}, r"class e has no training image: y_train is never 4"),
    ],
)
def test_npz_files_that_cannot_be_trained_on_are_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_dataset(str(write_npz(tmp_path / "a.npz", **changes)))


def test_nothing_in_an_npz_is_unpickled(tmp_path: Path) -> None:
    canary = tmp_path / "canary"

    class Evil:
        def __reduce__(self) -> tuple[Any, tuple[str, ...]]:
            return os.mkdir, (str(canary),)

    path = write_npz(tmp_path / "a.npz", y_train=np.array([Evil()] * 20, object))
    with pytest.raises(
        UserError, match=r"cannot read .*a\.npz: y_train\.npy is not .*: Object arrays cannot be loaded"
    ):
        load_dataset(str(path))
    assert not canary.exists()


def test_npz_files_with_a_changed_byte_or_cut_short_are_refused(tmp_path: Path) -> None:
    content = write_npz(tmp_path / "a.npz").read_bytes()
    for place in (200, 2000, 4000):
        (tmp_path / "b.npz").write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(UserError, match=r"cannot read .*b\.npz: Bad CRC-32"):
            load_dataset(str(tmp_path / "b.npz"))
    for n_bytes in (0, 100, len(content) - 1):
        (tmp_path / "b.npz").write_bytes(content[:n_bytes])
        with pytest.raises(UserError, match=r"cannot read .*b\.npz|b\.npz has no x_train"):
            load_dataset(str(tmp_path / "b.npz"))
    np.save(tmp_path / "c.npy", np.zeros(3))
    (tmp_path / "c.npy").rename(tmp_path / "c.npz")
    with pytest.raises(UserError, match=r"cannot read .*c\.npz: File is not a zip file"):
        load_dataset(str(tmp_path / "c.npz"))


def test_an_npz_that_grows_like_a_bomb_or_says_a_name_twice_is_refused(tmp_path: Path) -> None:
    bomb = tmp_path / "bomb.npz"
    np.savez_compressed(bomb, x_train=np.zeros((100, 1000, 1000), np.uint8))
    with pytest.raises(UserError, match=r"x_train\.npy grows from [\d,]+ to 100,000,128 bytes: a zip bomb"):
        npz.read_npz(bomb)
    path = write_npz(tmp_path / "a.npz")
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("y_train.npy", b"other")
    with pytest.raises(UserError, match=r"cannot read .*a\.npz: it holds y_train\.npy twice"):
        npz.read_npz(path)


def test_an_encrypted_or_strangely_packed_npz_is_one_line(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "a.npz")
    content = path.read_bytes()
    for place, value in ((6, 1), (8, 99)):  # flags and method of the first member, in both headers
        changed = bytearray(content)
        changed[place] = value
        central = content.index(b"PK\1\2")
        changed[central + place + 2] = value
        path.write_bytes(changed)
        with pytest.raises(UserError, match=r"^cannot read .*a\.npz: .*(encrypted|compression|not supported)"):
            npz.read_npz(path)


@pytest.mark.parametrize("label", [20, 2**31, 2**62])
def test_a_label_beyond_the_number_of_images_takes_no_memory_for_its_classes(tmp_path: Path, label: int) -> None:
    labels = np.arange(20) % 4
    labels[7] = label
    tracemalloc.start()
    with pytest.raises(UserError, match=rf"y_train must be below 20: .*, got {label} at image 7: number the classes"):
        load_dataset(str(write_npz(tmp_path / "a.npz", y_train=labels)))
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()


def test_a_label_that_no_signed_integer_holds_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"must be integers from 0, one per class, got 18446744073709551615"):
        load_dataset(str(write_npz(tmp_path / "a.npz", y_train=np.array([0, 1] * 9 + [0, 2**64 - 1], np.uint64))))


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        (np.array([b"a", b"b", b"c", b"d"]), r"must be a list of text, got \|S1 of shape \(4,\)"),
        (np.array([["a", "b", "c", "d"]]), r"must be a list of text, got <U1 of shape \(1, 4\)"),
        (np.array([]), r"must be a list of text, got float64 of shape \(0,\)"),
        (np.array(list("abcd") * 6), r"must be 1 to 20 names, one per class that has images, got 24"),
        (np.array(["a", "b", "a", "d"]), r"has 'a' twice: give each class its own name"),
        (np.array(["a", " ", "c", "d"]), r"name 1 in classes of .* must have 1 to 255 characters"),
        (np.array(["a", "b\0b", "c", "d"]), r"name 1 .* none of them NUL, got 'b\\x00b': rename the class"),
        (np.array(["a", "b", "c" * 1_000_000, "d"]), r"name 2 in classes of .* must have 1 to 255 characters"),
        (
            np.array(["a", "b", "\ud800", "d"]),
            r"classes\.npy is not an array that can be used: its text is not Unicode",
        ),
        (np.array([1, 2**32 - 1], "u4").view("U1"), r"its text is not Unicode"),
    ],
)
def test_names_of_classes_that_cannot_be_are_refused(tmp_path: Path, classes: np.ndarray, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_dataset(str(write_npz(tmp_path / "a.npz", classes=classes)))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"no array\n", r"y_train\.npy is not an array that can be used: the magic string"),
        (b"", r"y_train\.npy is not an array"),
        (encoded(np.arange(20))[:-8], r"its header describes 160 bytes, 152 bytes follow"),
        (with_header(encoded(np.arange(20)), HEADER.format("'<i8'", "(4611686018427387904,)")), r"2\^63 bytes or more"),
        (with_header(encoded(np.arange(20)), HEADER.format("'<i8'", "(-20,)")), r"its shape is not one of an array"),
        (with_header(encoded(np.arange(20)), HEADER.format("'<i8'", "(20,)"), 3), r"only 1\.0 and 2\.0 are read"),
    ],
)
def test_a_member_that_is_no_array_is_refused_before_memory_is_taken(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = write_npz(tmp_path / "a.npz")
    write_members(path, {**members_of(path), "y_train.npy": content})
    with pytest.raises(UserError, match=message):
        load_dataset(str(path))


def test_an_array_under_two_names_is_refused(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "a.npz")
    members = members_of(path)
    write_members(path, {**members, "y_train": members["y_train.npy"]})
    with pytest.raises(UserError, match=r"cannot read .*a\.npz: it holds y_train twice"):
        load_dataset(str(path))


def test_a_pipe_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.npz")
    with pytest.raises(UserError, match="it is not a regular file"):
        npz.read_npz(tmp_path / "a.npz")
