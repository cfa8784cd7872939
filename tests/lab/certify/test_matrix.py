"""Scored matrices: known answers, and interruptions that leave no trace."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from invaug.lab.certify import certificate
from invaug.lab.certify import matrix as scored
from invaug.lab.certify.matrix import Adaptive, Block, Exhaustive
from invaug.lab.data.batches import Batch
from invaug.lab.data.splits import Split
from invaug.lab.errors import UserError
from invaug.lab.run import checkpoint
from invaug.lab.run.folder import Predictor
from invaug.lab.train.finish import Finish
from tests.support.certificates import (
    CLASSES,
    MEAN,
    PLACED,
    SMALL,
    STD,
    InterruptError,
    biased,
    cross_entropy,
    fill,
    interrupt_after,
)


def test_losses_that_are_no_numbers_count_as_infinite_and_wrong(sample: Batch) -> None:
    class Broken(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.where(torch.arange(len(x)).view(-1, 1) % 2 == 0, torch.nan, torch.zeros(len(x), 3))

    predictor = Predictor(Broken(), Finish(MEAN, STD), CLASSES)
    losses, right = scored.score_block(predictor, sample, SMALL, cross_entropy, Block(1, np.arange(18), None))
    assert np.isinf(losses[0, ::2]).all()
    assert not right[0, ::2].any()
    assert np.isfinite(losses[0, 1::2]).all()


def test_a_matrix_that_was_interrupted_is_the_uninterrupted_one(
    predictor: Predictor, sample: Batch, tmp_path: Path
) -> None:
    every, _ = certificate.list_transformations(SMALL)
    plan = Exhaustive(every, 18)
    whole = fill(plan, predictor, sample, SMALL, tmp_path / "whole")
    calls = 0

    def scorer(block: Block) -> Any:
        nonlocal calls
        calls += 1
        return scored.score_block(predictor, sample, SMALL, cross_entropy, block)

    for n_blocks in (1, 2, 3, 10**9):
        with suppress(InterruptError):
            parts = scored.fill_matrix(plan, tmp_path / "parts", {}, scorer, check_stop=interrupt_after(n_blocks))
    assert calls == -(-len(every) // (scored.BATCH["cpu"] // 18)) + 1  # nothing twice
    assert parts.losses.tobytes() == whole.losses.tobytes()
    assert parts.correct.tobytes() == whole.correct.tobytes()


def test_rows_scored_before_an_error_are_kept(predictor: Predictor, sample: Batch, tmp_path: Path) -> None:
    every, _ = certificate.list_transformations(SMALL)

    def scorer(block: Block) -> Any:
        if block.draw is not None:
            raise ZeroDivisionError
        return scored.score_block(predictor, sample, SMALL, cross_entropy, block)

    with pytest.raises(ZeroDivisionError):
        scored.fill_matrix(Exhaustive(every, 18), tmp_path, {}, scorer)
    saved = checkpoint.load(tmp_path)
    assert saved is not None
    assert saved.step == len(saved.state["losses"]) == 1


def test_draws_go_on_until_an_image_is_decided_and_no_longer(tmp_path: Path) -> None:
    shares = np.repeat([0.0, 0.01, 0.05, 0.3, 1.0], 40)
    matrix = scored.fill_matrix(Adaptive(PLACED, 200), tmp_path, {}, biased(shares))
    judged, n_draws = scored.decide_images(matrix), (matrix.correct[1:] >= 0).sum(0)
    assert (judged[shares == 0] == 1).all()
    assert (judged[shares >= 0.3] == -1).all()
    assert (judged[shares == 0.05] == 0).mean() > 0.8  # on the boundary there is nothing to decide
    assert n_draws[shares == 1].max() == scored.N_FIRST
    assert n_draws[shares == 0].max() < 256 < n_draws[shares == 0.05].min() + 256
    assert n_draws.max() == scored.N_MOST
    stopped = matrix.correct[1:] < 0
    assert (stopped[:-1] <= stopped[1:]).all()  # who has stopped does not come back


def test_adaptive_draws_interrupted_are_the_uninterrupted_ones(tmp_path: Path) -> None:
    shares = np.linspace(0, 0.2, 30)
    plan = Adaptive(PLACED, 30)
    matrices = []
    for name, n_blocks in (("whole", 10**9), ("parts", 3)):
        matrix = None
        while matrix is None:
            with suppress(InterruptError):
                matrix = scored.fill_matrix(
                    plan, tmp_path / name, {}, biased(shares), check_stop=interrupt_after(n_blocks)
                )
        matrices.append(matrix)
    assert matrices[0].losses.tobytes() == matrices[1].losses.tobytes()
    assert matrices[0].correct.tobytes() == matrices[1].correct.tobytes()


def test_scores_of_something_else_are_not_used_and_that_is_said(
    predictor: Predictor, sample: Batch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    every, _ = certificate.list_transformations(SMALL)
    plan = Exhaustive(every, 18)
    before = fill(plan, predictor, sample, SMALL, tmp_path, weights="a", set="s")
    with pytest.raises(InterruptError):
        scored.fill_matrix(plan, tmp_path, {"weights": "b", "set": "s"}, biased, check_stop=interrupt_after(0))
    assert "belong to other weights: scoring again from the start" in capsys.readouterr().err
    after = fill(plan, predictor, sample, SMALL, tmp_path, weights="b", set="s")
    assert after.losses.tobytes() == before.losses.tobytes()


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "swap", "link"])
@pytest.mark.parametrize("both", [False, True], ids=["last", "both"])
def test_damaged_scores_are_made_again(
    predictor: Predictor,
    sample: Batch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    damage: str,
    both: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scored, "FLUSH", -1.0)  # a checkpoint a block
    every, _ = certificate.list_transformations(SMALL)
    before = fill(Exhaustive(every, 18), predictor, sample, SMALL, tmp_path / "c")
    files = sorted((tmp_path / "c").glob("*.safetensors"))
    contents = [file.read_bytes() for file in files]
    for file, content, other in list(zip(files, contents, contents[::-1], strict=True))[not both :]:
        middle = len(content) // 2
        changed = {
            "flip": content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :],
            "cut": content[:middle],
            "empty": b"",
            "swap": other,
            "link": content,
        }[damage]
        file.unlink()
        (tmp_path / file.name).write_bytes(changed)
        file.symlink_to(tmp_path / file.name) if damage == "link" else shutil.copy(tmp_path / file.name, file)
    after = fill(Exhaustive(every, 18), predictor, sample, SMALL, tmp_path / "c")
    said = capsys.readouterr().err
    assert "was skipped" in said
    assert ("scoring again from the start" in said) == both
    assert after.losses.tobytes() == before.losses.tobytes()


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"losses": 3, "correct": "x"},
        {"losses": torch.zeros(999, 17), "correct": torch.zeros(999, 17, dtype=torch.int8)},
        {"losses": torch.zeros(999, 18), "correct": torch.zeros(999, 18, dtype=torch.int8)},
    ],
    ids=["empty", "no tensors", "another shape", "too many rows"],
)
def test_sealed_scores_that_do_not_fit_are_made_again(
    predictor: Predictor, sample: Batch, tmp_path: Path, capsys: pytest.CaptureFixture[str], state: dict[str, Any]
) -> None:
    checkpoint.save(tmp_path, state, step=999, epoch=0, meta={})
    every, _ = certificate.list_transformations(SMALL)
    matrix = fill(Exhaustive(every, 18), predictor, sample, SMALL, tmp_path)
    assert "belong to other images: scoring again from the start" in capsys.readouterr().err
    assert (matrix.losses > 0).all()


def test_scores_in_a_folder_that_is_a_link_are_refused(predictor: Predictor, sample: Batch, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    every, _ = certificate.list_transformations(SMALL)
    with pytest.raises(UserError, match="is a link"):
        fill(Exhaustive(every, 18), predictor, sample, SMALL, tmp_path / "link")
    assert not list((tmp_path / "elsewhere").iterdir())


def test_images_that_do_not_fit_in_memory_are_refused() -> None:
    split = Split(torch.zeros(1000, dtype=torch.long), None, (Path("x"),) * 1000, (3, 1000, 1000))
    with pytest.raises(
        UserError, match="1,000 images of 3 x 1000 x 1000 do not fit in memory: use --images 500 or fewer"
    ):
        scored.choose_sample(split, 1000, 0)
