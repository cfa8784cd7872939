"""Tables next to the paper, from rows alone."""

from __future__ import annotations

import pytest

from invaug.lab.report.tables import to_markdown
from invaug.lab.reproduce.experiments import find
from invaug.lab.reproduce.outcome import Outcome
from tests.support.experiments import row


def test_the_table_puts_the_papers_number_beside_ours():
    rows = [row("cifar10-constrained", seed, test_accuracy=0.5 + seed / 100) for seed in range(3)]
    table = Outcome(find("table-1"), "small", rows).table()
    found = {line[0]: dict(zip(table.columns, line, strict=True)) for line in table.rows}
    ours = found["cifar10-constrained"]
    assert (ours["test accuracy (%)"], ours["paper"], ours["runs"]) == ("51.00 ± 2.48", "97.05 ± 0.18", 3)
    assert (found["cifar10-none"]["paper"], found["cifar10-none"]["left out"]) == (None, 3)
    assert "| cifar10-constrained | 51.00 ± 2.48 | 97.05 ± 0.18 | 3 | 0 | 0 |" in to_markdown(table)


def test_weak_trials_are_marked_by_dataset():
    means = {"cifar10-none": 0.4, "cifar10-trivial": 0.3, "cifar10-constrained": 0.5}
    means |= {"cifar100-none": 0.1, "cifar100-trivial": 0.09, "cifar100-constrained": 0.05}
    rows = [row(cell, test_accuracy=mean) for cell, mean in means.items()]
    assert Outcome(find("table-1"), "small", rows).weak_trials() == [
        f"weak trial: on {data} training without augmentation has a higher mean than {others}, "
        "so this says little about augmentations"
        for data, others in (("cifar10", "all plain augmentation"), ("cifar100", "everything else"))
    ]
    better = [row(cell, test_accuracy=mean) for cell, mean in {**means, "cifar10-randaugment": 0.41}.items()]
    (note,) = Outcome(find("table-1"), "small", better).weak_trials()
    assert "on cifar100" in note
    assert Outcome(find("table-1"), "full", []).weak_trials() == []


def test_seconds_are_compared_within_a_seed():
    times = {"trivial": (1.0, 2.0), "2-steps": (3.0, 5.0)}
    rows = [
        row(cell, seed, seconds_per_epoch=seconds, passes=3 if cell == "trivial" else 8, test_accuracy=0.1)
        for cell, both in times.items()
        for seed, seconds in enumerate(both)
    ]
    found = Outcome(find("table-runtime"), "small", rows)
    assert list(found.by_seed("2-steps", "time_ratio").values()) == [3.0, 2.5]
    assert found.mean("2-steps", "pass_ratio") == pytest.approx(8 / 3)
