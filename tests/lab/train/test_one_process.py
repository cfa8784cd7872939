"""A training in one process is the one that Fabric makes, without torch's compiler."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from lightning_fabric import Fabric
from torch import nn
from torch.optim import SGD, Adam, AdamW

from invaug.lab.train.one_process import OneProcess

USED = """
import json, sys
from invaug.cli import main
sys.argv = ["invaug", *"train --model resnet-8 --per-class 13 --epochs 1 --out".split(), sys.argv[1]]
try:
    main()
finally:
    print(json.dumps([name for name in ("torch._dynamo", "lightning_fabric", "sympy") if name in sys.modules]))
"""


@pytest.mark.parametrize("build", [SGD, Adam, AdamW])
def test_steps_are_those_of_fabric(build):
    ends = []
    for processes in (OneProcess(torch.device("cpu")), Fabric(accelerator="cpu", devices=1)):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.Linear(7, 3))
        model, optimizer = processes.setup(model, build(model.parameters(), 0.1, weight_decay=0.01))
        for _ in range(5):
            processes.backward(model(torch.randn(8, 5)).square().sum())
            norm = processes.clip_gradients(model, optimizer, max_norm=0.5, error_if_nonfinite=False)
            optimizer.step()
            optimizer.zero_grad()
            assert norm > 0.5
        assert processes.strategy.precision.state_dict() == {}
        ends.append((model.state_dict(), optimizer.state_dict()))
    (one, of_one), (fabric, of_fabric) = ends
    assert one.keys() == fabric.keys()
    assert all(torch.equal(one[name], fabric[name]) for name in one)
    torch.testing.assert_close(of_one, of_fabric, rtol=0, atol=0)


def test_a_run_never_loads_the_compiler(tmp_path: Path):
    out = tmp_path / "run"
    ended = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", USED, out], capture_output=True, text=True, timeout=300, check=True
    )
    assert json.loads(ended.stdout.splitlines()[-1]) == []
    assert (out / "report.html").exists()
