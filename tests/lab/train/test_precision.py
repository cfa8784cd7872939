"""bfloat16 on CPUs: the network computes in it, the result stays close, and a resumed run has the same bits."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from invaug.lab import environment
from invaug.lab.run import record
from tests.support.runs import train, write_digits

GIVEN = {"model": "cnn-small", "batch_size": 32, "threads": 1, "epochs": 3, "precision": "bf16-mixed"}


def newest(run: Path) -> Path:
    return sorted((run / "checkpoints").glob("*.safetensors"))[-1]


def test_training_in_bfloat16_learns_nearly_the_same_and_resumes_to_the_same_bits(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(environment, "cpu_facts", lambda: {"flags": "sse avx2"})
    data = write_digits(tmp_path)
    train(data, tmp_path / "run", **GIVEN)
    assert "no bfloat16 instructions" in capsys.readouterr().err
    train(data, tmp_path / "full", **{**GIVEN, "precision": "32-true"})
    half, full = (record.read(tmp_path / name) for name in ("run", "full"))
    assert half[0]["train_loss"] != full[0]["train_loss"]
    assert half[0]["train_loss"] == pytest.approx(full[0]["train_loss"], rel=0.05)
    assert half[-1]["gamma"] == pytest.approx(full[-1]["gamma"], rel=0.2)
    path = newest(tmp_path / "run")
    whole = load_file(path)
    for file in (path, path.with_suffix(".json")):
        file.unlink()
    train(data, tmp_path / "run", resume=True, **GIVEN)
    again = load_file(path)
    assert all(torch.equal(whole[name], again[name]) for name in whole)
    assert all(tensor.dtype != torch.bfloat16 for tensor in whole.values())


@pytest.mark.parametrize(
    ("facts", "lacks"),
    [
        ({}, False),
        ({"flags": "avx2 fma"}, True),
        ({"flags": "avx512_bf16"}, False),
        ({"Features": "asimd bf16"}, False),
    ],
)
def test_only_a_processor_known_to_lack_bfloat16_is_said_to(monkeypatch, facts, lacks):
    monkeypatch.setattr(environment, "cpu_facts", lambda: facts)
    assert environment.lacks_bf16() == lacks
