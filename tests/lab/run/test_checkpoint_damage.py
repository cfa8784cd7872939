"""Checkpoints that were damaged, cut or forged: each is noticed, and the one before is used."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import pickle
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from invaug.lab.errors import UserError
from invaug.lab.run import checkpoint
from tests.support.checkpoints import load, save


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def falls_back(folder: Path, reason: str = "") -> bool:
    """Whether step 2 is passed over for step 1, and said to be."""
    found = load(folder)
    told = len(found.skipped) == 1 and found.skipped[0].startswith("step-00000002 was skipped: ")
    return told and reason in found.skipped[0] and found.step == found.state["n"] == 1


def two(folder: Path, n_values: int = 100) -> tuple[Path, Path]:
    for step in (1, 2):
        generator = torch.Generator().manual_seed(step)
        save(folder, step, {"x": torch.randint(1, 2**31, (n_values,), generator=generator), "n": step, "f": 0.5})
    return folder / "step-00000002.json", folder / "step-00000002.safetensors"


@pytest.mark.parametrize("which", [0, 1], ids=["manifest", "tensors"])
def test_any_changed_byte_is_noticed(which: int, tmp_path: Path) -> None:
    path = two(tmp_path)[which]
    content = path.read_bytes()
    generator = random.Random(0)
    for position in range(len(content)):
        changed = bytearray(content)
        changed[position] ^= generator.randrange(1, 256)
        path.write_bytes(changed)
        assert falls_back(tmp_path), position


@pytest.mark.parametrize("which", [0, 1], ids=["manifest", "tensors"])
def test_any_cut_or_growth_is_noticed(which: int, tmp_path: Path) -> None:
    path = two(tmp_path)[which]
    content = path.read_bytes()
    for length in random.Random(0).sample(range(len(content)), 32):
        path.write_bytes(content[:length])
        assert falls_back(tmp_path), length
    path.write_bytes(content + b"\n")
    assert falls_back(tmp_path, ["changed or cut", f"{len(content) + 1} bytes instead of {len(content)}"][which])


def test_any_zeroed_page_is_noticed(tmp_path: Path) -> None:
    _, path = two(tmp_path, n_values=25_000)
    content = path.read_bytes()
    for start in range(0, len(content), 4096):
        page = content[start : start + 4096]
        path.write_bytes(content[:start] + bytes(len(page)) + content[start + len(page) :])
        assert falls_back(tmp_path, "SHA-256 differs"), start


def test_a_missing_file_of_tensors_is_noticed(tmp_path: Path) -> None:
    two(tmp_path)[1].unlink()
    assert falls_back(tmp_path, "its tensors are missing (step-00000002.safetensors)")


def test_the_files_of_one_step_do_not_pass_for_those_of_another(tmp_path: Path) -> None:
    manifest, _ = two(tmp_path)
    manifest.write_bytes((tmp_path / "step-00000001.json").read_bytes())
    assert falls_back(tmp_path, "not written by invaug")


def test_damage_everywhere_is_an_error_and_not_a_fresh_start(tmp_path: Path) -> None:
    for path in two(tmp_path)[0].parent.glob("*.json"):
        path.write_bytes(b"{}")
    with pytest.raises(UserError, match=r"no checkpoint in .* can be used: step-00000002 was skipped: .*step-00000001"):
        checkpoint.load(tmp_path)


def test_after_damage_the_run_goes_on_and_still_keeps_two(tmp_path: Path) -> None:
    two(tmp_path)[1].write_bytes(b"")
    assert load(tmp_path).step == 1
    save(tmp_path, 2)
    assert load(tmp_path).skipped == ()
    assert len(names(tmp_path)) == 4


def test_what_may_not_be_read_is_not_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(path: Path, *_: int) -> int:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    two(tmp_path)
    monkeypatch.setattr(os, "open", forbidden)
    with pytest.raises(UserError, match=r"cannot read .*step-00000002\.json: Permission denied"):
        checkpoint.load(tmp_path)


def test_a_folder_or_a_pipe_with_the_name_of_a_checkpoint_is_none(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "step-00000007.json")
    (tmp_path / "step-00000008.json").mkdir()
    assert checkpoint.load(tmp_path) is None
    _, tensors = two(tmp_path / "other")
    tensors.unlink()
    os.mkfifo(tensors)
    assert falls_back(tmp_path / "other", "its tensors are missing")


def forge(manifest: Path, **changes: Any) -> None:
    """Change a manifest as one would who knows how it is sealed."""
    body = {key: value for key, value in json.loads(manifest.read_text()).items() if key != "sha256"}
    manifest.write_bytes(checkpoint.seal({**body, **changes}))


def test_a_newer_schema_is_refused_even_if_an_older_checkpoint_could_be_used(tmp_path: Path) -> None:
    forge(two(tmp_path)[0], schema=2)
    with pytest.raises(UserError, match=r"is from a newer invaug \(schema 2, this one reads 1\): upgrade invaug"):
        checkpoint.load(tmp_path)


@pytest.mark.parametrize("schema", [0, -1, None, True, "2", 1.5, [1]], ids=repr)
def test_a_schema_that_never_was_is_damage(schema: Any, tmp_path: Path) -> None:
    forge(two(tmp_path)[0], schema=schema)
    assert falls_back(tmp_path, "no schema")


NOT_OURS: dict[str, dict[str, Any]] = {
    "a path upwards": {"tensors": {"file": "../step-00000001.safetensors", "size": 1, "sha256": ""}},
    "an absolute path": {"tensors": {"file": "/etc/passwd", "size": 1, "sha256": ""}},
    "a file name that is a number": {"tensors": {"file": 3, "size": 1, "sha256": ""}},
    "no table of tensors": {"tensors": [1]},
    "a tensor that is not there": {"state": {"n": {"$tensor": "x"}}},
    "a tensor named by a list": {"state": {"n": {"$tensor": []}}},
    "an unknown tag": {"state": {"n": {"$python": "print(1)"}}},
    "a key that cannot be one": {"state": {"$dict": [[[1], 2]]}},
    "a dict without values": {"state": {"$dict": [1]}},
    "a float that is none": {"state": {"n": {"$float": "x"}}},
    "an order that is none": {"state": {"n": {"$tensor": "state/x", "order": [0, 0]}}},
    "an order too long": {"state": {"n": {"$tensor": "state/x", "order": [0, 1]}}},
    "a state that is a list": {"state": [1]},
    "meta that is a number": {"meta": 1},
    "another step": {"step": 3},
    "an epoch that is none": {"epoch": "x"},
    "an epoch that is a truth": {"epoch": True},
    "an endless epoch": {"epoch": 2**60},
    "a key of its own": {"evil": 1},
    "a tag after a key": {"state": {"n": {"a": 1, "$float": "nan"}}},
    "a tag beside a key": {"state": {"n": {"$float": "nan", "a": 1}}},
    "a float in another spelling": {"state": {"n": {"$float": "1_0"}}},
    "a tuple of a table": {"state": {"n": {"$tuple": {"a": 1}}}},
    "a key twice": {"state": {"$dict": [[1, 2], [True, 3]]}},
    "a key that is a tensor": {"state": {"$dict": [[{"$tensor": "state/x"}, 2]]}},
    "an order of truths": {"state": {"n": {"$tensor": "state/x", "order": [False]}}},
    "an order that is a text": {"state": {"n": {"$tensor": "state/x", "order": "0"}}},
    "33 levels": {"state": {"n": json.loads("[" * 33 + "]" * 33)}},
}


@pytest.mark.parametrize("changes", NOT_OURS.values(), ids=NOT_OURS.keys())
def test_a_forged_manifest_is_passed_over(changes: dict[str, Any], tmp_path: Path) -> None:
    forge(two(tmp_path)[0], **changes)
    assert falls_back(tmp_path)


@pytest.mark.parametrize("rest", [b"[" * 10**5, b'"a": ' * 10, b'"schema": ' + b"1" * 5000 + b"}", b"\xff}", b""])
def test_a_sealed_manifest_that_is_not_json_is_passed_over(rest: bytes, tmp_path: Path) -> None:
    manifest = two(tmp_path)[0]
    manifest.write_bytes(b'{"sha256": "' + hashlib.sha256(rest).hexdigest().encode() + b'",\n' + rest)
    assert falls_back(tmp_path, "its manifest")


def header(**entries: Any) -> bytes:
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text


def entry(dtype: str = "F32", shape: Any = (1,), offsets: Any = (0, 4)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


class Canary:
    """Unpickling this writes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.write_text, (self.path, "sang")


def zipped(path: Path) -> bytes:
    stream = io.BytesIO()
    torch.save({"state/x": Canary(path)}, stream)
    return stream.getvalue()


BAD_TENSORS: dict[str, Callable[[Path], bytes]] = {
    "nothing": lambda _: b"",
    "half a length": lambda _: b"\x08\x00",
    "a header past the end": lambda _: struct.pack("<Q", 1000) + b"{}",
    "an endless header": lambda _: struct.pack("<Q", 2**64 - 1) + b"{}",
    "a header that is not JSON": lambda _: struct.pack("<Q", 4) + b"abcd",
    "a header of nested lists": lambda _: struct.pack("<Q", 10**5) + b"[" * 10**5,
    "a header that is a list": lambda _: struct.pack("<Q", 2) + b"[]",
    "an unknown type": lambda _: header(**{"state/x": entry("OBJ")}) + bytes(4),
    "a shape that does not fit": lambda _: header(**{"state/x": entry(shape=(2,))}) + bytes(4),
    "a negative shape": lambda _: header(**{"state/x": entry(shape=(-1,))}) + bytes(4),
    "a shape that overflows": lambda _: header(**{"state/x": entry(shape=(2**62, 2**62))}) + bytes(4),
    "offsets past the end": lambda _: header(**{"state/x": entry(shape=(9,), offsets=(0, 36))}) + bytes(4),
    "offsets backwards": lambda _: header(**{"state/x": entry(offsets=(4, 0))}) + bytes(4),
    "a hole": lambda _: header(**{"state/x": entry(offsets=(4, 8))}) + bytes(8),
    "two tensors in one place": lambda _: header(**{"state/x": entry(), "b": entry()}) + bytes(4),
    "bytes nobody asked for": lambda _: header(**{"state/x": entry()}) + bytes(8),
    "another name": lambda _: header(y=entry()) + bytes(4),
    "a pickle": lambda path: pickle.dumps(Canary(path)),
    "a torch.save": zipped,
    "a header that is a pickle": lambda path: struct.pack("<Q", len(p := pickle.dumps(Canary(path)))) + p,
}


@pytest.mark.parametrize("make", BAD_TENSORS.values(), ids=BAD_TENSORS.keys())
def test_bad_tensors_under_a_right_hash_are_passed_over_and_run_nothing(
    make: Callable[[Path], bytes], tmp_path: Path
) -> None:
    canary = tmp_path / "canary"
    manifest, tensors = two(tmp_path / "checkpoints")
    content = make(canary)
    tensors.write_bytes(content)
    about = {"file": tensors.name, "size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    forge(manifest, tensors=about)
    assert falls_back(tmp_path / "checkpoints", "its content cannot be read")
    assert not canary.exists()


def test_more_values_than_any_network_has_are_neither_read_nor_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest, _ = two(tmp_path)
    forge(manifest, state={"n": [[]] * checkpoint.MAX_VALUES})
    assert falls_back(tmp_path, "values, over 1,048,576")
    monkeypatch.setattr(checkpoint, "MAX_VALUES", 100)
    with pytest.raises(ValueError, match=r"the state without its tensors holds .* values, over 100"):
        save(tmp_path, 3, {"n": [0] * 100})
    assert falls_back(tmp_path)


def test_meta_holds_no_tensors(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="meta/a is a tensor, which only the state may hold"):
        checkpoint.save(tmp_path / "new", {}, step=1, epoch=0, meta={"a": torch.zeros(1)})
    forge(two(tmp_path)[0], meta={"a": {"$tensor": "state/x"}})
    assert falls_back(tmp_path, "a tensor that is not there")
