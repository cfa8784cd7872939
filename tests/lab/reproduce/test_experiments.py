"""Experiments: every one has a plan at both scales, valid configs, and a place in the paper."""

from __future__ import annotations

from pathlib import Path

import pytest

from invaug.lab.config import build as configs
from invaug.lab.jobs import job as lab_job
from invaug.lab.reproduce import cells, experiments
from invaug.lab.reproduce.cells import SCALES
from invaug.lab.reproduce.experiments import find
from invaug.lab.reproduce.measures import MEASURES
from invaug.lab.reproduce.request import Request
from tests.support.experiments import EVERY, NAMES, plan_of


def test_every_experiment_has_a_plan_and_a_place_in_the_paper():
    assert tuple(experiments.paper_experiments()) == NAMES
    assert tuple(cells.PUBLISHED) == NAMES


@pytest.mark.parametrize("name", experiments.all_experiments())
def test_every_measure_can_be_shown(name):
    assert {*find(name).measures} <= {*MEASURES}


@pytest.mark.parametrize(("name", "scale"), EVERY)
def test_every_cell_is_a_valid_config_without_a_seed(name, scale):
    plan = plan_of(name, scale)
    assert plan.lacks or plan.cells
    labels = [cell.label for cell in plan.cells]
    assert len(set(labels)) == len(labels)
    for cell in plan.cells:
        assert Path(cell.label).name == cell.label
        assert "seed" not in cell.settings
        configs.build(cell.settings)


@pytest.mark.parametrize(("name", "scale"), EVERY)
def test_what_stands_beside_a_cell_is_in_the_paper(name, scale):
    entries = {entry for entry, _ in cells.PUBLISHED[name].numbers}
    assert {cell.beside for cell in plan_of(name, scale).cells} - {""} <= entries


def all_jobs(scale: str) -> list[tuple[str, lab_job.Job]]:
    return [(name, job) for name in NAMES for job in Request(find(name), scale).runs()]


@pytest.mark.parametrize("scale", SCALES)
def test_no_two_cells_share_a_folder_with_different_configs_and_no_config_is_trained_twice(scale):
    configs_in: dict[Path, set[str]] = {}
    folders_of: dict[str, set[Path]] = {}
    for name, job in all_jobs(scale):
        configs_in.setdefault(job.folder, set()).add(job.digest)
        if not find(name).reference:  # seconds are measured in runs of their own
            folders_of.setdefault(job.digest, set()).add(job.folder)
    assert all(len(found) == 1 for found in configs_in.values())
    assert all(len(found) == 1 for found in folders_of.values())


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize(
    ("name", "other"),
    [("figure-dual", "figure-epsilon"), ("figure-steps-dual", "figure-steps"), ("figure-levels", "figure-frequency")],
)
def test_figures_of_the_same_runs_train_nothing_of_their_own(name, other, scale):
    mine = {job.folder for job in Request(find(name), scale).runs()}
    assert mine <= {job.folder for job in Request(find(other), scale).runs()}
    assert Request(find(name), scale).seconds(shared=False) == 0
