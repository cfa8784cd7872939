"""Checkpoints: every bit comes back, and nothing that happens to the files can make it otherwise."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import math
import os
import pickle
import random
import resource
import stat
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.numpy import load_file
from torch import nn

from invaug.lab.errors import UserError
from invaug.lab.run import atomic, checkpoint
from tests.support.checkpoints import load, same, save

FILES = ("step-{:08d}.json", "step-{:08d}.safetensors")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def names_of(*steps: int) -> list[str]:
    return sorted(name.format(step) for step in steps for name in FILES)


def train(optimizer: torch.optim.Optimizer, model: nn.Module, steps: range) -> None:
    for step in steps:
        images = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        model(images.to(memory_format=torch.channels_last)).square().mean().backward()
        optimizer.step()


def conv_net() -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.Tanh(), nn.Conv2d(6, 4, 3), nn.Flatten())
    return layers.to(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
        (torch.optim.Adam, {"lr": 0.01, "amsgrad": True}),
        (torch.optim.AdamW, {"lr": torch.tensor(0.01)}),
        (torch.optim.RMSprop, {"lr": 0.01, "centered": True, "momentum": 0.5}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_training_goes_on_as_if_it_had_not_been_saved(kind: Any, options: dict[str, Any], tmp_path: Path) -> None:
    model = conv_net()
    optimizer = kind(model.parameters(), **options)
    train(optimizer, model, range(5))
    save(tmp_path, 5, {"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    train(optimizer, model, range(5, 10))
    again = conv_net()
    resumed = kind(again.parameters(), **options)
    found = load(tmp_path).state
    again.load_state_dict(found["model"])
    resumed.load_state_dict(found["optimizer"])
    train(resumed, again, range(5, 10))
    assert same(dict(again.state_dict()), dict(model.state_dict()))
    assert same(resumed.state_dict(), optimizer.state_dict())


def test_a_folder_without_checkpoints_has_none(tmp_path: Path) -> None:
    (tmp_path / "notes.json").write_text("{}")
    for folder in (tmp_path, tmp_path / "absent"):
        assert checkpoint.load(folder) is None
        assert checkpoint.latest(folder) is None


def test_a_checkpoint_says_what_it_is(tmp_path: Path) -> None:
    meta = {"config": "abc", "versions": {"torch": "2"}, "best": -math.inf, "shape": (1, 2)}
    path = checkpoint.save(tmp_path, {"n": 1}, step=12, epoch=3, meta=meta)
    found = load(tmp_path)
    assert found == ({"n": 1}, 12, 3, meta, path, ())
    assert path == checkpoint.latest(tmp_path) == tmp_path / "step-00000012.json"


def test_other_tools_can_read_both_files(tmp_path: Path) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    state = {"model": {"conv.weight": torch.arange(6.0).view(2, 3)}, "best": math.nan}
    manifest = json.loads(save(tmp_path, 7, state).read_text(), parse_constant=refuse)
    assert (manifest["schema"], manifest["step"], manifest["epoch"]) == (1, 7, 0)
    tensors = load_file(tmp_path / manifest["tensors"]["file"])
    assert tensors["state/model/conv.weight"].tolist() == [[0, 1, 2], [3, 4, 5]]
    content = (tmp_path / manifest["tensors"]["file"]).read_bytes()
    assert manifest["tensors"]["sha256"] == hashlib.sha256(content).hexdigest()


def test_the_last_two_are_kept(tmp_path: Path) -> None:
    for step, kept in [(1, [1]), (2, [1, 2]), (30, [2, 30]), (10**9, [30, 10**9])]:
        save(tmp_path, step)
        assert names(tmp_path) == names_of(*kept)
        assert load(tmp_path).step == step


def test_saving_a_step_again_replaces_it(tmp_path: Path) -> None:
    for value in range(4):
        save(tmp_path, 5, {"x": torch.tensor(value)})
        assert load(tmp_path).state["x"] == value
        assert len(names(tmp_path)) == 2


def test_steps_of_a_run_that_was_left_behind_go(tmp_path: Path) -> None:
    for step in (10, 20, 15):
        save(tmp_path, step)
    assert names(tmp_path) == names_of(10, 15)


def test_leftovers_of_a_killed_save_go_and_strangers_stay(tmp_path: Path) -> None:
    leftovers = [".step-00000003.safetensors.0a1b2c3d.tmp", ".step-00000003.json.0a1b2c3d.tmp"]
    orphans = ["step-00000003.safetensors", "step-00000002.4.safetensors"]
    strangers = [".hidden", "notes.tmp", "best.safetensors", "step-3.json"]
    for name in leftovers + orphans + strangers:
        (tmp_path / name).write_text("x")
    assert checkpoint.load(tmp_path) is None
    save(tmp_path, 1)
    assert names(tmp_path) == sorted(names_of(1) + strangers)


def test_a_negative_step_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="step must not be negative, got -1"):
        save(tmp_path, -1)


@contextmanager
def traced(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """List what reaches the disk, in order."""
    calls: list[str] = []
    fsync, replace = os.fsync, os.replace

    def traced_fsync(descriptor: int) -> None:
        calls.append(f"fsync {Path(f'/proc/self/fd/{descriptor}').readlink().name}")
        fsync(descriptor)

    def traced_replace(source: Any, target: Any) -> None:
        calls.append(f"rename {Path(source).name} {Path(target).name}")
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", traced_fsync)
        patch.setattr(os, "replace", traced_replace)
        yield calls


def test_each_file_is_on_the_disk_before_it_has_its_name_and_the_manifest_is_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "checkpoints"
    with traced(monkeypatch) as calls:
        save(folder, 1)
    temporary = [call.split()[1] for call in calls if call.startswith("rename")]
    assert [name[:-13] for name in temporary] == [".step-00000001.safetensors", ".step-00000001.json"]
    assert calls == [
        f"fsync {temporary[0]}", f"rename {temporary[0]} step-00000001.safetensors", "fsync checkpoints",
        f"fsync {temporary[1]}", f"rename {temporary[1]} step-00000001.json", "fsync checkpoints",
    ]  # fmt: skip


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600)])
def test_files_have_the_permissions_the_user_wants(mask: int, mode: int, tmp_path: Path) -> None:
    before = os.umask(mask)
    try:
        save(tmp_path, 1)
    finally:
        os.umask(before)
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {mode}


KILLED = """
import os, signal, sys
from pathlib import Path
import torch
from invaug.lab.run import checkpoint

CALLS = ("open", "write", "fsync", "replace", "unlink")
os.fsync = lambda descriptor: None  # a killed process loses nothing that it wrote, and waiting takes long
originals = {name: getattr(os, name) for name in CALLS}

def save(folder, step, value):
    checkpoint.save(folder, {"x": torch.full((1000,), value)}, step=step, epoch=0, meta={})

def kill_at(number):
    left = [number]
    def patched(name):
        def call(*args, **kwargs):
            left[0] -= 1
            if left[0] < 0:
                if name == "write":
                    originals[name](args[0], bytes(args[1])[: len(args[1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return originals[name](*args, **kwargs)
        return call
    for name in CALLS:
        setattr(os, name, patched(name))

def killed(folder, step, number):
    child = os.fork()
    if child == 0:
        kill_at(number)
        save(folder, step, -1.0)
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])

def outcome(folder, earlier, new, number):
    for step in earlier:
        save(folder, step, float(step))
    before = checkpoint.load(folder)
    was_killed = killed(folder, new, number)
    found = checkpoint.load(folder)
    value = found and (found.step, found.state["x"].unique().tolist())
    old = before and (before.step, [float(before.step)])
    assert value in (old, (new, [-1.0])) and not (found and found.skipped), (number, value, found)
    return was_killed, value == old

def check_next_save(folder, earlier, new):
    save(folder, new, -2.0)
    found = checkpoint.load(folder)
    assert found.step == new and found.state["x"].unique().tolist() == [-2.0], found
    kept = {new, *[step for step in earlier if step < new][-1:]}
    expected = {f"step-{step:08d}.json" for step in kept}
    names = {path.name for path in folder.iterdir()}
    assert len(names) == 2 * len(kept) and expected < names, names

for scenario in sys.argv[2:]:
    *earlier, new = map(int, scenario.split())
    number, was_killed, kept_old = 0, True, 0
    while was_killed:
        folder = Path(sys.argv[1], scenario, str(number))
        was_killed, is_old = outcome(folder, earlier, new, number)
        kept_old += is_old
        check_next_save(folder, earlier, new)
        number += 1
    print(number - 1, kept_old)
"""


def test_a_save_killed_at_any_call_leaves_the_old_checkpoint_or_the_new_one(tmp_path: Path) -> None:
    scenarios = ["1", "1 2 3", "2 2", "1 2 2", "1 5 3"]
    command = [sys.executable, "-c", KILLED, str(tmp_path), *scenarios]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == 0, done.stderr
    counts = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    assert len(counts) == len(scenarios)
    assert all(kills >= 10 and kept_old >= 8 for kills, kept_old in counts), counts


def big(value: float) -> dict[str, Any]:
    return {"x": torch.full((50_000,), value)}


@contextmanager
def small_disk(limit: int) -> Iterator[None]:
    """Let no file grow past the limit: as on a full disk, write stops short and then fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("limit", [0, 1, 100, 4096, 199_999])
def test_a_disk_that_fills_up_leaves_the_last_checkpoint(limit: int, tmp_path: Path) -> None:
    save(tmp_path, 1, big(1.0))
    message = (
        r"cannot write .*step-00000002\.safetensors: File too large; step-00000001, the last checkpoint, is intact"
    )
    with small_disk(limit), pytest.raises(atomic.WriteError, match=message) as caught:
        save(tmp_path, 2, big(2.0))
    assert caught.value.errno == errno.EFBIG
    assert names(tmp_path) == names_of(1)
    assert load(tmp_path).state["x"].unique() == 1.0
    save(tmp_path, 2, big(2.0))
    assert load(tmp_path).step == 2


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO], ids=errno.errorcode.get)
@pytest.mark.parametrize(("name", "number"), [("write", 0), ("write", 1), ("fsync", 0), ("fsync", 1), ("fsync", 2)])
def test_an_error_of_the_disk_at_any_moment_leaves_a_whole_checkpoint(
    name: str, number: int, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, 1)
    left, original = [number], getattr(os, name)

    def failing(*args: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(code, os.strerror(code))
        return original(*args)

    with monkeypatch.context() as patch:
        patch.setattr(os, name, failing)
        with pytest.raises(atomic.WriteError, match=os.strerror(code)) as caught:
            save(tmp_path, 2)
    assert caught.value.errno == code
    assert "\n" not in str(caught.value)
    assert load(tmp_path).skipped == ()
    assert names(tmp_path) == names_of(1)


def test_the_first_save_on_a_full_disk_promises_nothing(tmp_path: Path) -> None:
    with small_disk(10), pytest.raises(atomic.WriteError, match=r"File too large$"):
        save(tmp_path, 1, big(1.0))
    assert checkpoint.load(tmp_path) is None


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(atomic.WriteError, match=r"cannot write .*file/checkpoints: Not a directory"):
        save(tmp_path / "file" / "checkpoints", 1)


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
    def forbidden(path: Path) -> bytes:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    two(tmp_path)
    monkeypatch.setattr(Path, "read_bytes", forbidden)
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
