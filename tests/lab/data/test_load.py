"""Datasets: folders and names become training, validation and test images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from invaug.lab.config.build import build
from invaug.lab.data import load
from invaug.lab.data.load import channel_moments, load_dataset
from invaug.lab.errors import UserError
from tests.support.datasets import counts, images, write_images, write_npz


def test_a_folder_of_classes_is_split_four_to_one_the_same_way_every_time(tmp_path: Path) -> None:
    root = write_images(tmp_path / "pets", {"cat": 10, "dog": 25})
    one, other = load_dataset(str(root)), load_dataset(str(root), seed=5)
    assert one.name == "pets"
    assert (counts(one.train), counts(one.test)) == ([8, 20], [2, 5])
    assert torch.equal(one.test.images, other.test.images)
    everything = torch.cat([one.train.images, one.test.images]).flatten(1)
    assert len(everything.unique(dim=0)) == 35
    pixels = one.train.images.numpy() / 255
    assert one.mean == pytest.approx(pixels.mean((0, 2, 3)).tolist())
    assert one.std == pytest.approx(pixels.std((0, 2, 3)).tolist())


def test_a_folder_of_yours_may_have_the_name_of_a_known_dataset(tmp_path: Path) -> None:
    for name in ("mnist", "tiny-imagenet"):
        dataset = load_dataset(str(write_images(tmp_path / name, {"cat": 5, "dog": 5})))
        assert (dataset.image_shape, len(dataset.mean)) == ((3, 8, 8), 3)
    write_npz(tmp_path / "cifar10.npz", x_train=images(20, 1, 8)[:, 0], x_test=images(8, 1, 8)[:, 0])
    assert len(load_dataset("cifar10", data_dir=tmp_path).mean) == 1


def test_folders_too_large_for_memory_stay_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_images(tmp_path / "pets", {"cat": 10, "dog": 25})
    whole = load_dataset(str(root))
    monkeypatch.setattr(load, "MAX_RESIDENT", 1000)
    dataset = load_dataset(str(root))
    assert dataset.train.images is None
    assert dataset.train.shape == dataset.image_shape == (3, 8, 8)
    assert len(dataset.train.files or ()) == 28
    assert torch.equal(dataset.train.targets, whole.train.targets)
    assert (dataset.mean, dataset.std) == (whole.mean, whole.std)


def test_a_validation_folder_is_used_and_not_mixed_with_a_held_out_part(tmp_path: Path) -> None:
    for part in ("train", "val", "test"):
        write_images(tmp_path / part, {"cat": 4, "dog": 4})
    dataset = load_dataset(str(tmp_path))
    assert (len(dataset.train), counts(dataset.val), len(dataset.test)) == (8, [4, 4], 8)
    with pytest.raises(UserError, match=r"has validation images of its own: leave out val_fraction, got 0\.5"):
        load_dataset(str(tmp_path), val_fraction=0.5)


def test_images_are_resized_when_asked(tmp_path: Path) -> None:
    dataset = load_dataset("digits", per_class=2, image_size=20)
    plain = load_dataset("digits", per_class=2)
    by_hand = Image.fromarray(plain.train.images[3, 0].numpy()).resize((20, 20), Image.Resampling.BILINEAR)
    assert dataset.image_shape == (1, 20, 20)
    assert (dataset.train.images[3, 0].numpy() == np.asarray(by_hand)).all()
    root = write_images(tmp_path / "pets", {"cat": 5, "dog": 5})
    assert load_dataset(str(root), image_size=12).test.images.shape == (2, 3, 12, 12)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "cifar-10",
            r"^cifar-10 does not exist, as a file, a folder or a dataset: did you mean cifar10 or cifar100\?$",
        ),
        ("Fashion_MNIST", r"did you mean fashion-mnist"),
        ("zzzz", r"^zzzz does not exist, .*: choose one of cifar10, cifar100, digits"),
        ("./nowhere", r"^\./nowhere does not exist, .*: choose one of cifar10"),
        ("nowhere.npz", r"^nowhere\.npz does not exist"),
        ("photo", r"^photo does not exist, .*: did you mean photos\?$"),
        ("", r"^a dataset without a name does not exist"),
        ("x" * 5000, r"cannot read x+: File name too long"),
        ("a\0b", r"^a\0b does not exist"),
    ],
)
def test_what_is_not_there_is_said_to_be_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    with pytest.raises(UserError, match=message):
        load_dataset(name)


def test_a_file_that_is_no_dataset_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("words")
    with pytest.raises(UserError, match=r"notes\.txt is neither a folder of images nor an \.npz file"):
        load_dataset(str(tmp_path / "notes.txt"))


def test_a_corrupt_image_stops_the_loading_by_name(tmp_path: Path) -> None:
    root = write_images(tmp_path / "pets", {"cat": 5, "dog": 5})
    whole = (root / "dog" / "002.png").read_bytes()
    (root / "dog" / "002.png").write_bytes(whole[:-30])
    wanted = r"1 of 10 image files .* cannot be used: dog/002\.png \(.*see invaug scan .*pets"
    with pytest.raises(UserError, match=wanted):
        load_dataset(str(root))


def test_moments_are_exact_and_a_constant_channel_has_std_one() -> None:
    pixels = torch.from_numpy(images(5000, 2, 3))
    pixels[:, 1] = 51
    mean, std = channel_moments(pixels)
    exact = pixels[:, 0].double() / 255
    assert mean == pytest.approx((float(exact.mean()), 0.2), rel=1e-14)
    assert std == pytest.approx((float(exact.std(correction=0)), 1.0), rel=1e-12)


@pytest.mark.parametrize(
    "options",
    [
        {"fraction": 0.0},
        {"fraction": 1.1},
        {"fraction": float("nan")},
        {"per_class": 0},
        {"per_class": 5, "fraction": 0.5},
        {"val_fraction": 1.0},
        {"val_fraction": -0.1},
        {"image_size": 0},
        {"image_size": 8193},
        {"on_bad": "go"},
        {"seed": -1},
    ],
    ids=str,
)
def test_options_that_loading_relies_on_are_refused_by_the_config(options: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=next(iter(options))):
        build(options)
