"""How the best is compared with the default: paired over folds, against SciPy's paired t-test."""

from __future__ import annotations

from pathlib import Path

import pytest
from scipy.stats import ttest_rel

from invaug.lab.jobs.job import Job
from invaug.lab.tune.outcome import Trial, as_json, find_best, summary_lines, verdict

DEFAULT = (0.80, 0.84, 0.82, 0.79)


def trial(folder: Path, level: str | float, accuracies: tuple[float, ...]) -> Trial:
    jobs = [
        Job(f"epsilon {level}", {"epsilon": level}, 0, folder / str(level) / str(i)) for i, _ in enumerate(accuracies)
    ]
    for job, accuracy in zip(jobs, accuracies, strict=True):
        job.keep({"numbers": {"held_out_accuracy": accuracy, "held_out_loss": 1 - accuracy}})
    return Trial({"epsilon": level}, jobs)


@pytest.mark.parametrize(
    ("accuracies", "said"),
    [
        ((0.85, 0.88, 0.87, 0.84), "better than the default (+4.75 ± 0.80 points, 95 % interval, paired over 4 folds)"),
        ((0.88, 0.80, 0.90, 0.79), "level with the default (+3.00 ± 9.55 points, 95 % interval, paired over 4 folds)"),
    ],
)
def test_the_best_is_better_than_the_default_only_where_a_paired_interval_is_above_zero(tmp_path, accuracies, said):
    trials = [trial(tmp_path, "auto", DEFAULT), trial(tmp_path, 0.5, accuracies)]
    expected = ttest_rel(accuracies, DEFAULT).confidence_interval(0.95)
    told = as_json(trials, best := find_best(trials))
    assert best is trials[1]
    assert told["best_minus_default"]["interval"] == pytest.approx((expected.low, expected.high))
    assert (told["default"], told["best"]) == ({"epsilon": "auto"}, {"epsilon": 0.5})
    assert verdict(trials, best) == told["verdict"] == said
    assert (expected.low > 0) == said.startswith("better")
    assert said in list(summary_lines(trials, best, "digits", Path("best.toml"), None))


def test_a_level_is_not_called_better_where_there_is_nothing_to_pair(tmp_path):
    one = [trial(tmp_path / "one", "auto", (0.8,)), trial(tmp_path / "one", 0.5, (0.9,))]
    told = "+10.00 points over the default, on one set of held-out images: no interval over folds"
    assert verdict(one, one[1]) == told
    trials = [trial(tmp_path, "auto", DEFAULT), trial(tmp_path, 0.5, DEFAULT)]
    assert verdict(trials, trials[0]) == "no combination is better than the default"
    (trials[0].jobs[2].folder / "outcome.json").unlink()
    assert verdict(trials, trials[1]) == "not compared with the default, which has not finished all its folds"
