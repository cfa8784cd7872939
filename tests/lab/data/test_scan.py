"""`invaug scan` and what training makes of it: bad files found before the first step, odd ones named."""

from __future__ import annotations

import gzip
import json
import os
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from faults.archives import FIRST, TARS, member, records, write_tar
from faults.bad_images import KINDS, encoded, photograph, write_folder
from invaug.lab.cli.main import app
from invaug.lab.data import archives, cache, check, npz
from invaug.lab.data.check import find_bad_files
from invaug.lab.data.inspect_file import Inspection, inspect_file
from invaug.lab.data.load import load_dataset
from invaug.lab.data.scan.command import scan
from invaug.lab.data.scan.report import Finding
from invaug.lab.data.scan.table import lines
from invaug.lab.errors import UserError

BAD = {kind.name: kind for kind in KINDS if kind.bad}


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


def put(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def reasons(found: list[Finding]) -> dict[str, list[str]]:
    grouped: dict[str, list[str]] = {}
    for finding in found:
        grouped.setdefault(finding.file, []).append(finding.reason)
    return grouped


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


@pytest.mark.parametrize("cut", [*range(1, 40, 3), 200])
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "BMP", "TIFF", "WEBP", "PPM"])
def test_an_image_cut_short_by_any_number_of_bytes_is_bad(tmp_path: Path, kind: str, cut: int) -> None:
    found = inspect_file(put(tmp_path / f"a.{kind.lower()}", encoded(kind)[:-cut]))
    assert found.bad


def test_every_changed_byte_of_the_pixels_of_a_png_is_found(tmp_path: Path) -> None:
    content = encoded("PNG")
    for place in np.random.default_rng(0).integers(8, len(content), 60):
        changed = content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :]
        assert inspect_file(put(tmp_path / "a.png", changed)).bad, place


def test_what_scan_calls_good_training_can_decode(tmp_path: Path) -> None:
    good = [kind for kind in KINDS if not kind.bad]
    root = write_folder(tmp_path / "data", 10, *good)
    dataset = load_dataset(str(root))
    assert len(dataset.train) + len(dataset.test) == 10 + len(good)


def test_foreign_files_are_called_what_they_are(tmp_path: Path) -> None:
    wanted = {
        b"%PDF-1.7": "a PDF",
        b"\0\0\0\x1cftypheic": "HEIC or AVIF, which is not supported: convert it to JPEG",
        b"PK\x03\x04rest": "a zip archive",
        bytes(500): "nothing but zeros at its start",
        b"words": "not an image of a known kind",
    }
    assert {content: inspect_file(put(tmp_path / "a.jpg", content)).bad for content in wanted} == wanted


def test_a_blank_image_is_noted(tmp_path: Path) -> None:
    Image.new("RGB", (30, 30), (1, 2, 3)).save(tmp_path / "a.png")
    assert inspect_file(tmp_path / "a.png").notes == ("blank: all pixels are the same",)


def old(root: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return the images of a folder, old enough to be remembered."""
    monkeypatch.setattr(cache, "FRESH", -(10**9))
    return sorted(root.rglob("*.png"))


def test_unchanged_folders_are_looked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = old(write_folder(tmp_path, 6, BAD["cut-half.png"]), monkeypatch)
    looked: list[Path] = []
    monkeypatch.setattr(check, "inspect_file", lambda path: (looked.append(path), inspect_file(path))[1])
    first = find_bad_files(files)
    assert [path.name for path in first] == ["cut-half.png"]
    assert sorted(looked) == files
    looked.clear()
    assert find_bad_files(files) == first
    assert not looked
    photograph(80).save(tmp_path / "dog" / "0001.png")
    assert find_bad_files(files) == first
    assert {path.parent.name for path in looked} == {"dog"}


def test_a_scan_spares_training_the_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = old(write_folder(tmp_path, 6), monkeypatch)
    scan(tmp_path)
    monkeypatch.setattr(check, "inspect_file", lambda path: pytest.fail(f"looked at {path} again"))
    assert find_bad_files(files) == {}


def test_files_of_this_moment_are_not_remembered(tmp_path: Path) -> None:
    write_folder(tmp_path, 2)
    assert cache.fingerprint(sorted(tmp_path.rglob("*.png"))) is None


def test_what_may_pass_is_not_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = old(write_folder(tmp_path, 4), monkeypatch)
    away = Inspection("Input/output error", transient=True)
    monkeypatch.setattr(check, "inspect_file", lambda path: away)
    assert len(find_bad_files(files)) == 4
    monkeypatch.setattr(check, "inspect_file", inspect_file)
    assert find_bad_files(files) == {}


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"topic": 1, "entries": {}}', b"[" * 100_000])
def test_a_spoilt_cache_is_as_good_as_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    files = old(write_folder(tmp_path, 4, BAD["byte.png"]), monkeypatch)
    first = find_bad_files(files)
    (file,) = (cache.cache_folder() / "checked").iterdir()
    file.write_bytes(content)
    assert find_bad_files(files) == first


@pytest.mark.parametrize("entry", [None, "x", [], ["a"], ["a", {"b": 1}], ["a", ["b"]], ["other", {}]])
def test_spoilt_entries_of_the_cache_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: Any
) -> None:
    files = old(write_folder(tmp_path, 4, BAD["byte.png"]), monkeypatch)
    first = find_bad_files(files)
    monkeypatch.setattr(check, "recall", lambda topic: {str(path.parent): entry for path in files})
    assert find_bad_files(files) == first


def test_without_a_cache_to_write_or_a_home_all_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = old(write_folder(tmp_path / "data", 4, BAD["byte.png"]), monkeypatch)
    put(tmp_path / "file", b"in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert len(find_bad_files(files)) == 1
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", classmethod(lambda cls: (_ for _ in ()).throw(RuntimeError("no home"))))
    monkeypatch.chdir(tmp_path)
    assert len(find_bad_files(files)) == 1


def test_training_stops_on_bad_files_with_the_first_ten_and_the_count(tmp_path: Path) -> None:
    kinds = [kind for kind in BAD.values() if kind.name.startswith("cut")] + [BAD["empty.jpg"], BAD["sum.png"]]
    root = write_folder(tmp_path, 20, *kinds)
    with pytest.raises(UserError, match=r"^15 of 35 image files in .* cannot be used: ") as caught:
        load_dataset(str(root))
    message = str(caught.value)
    assert len(re.findall(r"(?:cat|dog)/\S+ \(", message)) == 10
    assert f"…: see invaug scan {root}, then fix or remove them (--on-bad skip leaves out at most 1 %)" in message
    assert "\n" not in message


def test_skipping_leaves_out_one_percent_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = write_folder(tmp_path, 199, BAD["empty.jpg"])
    whole = load_dataset(str(write_folder(tmp_path.with_name("whole"), 199)))
    dataset = load_dataset(str(root), on_bad="skip")
    assert capsys.readouterr().err.splitlines() == [
        f"1 of 200 image files in {root} cannot be used and are left out:",
        "  cat/empty.jpg (empty: 0 bytes)",
    ]
    assert dataset.train.images is not None
    assert whole.train.images is not None
    assert dataset.train.images.equal(whole.train.images)


def test_skipping_more_is_refused(tmp_path: Path) -> None:
    root = write_folder(tmp_path, 198, BAD["empty.jpg"], BAD["page.jpg"], BAD["cut.bmp"])
    with pytest.raises(UserError, match=r"3 of 201 image files .* \(--on-bad skip leaves out at most 1 %\)$"):
        load_dataset(str(root), on_bad="skip")


def test_skipping_never_empties_a_class(tmp_path: Path) -> None:
    root = write_folder(tmp_path, 200)
    put(root / "emu" / "only.png", b"")
    with pytest.raises(UserError, match="no file of class emu can be used"):
        load_dataset(str(root), on_bad="skip")


def write_npz(path: Path, **changes: Any) -> Path:
    pixels = np.random.default_rng(0).integers(256, size=(28, 8, 8, 3), dtype=np.uint8)
    arrays: dict[str, Any] = {"x_train": pixels[:20], "y_train": np.arange(20) % 4, "x_test": pixels[20:]}
    arrays |= {"y_test": np.arange(8) % 4, **changes}
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
    return path


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
        "x_train[5]": ["same bytes as x_train[1]"],
        "x_train[6]": ["blank: all pixels are the same"],
        "x_test[5]": ["same bytes as x_test[1]"],
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


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("member of 8 EB", "more than 4,294,967,296 bytes"),
        ("header of 1 GB", "a header asks for 1,073,741,824 bytes, over the limit of 4,194,304"),
        ("name of 1 GB", "a header asks for 1,073,741,824 bytes, over the limit of 4,194,304"),
        ("negative size", "or a negative size"),
    ],
)
def test_a_tar_whose_sizes_lie_is_refused_before_it_costs_anything(tmp_path: Path, kind: str, message: str) -> None:
    path = tmp_path / "a.tar.gz"
    write_tar(path, TARS[kind](tmp_path))
    with pytest.raises(UserError, match=rf"^cannot read .*a\.tar\.gz: .*{message}"):
        archives.read_tar_members(path, [FIRST])


def test_a_tar_is_read_no_further_than_needed_and_only_so_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.tar.gz"
    write_tar(path, member(FIRST, b"mine") + b"\xff" * 512)
    assert archives.read_tar_members(path, [FIRST]) == [b"mine"]
    write_tar(path, b"".join(member(f"file-{i}") for i in range(12)))
    assert archives.read_tar_members(path, [FIRST]) == [records(1, 0)]
    monkeypatch.setattr(archives, "MAX_MEMBERS", 10)
    with pytest.raises(UserError, match="or 10 members"):
        archives.read_tar_members(path, [FIRST])


def test_a_sparse_member_is_no_regular_file(tmp_path: Path) -> None:
    path = tmp_path / "a.tar.gz"
    sparse = bytearray(member("file", bytes(512), b"S"))
    path.write_bytes(gzip.compress(bytes(sparse) + bytes(1024)))
    with pytest.raises(UserError, match=r"does not hold the file file|cannot read"):
        archives.read_tar_members(path, ["file"])


def test_a_member_of_a_zip_that_lies_about_its_size_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.txt", os.urandom(10_000))
    content = path.read_bytes()
    central = content.index(b"PK\1\2") + 24
    path.write_bytes(content[:central] + (100).to_bytes(4, "little") + content[central + 4 :])
    with pytest.raises(zipfile.BadZipFile, match="Bad CRC-32"):
        archives.read_zip_member(path, "a.txt")
