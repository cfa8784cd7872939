"""Where gamma went, judged from numbers made by hand, and said on the page."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import entropy as scipy_entropy

from invaug import Resilient
from invaug.lab.config import methods
from invaug.lab.errors import UserError
from invaug.lab.report import page
from invaug.lab.report.read import read_run, read_runs
from invaug.lab.report.sections import words
from invaug.lab.report.sections.course import course_of
from invaug.lab.report.sections.kept import against_uniform
from invaug.lab.train.tally import entropy, entropy_of_uniform
from tests.support.pages import change_last, rows_of, with_families, write_rows, write_run

APPROACH = [1 - math.exp(-i / 3) for i in range(1, 31)]


@pytest.mark.parametrize(
    ("values", "shape"),
    [
        ([0.0] * 20, "zero"),
        ([0.002] * 20, "zero"),
        ([0.3, 0.4], "short"),
        (APPROACH, "settled"),
        ([1.0 + 0.02 * (-1) ** i for i in range(30)], "settled"),
        ([0.1 * i for i in range(1, 31)], "rising"),
        ([0.0] * 15 + [0.05 * i for i in range(15)], "rising"),
        ([*APPROACH[:10], *(1 - 0.02 * i for i in range(20))], "turned"),
        ([*APPROACH[:10], *[0.0] * 20], "turned"),
        ([1.0, 0.9, 0.5, 0.3, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2], "turned"),
    ],
)
def test_the_course_is_judged_by_the_last_fifths_and_the_highest(values: list[float], shape: str) -> None:
    assert course_of(values).shape == shape


def test_the_course_names_its_epochs_and_ends() -> None:
    found = course_of([0.0, 0.5, 1.5, 1.0, 0.5, 0.4, 0.4, 0.4, 0.4, 0.4])
    assert (found.left_zero_at, found.highest, found.highest_at, found.last) == (2, 1.5, 3, 0.4)
    assert found.words == "left zero in epoch 2, reached 1.5 in epoch 3 and turned down to 0.4"
    assert course_of([]) is None


def ruled(folder: Path, gammas: list[float], method: str = "constrained", **rule: object) -> Path:
    """Write a run whose level the resilient rule set and whose gamma went like this."""
    write_run(folder, epochs=len(gammas), method=method, epsilon=None)
    with (folder / "config.toml").open("a") as file:
        table = {"rule": "resilient", **rule}
        file.write("\n[method.epsilon]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items()))
    rows = [
        row | {"gamma": [gamma], "entropy_uniform": [[1.25, 1.31]]}
        for row, gamma in zip(rows_of(folder), gammas, strict=True)
    ]
    write_rows(folder, rows)
    return folder


def readings(run: Path) -> dict[str, str]:
    return {figure.key: figure.reading for figure in page.content(read_runs([run])).figures}


def test_the_page_says_what_gamma_is_under_the_rule_and_where_it_went(tmp_path: Path) -> None:
    run = ruled(tmp_path / "a", [0.5, 1.0, 1.4, 1.2, 1.0, 0.8, 0.7, 0.7, 0.7, 0.7], alpha=7.0, base="clean", cap=3.0)
    what = (
        "γ is 7 × the gap between the loss on the transformations the chain keeps and the clean loss, on training "
        "images, as a share of the loss of a guess: the invariance gap that is left."
    )
    went = "γ left zero in epoch 1, reached 1.4 in epoch 3 and turned down to 0.7"
    assert readings(run)["gamma"] == f"{went}. {what}"
    assert words.verdict(read_run(run)) == f"{went}, a gap of 10.0% of the loss of a guess. {what}"
    assert words.tiles(read_run(run))[1] == ("γ", "0.7", "a gap of 10.0% of the loss of a guess")
    assert "price" not in page.html(page.content(read_runs([run])))


@pytest.mark.parametrize(
    ("rule", "method", "said"),
    [
        ({"alpha": 2.0}, "constrained", "γ is 2 × the gap between the loss on the transformations the chain keeps"),
        ({"base": 0.3}, "constrained", "keeps and 0.3, on training images"),
        ({}, "uniform", "the loss on uniformly drawn transformations and the clean loss"),
        ({}, "worst", "the loss on the worst of the proposed transformations and"),
    ],
)
def test_what_gamma_is_follows_the_rule_and_the_method(tmp_path: Path, rule: dict, method: str, said: str) -> None:
    assert said in words.verdict(read_run(ruled(tmp_path / "a", [0.5] * 6, method, **rule)))


def test_gamma_at_its_cap_and_at_zero_is_said(tmp_path: Path) -> None:
    rule = Resilient()
    capped = words.verdict(read_run(ruled(tmp_path / "a", [rule.cap] * 10)))
    assert f"at its cap: a gap of at least {rule.cap / rule.alpha:.1%} of the loss of a guess" in capped
    free = words.verdict(read_run(ruled(tmp_path / "b", [0.0] * 10)))
    assert free.startswith("γ stayed at zero")
    assert "as good on transformed images as on clean ones" in free


def test_entropy_is_read_against_as_many_uniform_draws(tmp_path: Path) -> None:
    run = ruled(tmp_path / "a", [0.5] * 6)
    assert "1.2000 is below the 95 % range of as many uniform draws (1.2500 to 1.3100)" in readings(run)["entropy"]
    change_last(run, entropy=[1.3])
    assert "cannot be told from uniform draws" in readings(run)["entropy"]
    (figure,) = [figure for figure in page.content(read_runs([run])).figures if figure.key == "entropy"]
    assert [series.label for series in figure.drawing.series][1:] == ["uniform draws, 2.5 %", "uniform draws, 97.5 %"]


def test_several_constraints_are_ranked_by_how_fully_they_are_learned(tmp_path: Path) -> None:
    run = ruled(tmp_path / "a", [0.5] * 6)
    rows = [row | {key: row[key] * 3 for key in ("slack", "constraint_loss", "entropy", "acceptance", "kept")}
            for row in rows_of(run)]  # fmt: skip
    write_rows(run, [row | {"gamma": [0.5, 0.1, 1.2]} for row in rows])
    said = words.verdict(read_run(with_families(run, "turn", "shift", "light")))
    assert said.startswith(
        "Smallest γ: shift, 0.1, the symmetry the network has learned most fully; largest: light, 1.2."
    )
    assert "the invariance gap that is left" in said


def test_a_family_with_a_level_of_its_own_is_judged_by_it(tmp_path: Path) -> None:
    run = ruled(tmp_path / "a", [0.5] * 6)
    with (run / "config.toml").open("a") as file:
        file.write("\n[families.turn]\nRotate = 20\nepsilon = 0.8\n")
    assert words.verdict(read_run(run)).startswith("Feasible: loss on transformed images")


def test_operations_that_stand_out_are_named_and_chance_is_not() -> None:
    even = dict.fromkeys("abcd", (1000,))
    assert against_uniform(even).startswith("Each of 4 operations was kept about as often as uniform draws")
    said = against_uniform(even | {"a": (1500,), "d": (600,)})
    assert said.startswith(
        "Last epoch. Kept more often than uniform draws: a (+46%); less often than uniform draws: d (-"
    )
    rng = np.random.default_rng(1)
    draws = [{str(i): (int(n),) for i, n in enumerate(rng.multinomial(3000, [1 / 14] * 14))} for _ in range(200)]
    assert sum("more often" in (text := against_uniform(each)) or "less often" in text for each in draws) < 20


def test_the_entropy_is_scipys_and_its_range_is_that_of_uniform_draws() -> None:
    counts = torch.tensor([[3, 5], [0, 0], [7, 1]])
    assert entropy(counts) == pytest.approx(scipy_entropy([8, 0, 8]))
    assert entropy(torch.zeros(3, 2)) == 0
    low, high = entropy_of_uniform(14, 2000)
    assert entropy_of_uniform(14, 2000) == [low, high]  # a fixed seed
    rng = np.random.default_rng(7)
    found = [scipy_entropy(rng.multinomial(2000, [1 / 14] * 14)) for _ in range(1000)]
    inside = np.mean([low <= each <= high for each in found])
    assert 0.9 < inside < 0.98
    assert high < math.log(14)
    assert entropy_of_uniform(14, 0) == [0.0, 0.0]


@pytest.mark.parametrize("read", [read_run, lambda folder: read_runs([folder])])
def test_a_run_of_an_older_version_is_refused_in_one_line(tmp_path: Path, read) -> None:
    run = write_run(tmp_path / "old")
    config = run / "config.toml"
    config.write_text(f"price = 3.0\n{config.read_text()}")
    with pytest.raises(UserError, match=r"old is a run of an older version: price was removed: use epsilon = "):
        read(run)


def test_the_method_is_called_invaug_on_pages_and_constrained_in_records(tmp_path: Path) -> None:
    run = ruled(tmp_path / "a", [0.5] * 6)
    assert read_run(run).settings["method"] == "constrained"
    assert words.headline(read_run(run)) == "invaug: cnn-small on 4,000 images of digits"
    assert methods.label("uniform") == "uniform"
