"""Which images are used for what: subsets, folds, orders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from invaug.lab.data import splits
from invaug.lab.data.load import load_dataset
from invaug.lab.errors import UserError
from tests.support.datasets import counts, rows_of, write_images


def test_a_fraction_takes_the_same_share_of_every_class_and_grows_by_adding() -> None:
    small, large = load_dataset("digits", fraction=0.05), load_dataset("digits", fraction=0.2)
    assert (counts(small.train), counts(large.train)) == ([20] * 10, [80] * 10)
    assert rows_of(small) < rows_of(large)
    assert rows_of(load_dataset("digits", per_class=20)) == rows_of(small)
    assert rows_of(load_dataset("digits", fraction=0.05, seed=1)) != rows_of(small)
    assert torch.equal(load_dataset("digits", fraction=0.05).train.images, small.train.images)


def test_held_out_images_are_taken_from_every_class_and_from_training_alone() -> None:
    dataset, whole = load_dataset("digits", fraction=0.1, val_fraction=0.25), load_dataset("digits", fraction=0.1)
    assert (counts(dataset.train), counts(dataset.val), counts(dataset.test)) == ([30] * 10, [10] * 10, [100] * 10)
    assert rows_of(dataset).isdisjoint(rows_of(dataset, "val"))
    assert rows_of(dataset) | rows_of(dataset, "val") == rows_of(whole)


def test_stratified_takes_the_first_of_each_class_after_a_shuffle() -> None:
    targets = torch.tensor([0, 1, 2, 1, 1, 0, 2, 2, 2, 0, 1])
    wanted = [2, 1, 3]
    left, slowly = list(wanted), np.zeros(len(targets), bool)
    for row in splits.random_order(len(targets), 4, 7):
        if left[targets[row]]:
            left[targets[row]] -= 1
            slowly[row] = True
    assert (splits.first_of_each_class(targets, wanted, splits.random_order(len(targets), 4, 7)) == slowly).all()


PINNED = [3, 7, 1, 0, 6, 9, 2, 5, 8, 4]  # changing this changes every run ever recorded


def test_the_first_images_of_each_class_are_the_first() -> None:
    whole, some = load_dataset("digits"), load_dataset("digits", per_class=3, subset="first", seed=5)
    for k in range(10):
        first = whole.train.images[whole.train.targets == k][:3]  # type: ignore[index]
        assert torch.equal(some.train.images[some.train.targets == k], first)  # type: ignore[index]


def test_folds_share_no_image_and_hold_every_one_out_once() -> None:
    whole = load_dataset("digits", per_class=7)
    folds = [load_dataset("digits", per_class=7, val_fraction=0.334, val_fold=fold) for fold in range(4)]
    assert folds[0].val is not None
    first = load_dataset("digits", per_class=7, val_fraction=0.334)
    assert torch.equal(folds[0].val.images, first.val.images)  # type: ignore[union-attr]
    counts = [np.bincount(fold.val.targets).tolist() for fold in folds]  # type: ignore[union-attr]
    assert counts == [[2] * 10, [2] * 10, [2] * 10, [1] * 10]
    held = [{image.numpy().tobytes() for image in fold.val.images} for fold in folds]  # type: ignore[union-attr]
    assert sum(map(len, held)) == len(set.union(*held)) == 70
    for fold, mine in zip(folds, held, strict=True):
        rest = {image.numpy().tobytes() for image in fold.train.images}  # type: ignore[union-attr]
        assert not rest & mine
        assert len(rest | mine) == len({image.numpy().tobytes() for image in whole.train.images})  # type: ignore[union-attr]
    with pytest.raises(UserError, match=r"part 4 of 0\.334, counted from 0, is empty: class 0 has 7 images"):
        load_dataset("digits", per_class=7, val_fraction=0.334, val_fold=4)


def test_the_order_of_a_seed_is_the_same_in_every_release() -> None:
    assert splits.random_order(10, 0, 3, 0).tolist() == PINNED
    assert splits.random_order(10, 0, 3, 1).tolist() != PINNED
    assert splits.random_order(10, 1, 3, 0).tolist() != PINNED


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"fraction": 0.001},
            r"fraction 0\.001 leaves no training image of class 0, which has 400: take at least 0\.0025",
        ),
        ({"per_class": 401}, r"per_class must be at most 400, the number of training images of class 0, got 401"),
        (
            {"val_fraction": 0.001},
            r"val_fraction of 0\.001 leaves a part of class 0 empty, it has 400 images: take a larger",
        ),
        ({"per_class": 1, "val_fraction": 0.5}, r"leaves a part of class 0 empty, it has 1 images: it needs more"),
    ],
)
def test_options_that_cannot_be_met_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_dataset("digits", **options)


def test_a_class_of_one_image_cannot_be_split(tmp_path: Path) -> None:
    root = write_images(tmp_path / "pets", {"cat": 1, "dog": 25})
    with pytest.raises(
        UserError, match=r"a test set of 0\.2 leaves a part of class cat empty, it has 1 images: it needs"
    ):
        load_dataset(str(root))


def test_a_class_of_two_images_has_one_to_train_on_and_one_to_test(tmp_path: Path) -> None:
    dataset = load_dataset(str(write_images(tmp_path / "pets", {"cat": 2, "dog": 25})))
    assert [split.targets.bincount().tolist() for split in (dataset.train, dataset.test)] == [[1, 20], [1, 5]]


def test_a_number_of_images_is_the_same_share_of_every_class(tmp_path):
    targets = np.repeat([0, 1, 2], [40, 80, 120])
    pixels = np.zeros((240, 4, 4), np.uint8)
    np.savez(tmp_path / "d.npz", x_train=pixels, y_train=targets, x_test=pixels[:3], y_test=targets[[0, 40, 239]])
    some = load_dataset(str(tmp_path / "d.npz"), images=60)
    assert torch.bincount(some.train.targets).tolist() == [10, 20, 30]
    assert len(load_dataset(str(tmp_path / "d.npz"), images=240).train) == 240
    with pytest.raises(UserError, match=r"images must be at most 240, the number of training images of .*, got 241"):
        load_dataset(str(tmp_path / "d.npz"), images=241)
