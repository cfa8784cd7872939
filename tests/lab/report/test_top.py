"""The top of a page: which method is best and by how much, where the model is weak, what to do next."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from invaug.lab.evaluate.weak import is_weak
from invaug.lab.report.assemble import document_of
from invaug.lab.report.document import Answer, Document
from invaug.lab.report.read import read_runs
from tests.support.pages import html_of, rows_of, write_rows, write_ruled_run, write_run

SETTLED = [0.5, 0.9, 1.0, 1.0, 1.0, 1.0, 1.0]
PIXEL = "data:image/png;base64,AAAA"


def top(*folders: Path) -> Document:
    return document_of(read_runs(folders))


def answers(*folders: Path) -> dict[str, Answer]:
    return {answer.name: answer for answer in top(*folders).answers}


def with_evaluation(run: Path, **changes: Any) -> Path:
    levels = {"Identity": 0.95, "Rotate": 0.55, "ShearX": 0.94}
    evaluation = {
        "set": "mild",
        "images": 1000,
        "level_images": 128,
        "clean": {"accuracy": 0.9},
        "transformed": {"uniform": {"accuracy": 0.8}},
        "levels": {
            name: [{"level": 0, "accuracy": 0.95}, {"level": 1, "accuracy": low}] for name, low in levels.items()
        },
        "classes": {"cat": {"accuracy": 0.6, "images": 100}, "dog": {"accuracy": 0.93, "images": 900}},
        "hardest": [{"class": "cat", "seen": "dog", "op": "Rotate", "original": PIXEL, "image": PIXEL, "loss": 2.0}],
    }
    (run / "evaluation.json").write_text(json.dumps(evaluation | changes))
    return run


def held_out(run: Path, fold: int) -> Path:
    """Make of a run one that read no test image, as those of tune."""
    rows = [{key.replace("test_", "val_"): value for key, value in row.items()} for row in rows_of(run)]
    write_rows(run, rows)
    config = (run / "config.toml").read_text().replace("test = 1000", "val = 1000")
    (run / "config.toml").write_text(config.replace("[data]", f"[data]\nval_fold = {fold}"))
    return run


def test_one_run_says_what_it_reaches_and_that_there_is_nothing_to_compare_it_with(run: Path) -> None:
    assert top(run).verdict == (
        "invaug classifies 90.0% of 1,000 test images correctly (95 % interval 88.0% to 91.7%). There is no other "
        "method here to compare it with."
    )


def test_the_winner_is_named_only_when_every_interval_is_above_zero(tmp_path: Path) -> None:
    better = {0: 0.05, 1: 0.06, 2: 0.055}
    runs = [write_run(tmp_path / f"t{seed}", method="trivial", seed=seed) for seed in better]
    runs += [write_run(tmp_path / f"i{seed}", seed=seed, accuracy=0.9 + gain) for seed, gain in better.items()]
    assert top(*runs).verdict == (
        "invaug is the best of 2. invaug classifies 95.5 ± 1.2 % of the test images correctly (95 % interval over 3 "
        "seeds). It is ahead of TrivialAugment (+5.5 points, +4.3 to +6.7). In brackets: the difference and its 95 % "
        "interval, paired over 3 seeds."
    )
    runs += [write_run(tmp_path / f"n{seed}", method="none", seed=seed, accuracy=0.95) for seed in better]
    said = top(*runs).verdict
    assert said.startswith("No clear winner. invaug classifies")
    assert "It is level with plain training (+0.5 points, -0.7 to +1.7) and ahead of TrivialAugment (+5.5" in said


def test_differences_that_are_equal_at_every_seed_have_no_interval(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / f"n{seed}", method="none", seed=seed) for seed in range(2)]
    runs += [write_run(tmp_path / f"i{seed}", seed=seed, accuracy=0.91) for seed in range(2)]
    assert "No clear winner" in top(*runs).verdict
    assert "level with plain training (+1.0 points, no interval)" in top(*runs).verdict


@pytest.mark.parametrize(("accuracy", "said"), [(0.91, "level with"), (0.94, "ahead of")])
def test_single_runs_are_compared_over_their_test_images(tmp_path: Path, accuracy: float, said: str) -> None:
    runs = [write_run(tmp_path / "a", method="none"), write_run(tmp_path / "b", accuracy=accuracy)]
    verdict = top(*runs).verdict
    assert f"It is {said} plain training" in verdict
    assert verdict.endswith("over the test images of one run each.")


def test_folds_and_held_out_images_are_called_that_everywhere(tmp_path: Path) -> None:
    runs = [
        held_out(write_run(tmp_path / f"{eps}-{fold}", epsilon=eps, accuracy=0.8 + eps / 10 + fold / 50), fold)
        for eps in (0.5, 1.0)
        for fold in range(3)
    ]
    text = html_of(*runs)
    assert "paired over 3 folds" in text
    assert "held-out accuracy" in text
    for never in ("test accuracy", "test error", "Test error", "over seeds", "by seed", " seeds", "baseline"):
        assert never not in text
    (shown,) = [table for table in top(*runs).tables if table.key == "runs"]
    assert [row[3] for row in shown.rows] == ["0", "1", "2"] * 2


def test_weak_transformations_and_classes_are_named_with_pictures(run: Path) -> None:
    found = answers(with_evaluation(run))
    assert found["Under transformations"].text == (
        "Under random transformations of the mild set 80.0% of the test images are right, 90.0% unchanged. Weakest at "
        "the worst level of Rotate (55.0%); of the same images unchanged 95.0% are right."
    )
    ((before, after),) = found["Under transformations"].strips
    assert (before.source, after.caption) == (PIXEL, "Rotate, loss 2.00, seen as dog")
    assert found["By class"].text == "Weaker than the others: cat (60.0% of 100 images); 89.7% over all classes."


def test_what_chance_explains_is_not_called_weak(run: Path) -> None:
    levels = {"Identity": [{"level": 0, "accuracy": 0.95}], "Rotate": [{"level": 9, "accuracy": 0.92}]}
    classes = {"cat": {"accuracy": 0.87, "images": 100}, "dog": {"accuracy": 0.93, "images": 900}}
    found = answers(with_evaluation(run, levels=levels, classes=classes))
    assert (
        "No operation alone lowers the accuracy by more than chance explains: the lowest is Rotate"
        in found["Under transformations"].text
    )
    assert found["By class"].text.startswith(
        "None is weaker than the others by more than chance explains; the lowest: cat"
    )


def test_without_an_evaluation_the_page_says_which_command_measures_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path / "runs" / "b a")
    monkeypatch.chdir(tmp_path)
    assert answers(Path("runs/b a"))["Weak spots"].command == "invaug evaluate 'runs/b a' && invaug report 'runs/b a'"
    write_run(tmp_path / "runs" / "c", method="none")
    command = answers(tmp_path / "runs")["Weak spots"].command
    assert command.endswith("&& invaug report runs")
    assert str(tmp_path) not in html_of(tmp_path / "runs")


@pytest.mark.parametrize("damage", [{"levels": 3, "classes": [], "clean": None}, {"hardest": "x", "level_images": "y"}])
def test_whatever_an_evaluation_holds_there_is_a_page(run: Path, damage: dict[str, Any]) -> None:
    assert 'class="answers"' in html_of(with_evaluation(run, **damage))


def test_the_next_step_is_the_first_thing_that_is_missing(tmp_path: Path) -> None:
    stopped = write_run(tmp_path / "stopped", epochs=4, planned=9)
    assert answers(stopped)["Next"].command == "invaug train --resume --out stopped"
    moving = write_ruled_run(tmp_path / "moving", [0.1, 0.2])
    assert answers(moving)["Next"].command == "invaug train digits --epochs 4"
    done = write_ruled_run(tmp_path / "done", SETTLED)
    assert answers(done)["Next"].command == "invaug train digits --compare"
    level = write_run(tmp_path / "level", method="none", epochs=len(SETTLED), seed=2)
    assert answers(done, level)["Next"].command == "invaug train digits --compare --seed 3"
    behind = write_run(tmp_path / "behind", method="none", epochs=len(SETTLED), accuracy=0.5)
    assert answers(done, behind)["Next"].command == "invaug export done"
    assert "Next" not in answers(held_out(write_run(tmp_path / "fold"), 0))


def test_a_gamma_that_moves_is_not_settled_yet_wherever_it_stands(tmp_path: Path) -> None:
    moving, settled = (write_ruled_run(tmp_path / name, course) for name, course in (("a", [0.2, 0.5]), ("b", SETTLED)))
    tiles = {tile.name: tile for tile in top(moving).tiles}
    assert tiles["γ"].note == "not settled yet"
    assert tiles["loss on transformed images"].note.startswith("ε not settled yet")
    assert "Not settled yet: γ is 0.5 after too few epochs" in html_of(moving)
    assert "ot settled yet" not in html_of(settled)


@pytest.mark.parametrize(
    ("method", "gone"),
    [
        ("constrained", set()),
        ("uniform", {"entropy", "acceptance", "operations", "levels"}),
        ("penalty", {"gamma", "slack"}),
        ("none", {"gamma", "slack", "constraint-loss", "entropy", "acceptance", "operations", "levels"}),
    ],
)
def test_figures_that_say_nothing_about_a_method_are_left_out(tmp_path: Path, method: str, gone: set[str]) -> None:
    every = {"gamma", "slack", "constraint-loss", "entropy", "acceptance", "operations", "levels"}
    keys = {figure.key for figure in top(write_run(tmp_path / "a", method=method)).figures}
    assert every - keys == gone


def test_a_figure_of_constant_lines_is_left_out(tmp_path: Path) -> None:
    found = {figure.key for figure in top(write_run(tmp_path / "a", gamma=0.0)).figures}
    assert "gamma" not in found
    assert "slack" in found


def test_settings_are_those_the_method_uses(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / "a"), write_run(tmp_path / "b", method="none")]
    (table,) = [table for table in top(*runs).tables if table.key == "settings"]
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["n_steps"] == ("1", None)
    assert rows["epochs"] == ("6", "6")
    (alone,) = [table for table in top(runs[1]).tables if table.key == "settings"]
    assert not {"set", "n_steps", "epsilon"} & {row[0] for row in alone.rows}


def test_accuracies_are_percentages_in_cards_and_tables(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / "a"), write_run(tmp_path / "b", method="none", accuracy=0.876)]
    text = html_of(*runs)
    assert "<dd>87.6 %</dd>" in text
    assert "<td class=n>87.60%</td>" in text
    assert not re.search(r">0\.(876|124)\d*<", text)


def test_weak_means_three_standard_deviations() -> None:
    n, usual = 400, 0.9
    spread = math.sqrt(0.85 * 0.15 / n)
    assert not is_weak(0.85, n, 0.85 + 2.9 * spread)
    assert is_weak(0.85, n, 0.85 + 3.2 * spread)
    assert not is_weak(1.0, n, usual)
    assert is_weak(0.0, n, usual)
