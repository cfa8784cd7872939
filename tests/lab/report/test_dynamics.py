"""The figures over epochs and of what was kept: which there are, and how they are read."""

from __future__ import annotations

import re
from pathlib import Path

from invaug.lab.report import page
from invaug.lab.report.assemble import document_of
from invaug.lab.report.drawing import svg
from invaug.lab.report.groups import group_runs
from invaug.lab.report.read import read_run, read_runs
from invaug.lab.report.runs import Run
from invaug.lab.report.sections import words
from tests.support.pages import (
    change_last,
    html_of,
    with_families,
    write_ruled_run,
    write_run,
)


def test_constraints_without_a_name_are_numbered(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", n_constraints=3)
    gamma = document_of(read_runs([run])).figures[0]
    assert [series.label for series in gamma.drawing.series] == [f"constraint {k} (wide set)" for k in (1, 2, 3)]


def test_families_name_their_constraints_everywhere(tmp_path: Path) -> None:
    names = ("turn", "shift", "light")
    run = with_families(write_run(tmp_path / "a", n_constraints=3), *names)
    found = document_of(read_runs([run]))
    figures = {figure.key: figure for figure in found.figures}
    assert tuple(series.label for series in figures["gamma"].drawing.series) == names
    assert tuple(row[0] for row in {table.key: table for table in found.tables}["constraints"].rows) == names
    assert "levels-constraint-2" in figures
    assert figures["levels-constraint-2"].title == "Levels kept, by operation, shift"
    assert "constraint 1" not in page.html(found)


def test_ten_constraints_all_stand_in_the_legend_in_styles_that_differ(tmp_path: Path) -> None:
    names = [f"family {i}" for i in range(10)]
    run = with_families(write_run(tmp_path / "a", n_constraints=10), *names)
    text = svg.draw(document_of(read_runs([run])).figures[0])
    assert all(f">{name}</text>" in text for name in names)
    assert len(set(re.findall(r'class="line (s\d d\d)" x1', text))) == 10


def test_many_constraints_of_several_runs_have_a_figure_each(tmp_path: Path) -> None:
    names = [f"family {i}" for i in range(6)]
    runs = [with_families(write_run(tmp_path / n, n_constraints=6), *names, size=s) for n, s in (("a", 0.5), ("b", 1))]
    found = document_of(read_runs([*runs, write_run(tmp_path / "c")]))
    titles = [figure.title for figure in found.figures if figure.key.startswith("gamma")]
    assert titles == [*(f"γ of {name}" for name in names), "γ of wide set"]
    assert any("several constraints" in note for note in found.notes)
    labels = [group.label for group in group_runs(read_runs([*runs, tmp_path / "c"]))]
    assert len(set(labels)) == 3
    assert labels[0].startswith("ranges family 0: Rotate 0.5, ")


def test_a_whole_run_has_all_its_figures_each_with_a_reading_and_its_numbers(run: Path) -> None:
    found = document_of(read_runs([run]))
    assert [figure.key for figure in found.figures] == [
        "gamma",
        "constraint-loss",
        "accuracy",
        "loss",
        "slack",
        "entropy",
        "acceptance",
        "operations",
        "levels",
    ]
    assert all(figure.reading.endswith(".") and figure.table.rows for figure in found.figures)
    readings = {figure.key: figure.reading for figure in found.figures}
    assert readings["slack"] == "First met in epoch 6."
    assert readings["gamma"] == "γ left zero in epoch 1 and settled at 0.12."
    assert readings["operations"].startswith("Last epoch. Kept more often than uniform draws: Rotate (+")
    assert "Identity (-" in readings["operations"]
    assert "Rotate, kept at high levels (mean 20." in readings["levels"]


def test_one_epoch_is_drawn_as_dots(tmp_path: Path) -> None:
    text = html_of(write_run(tmp_path / "a", epochs=1))
    assert text.count('class="dot') >= 6
    assert "<polyline" not in text


def test_a_million_epochs_are_thinned(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "a", epochs=3))
    long = Run(
        **{
            **vars(run),
            "epochs": tuple(run.epochs[0].__class__(**{**vars(run.epochs[i % 3]), "number": i}) for i in range(5000)),
        }
    )
    gamma = document_of([long]).figures[0]
    lines = gamma.drawing.series[0].points
    assert len(lines) <= 401
    assert lines[-1][0] == 4999
    assert gamma.reading.endswith("One epoch in 13 is drawn.")


def readings(run: Path) -> dict[str, str]:
    return {figure.key: figure.reading for figure in document_of(read_runs([run])).figures}


def test_the_page_says_what_gamma_is_under_the_rule_and_where_it_went(tmp_path: Path) -> None:
    run = write_ruled_run(
        tmp_path / "a", [0.5, 1.0, 1.4, 1.2, 1.0, 0.8, 0.7, 0.7, 0.7, 0.7], alpha=7.0, base="clean", cap=3.0
    )
    what = (
        "At its end it is 7 × the gap between the loss on the transformations the chain keeps and the clean loss, on "
        "training images, as a share of the loss of a guess: the invariance gap that is left."
    )
    went = "γ left zero in epoch 1, reached 1.4 in epoch 3 and turned down to 0.7"
    assert readings(run)["gamma"] == f"{went}."
    assert words.verdict(read_run(run)) == f"{went}, a gap of 10.0% of the loss of a guess."
    assert words.meanings([read_run(run)])[0].endswith(what)
    assert words.tiles(read_run(run))[1] == ("γ", "0.7", "a gap of 10.0% of the loss of a guess")
    assert "price" not in page.html(document_of(read_runs([run])))


def test_entropy_is_read_against_as_many_uniform_draws(tmp_path: Path) -> None:
    run = write_ruled_run(tmp_path / "a", [0.5] * 6)
    assert "1.2000 is below the 95 % range of as many uniform draws (1.2500 to 1.3100)" in readings(run)["entropy"]
    change_last(run, entropy=[1.3])
    assert "1.3000 is not below the 95 % range of as many uniform draws" in readings(run)["entropy"]
    (figure,) = [figure for figure in document_of(read_runs([run])).figures if figure.key == "entropy"]
    assert [series.label for series in figure.drawing.series][1:] == ["uniform draws, 2.5 %", "uniform draws, 97.5 %"]
