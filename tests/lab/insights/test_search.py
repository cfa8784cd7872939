"""The search and its words, on trainings whose outcomes are known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from invaug.lab.errors import RunError
from invaug.lab.insights.document import as_json
from invaug.lab.insights.families import explicit_ranges
from invaug.lab.insights.search import InsightsPlan, Search
from invaug.lab.insights.verdicts import Answer
from invaug.lab.insights.words import explain, summary_lines
from invaug.lab.jobs.job import Job

CLEAN = 0.9


class Law:
    """Trainings whose outcomes are known: each family keeps the accuracy up to a part of its range."""

    def __init__(self, limits: dict[str, float], full: dict[str, dict], clean: float, epochs: int) -> None:
        self.limits, self.full, self.clean, self.epochs = limits, full, clean, epochs
        self.names: list[list[str]] = []

    def __call__(self, jobs: list[Job]) -> None:
        self.names.append([job.folder.name for job in jobs])
        for job in jobs:
            numbers = {"held_out_accuracy": self.clean, "held_out_loss": 0.3, "seconds": 1.0}
            outcome: dict[str, Any] = {"model": "law", "new_images": {"count": 500, "majority": 0.1}}
            for family, ranges in job.settings.get("families", {}).items():
                kept = self.keeps(family, ranges)
                numbers[f"gamma.{family}"] = 0.05 if kept else 0.5 + job.seed / 10
                outcome["families"] = {family: {"loss": 0.4, "accuracy": self.clean if kept else 0.3}}
                outcome["curve"] = {"gamma": [[0.2]] * self.epochs}
            job.keep({"numbers": numbers, **outcome})

    def keeps(self, family: str, ranges: dict) -> bool:
        op, pair = next(iter(ranges.items()))
        return (1.0 if pair is True else pair[1] / self.full[family][op][1]) <= self.limits[family]


def answer_of_law(
    folder: Path, limits: dict[str, float], full: dict[str, dict], clean: float = CLEAN, epochs: int = 8, **given: Any
) -> tuple[Law, Answer]:
    law = Law(limits, full, clean, epochs)
    usual = {"idle": [], "seeds": 1, "rounds": 3, "settings": {"val_fraction": 0.2}}
    plan = InsightsPlan("/home/someone/law", full, **{**usual, **given})
    return law, Search(plan, folder, {}, law).answer()


TURN = {"turn": explicit_ranges("turn", {"Rotate": 160})}


def test_the_search_finds_how_far_each_family_is_learned_to_an_eighth(tmp_path):
    given = {"turn": {"Rotate": 160}, "flip": {"FlipX": True}, "move": {"TranslateX": 8}, "shear": {"ShearX": 0.8}}
    full = {name: explicit_ranges(name, ranges) for name, ranges in given.items()}
    law, found = answer_of_law(tmp_path, {"turn": 0.6, "flip": 0.0, "move": 1.0, "shear": 0.05}, full, seeds=2)
    assert law.names == [
        ["none-seed-0", "none-seed-1"]
        + [f"{family}-seed-{seed}" for seed in (0, 1) for family in ("00-turn", "01-flip", "02-move", "03-shear")],
        ["00-turn-0.5-seed-0", "03-shear-0.5-seed-0"],
        ["00-turn-0.75-seed-0", "03-shear-0.25-seed-0"],
        ["00-turn-0.625-seed-0", "03-shear-0.125-seed-0"],
    ]
    factors = {finding.name: finding.factor for finding in found.families}
    assert factors == {"turn": 0.5, "flip": 0.0, "move": 0.0, "shear": 0.0}
    assert found.suggested == {"TranslateX": (0.0, 8.0), "Rotate": (0.0, 80.0)}


def test_every_training_but_one_per_seed_asks_for_one_family_alone(tmp_path):
    jobs: list[Job] = []

    class Seen(Law):
        def __call__(self, given: list[Job]) -> None:
            jobs.extend(given)
            super().__call__(given)

    plan = InsightsPlan("law", {**TURN, "flip": {"FlipX": True}}, [], 2, 0, {"val_fraction": 0.2})
    Search(plan, tmp_path, {}, Seen({"turn": 1, "flip": 1}, plan.families, CLEAN, 8)).answer()
    assert [list(job.settings.get("families", {})) for job in jobs] == [[], [], ["turn"], ["flip"], ["turn"], ["flip"]]
    assert [job.settings.get("method") for job in jobs[:2]] == ["none", "none"]


def test_numbers_are_means_over_seeds_with_students_interval(tmp_path):
    (turn,) = answer_of_law(tmp_path, {"turn": 0.0}, TURN, seeds=3, rounds=0)[1].families
    assert turn.gammas == pytest.approx([0.5, 0.6, 0.7])
    assert turn.gamma.half == pytest.approx(4.302653 * 0.1 / np.sqrt(3), rel=1e-4)
    assert turn.gap.mean == pytest.approx(CLEAN - 0.3)
    assert turn.cost.interval == (0.0, 0.0)


def test_words_agree_with_the_numbers(tmp_path):
    _, found = answer_of_law(tmp_path, {"turn": 0.3}, TURN, idle=["colour"])
    said = list(summary_lines(found))
    assert said[0] == "law: law, 1 seed, 500 held-out images, 90.0% right without any family (a guess: 10.0%)"
    assert said[1] == "one seed: there are no intervals over seeds (--seeds 3 gives them)"
    assert any(line.split()[:6] == ["turn", "+60.0", "+0.0", "0.50", "not", "learned"] for line in said)
    assert any("held-out accuracy 90 %, under Rotate ±160° 30 %; trained without it 90 %" in line for line in said)
    assert any("it is learned up to Rotate ±40°." in line for line in said)
    assert any("colour" in line and "changes none of the images" in line for line in said)


@pytest.mark.parametrize(("given", "why"), [({"clean": 0.12}, "near chance"), ({"epochs": 1}, "gamma has not settled")])
def test_what_is_undecided_is_said_everywhere_and_never_suggested(tmp_path, given, why):
    law, found = answer_of_law(tmp_path, {"turn": 1.0}, TURN, seeds=3, **given)
    (turn,) = found.families
    assert len(law.names) == 1, "no range of an undecided family is searched"
    assert explain(turn).startswith(f"turn is undecided, {why}: train longer (")
    said = "\n".join(summary_lines(found))
    assert "undecided: train longer" in said
    assert "No family has a verdict yet: nothing to suggest." in said
    document = json.loads(json.dumps(as_json(found)))
    (row,) = document["families"]
    assert (row["verdict"], row["why"], row["verdict_in_words"]) == ("undecided", why, "undecided: train longer")
    assert (document["suggested"], document["toml"], document["code"]) == ({}, "", "")


def test_the_document_names_no_folder_of_this_machine(tmp_path):
    _, found = answer_of_law(tmp_path, {"turn": 1.0}, TURN)
    assert "/home" not in json.dumps(as_json(found))


def test_a_training_that_failed_ends_the_search_with_its_reason(tmp_path):
    plan = InsightsPlan("law", TURN, [], 1, 0, {})
    with pytest.raises(RunError, match="none-seed-0 failed: the loss is nan"):
        Search(plan, tmp_path, {}, lambda jobs: [job.fail("the loss is nan") for job in jobs]).answer()
