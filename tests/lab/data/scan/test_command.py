"""`invaug scan` of a folder: bad files found, odd ones named, everything counted."""

from __future__ import annotations

import json
import shlex
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
    assert output.splitlines()[-2:] == ["usable", f"next: invaug train {root}"]


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
    assert output.splitlines()[-2:] == [
        "not usable as it is",
        f"next: fix or remove the bad files, or leave them out: invaug train {root} --on-bad skip --max-bad 0.2",
    ]


@pytest.mark.parametrize("name", ["gone", "x" * 300, "notes.txt"])
def test_what_is_not_there_or_no_dataset_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "notes.txt").write_text("words")
    with pytest.raises(
        UserError, match=r"gone does not exist$|cannot read .*too long|neither a folder of images nor an \.npz"
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
    found = scan(tmp_path)
    same, leak = "same bytes as train/cat/0000.png", "one image in train and in test, a leak"
    two = "one image in two classes, cat and dog"
    assert reasons(found.notes) == {"train/cat/again.png": [f"a copy: {same}"]}
    assert reasons(found.leaks) == {"test/cat/again.png": [f"{leak}: {same}"]}
    assert reasons(found.conflicts) == {
        "train/dog/again.png": [f"{two}: {same}"],
        "test/dog/again.png": [f"{two}; {leak}: {same}"],
    }


def test_what_matters_comes_first_with_its_count_and_the_next_command_last(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "my pets", 298, BAD["page.jpg"], BAD["empty.jpg"])
    photograph(3).convert("LA").save(root / "cat" / "grey.png")
    put(root / "dog" / "again.png", (root / "cat" / "0000.png").read_bytes())
    code, output = run(str(root))
    assert code == 1
    text = output.splitlines()
    assert text[0] == f"{root}: 302 images, 1 in two classes, 2 bad, 1 notes"
    order = [line for line in text if line.endswith("):")]
    assert order == [
        "the same picture in two classes, one of its labels is wrong (1):",
        "bad, training stops (2):",
        "notes, training continues (1):",
    ]
    assert text.index(order[-1]) < text.index("sizes: 24 x 24 (300)")
    *before, command = text[-1].split(": ")
    assert before == ["next", "give every picture one class, fix or remove the bad files, or leave them out"]
    verb, *words = shlex.split(command)[1:]
    assert (verb, words[0]) == ("train", str(root))
    flags = {name[2:].replace("-", "_"): value for name, value in zip(words[1::2], words[2::2], strict=True)}
    dataset = load_dataset(words[0], on_bad=flags["on_bad"])  # the command does what it says
    assert flags == {"on_bad": "skip"}
    assert len(dataset.train) + len(dataset.test) == 300


def test_the_size_training_takes_is_said_where_images_are_resized(tmp_path: Path) -> None:
    root = write_folder(tmp_path, 8)
    assert not [line for line in lines(scan(root)) if line.startswith("resized")]
    photograph(5, (70, 90)).save(root / "cat" / "larger.png")
    assert "resized: training takes the centre of each image at 32 x 32 pixels (--image-size)" in lines(scan(root))
    assert load_dataset(str(root)).image_shape == (3, 32, 32)


def test_classes_too_small_to_split_are_bad_before_training_says_so(tmp_path: Path) -> None:
    root = write_folder(tmp_path, 8)
    put(root / "emu" / "only.png", encoded("PNG"))
    put(root / "fox" / "none.png", b"")
    found = scan(root)
    assert reasons(found.bad) == {
        "fox/none.png": ["empty: 0 bytes"],
        "emu": ["usable images of the class: 1, needed: 2"],
        "fox": ["usable images of the class: 0, needed: 2"],
    }
    assert found.next_step() == f"mend what is bad, then: invaug scan {root}"
    with pytest.raises(UserError, match="class fox"):
        load_dataset(str(root), on_bad="skip", max_bad=0.5)


def test_a_copy_in_a_folder_without_a_split_may_end_on_both_sides(tmp_path: Path) -> None:
    write_folder(tmp_path, 4)
    put(tmp_path / "cat" / "copy.png", (tmp_path / "cat" / "0000.png").read_bytes())
    assert reasons(scan(tmp_path).notes)["cat/copy.png"] == [
        "a copy, training and test may get one each: same bytes as cat/0000.png"
    ]


def test_what_training_passes_over_is_named(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "data", 4)
    put(root / "cat" / "notes.txt", b"words")
    put(root / "cat" / ".hidden.png", encoded("PNG"))
    put(root / "stray.png", encoded("PNG"))
    put(root / ".git" / "config", b"x")
    (root / "cat" / "again").symlink_to(root)
    (tmp_path / "store" / "x").mkdir(parents=True)
    for i in range(2):
        photograph(70 + i).save(tmp_path / "store" / "x" / f"{i}.png")
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
    assert "  … and 22 more like this (--json names all)" in lines(found)
    assert len(json.loads(found.as_json())["notes"]) == 25


def test_many_classes_are_shown_by_the_smallest(tmp_path: Path) -> None:
    for i in range(14):
        for j in range(1 + i % 3):
            put(tmp_path / f"class-{i:02}" / f"{j}.png", b"")
            photograph(100 * i + j).save(tmp_path / f"class-{i:02}" / f"{j}.png")
    text = list(lines(scan(tmp_path)))
    start = text.index("images: 27 images of 14 classes, 1 to 3 each, median 2")
    assert text[start + 1] == "  class-00        1"
    assert "  and 2 larger ones" in text


def test_what_scan_calls_good_training_can_decode(tmp_path: Path) -> None:
    good = [kind for kind in KINDS if not kind.bad]
    root = write_folder(tmp_path / "data", 10, *good)
    dataset = load_dataset(str(root))
    assert len(dataset.train) + len(dataset.test) == 10 + len(good)
