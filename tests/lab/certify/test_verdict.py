"""Verdicts on levels, and the number of images that would decide one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from invaug import TransformSet
from invaug.lab.certify import bounds
from invaug.lab.certify.verdict import judge
from tests.support.certificates import SMALL, make_question


def found_with(ends: list[float], verdict: str | None, needed: int | None = None, **changes: Any) -> dict[str, Any]:
    law = {"loss_interval": ends, "verdict": verdict, "accuracy_interval": [0.5, 0.7], "images_needed": needed}
    clean = {"loss_interval": [0.1, 0.2], "accuracy_interval": [0.9, 0.95]}
    return {"kind": "sampled", "draws_per_image": 32, "uniform": law, "trained": law, "clean": clean, **changes}


def judged(found: dict[str, Any], **changes: Any) -> dict[str, Any]:
    deep = TransformSet(SMALL.ops, SMALL.n_levels, depth=2)
    return judge(found, make_question(deep, torch.zeros(100, dtype=torch.long), n_steps=1, **changes))


def text_of(found: dict[str, Any], **changes: Any) -> str:
    return judged(found, **changes)["text"]


def test_a_level_that_holds_is_said_to_hold_with_everything_a_reader_needs() -> None:
    found = judged(found_with([0.4, 0.6], "holds"))
    assert found["answer"] == "holds"
    assert found["text"] == (
        "Holds: the mean loss on held-out images under random sequences of 2 operations (kept by chains of 2 draws, as "
        "in training) is at most 0.600, within the level of the run, ε = 0.8."
    )
    assert found["context"] == [
        "Under a random sequence of 2 operations of its set, 50.0% to 70.0% of such images keep their right class; "
        "unchanged, 90.0% to 95.0% have it.",
        "This is about random draws, not the worst case; 95 % confidence each, from 100 images under 32 draws each.",
    ]


def test_a_level_that_does_not_hold_is_said_not_to() -> None:
    text = text_of(found_with([0.9, 1.1], "does not hold"))
    assert text.startswith("Does not hold: ")
    assert "is at least 0.900, above the level of the run, ε = 0.8." in text
    assert "Unchanged" not in text
    assert "ε = 0.8 (on training images it ended at 0.701)." in text_of(
        found_with([0.9, 1.1], "does not hold"), reached=0.7012
    )


def test_a_model_that_fits_new_images_badly_is_not_blamed_on_the_transformations() -> None:
    clean = {"loss_interval": [0.85, 1.0], "accuracy_interval": [0.5, 0.6]}
    text = text_of(found_with([0.9, 1.1], "does not hold", clean=clean))
    assert "Unchanged they are at 0.850 or more already: it fits its training images better than new ones." in text


def test_an_open_verdict_says_how_many_images_would_do_and_whether_there_are_so_many() -> None:
    found = found_with([0.65, 0.85], "cannot tell", 800)
    text = text_of(found, available=1000)
    assert text.startswith("Cannot tell: ")
    assert "is between 0.650 and 0.850, on either side of the level of the run, ε = 0.8." in text
    assert "About 800 images would do: --images 800." in text
    assert "About 800 images would do, and 500 are held out: give more with --data." in text_of(found, available=500)
    assert "Hardly any number of images would do" in text_of(found_with([0.7, 0.9], "cannot tell"))


def test_a_run_without_a_level_is_told_so() -> None:
    assert text_of(found_with([0.4, 0.6], None), epsilon=None).startswith("No level to hold")


@pytest.mark.parametrize("level", [0.26, 0.18])
def test_the_number_of_images_that_would_do_mostly_does(level: float) -> None:
    """Losses are exponential with a mean of 0.22: the level is above or below it by 0.04."""
    generator = np.random.default_rng(1)
    few = generator.exponential(0.22, 200)
    needed = bounds.n_to_decide(few * 0.22 / few.mean(), level, 0.95, 10.0)
    assert needed is not None
    assert 400 <= needed < 5000
    enough = np.minimum(generator.exponential(0.22, (needed, 200)), 10.0)
    low, high = bounds.mean_interval(enough, 0.95, 10.0)
    assert (high <= level if level > 0.22 else low > level).mean() > 0.7
    low, high = bounds.mean_interval(enough[: needed // 8], 0.95, 10.0)
    assert (high <= level if level > 0.22 else low > level).mean() < 0.5  # and far fewer do not


def test_no_number_is_given_for_a_mean_at_its_level() -> None:
    assert bounds.n_to_decide(np.full(20, 0.5), 0.5, 0.95, 1.0) is None
