from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from invaug.lab.errors import UserError
from invaug.lab.run.record import read
from invaug.lab.train.compare import compare_methods
from tests.support.runs import SMALL, train, write_digits

CLOCK = ("seconds", "images_per_second")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_digits(tmp_path_factory.mktemp("data"))


def records(root: Path) -> dict[str, list[dict[str, object]]]:
    """Return the record of every method without what the clock says."""
    return {
        folder.name: [{key: value for key, value in row.items() if key not in CLOCK} for row in read(folder)]
        for folder in root.iterdir()
        if folder.is_dir()
    }


@pytest.fixture(scope="module")
def compared(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """A comparison of one epoch: its folder and its summaries."""
    root = tmp_path_factory.mktemp("compared") / "run"
    return root, train(data, root, compare=True, epochs=1)


Compared = tuple[Path, list[dict[str, Any]]]


def test_baselines_are_trained_under_the_same_budget(compared: Compared) -> None:
    root, summaries = compared
    assert [summary["method"] for summary in summaries] == ["none", "trivial", "constrained"]
    assert {summary["epochs"] for summary in summaries} == {1}
    assert [Path(summary["run"]) for summary in summaries] == [root / summary["method"] for summary in summaries]


def test_every_run_has_its_page_and_the_comparison_too(compared: Compared) -> None:
    pages = sorted(str(page.relative_to(compared[0])) for page in compared[0].rglob("report.html"))
    assert pages == ["constrained/report.html", "none/report.html", "report.html", "trivial/report.html"]
    assert "invaug" in (compared[0] / "report.html").read_text()


@pytest.mark.long  # the pool is tested in reproduce/test_runner.py
def test_methods_side_by_side_give_the_records_of_one_process(data: Path, tmp_path: Path, compared: Compared) -> None:
    given = {"data": str(data), **SMALL, "epochs": 1}
    summaries = compare_methods(given, tmp_path / "run", resume=False, quiet=True, jobs=2)
    assert records(tmp_path / "run") == records(compared[0])
    assert [each["test_accuracy"] for each in summaries] == [each["test_accuracy"] for each in compared[1]]
    assert [Path(each["run"]) for each in summaries] == [tmp_path / "run" / each["method"] for each in summaries]


def test_a_finished_comparison_is_read_again_and_trains_nothing(compared: Compared) -> None:
    assert compare_methods({}, compared[0], resume=True, quiet=True) == compared[1]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"devices": 2}, "--compare trains on one device, got --devices 2"),
        ({"model": "resnet-9"}, "resnet-9"),
        ({"only": ["Rotat"]}, "unknown operation Rotat"),
    ],
)
def test_a_mistake_is_named_before_anything_is_written(
    data: Path, tmp_path: Path, given: dict[str, object], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        train(data, tmp_path / "run", compare=True, **given)
    assert not (tmp_path / "run").exists()


def test_what_is_not_there_cannot_be_resumed(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nothing to resume in .*: no compare\.toml there"):
        compare_methods({}, tmp_path / "nowhere", resume=True, quiet=True)
    with pytest.raises(UserError, match="nothing to resume: name the folder of the comparison"):
        compare_methods({}, None, resume=True, quiet=True)


def test_code_that_a_comparison_names_runs_only_for_who_trusts_it(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "strange_model.py").write_text("from pathlib import Path\nPath(__file__).with_name('sang').touch()\n")
    monkeypatch.syspath_prepend(tmp_path)
    root = tmp_path / "run"
    root.mkdir()
    (root / "compare.toml").write_text(f'[data]\nname = "{data}"\n[model]\nname = "strange_model:factory"\n')
    with pytest.raises(UserError, match="is code, strange_model:factory, which would run here: add --trust-model"):
        compare_methods({}, root, resume=True, quiet=True)
    assert not (tmp_path / "sang").exists()
    with pytest.raises(UserError, match="strange_model"):  # it runs, and has no such factory
        compare_methods({}, root, resume=True, quiet=True, trust_model=True)
    assert (tmp_path / "sang").exists()
