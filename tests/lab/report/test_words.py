"""One run in words: its verdict, what its gamma means, its headline numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from invaug import Resilient
from invaug.lab.config import methods
from invaug.lab.report.read import read_run
from invaug.lab.report.sections import words
from tests.support.pages import (
    change_last,
    rows_of,
    with_families,
    write_rows,
    write_ruled_run,
    write_run,
)


@pytest.mark.parametrize(
    ("changes", "start", "end"),
    [
        ({}, "Constraint met: loss on transformed images 0.70 ≤ ε 0.80", "would lower the clean loss by about 0.012."),
        ({"gamma": 0.0}, "Constraint met", "γ = 0: the constraint is inactive."),
        ({"slack": 0.4}, "Constraint violated: loss on transformed images 1.20 > ε 0.80", "γ = 0.12."),
        ({"method": "none"}, "No constraint: plain training.", ""),
        ({"method": "trivial"}, "No constraint: TrivialAugment.", ""),
        (
            {"method": "penalty", "epsilon": 0.0},
            "Loss on transformed images added with a fixed weight (wide set, γ = 0.12)",
            "no ε to stay below.",
        ),
        ({"epochs": 0, "planned": 3}, "Nothing to judge yet", ""),
    ],
    ids=lambda value: str(value)[:20],
)
def test_verdict_is_one_sentence_of_how_the_run_ended(
    tmp_path: Path, changes: dict[str, Any], start: str, end: str
) -> None:
    said = words.verdict(read_run(write_run(tmp_path / "a", epochs=changes.pop("epochs", 12), **changes)))
    assert said.startswith(start)
    assert said.endswith(end)


def test_verdict_says_when_epsilon_is_out_of_reach(run: Path) -> None:
    rows = rows_of(run)
    rows[-1] |= {"out_of_reach": [True], "slack": [0.5]}
    write_rows(run, rows)
    assert "looks out of reach" in words.verdict(read_run(run))


def test_the_verdict_on_several_constraints_names_those_that_are_not_met(tmp_path: Path) -> None:
    run = with_families(write_run(tmp_path / "a", n_constraints=3), "turn", "shift", "light")
    said = words.verdict(read_run(run))
    assert said.startswith(
        "All 3 constraints are met; largest γ: turn, 0.12: raising ε by 0.1 would lower the clean loss"
    )
    change_last(run, slack=[-0.1, 0.2, 0.3], constraint_loss=[0.7, 1.0, 1.1], out_of_reach=[False, False, True])
    assert words.verdict(read_run(run)) == (
        "2 of 3 constraints are violated: shift (loss on transformed images 1.00 > ε 0.80); light (loss on transformed "
        "images 1.10 > ε 0.80, hardly better in 4 epochs, so ε looks out of reach)."
    )
    change_last(run, slack=[-0.1, None, -0.1], gamma=[0.0, 0.5, 0.0])
    assert "2 of 3 constraints are met; no finite slack is recorded for shift" in words.verdict(read_run(run))
    assert words.tiles(read_run(run))[1] == ("constraints met", "2 of 3", "in the last epoch")


def test_accuracy_comes_with_the_interval_of_its_test_images(run: Path) -> None:
    name, value, behind = words.tiles(read_run(run))[0]
    assert (name, value) == ("test accuracy", "90.0%")
    assert behind == "95 % interval 88.0% to 91.7% over 1,000 test images"


@pytest.mark.parametrize(
    ("changes", "meaning"),
    [
        ({}, "raising ε by 0.1 would lower the clean loss by about 0.012"),
        ({"slack": 0.3}, "not settled: the constraint is violated or γ is still changing"),
        ({"method": "penalty"}, "a fixed weight"),
    ],
    ids=["met", "violated", "fixed"],
)
def test_gamma_is_a_derivative_only_once_it_settled(tmp_path: Path, changes: dict[str, Any], meaning: str) -> None:
    run = read_run(write_run(tmp_path / "a", epochs=12, **changes))
    assert words.tiles(run)[1] == ("γ", "0.12", meaning)


def test_words_of_time() -> None:
    assert [words.duration(seconds) for seconds in (0.5, 61, 7200)] == ["0.5 s", "1.02 min", "2 h"]


@pytest.mark.parametrize(
    ("rule", "method", "said"),
    [
        (
            {"alpha": 2.0},
            "constrained",
            "At its end it is 2 × the gap between the loss on the transformations the chain keeps",
        ),
        ({"base": 0.3}, "constrained", "keeps and 0.3, on training images"),
        ({}, "uniform", "the loss on uniformly drawn transformations and the clean loss"),
        ({}, "worst", "the loss on the worst of the proposed transformations and"),
    ],
)
def test_what_gamma_is_follows_the_rule_and_the_method(tmp_path: Path, rule: dict, method: str, said: str) -> None:
    gamma, epsilon = words.meanings([read_run(write_ruled_run(tmp_path / "a", [0.5] * 6, method, **rule))])
    assert gamma.startswith("γ is the weight of transformed images in training")
    assert said in gamma
    assert (
        epsilon == "ε is the loss that is allowed on transformed images. Its rule sets it during training, from the "
        "clean loss and γ."
    )


def test_gamma_at_its_cap_and_at_zero_is_said(tmp_path: Path) -> None:
    rule = Resilient()
    capped = words.verdict(read_run(write_ruled_run(tmp_path / "a", [rule.cap] * 10)))
    assert f"at its cap: a gap of at least {rule.cap / rule.alpha:.1%} of the loss of a guess" in capped
    free = words.verdict(read_run(write_ruled_run(tmp_path / "b", [0.0] * 10)))
    assert free.startswith("γ stayed at zero")
    assert "as good on transformed as on clean images" in free


def test_several_constraints_are_ranked_by_how_fully_they_are_learned(tmp_path: Path) -> None:
    run = write_ruled_run(tmp_path / "a", [0.5] * 6)
    rows = [
        row | {key: row[key] * 3 for key in ("slack", "constraint_loss", "entropy", "acceptance", "kept")}
        for row in rows_of(run)
    ]
    write_rows(run, [row | {"gamma": [0.5, 0.1, 1.2]} for row in rows])
    said = words.verdict(read_run(with_families(run, "turn", "shift", "light")))
    assert said.startswith(
        "Smallest γ: shift, 0.1, the symmetry the network has learned most fully; largest: light, 1.2."
    )


def test_a_family_with_a_level_of_its_own_is_judged_by_it(tmp_path: Path) -> None:
    run = write_ruled_run(tmp_path / "a", [0.5] * 6)
    with (run / "config.toml").open("a") as file:
        file.write("\n[families.turn]\nRotate = 20\nepsilon = 0.8\n")
    assert words.verdict(read_run(run)).startswith("Constraint met: loss on transformed images")


def test_the_method_is_called_invaug_on_pages_and_constrained_in_records(tmp_path: Path) -> None:
    run = write_ruled_run(tmp_path / "a", [0.5] * 6)
    assert read_run(run).settings["method"] == "constrained"
    assert words.headline(read_run(run)) == "invaug: cnn-small on 4,000 images of digits"
    assert methods.label("uniform") == "uniform"
