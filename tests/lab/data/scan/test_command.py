"""`invaug scan` of a folder: bad files found, odd ones named, everything counted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from faults.bad_images import KINDS, encoded, photograph, write_folder
from invaug.lab.cli.main import app
from invaug.lab.data.load import load_dataset
from invaug.lab.data.scan.command import scan
from invaug.lab.data.scan.report import lines
from invaug.lab.errors import UserError
from tests.support.datasets import put, reasons

BAD = {kind.name: kind for kind in KINDS if kind.bad}


def run(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["scan", *words])
    return result.exit_code, result.stdout


def test_a_good_folder_is_usable_and_counted(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "pets", 7)
    code, output = run(str(root), "--json")
    assert code == 0
    found = json.loads(output)
    assert (found["files"], found["usable"], found["bad"], found["notes"]) == (7, True, [], [])
    assert found["classes"] == {"images": {"cat": 4, "dog": 3}}
    assert (found["sizes"], found["modes"]) == ({"24 x 24": 7}, {"RGB": 7})
    code, output = run(str(root))
    assert code == 0
    assert output.splitlines()[0] == f"{root}: 7 images, 0 bad, 0 notes"
    assert output.splitlines()[-1] == "usable"


def test_parts_are_counted_by_class(tmp_path: Path) -> None:
    write_folder(tmp_path / "train", 6)
    for i, label in enumerate(("cat", "dog", "dog")):
        put(tmp_path / "val" / label / f"{i}.png", b"")
        photograph(50 + i).save(tmp_path / "val" / label / f"{i}.png")
    assert scan(tmp_path).classes == {"train": {"cat": 3, "dog": 3}, "test": {"cat": 1, "dog": 2}}


def test_a_bad_file_is_listed_and_the_exit_code_is_one(tmp_path: Path) -> None:
    root = write_folder(tmp_path, 4, BAD["page.jpg"])
    code, output = run(str(root))
    assert code == 1
    assert "  cat/page.jpg: HTML, XML or SVG, not an image of pixels" in output.splitlines()
    assert output.splitlines()[-1] == "not usable as it is"


@pytest.mark.parametrize("name", ["gone", "x" * 300, "notes.txt"])
def test_what_is_not_there_or_no_dataset_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "notes.txt").write_text("words")
    with pytest.raises(
        UserError, match=r"cannot read .*(No such file|too long)|neither a folder of images nor an \.npz"
    ):
        scan(tmp_path / name)


def test_help_has_an_example() -> None:
    result = CliRunner().invoke(app, ["scan", "--help"])
    assert "invaug scan photos/ --json" in " ".join(result.output.split())


def test_the_same_bytes_are_noted_by_what_they_spoil(tmp_path: Path) -> None:
    write_folder(tmp_path / "train", 4)
    write_folder(tmp_path / "test", 0)
    whole = (tmp_path / "train" / "cat" / "0000.png").read_bytes()
    for name in ("train/cat/again.png", "train/dog/again.png", "test/cat/again.png", "test/dog/again.png"):
        put(tmp_path / name, whole)
    found = reasons(scan(tmp_path).notes)
    same, leak = "same bytes as train/cat/0000.png", "one image in train and in test, a leak"
    two = "one image in two classes, cat and dog"
    assert found == {
        "train/cat/again.png": [same],
        "train/dog/again.png": [f"{same}: {two}"],
        "test/cat/again.png": [f"{same}: {leak}"],
        "test/dog/again.png": [f"{same}: {leak}; {two}"],
    }


def test_a_copy_in_a_folder_without_a_split_may_end_on_both_sides(tmp_path: Path) -> None:
    write_folder(tmp_path, 4)
    put(tmp_path / "cat" / "copy.png", (tmp_path / "cat" / "0000.png").read_bytes())
    assert reasons(scan(tmp_path).notes)["cat/copy.png"] == [
        "same bytes as cat/0000.png: training and test may get one each"
    ]


def test_what_training_passes_over_is_named(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "data", 4)
    put(root / "cat" / "notes.txt", b"words")
    put(root / "cat" / ".hidden.png", encoded("PNG"))
    put(root / "stray.png", encoded("PNG"))
    put(root / ".git" / "config", b"x")
    (root / "cat" / "again").symlink_to(root)
    (tmp_path / "store" / "x").mkdir(parents=True)
    photograph(70).save(tmp_path / "store" / "x" / "1.png")
    (root / "emu").symlink_to(tmp_path / "store" / "x")
    found = scan(root)
    assert not found.bad
    assert reasons(found.notes) == {
        "cat/notes.txt": ["not the name of an image: left out"],
        "cat/.hidden.png": ["a hidden file: left out"],
        "stray.png": ["in no class folder: left out"],
        ".git": ["a hidden folder: left out"],
        "cat/again": ["a link to a folder: not followed"],
        "emu": ["a link to a folder"],
    }


def test_a_folder_that_is_no_dataset_is_bad_and_its_files_are_looked_at_all_the_same(tmp_path: Path) -> None:
    put(tmp_path / "cat" / "a.png", b"")
    found = reasons(scan(tmp_path).bad)
    assert "has one class, cat" in found["."][0]
    assert found["cat/a.png"] == ["empty: 0 bytes"]


def test_control_codes_in_names_reach_no_terminal(tmp_path: Path) -> None:
    root = write_folder(tmp_path, 4)
    photograph(9).convert("LA").save(root / "cat" / "\x1b[2Jred.png")
    text = "\n".join(lines(scan(root)))
    assert "\x1b" not in text
    assert "cat/?[2Jred.png: transparency: composited on black" in text


def test_many_notes_of_one_kind_are_shortened_for_people_but_not_for_machines(tmp_path: Path) -> None:
    root = write_folder(tmp_path, 4)
    for i in range(25):
        photograph(200 + i).convert("LA").save(root / "cat" / f"grey-{i}.png")
    found = scan(root)
    assert "  … and 15 more like this (--json names all)" in lines(found)
    assert len(json.loads(found.as_json())["notes"]) == 25


def test_many_classes_are_shown_by_the_smallest(tmp_path: Path) -> None:
    for i in range(14):
        for j in range(1 + i % 3):
            put(tmp_path / f"class-{i:02}" / f"{j}.png", b"")
            photograph(100 * i + j).save(tmp_path / f"class-{i:02}" / f"{j}.png")
    text = list(lines(scan(tmp_path)))
    assert text[1] == "images: 27 images of 14 classes, 1 to 3 each, median 2"
    assert text[2] == "  class-00        1"
    assert "  and 2 larger ones" in text


def test_what_scan_calls_good_training_can_decode(tmp_path: Path) -> None:
    good = [kind for kind in KINDS if not kind.bad]
    root = write_folder(tmp_path / "data", 10, *good)
    dataset = load_dataset(str(root))
    assert len(dataset.train) + len(dataset.test) == 10 + len(good)
