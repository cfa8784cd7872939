"""EntAugment: strength by the entropy of the last visit, against the formula worked out by hand."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from scipy import stats

from invaug import sets
from invaug.lab.baselines.entaugment import Strengths, _draw, confidence
from invaug.lab.config.build import build
from invaug.lab.errors import UserError
from invaug.lab.run import record
from tests.support.policies import seeded
from tests.support.runs import train, write_digits


def test_the_strength_is_one_minus_the_entropy_as_a_share_of_the_largest():
    outputs = torch.tensor([[0.0, 0.0, 0.0, 0.0], [9.0, 0.0, 0.0, 0.0], [2.0, 1.0, 0.0, -1.0], [500.0, 0.0, 0.0, 0.0]])
    p = np.exp(outputs.double().numpy())
    p /= p.sum(1, keepdims=True)
    expected = [1 - stats.entropy(row) / math.log(4) for row in p]
    assert confidence(outputs).tolist() == pytest.approx(expected, abs=1e-9)


def test_images_that_were_never_seen_stay_as_they_are_but_for_operations_without_a_magnitude():
    wide, memory = sets.wide(), Strengths(500)
    memory.begin(torch.arange(500))
    draw = _draw(wide, memory, 500, generator=seeded(0))
    images = torch.randint(256, (500, 3, 8, 8), dtype=torch.uint8, generator=seeded(1))
    changed = (wide.apply(images, draw) != images).flatten(1).any(1)
    assert {wide.names[op] for op in draw.op[changed].flatten().tolist()} <= {"AutoContrast", "Equalize"}
    counts = np.bincount(draw.op.flatten().numpy(), minlength=14)
    assert stats.chisquare(counts).pvalue > 1e-6


@pytest.mark.parametrize("strength", [0.25, 1.0])
def test_magnitudes_are_the_strength_of_the_range_to_either_side(strength):
    wide, memory = sets.wide(), Strengths(4)
    memory.strengths.fill_(strength)
    memory.begin(torch.zeros(4000, dtype=torch.long))
    draw = _draw(wide, memory, 4000, generator=seeded(0))
    by_name: dict[str, set[float]] = {}
    for op, magnitude in zip(draw.op.flatten().tolist(), draw.magnitude.flatten().tolist(), strict=True):
        by_name.setdefault(wide.names[op], set()).add(round(magnitude, 9))
    turn = math.floor(strength * 135)
    assert by_name["Rotate"] == {-turn, turn}
    assert by_name["ShearX"] == {-round(0.99 * strength, 9), round(0.99 * strength, 9)}
    assert by_name["Solarize"] == {256 - math.floor(256 * strength)}
    assert by_name["Posterize"] == {8 - math.floor(6 * strength)}
    assert by_name["Color"] == {round(1 - 0.99 * strength, 9), round(1 + strength, 9)}


def test_only_the_images_of_a_step_learn_and_only_these_are_read():
    memory = Strengths(5)
    memory.learn(torch.tensor([3, 1]), torch.tensor([[50.0, 0.0], [0.0, 0.0]]))
    assert memory.strengths.tolist() == pytest.approx([0, 0, 0, 1, 0])


def test_a_run_that_lost_its_last_epoch_ends_with_the_strengths_and_numbers_it_had(tmp_path: Path):
    given = {"method": "entaugment", "model": "mlp", "batch_size": 50, "threads": 1, "epochs": 4}
    train(write_digits(tmp_path), tmp_path / "run", **given)
    before, files = record.read(tmp_path / "run"), sorted((tmp_path / "run" / "checkpoints").glob("*.safetensors"))
    whole = load_file(files[-1])
    strengths = next(tensor for name, tensor in whole.items() if name.endswith("strengths"))
    assert float(strengths.min()) > 0
    assert float(strengths.max()) <= 1
    for newest in (files[-1], files[-1].with_suffix(".json")):
        newest.unlink()
    train(write_digits(tmp_path), tmp_path / "run", resume=True, **given)
    again = load_file(files[-1])
    assert {name for name in whole if not torch.equal(whole[name], again[name])} == set()
    numbers = ("train_loss", "train_accuracy", "test_loss", "passes")
    assert [record.read(tmp_path / "run")[-1][n] for n in numbers] == [before[-1][n] for n in numbers]


def test_several_devices_are_refused(tmp_path: Path):
    from invaug.lab.baselines.entaugment import strength_by_confidence

    with pytest.raises(UserError, match="entaugment remembers every image, which needs one device"):
        strength_by_confidence(build({"method": "entaugment", "devices": 2}), None)
