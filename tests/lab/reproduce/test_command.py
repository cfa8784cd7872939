"""`invaug reproduce` on the command line."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from invaug.lab.cli.main import app
from invaug.lab.errors import UserError
from invaug.lab.reproduce import proof, rows
from invaug.lab.reproduce.experiments import find
from tests.support.experiments import NAMES, plan_of


def invoke(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["reproduce", *words])
    return result.exit_code, str(result.exception) if isinstance(result.exception, UserError) else result.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["tune"], "tune is a command of its own: invaug tune cifar10"),
        (["tabel-1"], "unknown experiment tabel-1, did you mean table-1"),
        (["table-1", "--list"], "--list shows every experiment: leave out table-1"),
        ([], "name an experiment, for example table-1"),
        (["table-1", "--scale", "smal"], "unknown scale smal, did you mean small?"),
        (["pilot", "--scale", "full"], "pilot has no full scale: at full scale the levels are the published ones"),
        (["table-1", "--only", "cifar10-non"], "no cell of table-1 is called cifar10-non, did you mean cifar10-none"),
        (["compare", "--only", "no*"], "no cell of compare is called no*, see invaug reproduce compare --dry-run"),
        (["table-1", "--without", "*"], "nothing is left of table-1"),
    ],
)
def test_bad_input_is_one_clear_line(tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    assert said in invoke(*words)[1]
    assert not list(tmp_path.iterdir())


def test_no_seeds_and_missing_data_are_refused_with_code_2(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("INVAUG_DATA", str(tmp_path))
    assert invoke("table-1", "--seeds", "0")[0] == 2
    assert "imagenet100 cannot be downloaded" in invoke("table-2", "--scale", "full", "--data-dir", str(tmp_path))[1]
    needed = invoke("table-1", "--scale", "full", "--only", "*deepaa")[1]
    assert "needs the DeepAA policy" in needed
    assert "--without '*deepaa'" in needed
    assert not list(tmp_path.iterdir())


def test_rows_of_another_config_are_not_counted_as_done(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cells = list(find("cap").plans["small"].cells)
    path = tmp_path / "results" / "cap" / "small.jsonl"
    for config, done in ((cells[0].settings, 1), ({**cells[0].settings, "lr": 0.7}, 0)):
        rows.write(path, [rows.Row(cells[0].label, 0, rows.DONE, config, {"held_out_accuracy": 0.5}, {})])
        listed = {entry["name"]: entry for entry in json.loads(invoke("--list", "--json")[1])}
        assert listed["cap"]["small"]["done"] == done


def test_the_list_names_everything_and_a_dry_run_trains_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    listed = json.loads(invoke("--list", "--json")[1])
    assert [entry["name"] for entry in listed] == [*NAMES, *proof.NAMES]
    assert listed[1]["paper"]["cifar10 wrn-40-2 wide constrained: test_accuracy"] == {"mean": 97.05, "spread": 0.18}
    shown = invoke("--list")[1]
    assert all(name in shown for name in (*NAMES, *proof.NAMES))
    for name, scale in (("table-1", "full"), ("table-bias", "small"), ("figure-dual", "small")):
        planned = json.loads(invoke(name, "--scale", scale, "--dry-run", "--json")[1])
        assert [cell["cell"] for cell in planned["cells"]] == [cell.label for cell in plan_of(name, scale).cells]
    assert "6 cells, 2 seeds, 12 runs" in invoke("figure-epsilon", "--seeds", "2", "--dry-run")[1]
    assert not list(tmp_path.iterdir())
