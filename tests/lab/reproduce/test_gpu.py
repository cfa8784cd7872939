"""The full scale on the command line, and what docs/gpu.md says about it."""

from __future__ import annotations

import re
import shlex

import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from invaug.lab.cli.main import app
from invaug.lab.models.build import build_model
from invaug.lab.reproduce.command import without_missing_policies
from invaug.lab.reproduce.experiments import all_experiments, find
from invaug.lab.reproduce.request import Request
from invaug.lab.train.one_process import find_device
from tests.support.exactness import OBLONGS, SQUARES, every_case
from tests.support.experiments import ROOT
from tests.support.operations import TRIVIAL_AUGMENT

TEXT = (ROOT / "docs" / "gpu.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^\| `([^`]+ --scale full[^`]*)` \| ([\d,]+) \| ([\d,.]+) (h|min) \|$", TEXT, re.MULTILINE)


def requested(command: str) -> Request:
    """Return the request of a command on the page."""
    name, *words = shlex.split(command)
    given = dict(zip(words[::2], words[1::2], strict=True))
    lists = {flag: tuple(given[f"--{flag}"].split(",")) for flag in ("only", "without") if f"--{flag}" in given}
    return Request(find(name), given["--scale"], **lists)


@pytest.mark.parametrize(("command", "runs", "time", "unit"), COMMANDS, ids=[each[0] for each in COMMANDS])
def test_runs_and_hours_are_those_of_the_estimate(command, runs, time, unit):
    request = requested(command)
    assert len(request.runs()) == int(runs.replace(",", ""))
    seconds = float(time.replace(",", "")) * {"h": 3600, "min": 60}[unit]
    assert request.seconds(shared=False) == pytest.approx(seconds, abs=0.5 * {"h": 3600, "min": 60}[unit])


def test_every_experiment_with_a_cost_at_full_scale_is_on_the_page():
    named = {command.split()[0] for command, *_ in COMMANDS}
    requests = [Request(find(name), "full") for name in all_experiments() if find(name).published.place]
    costly = {each.experiment.name for each in requests if each.plan.cells and each.seconds(shared=False)}
    assert costly == named


def test_the_check_has_as_many_magnitudes_and_sizes_as_the_page_says():
    assert f"({len(every_case()):,} magnitudes)" in TEXT
    assert f"of {len(SQUARES + OBLONGS)} sizes" in TEXT
    assert {name for name, _ in every_case()} > set(TRIVIAL_AUGMENT)


@pytest.mark.parametrize(
    ("name", "shape"), [("WRN-40-2", (3, 32, 32)), ("WRN-28-10", (3, 32, 32)), ("ResNet-50", (3, 224, 224))]
)
def test_memory_per_image_is_what_autograd_keeps(name, shape):
    network, kept = build_model(name.lower(), 10, shape).train(), []
    for n_images in (1, 2):
        storages: dict[int, int] = {}

        def keep(tensor: Tensor, storages: dict[int, int] = storages) -> Tensor:
            storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            alive = network(torch.zeros(n_images, *shape))  # noqa: F841 - or the storages are freed, and used again
        kept.append(sum(storages.values()))
    assert re.search(rf"{(kept[1] - kept[0]) / 1e6:.1f} MB (?:per image )?for\s+{name}", TEXT)


def test_a_gpu_is_chosen_where_there_is_one(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert find_device("auto").type == "cuda"
    runs = Request(find("table-1"), "full").runs()
    assert {(job.config().run.device, job.config().run.precision) for job in runs} == {("auto", "32-true")}


def test_deepaa_is_left_out_where_its_policies_are_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("INVAUG_DATA", str(tmp_path))
    asked = Request(find("table-1"), "full", only=("cifar10-*-paper-*",))
    request, (line,) = without_missing_policies(asked)
    assert {cell.label.rpartition("-")[2] for cell in request.cells()} == {"trivial", "constrained"}
    assert request.without == ("*deepaa",)
    where = tmp_path / "deepaa"
    assert line == f"left out: DeepAA without a policy file (4): put DATASET-SET.npz into {where}"
    (tmp_path / "deepaa").mkdir()
    (tmp_path / "deepaa" / "cifar10-wide.npz").touch()
    labels = [cell.label for cell in without_missing_policies(asked)[0].cells() if cell.label.endswith("deepaa")]
    assert labels == ["cifar10-wrn-40-2-wide-paper-deepaa", "cifar10-wrn-28-10-wide-paper-deepaa"]
    alone = Request(find("table-1"), "full", only=("*standard*deepaa",))
    assert without_missing_policies(alone) == (alone, [])


def test_a_dry_run_says_what_it_costs_on_which_card():
    words = ["reproduce", "table-1", "--scale", "full", "--dry-run", "--only", "cifar10-wrn-40-2-wide-paper-trivial"]
    shown = CliRunner().invoke(app, words).output
    assert "5 runs, about 3.5 h on one RTX 3090" in shown  # 12.6 s × 200 epochs × 5, as printed
