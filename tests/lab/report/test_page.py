"""The page: text wherever a name stands, its own script alone, small, from the record without torch."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from invaug.lab.report.command import report_runs
from invaug.lab.report.sections import kept
from tests.support.pages import (
    HOSTILE,
    Tags,
    hostile_page,
    html_of,
    sweep,
    write_run,
)


@pytest.fixture(scope="module")
def plain_page(tmp_path_factory: pytest.TempPathFactory) -> Tags:
    return Tags(hostile_page(tmp_path_factory.mktemp("plain"), "plain"))


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_a_hostile_name_is_text_wherever_it_stands(tmp_path: Path, plain_page: Tags, name: str) -> None:
    tags = Tags(hostile_page(tmp_path, name))
    assert tags.nodes() == plain_page.nodes()
    for file in tmp_path.glob("*.csv"):
        for cell in re.findall(r'"((?:[^"]|"")*)"', file.read_text(encoding="utf-8")):
            assert not cell.startswith(("=", "+", "-", "@"))


def test_the_page_runs_its_own_script_alone_and_loads_nothing(run: Path) -> None:
    text = html_of(run)
    tags = Tags(text)
    policy = next(attributes["content"] for _, attributes in tags.found if "http-equiv" in attributes)
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    assert tags.count("script") == tags.count("style") == 1
    assert not any(
        "style" in attributes or any(key.startswith("on") for key in attributes) for _, attributes in tags.found
    )
    loaded = [value for _, attributes in tags.found for key, value in attributes.items() if key in ("src", "href")]
    assert all(value.startswith(("data:", "#")) for value in loaded)


def test_no_path_of_the_machine_is_on_the_page(tmp_path: Path) -> None:
    text = html_of(*sweep(tmp_path)[:3])
    assert "/home/somebody" not in text
    assert str(tmp_path) not in text


def test_every_figure_has_a_name_for_screen_readers_and_a_table(run: Path) -> None:
    tags = Tags(html_of(run))
    figures = [attributes for tag, attributes in tags.found if tag == "svg" and attributes.get("class") == "figure"]
    assert all(figure["role"] == "img" and len(figure["aria-label"]) > 20 for figure in figures)
    assert tags.count("details") == len(figures) == 9


def test_the_page_says_whatever_it_leaves_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MOST_SHOWN", 6)
    runs = [write_run(tmp_path / f"run-{i}", epsilon=0.5 + i / 10) for i in range(8)]
    pixel = "data:image/png;base64,AAAA"
    evaluation = {"clean": {"accuracy": 0.9}, "gallery": [{"class": "a", "original": pixel, "proposals": []}]}
    for run in runs:
        (run / "evaluation.json").write_text(json.dumps(evaluation))
    text = html_of(*runs)
    for said in (
        "what was kept under 2 further constraints is not shown;",
        "runs with an evaluation that is not shown: 2;",
        "pictures of the first 3 evaluated runs are shown; report the other 5 alone",
        "8 values of ε, too many to draw",
    ):
        assert said in text


def test_everything_is_made_from_the_record_without_torch(run: Path) -> None:
    for other in [path for path in run.iterdir() if path.name not in ("config.toml", "record.jsonl")]:
        other.unlink()
    code = (
        "import sys; from pathlib import Path; from invaug.lab.report.command import report_runs; "
        "from invaug.lab.report import watch; "
        f"run = Path({str(run)!r}); report_runs([run], None, run / 'figures', run / 'tables'); "
        "print('torch' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    assert said.stdout.split() == ["False"]
    assert {path.stem for path in (run / "figures").iterdir()} >= {"gamma", "slack", "operations", "levels"}


def test_twenty_runs_of_two_hundred_epochs_are_under_five_megabytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.support.pages.OPS", tuple(f"Operation{i}" for i in range(14)))  # as the wide set has
    runs = [
        write_run(tmp_path / f"run-{i}", epochs=200, seed=i % 4, epsilon=0.5 + i // 4 / 10, gamma=0.1 + i / 100)
        for i in range(20)
    ]
    started = time.perf_counter()
    report_runs(runs, tmp_path / "r.html")
    size = (tmp_path / "r.html").stat().st_size
    print(f"20 runs of 200 epochs: {time.perf_counter() - started:.2f} s, {size / 1e6:.2f} MB")
    assert size < 5e6
