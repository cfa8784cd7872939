"""Numbers of an evaluation against plain loops, one image at a time, and against Pillow."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor, nn
from torch.nn import functional as F

from invaug import TransformSet, sets
from invaug.lab.data.batches import Batch
from invaug.lab.data.load import load_dataset
from invaug.lab.data.splits import Split
from invaug.lab.evaluate import measure
from invaug.lab.run.folder import Predictor
from invaug.lab.train.finish import Finish, Randomness

MEAN, STD = (0.2, 0.15, 0.1), (0.3, 0.25, 0.2)


@pytest.fixture(scope="module")
def colour() -> Split:
    """Real digits on a gradient, each channel of its own, so that colour operations change something."""
    digits = load_dataset("digits").test
    assert digits.images is not None
    generator = torch.Generator().manual_seed(0)
    chosen = torch.randperm(len(digits), generator=generator)[:40]
    ink = digits.images[chosen].float()
    ramp = torch.linspace(0, 120, 28).view(1, 1, 1, 28)
    channels = [ink, (ink * 0.5 + ramp), (255 - ink) * 0.6 + ramp.transpose(2, 3)]
    return Split(digits.targets[chosen], torch.cat(channels, 1).clamp(0, 255).to(torch.uint8))


@pytest.fixture(scope="module")
def network(colour: Split) -> nn.Module:
    """A network that knows half of the upright images and little else: neither all right nor all wrong."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 5, 2), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.2), nn.Flatten(), nn.Linear(8 * 12 * 12, 10)
    )
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    for _ in range(12):
        optimizer.zero_grad()
        F.cross_entropy(model(normalised(colour.images)[:25]), colour.targets[:25]).backward()
        optimizer.step()
    return model.eval()


@pytest.fixture(scope="module")
def finish() -> Finish:
    return Finish(MEAN, STD, Randomness(4, True, 16, False))  # evaluation must use none of this randomness


def normalised(images: Tensor | None) -> Tensor:
    assert images is not None
    mean, std = (torch.tensor(numbers).view(1, 3, 1, 1) for numbers in (MEAN, STD))
    return (images / 255 - mean) / std


@torch.no_grad()
def judge(network: nn.Module, image: Tensor, target: int) -> tuple[float, bool]:
    """The loss of one image and whether it is right, from the definition, in double precision."""
    scores = network(normalised(image[None]))[0].double().tolist()
    top = max(scores)
    loss = top + math.log(sum(math.exp(score - top) for score in scores)) - scores[target]
    return loss, max(range(len(scores)), key=scores.__getitem__) == target


def pairs(split: Split) -> list[tuple[Tensor, int]]:
    assert split.images is not None
    return list(zip(split.images, split.targets.tolist(), strict=True))


def mean(numbers: list[float]) -> float:
    return sum(numbers) / len(numbers)


def test_the_network_of_these_tests_is_neither_perfect_nor_useless(network: nn.Module, colour: Split) -> None:
    right = mean([judge(network, image, target)[1] for image, target in pairs(colour)])
    assert 0.5 < right < 1


def test_clean_loss_and_accuracy_are_those_of_one_image_at_a_time(
    network: nn.Module, finish: Finish, colour: Split
) -> None:
    judged = [judge(network, image, target) for image, target in pairs(colour)]
    found = measure.clean(network, finish, colour)
    assert found["loss"] == pytest.approx(mean([loss for loss, _ in judged]), rel=1e-4)
    assert found["accuracy"] == pytest.approx(mean([right for _, right in judged]))


def test_small_batches_give_the_same_numbers(
    network: nn.Module, finish: Finish, colour: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = measure.clean(network, finish, colour)
    monkeypatch.setattr(measure, "BATCH", 7)
    assert measure.clean(network, finish, colour) == pytest.approx(whole, rel=1e-5)


def test_images_come_back_in_the_order_of_the_split(network: nn.Module, finish: Finish, colour: Split) -> None:
    losses, scores, targets = measure.predict_split(network, finish, colour)
    assert torch.equal(targets, colour.targets)
    assert scores.shape == (len(colour), 10)
    expected = [judge(network, image, target)[0] for image, target in pairs(colour)]
    np.testing.assert_allclose(losses.numpy(), expected, rtol=1e-3, atol=1e-5)


def test_evaluation_leaves_every_module_in_its_own_mode(finish: Finish, colour: Split) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 5), nn.BatchNorm2d(4), nn.Dropout(0.5), nn.Flatten(), nn.LazyLinear(10))
    model(normalised(colour.images))
    model.train()
    model[1].eval()  # a frozen BatchNorm, as in fine-tuning
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    first, again = (measure.clean(model, finish, colour) for _ in range(2))
    assert first == again
    assert [module.training for module in model] == [True, False, True, True, True]
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def judged_under(network: nn.Module, split: Split, transforms: TransformSet, n_draws: int, seed: int) -> Any:
    """One row per draw, one (loss, right) per image, transformed one image at a time."""
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for _ in range(n_draws):
        draw = transforms.draw(len(split), generator=generator)
        rows.append(
            [
                judge(network, transforms.apply(image[None], draw[i])[0], target)
                for i, (image, target) in enumerate(pairs(split))
            ]
        )
    return rows


@pytest.mark.parametrize("transforms", [sets.wide(), sets.rotations(1.0), sets.translations(6.0)])
def test_uniform_lambda_c_and_worst_are_those_of_plain_loops(
    network: nn.Module, finish: Finish, colour: Split, transforms: TransformSet
) -> None:
    found = measure.under(network, finish, colour, transforms, n_draws=5, seed=3)
    by_image = list(zip(*judged_under(network, colour, transforms, 5, 3), strict=True))
    expected: dict[str, dict[str, list[float]]] = {
        name: {"loss": [], "accuracy": []} for name in ("uniform", "lambda_c", "worst")
    }
    for draws in by_image:
        total = sum(loss for loss, _ in draws)
        expected["uniform"]["loss"].append(total / len(draws))
        expected["uniform"]["accuracy"].append(mean([right for _, right in draws]))
        expected["lambda_c"]["loss"].append(sum(loss * loss / total for loss, _ in draws))
        expected["lambda_c"]["accuracy"].append(sum(right * loss / total for loss, right in draws))
        expected["worst"]["loss"].append(max(loss for loss, _ in draws))
        expected["worst"]["accuracy"].append(float(all(right for _, right in draws)))
    for name, numbers in expected.items():
        assert found[name]["loss"] == pytest.approx(mean(numbers["loss"]), rel=1e-3), name
        assert found[name]["accuracy"] == pytest.approx(mean(numbers["accuracy"]), abs=1e-3), name


def test_many_draws_reach_the_closed_form_of_lambda_c(network: nn.Module, finish: Finish, colour: Split) -> None:
    few = Split(colour.targets[:12], colour.images[:12])  # type: ignore[index]
    transforms = sets.wide(2).only("ShearX")  # 0 half of the time, ±0.99 a quarter each
    shares = {0.0: 0.5, 0.99: 0.25, -0.99: 0.25}
    exact = []
    for image, target in pairs(few):
        losses = {m: judge(network, by_pillow("ShearX", m, image), target)[0] for m in shares}
        total = sum(shares[m] * losses[m] for m in shares)
        exact.append(sum(shares[m] * losses[m] * losses[m] / total for m in shares))
    found = measure.under(network, finish, few, transforms, n_draws=400)["lambda_c"]["loss"]
    assert found == pytest.approx(mean(exact), rel=0.03)


def test_an_image_without_loss_weighs_its_draws_equally(finish: Finish, colour: Split) -> None:
    class Sure(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bias = nn.Parameter(torch.tensor([0.0, 1000.0]))

        def forward(self, inputs: Tensor) -> Tensor:
            return self.bias.expand(len(inputs), 2)

    ones = Split(torch.ones(6, dtype=torch.long), colour.images[:6])  # type: ignore[index]
    found = measure.under(Sure(), finish, ones, sets.wide(), n_draws=3)
    assert all(numbers == {"loss": 0.0, "accuracy": 1.0} for numbers in found.values())


def test_draws_follow_the_seed_and_progress_reaches_the_end(
    network: nn.Module, finish: Finish, colour: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "BATCH", 16)
    seen: list[tuple[int, int]] = []
    first, again, other = (
        measure.under(network, finish, colour, sets.wide(), n_draws=2, seed=seed, progress=progress)
        for seed, progress in ((1, lambda *at: seen.append(at)), (1, None), (2, None))
    )
    assert first == again != other
    assert seen == [(16, 40), (32, 40), (40, 40)]


AFFINE: dict[str, Callable[[float], tuple[float, ...]]] = {
    "ShearX": lambda m: (1, m, 0, 0, 1, 0),
    "ShearY": lambda m: (1, 0, 0, m, 1, 0),
    "TranslateX": lambda m: (1, 0, m, 0, 1, 0),
    "TranslateY": lambda m: (1, 0, 0, 0, 1, m),
}
PILLOW: dict[str, Callable[[Image.Image, float], Image.Image]] = {
    "Identity": lambda image, _: image,
    "AutoContrast": lambda image, _: ImageOps.autocontrast(image),
    "Equalize": lambda image, _: ImageOps.equalize(image),
    "Rotate": lambda image, m: image.rotate(m),
    "Solarize": lambda image, m: ImageOps.solarize(image, int(m)),
    "Posterize": lambda image, m: ImageOps.posterize(image, int(m)),
    "Color": lambda image, m: ImageEnhance.Color(image).enhance(m),
    "Contrast": lambda image, m: ImageEnhance.Contrast(image).enhance(m),
    "Brightness": lambda image, m: ImageEnhance.Brightness(image).enhance(m),
    "Sharpness": lambda image, m: ImageEnhance.Sharpness(image).enhance(m),
}


def by_pillow(name: str, magnitude: float, image: Tensor) -> Tensor:
    before = Image.fromarray(image.permute(1, 2, 0).contiguous().numpy())
    if name in AFFINE:
        after = before.transform(before.size, Image.Transform.AFFINE, AFFINE[name](magnitude))
    else:
        after = PILLOW[name](before, magnitude)
    return torch.from_numpy(np.array(after)).permute(2, 0, 1)


def wide_magnitudes(levels: list[int]) -> dict[str, dict[float, int]]:
    """The wide set written out: every different magnitude of every operation, and the lowest level that has it."""
    last = 30
    rules: dict[str, Callable[[int], tuple[float, ...]]] = {
        "Identity": lambda level: (0.0,),
        "AutoContrast": lambda level: (0.0,),
        "Equalize": lambda level: (0.0,),
        "Rotate": lambda level: (int(level * 135 / last), -int(level * 135 / last)),
        "Solarize": lambda level: (256 - int(level * 256 / last),),
        "Posterize": lambda level: (8 - int(level * 6 / last),),
        "ShearX": lambda level: (level * 0.99 / last, -level * 0.99 / last),
        "ShearY": lambda level: (level * 0.99 / last, -level * 0.99 / last),
        "TranslateX": lambda level: (int(level * 32 / last), -int(level * 32 / last)),
        "TranslateY": lambda level: (int(level * 32 / last), -int(level * 32 / last)),
    }
    for name in ("Color", "Contrast", "Brightness", "Sharpness"):
        rules[name] = lambda level: (0.01 + level * 1.99 / last,)
    found: dict[str, dict[float, int]] = {}
    for name, rule in rules.items():
        found[name] = {}
        for level in levels:
            for magnitude in rule(level):
                found[name].setdefault(round(float(magnitude), 9) + 0.0, level)
    return found


def test_every_operation_and_level_is_what_pillow_makes_of_the_images(
    network: nn.Module, finish: Finish, colour: Split
) -> None:
    few = Split(colour.targets[:16], colour.images[:16])  # type: ignore[index]
    assert few.images is not None
    table = measure.by_level(network, finish, examples(few, 16), sets.wide())
    expected = wide_magnitudes(list(range(31)))
    assert list(table) == list(sets.wide().names)
    for name, rows in table.items():
        magnitudes = {round(row["magnitude"], 9) + 0.0: row["level"] for row in rows}
        assert magnitudes == expected[name]
        for row in rows:
            changed = torch.stack([by_pillow(name, row["magnitude"], image) for image in few.images])
            with torch.no_grad():
                right = network(normalised(changed)).argmax(1) == few.targets
            assert row["accuracy"] == pytest.approx(right.double().mean().item()), (name, row)


def test_calibration_error_is_that_of_the_definition() -> None:
    random.seed(0)
    scores = torch.randn(500, 4, generator=torch.Generator().manual_seed(1)) * 2
    targets = torch.tensor([random.choice([int(row.argmax()), 0]) for row in scores])
    bins: dict[int, list[tuple[float, bool]]] = {}
    for row, target in zip(scores.double().tolist(), targets.tolist(), strict=True):
        shares = [math.exp(score) for score in row]
        confidence = max(shares) / sum(shares)
        place = next(i for i in range(15) if confidence < (i + 1) / 15 or i == 14)
        bins.setdefault(place, []).append((confidence, shares.index(max(shares)) == target))
    expected = sum(
        len(held) / 500 * abs(mean([right for _, right in held]) - mean([confidence for confidence, _ in held]))
        for held in bins.values()
    )
    assert expected > 0.05
    assert measure.calibration_error(measure.calibration(scores, targets)) == pytest.approx(expected, abs=1e-5)


def test_a_sure_and_right_model_is_calibrated_and_a_sure_and_wrong_one_is_not() -> None:
    scores = torch.tensor([[100.0, 0.0], [0.0, 100.0]])
    right, wrong = (measure.calibration(scores, torch.tensor(targets)) for targets in ([0, 1], [1, 0]))
    assert measure.calibration_error(right) == pytest.approx(0)
    assert measure.calibration_error(wrong) == pytest.approx(1)


def test_classes_are_counted_one_by_one_and_absent_ones_left_out() -> None:
    scores = F.one_hot(torch.tensor([0, 1, 1, 0, 3]), 4).float()
    found = measure.by_class(scores, torch.tensor([0, 1, 0, 0, 1]), ("a", "b", "c", "d"))
    assert found == {
        "a": {"accuracy": pytest.approx(2 / 3), "images": 3},
        "b": {"accuracy": pytest.approx(1 / 2), "images": 2},
    }


def examples(split: Split, n: int) -> Batch:
    assert split.images is not None
    return Batch(split.images[:n], split.targets[:n], torch.arange(n))


def test_a_whole_report_agrees_with_its_parts(network: nn.Module, finish: Finish, colour: Split) -> None:
    predictor = Predictor(network, finish, tuple("abcdefghij"))
    seen: dict[str, tuple[int, int]] = {}

    def note(name: str, done: int, total: int) -> None:
        seen[name] = done, total

    options: dict[str, Any] = {"n_draws": 2, "progress": note}
    report = measure.everything(predictor, colour, [sets.wide(3)], examples(colour, 40), **options)
    assert report["clean"] == measure.clean(network, finish, colour)
    assert report["transformed"] == measure.under(network, finish, colour, sets.wide(3), n_draws=2)
    shares = [found["accuracy"] * found["images"] for found in report["classes"].values()]
    assert sum(shares) / report["images"] == pytest.approx(report["clean"]["accuracy"])
    (identity,) = report["levels"]["Identity"]
    assert identity["accuracy"] == pytest.approx(report["clean"]["accuracy"])
    assert set(seen) == {"clean", "transformed", "levels"}
    assert all(done == total for done, total in seen.values())
    json.dumps(report)


def test_a_continuous_set_is_reported_without_levels(network: nn.Module, finish: Finish, colour: Split) -> None:
    predictor = Predictor(network, finish, tuple("abcdefghij"))
    report = measure.everything(predictor, colour, [sets.rotations(3.0)], examples(colour, 4), n_draws=2)
    assert report["transformed"]["worst"]["loss"] >= report["transformed"]["uniform"]["loss"]
    assert "levels" not in report
