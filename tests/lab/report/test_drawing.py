"""Figures as SVG and PNG: axes for any numbers, files that others read."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from invaug.lab.report.command import report_runs
from invaug.lab.report.document import Bars, Figure, Table
from invaug.lab.report.drawing import axes, svg
from tests.support.pages import (
    HOSTILE,
    change_last,
    write_run,
)


@given(st.floats(-1e30, 1e30), st.floats(-1e30, 1e30))
def test_axes_hold_any_numbers_and_have_few_round_ticks(a: float, b: float) -> None:
    scale = axes.scale([a, b], 0, 100)
    assert scale.low < scale.high
    assert math.isfinite(scale(a) + scale(b))
    assert len(axes.ticks(scale.low, scale.high)) <= 7


@pytest.mark.usefixtures("small_pictures")
def test_letters_that_no_font_has_and_typesetting_are_drawn_without_a_complaint(tmp_path: Path) -> None:
    names = [name for name in HOSTILE[-10:] if "\ud800" not in name]
    run = write_run(tmp_path / "a")
    change_last(run, kept=[{name: [1, 2, 3] for name in names}])
    report_runs([run], tmp_path / "r.html", tmp_path / "figures")
    assert {path.stem for path in (tmp_path / "figures").glob("*.png")} >= {"operations", "levels", "gamma"}


def test_without_resvg_there_is_svg_and_one_line(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(svg, "can_draw_png", lambda: False)
    report_runs([run], tmp_path / "r.html", tmp_path / "figures")
    assert capsys.readouterr().err.splitlines() == [svg.NO_PNG]
    assert not list((tmp_path / "figures").glob("*.png"))


def test_a_png_shows_the_words_of_its_figure() -> None:
    table = Table("t", ("operation", "share"), (("Rotate", 0.5),))
    named, nameless = (
        svg.to_png(svg.picture(Figure("k", "t", Bars("share", (name,), (("share", (0.5,)),)), "Read.", table)))
        for name in ("Rotate", "      ")
    )
    assert named.startswith(b"\x89PNG")
    assert named != nameless
