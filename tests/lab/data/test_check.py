"""Bad files found before the first step, once, and left out or refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from faults.bad_images import KINDS, photograph, write_folder
from invaug.lab.data import cache, check
from invaug.lab.data.check import check_files
from invaug.lab.data.inspect_file import Inspection, inspect_file
from invaug.lab.data.load import load_dataset
from invaug.lab.data.scan.command import scan
from invaug.lab.errors import UserError
from tests.support.datasets import put

BAD = {kind.name: kind for kind in KINDS if kind.bad}


def old(root: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return the images of a folder, old enough to be remembered."""
    monkeypatch.setattr(cache, "FRESH", -(10**9))
    return sorted(root.rglob("*.png"))


def test_unchanged_folders_are_looked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = old(write_folder(tmp_path, 6, BAD["cut-half.png"]), monkeypatch)
    looked: list[Path] = []
    monkeypatch.setattr(check, "inspect_file", lambda path: (looked.append(path), inspect_file(path))[1])
    first = check_files(files).bad
    assert [path.name for path in first] == ["cut-half.png"]
    assert sorted(looked) == files
    looked.clear()
    assert check_files(files).bad == first
    assert not looked
    photograph(80).save(tmp_path / "dog" / "0001.png")
    assert check_files(files).bad == first
    assert {path.parent.name for path in looked} == {"dog"}


def test_a_scan_spares_training_the_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = old(write_folder(tmp_path, 6), monkeypatch)
    scan(tmp_path)
    monkeypatch.setattr(check, "inspect_file", lambda path: pytest.fail(f"looked at {path} again"))
    assert check_files(files).bad == {}


def test_files_of_this_moment_are_not_remembered(tmp_path: Path) -> None:
    write_folder(tmp_path, 2)
    assert cache.fingerprint(sorted(tmp_path.rglob("*.png"))) is None


def test_what_may_pass_is_not_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = old(write_folder(tmp_path, 4), monkeypatch)
    away = Inspection("Input/output error", transient=True)
    monkeypatch.setattr(check, "inspect_file", lambda path: away)
    assert len(check_files(files).bad) == 4
    monkeypatch.setattr(check, "inspect_file", inspect_file)
    assert check_files(files).bad == {}


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"topic": 1, "entries": {}}', b"[" * 100_000])
def test_a_spoilt_cache_is_as_good_as_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    files = old(write_folder(tmp_path, 4, BAD["byte.png"]), monkeypatch)
    first = check_files(files).bad
    (file,) = (cache.cache_folder() / "checked").iterdir()
    file.write_bytes(content)
    assert check_files(files).bad == first


@pytest.mark.parametrize("entry", [None, "x", [], ["a"], ["a", {"b": 1}], ["a", ["b"]], ["other", {}]])
def test_spoilt_entries_of_the_cache_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: Any
) -> None:
    files = old(write_folder(tmp_path, 4, BAD["byte.png"]), monkeypatch)
    first = check_files(files).bad
    monkeypatch.setattr(check, "recall", lambda topic: {str(path.parent): entry for path in files})
    assert check_files(files).bad == first


def test_without_a_cache_to_write_or_a_home_all_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = old(write_folder(tmp_path / "data", 4, BAD["byte.png"]), monkeypatch)
    put(tmp_path / "file", b"in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert len(check_files(files).bad) == 1
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", classmethod(lambda cls: (_ for _ in ()).throw(RuntimeError("no home"))))
    monkeypatch.chdir(tmp_path)
    assert len(check_files(files).bad) == 1


def test_training_stops_on_bad_files_with_the_first_ten_and_the_count(tmp_path: Path) -> None:
    kinds = [kind for kind in BAD.values() if kind.name.startswith("cut")] + [BAD["empty.jpg"], BAD["sum.png"]]
    root = write_folder(tmp_path, 20, *kinds)
    with pytest.raises(UserError, match=r"^15 of 35 image files in .* cannot be used: ") as caught:
        load_dataset(str(root))
    message = str(caught.value)
    assert len(re.findall(r"(?:cat|dog)/\S+ \(", message)) == 10
    assert (
        f"…: see invaug scan {root}, then fix or remove them (--on-bad skip --max-bad 0.43 leaves them out)" in message
    )
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
    with pytest.raises(UserError, match=r"3 of 201 image files .* \(--on-bad skip --max-bad 0.02 leaves them out\)$"):
        load_dataset(str(root), on_bad="skip")
    dataset = load_dataset(str(root), on_bad="skip", max_bad=0.02)  # what the message says
    assert len(dataset.train) + len(dataset.test) == 198


def test_skipping_never_empties_a_class(tmp_path: Path) -> None:
    root = write_folder(tmp_path, 200)
    put(root / "emu" / "only.png", b"")
    with pytest.raises(UserError, match="no file of class emu can be used"):
        load_dataset(str(root), on_bad="skip")
