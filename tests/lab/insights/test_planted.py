"""Real images with planted labels: no planted falsehood is called learned, and the truths are found."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from invaug.lab.insights.command import InsightsRequest, insights, run_insights
from invaug.lab.insights.thresholds import LEARNED, MOSTLY_LEARNED, NOT
from invaug.lab.insights.words import summary_lines
from invaug.lab.report.command import report_runs
from invaug.lab.train.display import Screen
from tests.support import planted
from tests.support.browser import Browser
from tests.support.images import load_photographs

CHEAP = (LEARNED, MOSTLY_LEARNED)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("kind", list(planted.MAKERS))
def test_no_falsehood_is_called_learned_and_the_truths_are_found(tmp_path, kind, seed):
    if kind == "photographs" and load_photographs() is None:
        pytest.skip("photographs need the folder INVAUG_DATA with cifar10.npz")
    data = planted.write(kind, tmp_path / "d.npz", 600, seed)
    only = planted.TRUTHS[kind] + planted.FALSEHOODS[kind]
    request = InsightsRequest(data, only=only, seeds=1, rounds=0, epochs=16, out=tmp_path / "out")
    answer, _ = insights(request, Screen(quiet=True))
    verdicts = {found.name: found.verdict for found in answer.families}
    said = list(summary_lines(answer))
    assert not any(verdicts[name] in CHEAP for name in planted.FALSEHOODS[kind]), said
    truths = [verdicts[name] for name in planted.TRUTHS[kind]]
    assert NOT not in truths, said
    assert sum(verdict in CHEAP for verdict in truths) >= 2, said  # one may be undecided: of 60, one was


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ask about one truth and one falsehood of a few digits; return the folder."""
    folder = tmp_path_factory.mktemp("planted")
    data = planted.write("digits", folder / "d.npz", 300, 0)
    only = ("vertical flip", "horizontal flip")
    insights(InsightsRequest(data, only=only, seeds=1, rounds=0, epochs=8, out=folder / "out"), Screen(quiet=True))
    return folder


def test_a_truth_and_a_falsehood_are_told_apart_in_seconds(asked):
    families = json.loads((asked / "out" / "insights.json").read_text())["families"]
    assert {row["name"]: row["verdict"] for row in families} == {
        "vertical flip": "learned",
        "horizontal flip": "not learned",
    }


def test_the_last_line_trains_with_what_was_decided(asked, capsys):
    data, folder = asked / "d.npz", asked / "out"
    only = ("vertical flip", "horizontal flip")
    run_insights(InsightsRequest(str(data), only=only, seeds=1, rounds=0, epochs=8, out=folder), for_machines=False)
    said = capsys.readouterr().out.splitlines()
    assert said[-1] == f"next: train with it: invaug train {data} --config {folder / 'suggested.toml'}"
    suggested = tomllib.loads((folder / "suggested.toml").read_text())
    assert suggested == {"train": {"flip": "no"}, "families": {"suggested": {"FlipY": True}}}


def test_the_page_shows_every_family_and_no_path(asked, capsys):
    only = ("vertical flip", "horizontal flip")
    request = InsightsRequest(str(asked / "d.npz"), only=only, seeds=1, rounds=0, epochs=8, out=asked / "out")
    run_insights(request, for_machines=True)
    answer = json.loads(capsys.readouterr().out)
    page = (asked / "out" / "report.html").read_text()
    assert str(asked) not in page
    assert "Which symmetries of d.npz a network learns" in page
    assert len(re.findall(r"data:image/png;base64,", page)) == 4, "an image before and after, for each family"
    assert "vertical flip, as far as it is learned; before" in page
    assert "horizontal flip, not learned, as far as tried; before" in page
    assert all(row["reading"].replace("'", "&#x27;") in page for row in answer["families"])
    assert "One seed: there is no interval over seeds." in page


@pytest.mark.parametrize(("width", "scheme"), [(1100, "light"), (390, "dark")])
def test_a_browser_cuts_off_no_label_of_the_page(browser: Browser, asked: Path, width: int, scheme: str) -> None:
    (page,) = report_runs([asked / "out"])
    browser.open(page.as_uri(), width, scheme=scheme)
    cut = browser.run(
        "return [...document.querySelectorAll('svg.figure text')].filter(t => {const v = t.ownerSVGElement.viewBox"
        ".baseVal, b = t.getBBox(); return b.x < -1 || b.x + b.width > v.width + 1 || t.textContent.includes('…')})"
        ".map(t => t.textContent)"
    )
    assert cut == []
    shown = browser.run("return [...document.querySelectorAll('figcaption, img')].filter(e => e.naturalWidth).length")
    assert shown == 4
    assert browser.run("return document.documentElement.scrollWidth") <= width
    assert browser.complaints() == []
