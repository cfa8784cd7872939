"""What `invaug report` writes, and where."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image

from invaug.lab.cli.main import main
from invaug.lab.errors import UserError
from invaug.lab.report.command import report_runs
from tests.support.pages import rows_of, write_rows, write_run

Command = Callable[..., tuple[object, str, str]]


@pytest.fixture
def invaug(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Return a function that runs a command in this process and returns its exit code and what it printed."""

    def run(*arguments: str) -> tuple[object, str, str]:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["invaug", *arguments])
        with pytest.raises(SystemExit) as stopped:
            main()
        return stopped.value.code, *capsys.readouterr()

    return run


@pytest.mark.usefixtures("small_pictures")
def test_figures_and_tables_are_written_as_files_that_others_read(run: Path, tmp_path: Path) -> None:
    _, figures, folder = report_runs([run], tmp_path / "r.html", tmp_path / "figures", tmp_path / "tables")
    keys = {path.stem for path in figures.glob("*.svg")}
    assert {"gamma", "operations", "levels"} <= keys
    for path in figures.glob("*.svg"):
        root = ElementTree.parse(path).getroot()  # noqa: S314 - our own
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert "var(--" not in path.read_text()
    assert {path.stem for path in figures.glob("*.png")} == keys
    for path in figures.glob("*.png"):
        with Image.open(path) as picture:  # not one colour
            assert any(low < high for low, high in picture.convert("RGB").getextrema())
    assert {path.suffix for path in folder.iterdir()} == {".csv", ".md"}
    assert (folder / "gamma.csv").read_text().startswith('"epoch","wide set"\n1,0.0')
    assert "| n\\_steps | 1 |" in (folder / "settings.md").read_text()


def test_the_page_of_one_run_goes_into_its_folder(run: Path) -> None:
    assert report_runs([run]) == [run / "report.html"]


def test_a_page_that_cannot_be_written_is_one_line(run: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="choose another -o"):
        report_runs([run], tmp_path / "file" / "r.html")


def test_report_says_where_the_page_the_figures_and_the_tables_are(run: Path, tmp_path: Path) -> None:
    write_run(tmp_path / "b", method="trivial")
    flags = ["-o", "out/r.html", "--figures", "figs", "--tables", "tabs"]
    said = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "invaug", "report", "a", "b", *flags],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (said.returncode, said.stderr) == (0, "")
    assert said.stdout.splitlines() == ["out/r.html", "figs", "tabs"]
    assert (tmp_path / "out" / "r.html").read_text().startswith("<!doctype html>")
    stems = [{path.stem for path in (tmp_path / "figs").glob(f"*.{kind}")} for kind in ("svg", "png")]
    assert stems[0] == stems[1]
    assert {"gamma", "accuracy", "error", "pareto"} <= stems[0]
    assert {"experiments.csv", "experiments.md"} <= {p.name for p in (tmp_path / "tabs").iterdir()}


@pytest.mark.usefixtures("run")
def test_report_of_one_run_goes_into_it_and_of_several_beside_them(tmp_path: Path, invaug: Command) -> None:
    write_run(tmp_path / "b")
    assert invaug("report", "a") == (0, "a/report.html\n", "")
    assert invaug("report", "a", "b") == (0, "report.html\n", "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["report", "nowhere"], "nowhere does not exist"),
        (["report", "aa"], "aa does not exist, did you mean a?"),
        (["report", "a", "-o", "a/config.toml/r.html"], "choose another -o"),
        (["report", "a", "-o", "."], "is a folder: name a file for the page, for example report.html"),
        (["report", "a", "-o", "a/record.jsonl"], "is where a run keeps its own file: choose another -o"),
        (["report", "a", "--figures", "a/config.toml"], "choose another --figures"),
        (["report"], "Missing argument"),
        (["watch", "nowhere/a"], "nowhere/a cannot be watched: the folder nowhere does not exist"),
        (["watch", "photos"], "photos is not a run: it has no config.toml"),
        (["watch", "a", "--port", "70000"], "Invalid value for '--port'"),
    ],
    ids=lambda value: "-".join(value)[:30] if isinstance(value, list) else "",
)
@pytest.mark.usefixtures("run")
def test_a_mistake_is_one_line_and_code_2(invaug: Command, tmp_path: Path, arguments: list[str], said: str) -> None:
    (tmp_path / "photos" / "cat").mkdir(parents=True)
    code, out, errors = invaug(*arguments)
    assert (code, out) == (2, "")
    assert errors.count("\n") == 1
    assert said in errors


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda run: (run / "record.jsonl").unlink(), "no record.jsonl yet"),
        (lambda run: (run / "record.jsonl").write_text(""), "no whole epoch yet"),
        (lambda run: (run / "record.jsonl").write_text('{"epoch": 1, "tr'), "no whole epoch yet"),
        (lambda run: (run / "record.jsonl").write_bytes(b"\xff\n\xff\n"), "is damaged in line 1"),
        (lambda run: write_rows(run, [row | {"gamma": [float("nan")]} for row in rows_of(run)]), "finite slack"),
        (lambda run: (run / "evaluation.json").write_text("{"), "evaluation.json is damaged"),
    ],
    ids=["no record", "no epoch", "cut", "damaged", "nan", "bad evaluation"],
)
@pytest.mark.usefixtures("small_pictures")
def test_a_run_in_a_bad_state_has_a_page_that_says_so(run: Path, invaug: Command, damage, said: str) -> None:
    damage(run)
    code, _, errors = invaug("report", "a", "--figures", "figs", "--tables", "tabs")
    assert (code, errors) == (0, "")
    assert said in (run / "report.html").read_text()
