"""Folders of images: which files they hold, and which part is what."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from invaug.lab.data import folder
from invaug.lab.errors import UserError
from tests.support.datasets import GREY, saved


def tree(root: Path, *names: str) -> Path:
    for name in names:
        saved(root / name, GREY)
    return root


def labels(root: Path, files: folder.Files | None) -> list[tuple[str, int]]:
    assert files is not None
    return [(path.relative_to(root).as_posix(), target) for path, target in zip(*files, strict=True)]


@pytest.mark.parametrize("part", ["val", "valid", "validation", "test", "Val"])
def test_a_train_and_a_test_folder_are_found_under_the_usual_names(tmp_path: Path, part: str) -> None:
    root = tree(tmp_path, "train/dog/b.png", "train/cat/a.PNG", "train/dog/a.png", f"{part}/dog/x.png")
    (root / "train" / "dog" / "notes.txt").write_text("not an image")
    (root / "train" / ".hidden").mkdir()
    listing = folder.list_folder(root)
    assert listing.classes == ("cat", "dog")
    assert labels(root, listing.train) == [("train/cat/a.PNG", 0), ("train/dog/a.png", 1), ("train/dog/b.png", 1)]
    assert labels(root, listing.test) == [(f"{part}/dog/x.png", 1)]
    assert listing.val is None


def test_val_and_test_folders_are_what_they_say(tmp_path: Path) -> None:
    listing = folder.list_folder(tree(tmp_path, "train/a/1.png", "train/b/1.png", "val/a/2.png", "test/b/3.png"))
    assert labels(tmp_path, listing.val) == [("val/a/2.png", 0)]
    assert labels(tmp_path, listing.test) == [("test/b/3.png", 1)]


def test_an_unlabelled_test_folder_is_passed_over(tmp_path: Path) -> None:
    listing = folder.list_folder(tree(tmp_path, "train/a/1.png", "train/b/1.png", "val/a/2.png", "test/images/3.png"))
    assert labels(tmp_path, listing.test) == [("val/a/2.png", 0)]


def test_class_folders_alone_are_a_dataset_without_a_split(tmp_path: Path) -> None:
    listing = folder.list_folder(tree(tmp_path, "b/1.png", "a/deep/er/1.png"))
    assert listing.classes == ("a", "b")
    assert labels(tmp_path, listing.train) == [("a/deep/er/1.png", 0), ("b/1.png", 1)]
    assert (listing.val, listing.test) == (None, None)


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    assert folder.list_folder(tree(tmp_path, "bus/1.png", "car/1.png", "train/1.png")).classes == (
        "bus",
        "car",
        "train",
    )


def test_class_folders_may_be_links_but_loops_are_not_walked(tmp_path: Path) -> None:
    tree(tmp_path, "store/x/1.png", "data/b/1.png")
    (tmp_path / "data" / "a").symlink_to(tmp_path / "store" / "x")
    (tmp_path / "data" / "b" / "again").symlink_to(tmp_path / "data")
    listing = folder.list_folder(tmp_path / "data")
    assert labels(tmp_path, listing.train) == [("data/a/1.png", 0), ("data/b/1.png", 1)]


def test_names_that_are_no_utf8_can_be_printed(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    tree(tmp_path, "a/1.png", "b/1.png")
    os.rename(os.fsencode(tmp_path / "a"), os.fsencode(tmp_path) + b"/\xff")  # noqa: PTH104 - Path takes no bytes
    classes = folder.list_folder(tmp_path).classes
    assert classes == ("b", "\ufffd")
    assert "".join(classes).encode()


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], r"has no class folders: put the images in .*/<class>/"),
        (["a/1.png"], r"has one class, a: there must be at least two"),
        (["train/a/1.png", "train/b/readme.txt"], r"class folder .*b holds no image \(\.bmp"),
        (["train/1.png", "val/2.png"], r"train has no class folders: put the images in .*train/<class>/"),
        (["val/a/1.png", "test/a/1.png"], r"has test, val but no train folder"),
        (["train/a/1.png", "train/b/1.png", "val/c/1.png"], r"val holds none of the classes of train"),
        (["train/cat/1.png", "train/b/1.png", "val/b/1.png", "val/cta/1.png"], r"cta is a class .* did you mean cat\?"),
        (["train/a/1.png", "train/b/1.png", "val/a/1.png", "valid/b/1.png"], r"has both val and valid: keep one"),
    ],
)
def test_folders_that_are_no_dataset_are_refused(tmp_path: Path, names: list[str], message: str) -> None:
    for name in names:
        if name.endswith(".txt"):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text("words")
        else:
            tree(tmp_path, name)
    with pytest.raises(UserError, match=message):
        folder.list_folder(tmp_path)
