"""Certificates against plain loops, against known truths, and through interruptions."""

from __future__ import annotations

import itertools
import json
import math
import os
import shutil
import signal
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import Tensor, nn
from torch.nn import functional as F

from invaug import Op, TransformSet, ops, sets
from invaug.lab.certify import bounds, certificate, sampled, tables
from invaug.lab.certify import command as certify
from invaug.lab.certify import matrix as scored
from invaug.lab.certify.certificate import Question
from invaug.lab.certify.matrix import Adaptive, Block, Exhaustive, Matrix, Sample
from invaug.lab.certify.matrix_files import Cache
from invaug.lab.cli import main
from invaug.lab.data.splits import Split
from invaug.lab.errors import UserError
from invaug.lab.report import page
from invaug.lab.report.assemble import document_of
from invaug.lab.report.read import read_runs
from invaug.lab.report.sections.certificate import sentences
from invaug.lab.run.folder import Predictor
from invaug.lab.run.record import read
from invaug.lab.train.finish import Finish
from invaug.lab.train.signals import Stopped
from invaug.samplers import chain_probabilities
from tests.support.images import real_images
from tests.support.pillow_reference import by_pillow
from tests.support.runs import train, write_digits

MEAN, STD = (0.2, 0.15, 0.1), (0.3, 0.25, 0.2)
CLASSES = ("a", "b", "c")
SMALL = TransformSet(
    (Op("Rotate", ops.rotate, 0, 90, signed=True, whole=True), Op("Posterize", ops.posterize, 8, 4, whole=True),
     Op("Equalize", ops.equalize), Op("TranslateX", ops.translate_x, 0, 20, signed=True, whole=True)),
    n_levels=6,
)  # fmt: skip


def cross_entropy(scores: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(scores, targets, reduction="none")


@pytest.fixture(scope="module")
def sample() -> Sample:
    """Colour images that a small network is right about now and then."""
    images = real_images(18, 20, 20, 3)
    return Sample(images, torch.arange(18) % 3, np.arange(18))


@pytest.fixture(scope="module")
def predictor(sample: Sample) -> Predictor:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 4, 5, 3), nn.ReLU(), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 3))
    finish = Finish(MEAN, STD)
    optimizer = torch.optim.Adam(network.parameters(), 1e-2)
    generator = torch.Generator().manual_seed(0)
    for _ in range(60):
        optimizer.zero_grad()
        changed = SMALL.apply(sample.images, SMALL.draw(18, generator=generator))
        F.cross_entropy(network(finish(changed)), sample.targets).backward()
        optimizer.step()
    network[-1].bias.data[0] += 2.0  # right about most of class a whatever happens to it, and less so about the rest
    return Predictor(network, finish, CLASSES).eval()


def question(transforms: TransformSet, targets: Tensor, **changes: Any) -> Question:
    asked = {"confidence": 0.95, "cap": 10.0, "epsilon": 0.8, **changes}
    return Question(transforms, targets.numpy(), CLASSES, (3, 20, 20), **asked)


def filled(plan: scored.Plan, predictor: Predictor, sample: Sample, transforms: TransformSet, cache: Cache) -> Matrix:
    cache.open()
    scorer = lambda block: scored.score(predictor, sample, block, transforms, cross_entropy)  # noqa: E731
    matrix = scored.fill(plan, len(sample.targets), cache, scorer)
    assert matrix is not None
    return matrix


@pytest.fixture(scope="module")
def exact(predictor: Predictor, sample: Sample, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    every, probability = certificate.members(SMALL)
    cache = Cache(tmp_path_factory.mktemp("cache"), {"weights": "some"})
    matrix = filled(Exhaustive(every, len(sample.targets)), predictor, sample, SMALL, cache)
    return certificate.exact(matrix, every, probability, question(SMALL, sample.targets))


@torch.no_grad()
def judge(predictor: Predictor, image: Tensor, target: int) -> tuple[float, bool]:
    """The loss of one image and whether it is right, from the definition, in double precision."""
    mean, std = (torch.tensor(numbers).view(1, 3, 1, 1) for numbers in (MEAN, STD))
    scores = predictor.network((image[None] / 255 - mean) / std)[0].double().tolist()
    top = max(scores)
    return top + math.log(sum(math.exp(s - top) for s in scores)) - scores[target], scores.index(top) == target


def drawable(transforms: TransformSet) -> list[tuple[str, float, Fraction]]:
    """Every operation, level and sign a draw can give, one by one, with its probability."""
    found = []
    for op in transforms.ops:
        for level in range(transforms.min_level, transforms.n_levels):
            step = level * (op.stop - op.start) / (transforms.n_levels - 1)
            size = op.start + (math.trunc(step) if op.whole else step)
            for sign in (1, -1) if op.signed else (1, 1):
                share = Fraction(1, len(transforms.ops)) / (transforms.n_levels - transforms.min_level) / 2
                found.append((op.name, sign * size + 0.0, share))
    return found


def by_loops(predictor: Predictor, sample: Sample, transforms: TransformSet) -> list[list[Any]]:
    """Loss, right, operation, probability of each image under everything that can be drawn, made by Pillow."""
    table = []
    for image, target in zip(sample.images, sample.targets.tolist(), strict=True):
        row = []
        for name, size, share in drawable(transforms):
            place = torch.full((1, 2), 0.5)
            (changed,) = by_pillow([name], image[None], torch.tensor([size], dtype=torch.float64), place)
            row.append((*judge(predictor, changed, target), name, float(share)))
        table.append(row)
    return table


@pytest.fixture(scope="module")
def loops(predictor: Predictor, sample: Sample) -> list[list[Any]]:
    return by_loops(predictor, sample, SMALL)


def mean(numbers: Any) -> float:
    numbers = list(numbers)
    return sum(numbers) / len(numbers)


def test_the_network_of_these_tests_is_neither_perfect_nor_useless(exact: dict[str, Any]) -> None:
    assert 0 < exact["all"]["right"] < 18
    assert 0.3 < exact["uniform"]["accuracy"] < 1


def test_uniform_risk_is_that_of_all_draws_one_by_one(exact: dict[str, Any], loops: list[list[Any]]) -> None:
    assert exact["uniform"]["loss"] == pytest.approx(mean(sum(p * x for x, _, _, p in row) for row in loops), rel=1e-4)
    assert exact["uniform"]["accuracy"] == pytest.approx(
        mean(sum(p * right for _, right, _, p in row) for row in loops)
    )


def test_lambda_c_weighs_each_draw_by_its_loss(exact: dict[str, Any], loops: list[list[Any]]) -> None:
    totals = [sum(p * x for x, _, _, p in row) for row in loops]
    loss = mean(sum(p * x * x for x, _, _, p in row) / t for row, t in zip(loops, totals, strict=True))
    right = mean(sum(p * x * r for x, r, _, p in row) / t for row, t in zip(loops, totals, strict=True))
    assert exact["lambda_c"]["loss"] == pytest.approx(loss, rel=1e-4)
    assert exact["lambda_c"]["accuracy"] == pytest.approx(right, rel=1e-4)


def test_the_worst_case_is_the_largest_of_all_losses(exact: dict[str, Any], loops: list[list[Any]]) -> None:
    assert exact["worst"]["loss"] == pytest.approx(mean(max(x for x, *_ in row) for row in loops), rel=1e-4)
    assert exact["worst"]["accuracy"] == pytest.approx(mean(all(r for _, r, *_ in row) for row in loops))


def test_invariance_risk_is_how_far_the_worst_is_above_the_clean_loss(
    exact: dict[str, Any], loops: list[list[Any]], predictor: Predictor, sample: Sample
) -> None:
    clean = [judge(predictor, image, int(t))[0] for image, t in zip(sample.images, sample.targets, strict=True)]
    risks = [max(c, *(x for x, *_ in row)) - c for c, row in zip(clean, loops, strict=True)]
    assert min(risks) >= 0
    assert exact["invariance_risk"]["loss"] == pytest.approx(mean(risks), rel=1e-4)


def test_images_right_under_everything_are_counted_one_by_one(
    exact: dict[str, Any], loops: list[list[Any]], predictor: Predictor, sample: Sample
) -> None:
    right = [
        judge(predictor, image, int(t))[1] and all(r for _, r, *_ in row)
        for image, t, row in zip(sample.images, sample.targets, loops, strict=True)
    ]
    assert (exact["all"]["right"], exact["all"]["images"]) == (sum(right), 18)
    assert exact["all"]["interval"] == bounds.interval(bounds.clopper_pearson(sum(right), 18))
    for i, name in enumerate(CLASSES):
        found = exact["classes"][name]
        assert (found["right"], found["images"]) == (sum(right[i::3]), 6)
        losses = [sum(p * x * x for x, _, _, p in row) / sum(p * x for x, _, _, p in row) for row in loops[i::3]]
        assert found["loss"] == pytest.approx(mean(losses), rel=1e-4)


def test_operations_and_levels_are_those_of_the_loops(exact: dict[str, Any], loops: list[list[Any]]) -> None:
    for name, found in exact["operations"].items():
        own = [[(r, p) for _, r, op, p in row if op == name] for row in loops]
        expected = mean(sum(p * r for r, p in row) / sum(p for _, p in row) for row in own)
        assert found["accuracy"] == pytest.approx(expected)
        levels = exact["levels"][name]
        assert min(level["worse"] for level in levels) >= found["share"]
    assert [row["magnitude"] for row in exact["levels"]["Rotate"]] == [0, 18, 36, 54, 72, 90]
    assert [row["level"] for row in exact["levels"]["Posterize"]] == [0, 2, 3, 4, 5]  # level 1 keeps 8 bits as well


@pytest.mark.parametrize("transforms", [
    SMALL, sets.wide(), sets.standard(7, min_level=1, identity=False), sets.wide(5),
])  # fmt: skip
def test_each_distinct_transformation_has_the_probability_of_all_its_levels_and_signs(transforms: TransformSet) -> None:
    expected: Counter[tuple[str, float]] = Counter()
    for name, size, share in drawable(transforms):
        expected[name, round(size, 9)] += share  # type: ignore[assignment]
    every, probability = certificate.members(transforms)
    names = [transforms.ops[i].name for i in every.op.flatten().tolist()]
    found = dict(
        zip(
            zip(names, [round(m, 9) for m in every.magnitude.flatten().tolist()], strict=True), probability, strict=True
        )
    )
    assert found == {key: pytest.approx(float(share), abs=1e-12) for key, share in expected.items()}
    assert probability.sum() == pytest.approx(1)
    assert len(set(np.round(probability, 9))) > 1  # they are not all alike


def test_probabilities_are_the_frequencies_of_draws() -> None:
    every, probability = certificate.members(SMALL)
    draw = SMALL.draw(200_000, generator=torch.Generator().manual_seed(0))
    counts = Counter(zip(draw.op.flatten().tolist(), draw.magnitude.flatten().tolist(), strict=True))
    frequency = [
        counts[key] / 200_000
        for key in zip(every.op.flatten().tolist(), every.magnitude.flatten().tolist(), strict=True)
    ]
    assert sum(frequency) == pytest.approx(1)
    assert np.abs(frequency - probability).max() < 5 * math.sqrt(0.25 / 200_000)


@pytest.mark.parametrize("n_steps", [0, 1, 2, 3])
def test_the_law_of_a_chain_is_that_of_all_its_proposals_one_by_one(n_steps: int) -> None:
    probability = np.array([0.5, 0.2, 0.3])
    losses = np.array([[1.0, 0.0, 0.5, 2.0], [3.0, 0.2, 0.5, math.inf], [0.1, 0.0, 0.5, 1.0]])
    expected = np.zeros_like(losses)
    for proposals in itertools.product(range(3), repeat=n_steps + 1):
        ends = chain_probabilities(torch.from_numpy(losses[list(proposals)])).numpy()
        for step, proposal in enumerate(proposals):
            expected[proposal] += ends[step] * probability[list(proposals)].prod()
    found = certificate.chain_law(losses, probability, n_steps)
    assert found.sum(0) == pytest.approx(1)
    assert found[:, [0, 2, 3]] == pytest.approx(expected[:, [0, 2, 3]])
    # which of two transformations without a loss a chain ends on depends on ties, what it loses there does not
    assert found[1, 1] == pytest.approx(expected[1, 1])


def test_a_long_chain_ends_on_lambda_c() -> None:
    generator = np.random.default_rng(0)
    losses, probability = generator.exponential(1.0, (30, 5)), generator.dirichlet(np.ones(30))
    long = certificate.chain_law(losses, probability, 500)
    assert long == pytest.approx(certificate.lambda_c(losses, probability), abs=1e-9)


def test_lambda_c_is_uniform_where_no_loss_is_and_infinite_where_one_is() -> None:
    losses = np.array([[0.0, 1.0, 2.0], [0.0, math.inf, 0.0]])
    probability = np.array([0.75, 0.25])
    law = certificate.lambda_c(losses, probability)
    assert law.tolist() == [[0.75, 0.0, 1.0], [0.25, 1.0, 0.0]]
    assert certificate.expected(law, losses).tolist() == [0.0, math.inf, 2.0]


@pytest.mark.parametrize(
    ("ends", "epsilon", "said"),
    [
        ([0.1, 0.5], 0.5, "met"), ([0.5, 0.9], 0.5, "not shown"), ([0.6, 0.9], 0.5, "violated"),
        ([0.1, None], 0.5, "not shown"), ([0.6, None], 0.5, "violated"), ([0.1, 0.5], None, None),
    ],
)  # fmt: skip
def test_a_verdict_needs_the_whole_interval_on_one_side(ends: Any, epsilon: float | None, said: str | None) -> None:
    assert certificate.verdict(ends, epsilon) == said


def test_shifts_out_of_the_image_leave_nothing_to_see(exact: dict[str, Any]) -> None:
    assert exact["blinding"] == {"count": 2, "names": ["TranslateX +20", "TranslateX -20"]}
    assert exact["seeing"]["right"] >= exact["all"]["right"]
    every, _ = certificate.members(sets.wide())
    assert certificate.blinding(sets.wide(), every, (3, 64, 64)).sum() == 0
    assert certificate.blinding(sets.wide(), every, (1, 1, 1)).sum() == 0


def test_a_set_that_destroys_every_image_is_told_so(predictor: Predictor, sample: Sample, tmp_path: Path) -> None:
    away = TransformSet((Op("TranslateX", ops.translate_x, 20, 30, signed=True, whole=True),), n_levels=3)
    every, probability = certificate.members(away)
    matrix = filled(Exhaustive(every, 18), predictor, sample, away, Cache(tmp_path, {"weights": "a"}))
    found = certificate.exact(matrix, every, probability, question(away, sample.targets))
    assert found["blinding"]["count"] == len(every) == 6
    assert found["seeing"] is None
    assert "without them nothing is left" in " ".join(sentences(found, {"epsilon": 0.8, "cap": 10.0}))


def test_losses_that_are_no_numbers_count_as_infinite_and_wrong(sample: Sample) -> None:
    class Broken(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.where(torch.arange(len(x)).view(-1, 1) % 2 == 0, torch.nan, torch.zeros(len(x), 3))

    predictor = Predictor(Broken(), Finish(MEAN, STD), CLASSES)
    losses, right = scored.score(predictor, sample, Block(1, np.arange(18), None), SMALL, cross_entropy)
    assert np.isinf(losses[0, ::2]).all()
    assert not right[0, ::2].any()
    assert np.isfinite(losses[0, 1::2]).all()


def test_a_matrix_that_was_interrupted_is_the_uninterrupted_one(
    predictor: Predictor, sample: Sample, tmp_path: Path
) -> None:
    every, _ = certificate.members(SMALL)
    plan = Exhaustive(every, 18)
    whole = filled(plan, predictor, sample, SMALL, Cache(tmp_path / "whole", {"weights": "a"}))
    calls = 0

    def scorer(block: Block) -> Any:
        nonlocal calls
        calls += 1
        return scored.score(predictor, sample, block, SMALL, cross_entropy)

    for stop_after in (1, 2, 3, 10**9):
        cache = Cache(tmp_path / "parts", {"weights": "a"})
        cache.open()
        before = calls
        parts = scored.fill(plan, 18, cache, scorer, stop=lambda b=before, s=stop_after: calls - b >= s)
    assert parts is not None
    assert calls == -(-len(every) // (scored.BATCH["cpu"] // 18)) + 1  # nothing twice
    assert parts.losses.tobytes() == whole.losses.tobytes()
    assert parts.correct.tobytes() == whole.correct.tobytes()


def test_scores_of_something_else_are_not_used_and_that_is_said(
    predictor: Predictor, sample: Sample, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    every, _ = certificate.members(SMALL)
    filled(Exhaustive(every, 18), predictor, sample, SMALL, Cache(tmp_path, {"weights": "a", "set": "s"}))
    other = Cache(tmp_path, {"weights": "b", "set": "s"})
    other.open()
    assert "are of other weights: all are made again" in capsys.readouterr().err
    assert other.read(np.empty((99, 18), np.float32), np.empty((99, 18), np.int8)) == 0


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "swap", "link"])
def test_a_damaged_file_is_made_again(
    predictor: Predictor, sample: Sample, tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(scored, "FLUSH", -1.0)  # a file a block
    every, _ = certificate.members(SMALL)
    plan, key = Exhaustive(every, 18), {"weights": "a"}
    before = filled(plan, predictor, sample, SMALL, Cache(tmp_path / "c", key))
    files = sorted((tmp_path / "c").glob("rows-*"))
    content = files[1].read_bytes()
    middle = len(content) // 2
    changed = {
        "flip": content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :],
        "cut": content[:middle], "empty": b"", "swap": files[0].read_bytes(), "link": b"",
    }[damage]  # fmt: skip
    files[1].unlink()
    if damage == "link":
        files[1].symlink_to(files[0])
    else:
        files[1].write_bytes(changed)
    after = filled(plan, predictor, sample, SMALL, Cache(tmp_path / "c", key))
    assert "is damaged: it is made again" in capsys.readouterr().err
    assert after.losses.tobytes() == before.losses.tobytes()


def biased(shares: np.ndarray) -> Any:
    """Return a scorer of images that are wrong under a known share of the draws: where the place falls."""

    def scorer(block: Block) -> tuple[np.ndarray, np.ndarray]:
        shape = (block.n_rows, len(block.active))
        if block.draw is None:
            return np.zeros(shape, np.float32), np.ones(shape, np.int8)
        wrong = block.draw.place[:, 0, 0].numpy().reshape(shape) < shares[block.active]
        return wrong.astype(np.float32), (~wrong).astype(np.int8)

    return scorer


PLACED = TransformSet((Op("Cutout", ops.cutout, 0, 8, whole=True, placed=True),))


def test_draws_go_on_until_an_image_is_decided_and_no_longer(tmp_path: Path) -> None:
    shares = np.repeat([0.0, 0.01, 0.05, 0.3, 1.0], 40)
    plan, cache = Adaptive(PLACED, 200), Cache(tmp_path, {"weights": "a"})
    cache.open()
    matrix = scored.fill(plan, 200, cache, biased(shares))
    assert matrix is not None
    judged, n_draws = scored.decided(matrix), (matrix.correct[1:] >= 0).sum(0)
    assert (judged[shares == 0] == 1).all()
    assert (judged[shares >= 0.3] == -1).all()
    assert (judged[shares == 0.05] == 0).mean() > 0.8  # on the boundary there is nothing to decide
    assert n_draws[shares == 1].max() == scored.N_FIRST
    assert n_draws[shares == 0].max() < 256 < n_draws[shares == 0.05].min() + 256
    assert n_draws.max() == scored.N_MOST
    stopped = matrix.correct[1:] < 0
    assert (stopped[:-1] <= stopped[1:]).all()  # who has stopped does not come back


def test_the_share_of_nearly_invariant_images_is_covered(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    held = 0
    for i in range(20):
        shares = np.where(generator.random(150) < 0.6, generator.random(150) * 0.02, 0.1 + generator.random(150) * 0.9)
        cache = Cache(tmp_path / str(i), {"weights": "a"})
        cache.open()
        matrix = scored.fill(Adaptive(PLACED, 150, seed=i), 150, cache, biased(shares))
        assert matrix is not None
        asked = question(PLACED, torch.zeros(150, dtype=torch.long))
        low, high = sampled._nearly(scored.decided(matrix), asked)["interval"]
        held += low <= 0.6 <= high
    assert held >= 17


def test_adaptive_draws_interrupted_are_the_uninterrupted_ones(tmp_path: Path) -> None:
    shares = np.linspace(0, 0.2, 30)
    plans = Adaptive(PLACED, 30)
    matrices = []
    for name, limit in (("whole", 10**9), ("parts", 3)):
        matrix, rounds = None, 0
        while matrix is None:
            cache, rounds = Cache(tmp_path / name, {"weights": "a"}), 0
            cache.open()

            def counted(block: Block) -> Any:
                nonlocal rounds
                rounds += 1
                return biased(shares)(block)

            matrix = scored.fill(plans, 30, cache, counted, stop=lambda: rounds >= limit)  # noqa: B023
        matrices.append(matrix)
    assert matrices[0].losses.tobytes() == matrices[1].losses.tobytes()
    assert matrices[0].correct.tobytes() == matrices[1].correct.tobytes()


def test_a_continuous_set_is_measured_on_draws_that_loops_make_as_well(
    predictor: Predictor, sample: Sample, tmp_path: Path
) -> None:
    turns = sets.rotations(1.0)
    plan = Adaptive(turns, 18)
    matrix = filled(plan, predictor, sample, turns, Cache(tmp_path, {"weights": "a"}))
    found = sampled.sampled(matrix, plan.first(), question(turns, sample.targets))
    first = plan.first()
    judged = []
    for k in range(scored.N_FIRST * 18):
        image, target = sample.images[k % 18], int(sample.targets[k % 18])
        judged.append(judge(predictor, turns.apply(image[None], first[k])[0], target))
    assert found["uniform"]["loss"] == pytest.approx(mean(x for x, _ in judged), rel=1e-4)
    assert found["uniform"]["accuracy"] == pytest.approx(mean(r for _, r in judged))
    assert found["lambda_c"]["loss"] >= found["uniform"]["loss"]
    assert found["worst"]["loss"] >= mean(max(judged[i::18])[0] for i in range(18)) * (1 - 1e-4)
    assert found["worst"]["loss_interval"][1] is None
    assert sum(row["draws"] for row in found["levels"]["Rotation"]) == scored.N_FIRST * 18


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_digits(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def runs(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on disk, and one of another seed."""
    folder = tmp_path_factory.mktemp("runs")
    for seed in (0, 1):
        train(data, folder / f"seed-{seed}", model="cnn-small", set="wide", n_levels=3, epochs=1, seed=seed)
    return folder


@pytest.fixture
def run(runs: Path, tmp_path: Path) -> Path:
    return shutil.copytree(runs / "seed-0", tmp_path / "run")


def certified(run: Path, images: int | None = 40, **options: Any) -> None:
    given = {"data": None, "data_dir": None, "confidence": 0.95, "device": "cpu", "as_json": True, **options}
    certify.certify_run(run, images, **given)


def refuse_constants(text: str) -> Any:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_a_certificate_is_printed_kept_and_on_the_page(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    certified(run)
    printed = refuse_constants(capsys.readouterr().out)
    kept = refuse_constants((run / "certificate.json").read_text())
    assert {key: value for key, value in printed.items() if key != "run"} == kept
    assert "run" not in kept  # runs are passed on, and where they lie is nobody's business
    (found,) = kept["constraints"]
    assert found["name"] == "wide"
    assert found["transformations"] == len(sets.wide(3).every())
    assert kept["epsilon"] == read(run)[-1]["epsilon"][0]  # chosen while training
    html = (run / "report.html").read_text()
    assert "How invariant the model is, with confidence" in html
    assert "are right as they are and under all" in html


def test_the_tables_say_the_same(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "150")
    certified(run, as_json=False)
    output = capsys.readouterr()
    assert output.err == ""
    for words in (
        "Clopper and Pearson 1934",
        "Waudby-Smith",
        "R_inv",
        "λ_c",
        "leave nothing to see",
        *sets.wide().names,
    ):
        assert words in output.out


def test_a_second_certificate_scores_nothing(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certified(run)
    first = (run / "certificate.json").read_bytes()
    monkeypatch.setattr(scored, "score", None)
    certified(run)
    assert (run / "certificate.json").read_bytes() == first
    certified(run, confidence=0.5)
    assert (run / "certificate.json").read_bytes() != first


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_interrupted_certificate_says_how_to_go_on_and_ends_as_if_it_had_not_been(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    whole = shutil.copytree(run, tmp_path / "whole")
    certified(whole)
    calls, score = 0, scored.score

    def interrupted(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 3:
            os.kill(os.getpid(), number)
        return score(*arguments)

    monkeypatch.setattr(scored, "score", interrupted)
    with pytest.raises(Stopped, match=rf"stopped by {number.name}; .* go on with: invaug certify .*run --images 40"):
        certified(run)
    assert calls == 3
    assert not (run / "certificate.json").exists()
    certified(run)
    assert (run / "certificate.json").read_bytes() == (whole / "certificate.json").read_bytes()


def test_the_command_exits_with_the_number_of_the_signal(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    score = scored.score

    def interrupted(*arguments: Any) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        return score(*arguments)

    monkeypatch.setattr(scored, "score", interrupted)
    monkeypatch.setattr("sys.argv", ["invaug", "certify", str(run), "--images", "5"])
    with pytest.raises(SystemExit) as exit_:
        main.main()
    assert exit_.value.code == 143


def test_other_weights_make_a_new_certificate_and_that_is_said(
    run: Path, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    certified(run)
    before = (run / "certificate.json").read_bytes()
    capsys.readouterr()
    shutil.rmtree(run / "checkpoints")
    shutil.copytree(runs / "seed-1" / "checkpoints", run / "checkpoints")
    certified(run)
    assert "are of other weights: all are made again" in capsys.readouterr().err
    assert (run / "certificate.json").read_bytes() != before


def test_other_images_make_a_new_certificate_and_that_is_said(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    certified(run)
    certified(run, 30)
    assert "are of other images: all are made again" in capsys.readouterr().err


def test_other_data_leave_the_page_and_the_scores_of_the_run_alone(run: Path, data: Path, tmp_path: Path) -> None:
    certified(run)
    kept = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    certified(run, 20, data=str(shutil.copy(data, tmp_path / "other.npz")))
    assert all(path.read_bytes() == content for path, content in kept.items())


def test_families_have_a_certificate_each(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    families = {"flip": {"FlipX": True}, "turn": {"Rotation": 0.5}, "hole": {"Cutout": 8}}
    train(data, tmp_path / "run", model="cnn-small", epochs=1, families=families)
    capsys.readouterr()
    certified(tmp_path / "run", 20)
    found = refuse_constants(capsys.readouterr().out)["constraints"]
    assert [(entry["name"], entry["kind"]) for entry in found] == [
        ("flip", "exact"),
        ("turn", "sampled"),
        ("hole", "sampled"),
    ]
    html = (tmp_path / "run" / "report.html").read_text()
    assert all(f"certified-{i}" in html for i in (1, 2, 3))


def test_an_epsilon_for_operations_in_a_row_is_not_held_against_each_by_itself(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(data, tmp_path / "run", model="cnn-small", epochs=1, n_levels=2)  # the default: two in a row
    capsys.readouterr()
    certified(tmp_path / "run", 20)
    report = refuse_constants(capsys.readouterr().out)
    assert report["epsilon"] is None
    assert {report["constraints"][0][law]["verdict"] for law in ("uniform", "lambda_c", "worst")} == {None}
    assert any(note.startswith("trained with 2 operations in a row, certified under each") for note in report["notes"])


def test_a_method_without_a_bound_has_no_verdict(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(data, tmp_path / "run", model="cnn-small", epochs=1, method="none", n_levels=2)
    capsys.readouterr()
    certified(tmp_path / "run", 20)
    report = refuse_constants(capsys.readouterr().out)
    assert report["epsilon"] is None
    assert report["constraints"][0]["uniform"]["verdict"] is None
    assert "no bound to hold it to" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"confidence": 1.0}, "confidence must lie strictly between 0 and 1, got 1.0"),
        ({"confidence": 95.0}, "confidence must lie strictly between 0 and 1, got 95.0"),
        ({"confidence": math.nan}, "confidence must lie strictly between 0 and 1, got nan"),
        ({"images": 129}, "--images must be 1 to 128, the held-out images of some-digits, got 129"),
        ({"images": 0}, "--images must be 1 to 128, .* got 0"),
        ({"images": -3}, "--images must be 1 to 128, .* got -3"),
        ({"device": "cpi"}, "unknown device cpi, did you mean cpu"),
        ({"data": "nowhere.npz"}, "nowhere.npz does not exist"),
    ],
)
def test_bad_input_is_one_line(run: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        certified(run, **options)
    assert "\n" not in str(error.value)
    assert not (run / "certificate.json").exists()


def test_a_run_without_a_checkpoint_is_refused(run: Path) -> None:
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(UserError, match="has no checkpoint yet: train it first"):
        certified(run)


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"is not a run: it has no config\.toml"):
        certified(tmp_path)


def test_a_run_of_one_class_is_refused(run: Path) -> None:
    config = run / "config.toml"
    text = config.read_text()
    start, end = text.index("classes = ["), text.index("]", text.index("classes = ["))
    config.write_text(f'{text[:start]}classes = [\n    "cat",\n{text[end:]}')
    with pytest.raises(UserError, match="knows one class, cat: every answer is right"):
        certified(run)


def test_images_of_one_class_alone_are_named(
    run: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with np.load(data) as arrays:
        content = dict(arrays)
    chosen = content["y_test"] == 3
    np.savez(
        tmp_path / "threes.npz", **content | {"x_test": content["x_test"][chosen], "y_test": content["y_test"][chosen]}
    )
    certified(run, None, data=str(tmp_path / "threes.npz"))
    report = refuse_constants(capsys.readouterr().out)
    assert report["images"] == report["of"] == chosen.sum()
    assert report["notes"] == [
        f"only {chosen.sum()} images: the intervals are wide",
        "all images are of class 3: nothing is said of the others",
    ]


def test_one_image_says_next_to_nothing_and_says_so(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    certified(run, 1)
    report = refuse_constants(capsys.readouterr().out)
    assert report["notes"][0] == "only 1 image: the intervals are wide"
    low, high = report["constraints"][0]["all"]["interval"]
    assert high - low > 0.9


def test_two_processes_do_not_certify_one_run(run: Path) -> None:
    from invaug.lab.run.lock import RunLock

    with RunLock(run / "certificate"), pytest.raises(UserError, match="is in use by process"):
        certified(run)


def test_a_certificate_folder_that_is_a_link_is_refused(run: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (run / "certificate").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="is a link, and a run keeps its certificate itself"):
        certified(run)
    assert not list((tmp_path / "elsewhere").iterdir())


def test_images_that_do_not_fit_in_memory_are_refused() -> None:
    split = Split(torch.zeros(1000, dtype=torch.long), None, (Path("x"),) * 1000, (3, 1000, 1000))
    with pytest.raises(UserError, match="1,000 images of 3 x 1000 x 1000 do not fit: --images 500 or fewer do"):
        scored.choose(split, 1000, 0)


HOSTILE = ("<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "[red]\x1b[2J\x07", "=cmd|' /C calc'!A0")


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_a_hostile_name_is_text_on_page_and_terminal(run: Path, name: str) -> None:
    certified(run)
    report = json.loads((run / "certificate.json").read_text())
    (entry,) = report["constraints"]
    entry["name"] = report["data"] = name
    entry["blinding"] = {"count": 1, "names": [name]}
    for key in ("classes", "operations", "levels"):
        entry[key] = {name: next(iter(entry[key].values()))}
    (run / "certificate.json").write_text(json.dumps(report))
    html = page.html(document_of(read_runs([run])))
    assert html.count("<script") == 1
    assert "<img src=x" not in html
    console = Console(width=150)
    with console.capture() as captured:
        tables.show(Path(name), report, console)
    assert "\x07" not in captured.get()
    assert "\x1b[2J" not in captured.get()


@pytest.mark.parametrize("content", [
    "[]", "null", "{", '{"constraints": 3}', '{"constraints": [3, {}, {"kind": "sampled"}]}',
    '{"constraints": [{"kind": "exact", "operations": {"a": {"share": "x"}}, "levels": {"a": [{"level": 1e99}]}}]}',
    '{"epsilon": "x", "constraints": [{"kind": "exact", "operations": {"a": {"share": 0.5, "interval": [1]}},'
    ' "levels": {"a": [{"level": 2, "accuracy": 0.5}]}, "classes": {"c": {"share": 0.5}}, "uniform": {"loss": null}}]}',
])  # fmt: skip
def test_whatever_a_certificate_says_there_is_a_page(run: Path, content: str) -> None:
    (run / "certificate.json").write_text(content)
    assert page.html(document_of(read_runs([run]))).startswith("<!doctype html>")
