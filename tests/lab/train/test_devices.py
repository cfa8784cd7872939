"""The laboratory on other devices than the CPU: on meta tensors, which have a device and a shape and no numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from invaug import Draw, sets
from invaug.lab.baselines import policy as policies
from invaug.lab.baselines.autoaugment import autoaugment
from invaug.lab.data.batches import Batch
from invaug.lab.evaluate import measure
from invaug.lab.train.finish import Finish, Randomness, cut, draw_boxes, flip, resized_crop
from invaug.lab.train.problem import build_problem, constraints
from invaug.lab.train.tally import Tally
from tests.support.configs import resolved

META = torch.device("meta")
KINDS = {
    "crop": Randomness(4, False, 0, False),
    "flip": Randomness(0, True, 0, False),
    "cutout": Randomness(0, False, 8, False),
    "resized crop": Randomness(0, False, 0, True),
    "all": Randomness(4, True, 8, False),
    "nothing": Randomness(0, False, 0, False),
}


def images(n: int = 6, channels: int = 3, side: int = 32) -> torch.Tensor:
    return torch.empty(n, channels, side, side, dtype=torch.uint8, device=META)


def finish(kind: Randomness, channels: int = 3) -> Finish:
    return Finish((0.5,) * channels, (0.2,) * channels, kind).to(META)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("channels", [1, 3])
def test_finish_stays_on_the_device_of_the_images(kind: str, channels: int) -> None:
    made = finish(KINDS[kind], channels)(images(channels=channels))
    assert (made.device, made.dtype, made.shape) == (META, torch.float32, (6, channels, 32, 32))


def test_the_parts_of_finish_stay_on_the_device() -> None:
    batch = images()
    boxes = draw_boxes(batch, 8)
    assert boxes.device.type == "cpu"  # drawn there, moved where they are used
    floats = torch.empty(6, 3, 32, 32, device=META)
    for made in (
        flip(batch, torch.ones(6, dtype=torch.bool)),
        cut(floats, boxes),
        resized_crop(batch, torch.rand(4, 6)),
    ):
        assert made.device == META


@pytest.mark.parametrize("name", ["cifar10", "svhn", "imagenet"])
def test_autoaugment_stays_on_the_device_of_the_images(name: str) -> None:
    policy = autoaugment(name)
    assert policy.apply(images(), policy.draw(6)).device == META


@pytest.mark.parametrize("kind", ["trivial", "standard", "mild", "randaugment"])
def test_every_policy_stays_on_the_device_of_the_images(kind: str) -> None:
    made = {
        "trivial": lambda: policies.uniform_policy(sets.wide()),
        "standard": lambda: policies.uniform_policy(sets.standard()),
        "mild": lambda: policies.uniform_policy(sets.mild()),
        "randaugment": lambda: policies.randaugment(2, 9),
    }[kind]()
    found = made.apply(images(), made.draw(6))
    assert (found.device, found.dtype, found.shape) == (META, torch.uint8, (6, 3, 32, 32))


def network() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4 * 30 * 30, 10)).to(META)


def test_scores_for_an_evaluation_are_made_on_the_device() -> None:
    plain, targets = finish(KINDS["nothing"]), torch.empty(6, dtype=torch.long, device=META)
    transforms = sets.wide()
    changed = transforms.apply(images(), transforms.draw(6))
    losses, scores = measure.score_images(network(), plain, changed, targets)
    assert {each.device for each in (losses, scores)} == {META}
    assert scores.shape == (6, 10)


def test_every_level_of_a_set_can_be_applied_on_the_device() -> None:
    transforms = sets.wide()
    every = transforms.every()
    for i in range(0, len(every), 50):
        one = every[i]
        draw = Draw(*(column.expand(6, *column.shape[1:]) for column in (one.op, one.level, one.magnitude)))
        assert transforms.apply(images(), draw).device == META


class Problem:
    """What a tally needs of a problem."""

    def __init__(self) -> None:
        self.constraints = constraints(resolved(set="wide"))
        self.gamma = torch.zeros(1, dtype=torch.float64)


class Step:
    """What a tally needs of a step whose loss and outputs are on a device."""

    def __init__(self, transforms: object) -> None:
        self.loss, self.outputs = torch.zeros((), device=META), torch.zeros(6, 10, device=META)
        self.slack = self.epsilon = torch.zeros(1, dtype=torch.float64)
        self.acceptance, self.n_passes = torch.zeros(1), 18
        self.kept = (transforms.draw(6),)


def test_a_tally_sums_on_the_device_and_counts_on_the_cpu() -> None:
    problem = Problem()
    tally = Tally(problem)
    batch = Batch(images(), torch.zeros(6, dtype=torch.long, device=META), torch.arange(6))
    for _ in range(2):
        tally.add(Step(problem.constraints[0].transforms), batch)
    assert (tally.loss.device, tally.correct.device, tally.slack.device.type) == (META, META, "cpu")
    assert int(tally.counts[0].sum()) == 12


def test_gamma_stays_on_the_cpu_and_finish_moves(tmp_path: Path) -> None:
    from invaug.lab.data.load import load_dataset

    data = tmp_path / "d.npz"
    pixels = np.zeros((20, 8, 8, 3), dtype=np.uint8)
    np.savez(data, x_train=pixels, y_train=np.arange(20) % 2, x_test=pixels[:4], y_test=np.arange(4) % 2)
    dataset = load_dataset(str(data))
    made = Finish(dataset.mean, dataset.std, KINDS["all"])
    problem = build_problem(resolved(), dataset, made).to(META)
    assert (problem.gamma.device.type, problem.n_batches.device.type) == ("cpu", "cpu")
    assert (made.mean.device, made.std.device) == (META, META)
