"""Runs as files, written by hand: what the report says of them, and what it makes of bad ones."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from scipy.stats import binomtest
from scipy.stats import t as student_t

from invaug.lab.errors import UserError
from invaug.lab.report import page
from invaug.lab.report.command import report_runs
from invaug.lab.report.drawing import pictures, scales, svg
from invaug.lab.report.groups import grouped
from invaug.lab.report.intervals import estimate, student, wilson
from invaug.lab.report.read import Run, read_run, read_runs
from invaug.lab.report.sections import compare, words
from tests.support import pages
from tests.support.pages import (
    HOSTILE,
    change_last,
    hostile_page,
    rows_of,
    sweep,
    with_families,
    write_rows,
    write_run,
)


class Tags(HTMLParser):
    """Counts what a browser would make of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def nodes(self) -> list[tuple[str, set[str]]]:
        """Return every node and the names of its attributes; a long name in a figure may take two lines."""
        return [(tag, set(attributes)) for tag, attributes in self.found if tag != "text"]

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.found)


def html_of(*folders: Path) -> str:
    return page.html(page.content(read_runs(folders)))


def keys_of(*folders: Path) -> list[str]:
    return [figure.key for figure in page.content(read_runs(folders)).figures]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "a")


# the sentence at the top


@pytest.mark.parametrize(
    ("changes", "start", "end"),
    [
        ({}, "Feasible: loss on transformed images 0.70 ≤ ε 0.80", "invariance costs γ = 0.12."),
        ({"gamma": 0.0}, "Feasible", "invariance costs nothing (γ = 0)."),
        ({"slack": 0.4}, "Not feasible: loss on transformed images 1.20 > ε 0.80", "not yet a price."),
        ({"method": "none"}, "No constraint: plain training, test accuracy 90.0%.", ""),
        ({"method": "trivial"}, "No constraint: plain training on images of trivial", ""),
        ({"method": "penalty", "epsilon": 0.0}, "Fixed weight γ = 0.12", "held to no bound."),
        ({"epochs": 0, "planned": 3}, "Nothing to judge yet", ""),
    ],
    ids=lambda value: str(value)[:20],
)
def test_verdict_is_one_sentence_of_how_the_run_ended(
    tmp_path: Path, changes: dict[str, Any], start: str, end: str
) -> None:
    said = words.verdict(read_run(write_run(tmp_path / "a", epochs=changes.pop("epochs", 12), **changes)))
    assert said.startswith(start)
    assert said.endswith(end)


def test_verdict_says_when_epsilon_is_out_of_reach(run: Path) -> None:
    rows = rows_of(run)
    rows[-1] |= {"out_of_reach": [True], "slack": [0.5]}
    write_rows(run, rows)
    assert "looks out of reach" in words.verdict(read_run(run))


def test_constraints_without_a_name_are_numbered(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", n_constraints=3)
    gamma = page.content(read_runs([run])).figures[0]
    assert [series.label for series in gamma.drawing.series] == [f"constraint {k} (wide set)" for k in (1, 2, 3)]


def test_families_name_their_constraints_everywhere(tmp_path: Path) -> None:
    names = ("turn", "shift", "light")
    run = with_families(write_run(tmp_path / "a", n_constraints=3), *names)
    found = page.content(read_runs([run]))
    figures = {figure.key: figure for figure in found.figures}
    assert tuple(series.label for series in figures["gamma"].drawing.series) == names
    assert figures["prices"].drawing.names == names
    assert tuple(row[0] for row in dict(found.tables)["constraints"].rows) == names
    assert "levels-constraint-2" in figures
    assert figures["levels-constraint-2"].title == "Levels kept, by operation, shift"
    assert "constraint 1" not in page.html(found)


def test_the_verdict_on_several_constraints_names_those_that_are_not_met(tmp_path: Path) -> None:
    run = with_families(write_run(tmp_path / "a", n_constraints=3), "turn", "shift", "light")
    said = words.verdict(read_run(run))
    assert said == "Feasible: all 3 constraints are met; the dearest is turn, γ = 0.12."
    change_last(run, slack=[-0.1, 0.2, 0.3], constraint_loss=[0.7, 1.0, 1.1], out_of_reach=[False, False, True])
    assert words.verdict(read_run(run)) == (
        "Not feasible: 2 of 3 constraints are violated at the end: shift (loss 1.00 > ε 0.80); "
        "light (loss 1.10 > ε 0.80, which looks out of reach). Their γ is not yet a price."
    )
    change_last(run, slack=[-0.1, None, -0.1], gamma=[0.0, 0.5, 0.0])
    assert "2 of 3 constraints are met; no finite slack is recorded for shift" in words.verdict(read_run(run))
    assert words.tiles(read_run(run))[1] == ("constraints met", "2 of 3", "in the last epoch")


def test_ten_constraints_all_stand_in_the_legend_in_styles_that_differ(tmp_path: Path) -> None:
    names = [f"family {i}" for i in range(10)]
    run = with_families(write_run(tmp_path / "a", n_constraints=10), *names)
    text = svg.draw(page.content(read_runs([run])).figures[0])
    assert all(f">{name}</text>" in text for name in names)
    assert len(set(re.findall(r'class="line (s\d d\d)" x1', text))) == 10


def test_many_constraints_of_several_runs_have_a_figure_each(tmp_path: Path) -> None:
    names = [f"family {i}" for i in range(6)]
    runs = [with_families(write_run(tmp_path / n, n_constraints=6), *names, size=s) for n, s in (("a", 0.5), ("b", 1))]
    found = page.content(read_runs([*runs, write_run(tmp_path / "c")]))
    titles = [figure.title for figure in found.figures if figure.key.startswith("gamma")]
    assert titles == [*(f"γ of {name}" for name in names), "γ of wide set"]
    assert any("many constraints" in note for note in found.notes)
    labels = [group.label for group in found.groups]
    assert len(set(labels)) == 3
    assert labels[0].startswith("ranges family 0: Rotate 0.5, ")


def test_three_constraints_of_several_runs_have_a_dash_each_and_their_columns(tmp_path: Path) -> None:
    names = ("turn", "shift", "light")
    runs = [with_families(write_run(tmp_path / str(i), n_constraints=3, seed=i), *names) for i in range(2)]
    found = page.content(read_runs(runs))
    assert [series.kind for series in found.figures[0].drawing.series] == [*names, *names]
    assert dict(found.tables)["experiments"].columns[3:6] == tuple(f"γ, {name}" for name in names)


def test_a_whole_run_has_all_its_figures_each_with_a_reading_and_its_numbers(run: Path) -> None:
    found = page.content(read_runs([run]))
    assert [figure.key for figure in found.figures] == [
        "gamma", "constraint-loss", "accuracy", "loss", "slack", "entropy", "acceptance", "operations", "levels",
    ]  # fmt: skip
    assert all(figure.reading.endswith(".") and figure.table.rows for figure in found.figures)
    readings = {figure.key: figure.reading for figure in found.figures}
    assert readings["slack"] == "First met in epoch 6."
    assert readings["gamma"] == "γ left zero in epoch 1 and settled at 0.12."
    assert readings["operations"].startswith("Last epoch. Kept more often than uniform draws: Rotate (+")
    assert "Identity (-" in readings["operations"]
    assert "Rotate, kept at high levels (mean 20." in readings["levels"]


def test_accuracy_comes_with_the_interval_of_its_test_images(run: Path) -> None:
    name, value, behind = words.tiles(read_run(run))[0]
    assert (name, value) == ("test accuracy", "90.0%")
    assert behind == "95 % interval 88.0% to 91.7% over 1,000 test images"


@pytest.mark.parametrize(
    ("changes", "meaning"),
    [
        ({}, "an ε larger by 0.1 would save about 0.012 of clean loss"),
        ({"slack": 0.3}, "not yet a price: the constraint is violated or γ still moves"),
        ({"method": "penalty"}, "a fixed weight"),
    ],
    ids=["met", "violated", "fixed"],
)
def test_gamma_is_called_a_price_only_where_it_is_one(tmp_path: Path, changes: dict[str, Any], meaning: str) -> None:
    run = read_run(write_run(tmp_path / "a", epochs=12, **changes))
    assert words.tiles(run)[1] == ("γ", "0.12", meaning)


# numbers, against scipy


@pytest.mark.parametrize("n_free", [1, 2, 5, 20, 21, 40, 400])
def test_quantiles_are_those_of_student(n_free: int) -> None:
    assert student(n_free) == pytest.approx(student_t.ppf(0.975, n_free), abs=5e-5)


def test_interval_of_a_mean_is_that_of_scipy() -> None:
    values = [0.91, 0.93, 0.90, 0.94]
    found = estimate(values)
    low, high = student_t.interval(0.95, 3, found.mean, 0.018257418583505536 / 2)
    assert found.interval == pytest.approx((low, high), abs=1e-5)
    assert estimate([0.9]).interval is None


@pytest.mark.parametrize(("right", "n"), [(0, 10), (90, 100), (10, 10)])
def test_interval_of_a_share_is_that_of_wilson(right: int, n: int) -> None:
    known = binomtest(right, n).proportion_ci(method="wilson")
    assert wilson(right / n, n) == pytest.approx((known.low, known.high), abs=1e-9)


@given(st.floats(-1e30, 1e30), st.floats(-1e30, 1e30))
def test_axes_hold_any_numbers_and_have_few_round_ticks(a: float, b: float) -> None:
    scale = scales.scale([a, b], 0, 100)
    assert scale.low < scale.high
    assert math.isfinite(scale(a) + scale(b))
    assert len(scales.ticks(scale.low, scale.high)) <= 7


# several runs


def test_seeds_of_one_experiment_belong_together_under_what_differs(tmp_path: Path) -> None:
    groups = grouped(read_runs(sweep(tmp_path)))
    assert [group.label for group in groups] == [
        "trivial", "invaug, epsilon 0.6, n_steps 1", "invaug, epsilon 1, n_steps 1",
        "invaug, epsilon 1.6, n_steps 1", "uniform, epsilon 1", "invaug, epsilon 1, n_steps 4",
    ]  # fmt: skip
    assert {len(group.runs) for group in groups} == {3}


def test_differences_are_paired_by_seed_against_the_plainest_method(tmp_path: Path) -> None:
    table = compare.differences(grouped(read_runs(sweep(tmp_path))))
    assert table is not None
    assert "minus that of trivial" in table.title
    assert table.rows[1] == ("invaug, epsilon 1, n_steps 1", 3, "+6.00", "+6.00 to +6.00")


def test_one_common_seed_has_a_difference_and_no_interval(tmp_path: Path) -> None:
    runs = read_runs([write_run(tmp_path / "a", method="trivial"), write_run(tmp_path / "b", accuracy=0.95)])
    assert compare.differences(grouped(runs)).rows == (("invaug", 1, "+5.00", "one common seed: no interval"),)
    assert "too few common seeds" in words.verdict_of(grouped(runs))


def test_runs_that_vary_everything_have_every_comparison(tmp_path: Path) -> None:
    runs = sweep(tmp_path)
    found = {figure.key: figure for figure in page.content(read_runs(runs)).figures}
    assert {"error", "error-epsilon", "error-n-steps", "uniform-against-chain", "time", "pareto"} <= found.keys()
    assert [row[0] for row in found["error-epsilon"].table.rows] == [0.6, 1.0, 1.6]
    assert [row[4] for row in found["error-epsilon"].table.rows] == pytest.approx([0.3, 0.2, 0.1])
    assert [row[0] for row in found["error-n-steps"].table.rows] == [0, 1, 4]
    assert [row[3] for row in found["pareto"].table.rows] == ["yes", "no", "yes", "no", "yes", "no"]


def test_a_comparison_the_runs_do_not_support_is_left_out(tmp_path: Path) -> None:
    keys = keys_of(write_run(tmp_path / "a", method="none"), write_run(tmp_path / "b", method="trivial"))
    assert "error" in keys
    assert not {"gamma", "error-epsilon", "error-n-steps", "uniform-against-chain", "operations"} & set(keys)


def test_runs_of_different_datasets_are_shown_and_not_compared(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / "a"), write_run(tmp_path / "b", data="cifar10")]
    assert "runs of different datasets (cifar10, digits)" in html_of(*runs)
    assert not {"error", "time", "pareto"} & set(keys_of(*runs))
    assert "differences" not in dict(page.content(read_runs(runs)).tables)


def test_a_folder_of_runs_stands_for_them_and_the_same_run_counts_once(tmp_path: Path) -> None:
    for name in ("none", "trivial"):
        write_run(tmp_path / name, method=name)
    assert [run.name for run in read_runs([tmp_path, tmp_path / "none"])] == ["none", "trivial"]


def test_runs_of_the_same_name_are_told_apart_by_the_folders_above(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / "x" / "run"), write_run(tmp_path / "y" / "run")]
    assert [run.name for run in read_runs(runs)] == ["x/run", "y/run"]


# bad input


def test_a_folder_that_is_no_run_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"is not a run: it has no config\.toml"):
        report_runs([tmp_path])


def test_a_config_that_is_a_link_is_refused(run: Path, tmp_path: Path) -> None:
    (run / "config.toml").rename(tmp_path / "elsewhere")
    (run / "config.toml").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="not a regular file"):
        read_run(run)


def test_a_run_without_a_record_has_a_page_that_says_so(run: Path) -> None:
    (run / "record.jsonl").unlink()
    text = html_of(run)
    assert "has no record.jsonl yet" in text
    assert "Nothing to judge yet" in text
    assert Tags(text).count("svg") == 0


def test_a_record_without_an_epoch_has_a_page_that_says_so(run: Path) -> None:
    (run / "record.jsonl").write_text("")
    assert "the record holds no whole epoch yet" in html_of(run)


def test_a_last_line_cut_by_a_kill_is_left_out_and_named(run: Path) -> None:
    with (run / "record.jsonl").open("a") as file:
        file.write('{"epoch": 7, "train_lo')
    found = read_run(run)
    assert len(found.epochs) == 6
    assert "the last line of the record is cut and was left out" in found.notes


def test_a_record_damaged_in_the_middle_has_a_page_that_says_where_in_it(run: Path) -> None:
    lines = (run / "record.jsonl").read_text().splitlines()
    (run / "record.jsonl").write_text("\n".join([lines[0], "{", *lines[2:]]) + "\n")
    assert "record.jsonl is damaged in line 2" in html_of(run)
    assert str(run) not in html_of(run)


def test_nan_and_infinity_break_lines_and_are_named(run: Path) -> None:
    rows = rows_of(run)
    rows[2] |= {"train_loss": math.nan, "gamma": [math.inf], "test_accuracy": None}
    write_rows(run, rows)
    text = html_of(run)
    assert "epochs without a finite training loss: 1, the first is 3" in text
    assert not re.search(r"\b(nan|inf)\b", text[: text.index("<script>")])


def test_a_run_that_stopped_early_says_how_far_it_came(tmp_path: Path) -> None:
    assert "4 of 9 epochs are recorded" in html_of(write_run(tmp_path / "a", epochs=4, planned=9))


def test_one_epoch_is_drawn_as_dots(tmp_path: Path) -> None:
    text = html_of(write_run(tmp_path / "a", epochs=1))
    assert text.count('class="dot') >= 6
    assert "<polyline" not in text


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from(
    ["train_loss", "test_accuracy", "slack", "gamma", "constraint_loss", "kept", "entropy", "seconds", "out_of_reach",
     "skipped_batches", "acceptance", "val_loss"]
)  # fmt: skip


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.dictionaries(KEYS, json_values, max_size=6), max_size=4), st.dictionaries(st.text(), json_values))
def test_whatever_a_record_and_an_evaluation_say_there_is_a_page(
    tmp_path: Path, changes: list[dict[str, Any]], evaluation: dict[str, Any]
) -> None:
    folder = write_run(tmp_path / "a", n_levels=3)
    write_rows(folder, [row | change for row, change in zip(rows_of(folder), changes, strict=False)])
    nested = dict.fromkeys(("levels", "classes", "clean", "transformed"), evaluation)
    lists = {key: [evaluation] for key in ("gallery", "calibration", "hardest")}
    (folder / "evaluation.json").write_text(json.dumps(nested | lists))
    assert html_of(folder).endswith("</html>")


# names that would rather be code


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


# files


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
    assert {path.suffix for path in folder.iterdir()} == {".csv", ".md", ".tex"}
    assert (folder / "gamma.csv").read_text().startswith('"epoch","wide set"\n1,0.0')
    assert r"n\_steps & 1 \\" in (folder / "settings.tex").read_text()
    assert "| n\\_steps | 1 |" in (folder / "settings.md").read_text()


def test_letters_that_no_font_has_and_typesetting_are_drawn_without_a_complaint(tmp_path: Path) -> None:
    names = [name for name in HOSTILE[-10:] if "\ud800" not in name]
    run = write_run(tmp_path / "a")
    change_last(run, kept=[{name: [1, 2, 3] for name in names}])
    report_runs([run], tmp_path / "r.html", tmp_path / "figures")
    assert {path.stem for path in (tmp_path / "figures").glob("*.png")} >= {"operations", "levels", "gamma"}


def test_the_page_says_whatever_it_leaves_out(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / f"run-{i}", epsilon=0.5 + i / 10) for i in range(8)]
    pixel = "data:image/png;base64,AAAA"
    evaluation = {"clean": {"accuracy": 0.9}, "gallery": [{"class": "a", "original": pixel, "proposals": []}]}
    for run in runs:
        (run / "evaluation.json").write_text(json.dumps(evaluation))
    text = html_of(*runs)
    for said in (
        "experiments without figures of what was kept: 2;", "runs with an evaluation that is not shown: 2;",
        "pictures of the first 3 evaluated runs are shown; report the other 5 alone",
        "the 4 best experiments stand at the top; the table has the other 4 too", "8 levels of ε, too many to draw",
    ):  # fmt: skip
        assert said in text


def test_without_matplotlib_there_is_svg_and_one_line(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pictures, "available", lambda: False)
    report_runs([run], tmp_path / "r.html", tmp_path / "figures")
    assert capsys.readouterr().err.splitlines() == [pictures.MISSING]
    assert not list((tmp_path / "figures").glob("*.png"))


def test_the_page_of_one_run_goes_into_its_folder(run: Path) -> None:
    assert report_runs([run]) == [run / "report.html"]


def test_a_page_that_cannot_be_written_is_one_line(run: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="choose another -o"):
        report_runs([run], tmp_path / "file" / "r.html")


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
    monkeypatch.setattr(pages, "OPS", tuple(f"Operation{i}" for i in range(14)))  # as the wide set has
    runs = [
        write_run(tmp_path / f"run-{i}", epochs=200, seed=i % 4, epsilon=0.5 + i // 4 / 10, gamma=0.1 + i / 100)
        for i in range(20)
    ]
    started = time.perf_counter()
    report_runs(runs, tmp_path / "r.html")
    size = (tmp_path / "r.html").stat().st_size
    print(f"20 runs of 200 epochs: {time.perf_counter() - started:.2f} s, {size / 1e6:.2f} MB")
    assert size < 5e6


def test_a_million_epochs_are_thinned(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "a", epochs=3))
    long = Run(**{**vars(run), "epochs": tuple(run.epochs[0].__class__(**{**vars(run.epochs[0]), "number": i})
                                               for i in range(5000))})  # fmt: skip
    lines = page.content([long]).figures[0].drawing.series[0].points
    assert len(lines) <= 401
    assert lines[-1][0] == 4999
    assert page.content([long]).figures[0].reading.endswith("One epoch in 13 is drawn.")


def test_words_of_time() -> None:
    assert [words.duration(seconds) for seconds in (0.5, 61, 7200)] == ["0.5 s", "1.02 min", "2 h"]
