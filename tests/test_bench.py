"""`bench/gpu.py` runs on a machine without a GPU, writes one JSON file, and notices a wrong byte."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
import torch

from invaug.kernels import by_torch, dispatch, rules

ROOT = Path(__file__).parent.parent
KINDS = {"no augmentation", "TrivialAugment (wide, plain draws)", "mild, plain draws", "default, gamma 1"}


def run(*words: str) -> subprocess.CompletedProcess[str]:
    words = (sys.executable, str(ROOT / "bench" / "gpu.py"), *words, "--threads", "1")
    return subprocess.run(words, capture_output=True, text=True, check=False)  # noqa: S603


def test_every_check_runs_without_a_gpu_and_is_in_one_json_file(tmp_path):
    path = tmp_path / "gpu.json"
    done = run("--device", "cpu", "--quick", "--rounds", "2", "--slot", "0.01", "--json", str(path))
    assert done.returncode == 0, done.stderr
    found = json.loads(path.read_text(encoding="utf-8"))
    assert (found["device"], found["quick"]) == ("cpu", True)
    assert found["versions"]["torch"] == torch.__version__
    exact = found["exactness"]
    assert (exact["operations"], exact["differing_bytes"], exact["by_operation"]) == (19, 0, {})
    assert exact["bytes"] == exact["magnitudes"] * (8 * 8 + 5 * 9) * (1 + 3)
    steps = found["steps"]["resnet-8"]
    assert set(steps) == {*KINDS, 'views="both", as printed'}
    for row in steps.values():
        assert row["milliseconds"] > 0
        assert row["times_trivialaugment"]["low"] <= row["times_trivialaugment"]["median"]
    assert steps["TrivialAugment (wide, plain draws)"]["times_trivialaugment"]["median"] == 1
    rates = found["throughput"]["32"]["images_per_second"]
    assert rates["invaug"]["median"] > 0
    assert set(rates) <= {"invaug", "kornia", "torchvision v2"}
    for how in ("one", "both"):
        assert found["calls"][how]["reads"] == 1
        assert found["calls"][how]["aten_calls"] > 0
        assert found["calls"][how]["launches"] is None  # nobody counts them on a CPU


@pytest.mark.skipif(torch.backends.mps.is_available(), reason="this machine has the device that is asked for")
def test_a_device_that_is_missing_is_refused_and_nothing_is_written(tmp_path):
    done = run("--device", "mps", "--json", str(tmp_path / "gpu.json"))
    assert done.returncode == 2
    assert "--device mps is not available on this machine: choose one of" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.fixture
def gpu(monkeypatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "bench")
    return import_module("gpu")


def test_bytes_that_differ_are_counted_by_operation(gpu, monkeypatch, photographs):
    names, magnitudes = ["Identity", "Sharpness", "Rotate", "Sharpness"], (0.0, 0.5, 20.0, 1.9)
    monkeypatch.setattr(dispatch, "has_numba", lambda: False)
    assert gpu.count_differing(names, magnitudes, photographs[0], "cpu") == {}
    monkeypatch.setitem(by_torch.DEGENERATE, rules.SHARPNESS, lambda images, actions: images.float())
    (wrong,) = gpu.count_differing(names, magnitudes, photographs[0], "cpu").items()
    assert wrong[0] == "Sharpness"
    assert 100 < wrong[1] <= 2 * photographs[0].numel()


def test_launches_and_copies_to_the_host_are_read_from_the_profile(gpu):
    names = ["aten::mul", "cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cudaMemcpyAsync"]
    copies = ["Memcpy HtoD (Pageable -> Device)", "Memcpy DtoH (Device -> Pageable)", "Memcpy DtoD (Device -> Device)"]
    assert gpu.count_events([*names, *copies]) == {"launches": 3, "copies_to_host": 1}
