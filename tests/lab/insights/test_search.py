"""The search and its words, on trainings whose gammas are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from invaug.lab.errors import RunError
from invaug.lab.insights.families import explicit_ranges
from invaug.lab.insights.search import InsightsPlan, answer_by
from invaug.lab.insights.thresholds import MOSTLY
from invaug.lab.insights.verdicts import Answer, summary_lines
from invaug.lab.jobs.job import Job


class Law:
    """Trainings whose gammas are known: each family is learned up to a part of its range."""

    def __init__(self, limits: dict[str, float], full: dict[str, dict]) -> None:
        self.limits, self.full, self.names = limits, full, []

    def __call__(self, jobs: list[Job]) -> None:
        for job in jobs:
            self.names.append(job.folder.name)
            families = job.settings["families"]
            gammas = {f"gamma.{family}": self.gamma(family, ranges, job.seed) for family, ranges in families.items()}
            numbers = {**gammas, "held_out_accuracy": 0.9, "seconds": 1.0}
            under = {family: {"loss": 0.5, "accuracy": 0.9} for family in families}
            job.keep({"numbers": numbers, "families": under, "model": "law"})

    def gamma(self, family: str, ranges: dict, seed: int) -> float:
        op, pair = next(iter(ranges.items()))
        part = 1.0 if pair is True else pair[1] / self.full[family][op][1]
        return 0.05 if part <= self.limits[family] else 2.0 + seed


def answer_of_law(folder: Path, limits: dict[str, float], full: dict[str, dict], **given: Any) -> tuple[Law, Answer]:
    law = Law(limits, full)
    usual = {"idle": [], "seeds": 1, "rounds": 3, "settings": {}}
    plan = InsightsPlan("law", full, **{**usual, **given})
    return law, answer_by(plan, folder, {}, law)


def test_the_search_finds_how_far_each_family_is_learned_to_an_eighth(tmp_path):
    given = {"turn": {"Rotate": 160}, "flip": {"FlipX": True}, "move": {"TranslateX": 8}, "shear": {"ShearX": 0.8}}
    full = {name: explicit_ranges(name, ranges) for name, ranges in given.items()}
    law, found = answer_of_law(tmp_path, {"turn": 0.6, "flip": 0.0, "move": 1.0, "shear": 0.05}, full, seeds=2)
    assert law.names == ["seed-0", "seed-1", "round-1", "round-2", "round-3"]
    factors = {finding.name: finding.factor for finding in found.families}
    assert factors == {"turn": 0.5, "flip": 0.0, "move": 1.0, "shear": 0.0}
    assert found.suggested == {"TranslateX": (0.0, 8.0), "Rotate": (0.0, 80.0)}


def test_gamma_is_the_mean_over_seeds_with_students_interval(tmp_path):
    full = {"turn": explicit_ranges("turn", {"Rotate": 160})}
    (turn,) = answer_of_law(tmp_path, {"turn": 0.0}, full, seeds=3, rounds=0)[1].families
    assert turn.gammas == [2.0, 3.0, 4.0]
    assert turn.gamma.mean == 3.0
    assert turn.gamma.half == pytest.approx(4.302653 / np.sqrt(3), rel=1e-4)


def test_words_agree_with_the_numbers(tmp_path):
    full = {"turn": explicit_ranges("turn", {"Rotate": 160})}
    _, found = answer_of_law(tmp_path, {"turn": 0.3}, full, idle=["colour"])
    said = list(summary_lines(found))
    assert said[0] == "law: law, 1 seed, 90.0% of held-out images classified correctly"
    assert any(line.split()[:4] == ["turn", "2.00", "not", "learned"] for line in said)
    assert any("it is learned up to Rotate ±40°." in line for line in said)
    assert any("colour" in line and "changes none of the images" in line for line in said)
    assert found.families[0].gamma.mean > MOSTLY


def test_a_training_that_failed_ends_the_search_with_its_reason(tmp_path):
    full = {"turn": explicit_ranges("turn", {"Rotate": 160})}
    plan = InsightsPlan("law", full, [], 1, 0, {})
    with pytest.raises(RunError, match="seed-0 failed: the loss is nan"):
        answer_by(plan, tmp_path, {}, lambda jobs: [job.fail("the loss is nan") for job in jobs])
