"""Checkpoints: every bit comes back, and nothing that happens to the files can make it otherwise."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import resource
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.numpy import load_file
from torch import nn

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
        f"fsync {temporary[0]}",
        f"rename {temporary[0]} step-00000001.safetensors",
        "fsync checkpoints",
        f"fsync {temporary[1]}",
        f"rename {temporary[1]} step-00000001.json",
        "fsync checkpoints",
    ]


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
