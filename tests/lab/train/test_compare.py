from __future__ import annotations

from pathlib import Path

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


def test_methods_side_by_side_give_the_records_of_one_process(data: Path, tmp_path: Path) -> None:
    one = train(data, tmp_path / "one", compare=True, epochs=1)
    given = {"data": str(data), **SMALL, "epochs": 1}
    two = compare_methods(given, tmp_path / "two", resume=False, quiet=True, jobs=2)
    assert [summary["method"] for summary in one] == ["none", "trivial", "constrained"]
    assert records(tmp_path / "one") == records(tmp_path / "two")
    assert [summary["test_accuracy"] for summary in one] == [summary["test_accuracy"] for summary in two]
    assert [Path(summary["run"]) for summary in two] == [tmp_path / "two" / summary["method"] for summary in one]
    assert (tmp_path / "two" / "report.html").is_file()


def test_a_finished_comparison_is_read_again_and_trains_nothing(data: Path, tmp_path: Path) -> None:
    before = train(data, tmp_path / "run", compare=True, epochs=1)
    assert compare_methods({}, tmp_path / "run", resume=True, quiet=True) == before


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
