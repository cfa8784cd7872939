"""`invaug certify` of a real run: what it prints and keeps, how it resumes, what it refuses."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from invaug import sets
from invaug.lab.certify import command as certify
from invaug.lab.certify import matrix as scored
from invaug.lab.cli import main
from invaug.lab.errors import UserError
from invaug.lab.report import page
from invaug.lab.report.assemble import document_of
from invaug.lab.report.read import read_runs
from invaug.lab.report.sections.certificate import document
from invaug.lab.report.terminal import print_document
from invaug.lab.run.record import read
from invaug.lab.train.signals import Stopped
from tests.support.browser import Browser
from tests.support.runs import train, write_digits


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_digits(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def runs(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on disk, and one of another seed."""
    folder = tmp_path_factory.mktemp("runs")
    for seed in (0, 1):
        train(data, folder / f"seed-{seed}", model="cnn-small", set="wide", n_levels=3, epochs=1, seed=seed)
    return folder


@pytest.fixture
def run(runs: Path, tmp_path: Path) -> Path:
    return shutil.copytree(runs / "seed-0", tmp_path / "run")


@pytest.fixture(scope="module")
def known(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has been certified."""
    folder = shutil.copytree(runs / "seed-0", tmp_path_factory.mktemp("certified") / "run")
    certified(folder)
    return folder


@pytest.fixture
def certified_run(known: Path, tmp_path: Path) -> Path:
    return shutil.copytree(known, tmp_path / "certified")


def certified(run: Path, images: int | None = 40, **options: Any) -> None:
    given = {"data": None, "data_dir": None, "confidence": 0.95, "device": "cpu", "as_json": True, **options}
    certify.certify_run(run, images, **given)


def refuse_constants(text: str) -> Any:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_a_certificate_is_printed_kept_and_on_the_page(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    certified(run)
    printed = refuse_constants(capsys.readouterr().out)
    kept = refuse_constants((run / "certificate.json").read_text())
    assert {key: value for key, value in printed.items() if key != "run"} == kept
    assert "run" not in kept  # runs are passed on, and where they lie is nobody's business
    (found,) = kept["constraints"]
    assert found["name"] == "wide"
    assert found["transformations"] == len(sets.wide(3).every())
    assert kept["epsilon"] == read(run)[-1]["epsilon"][0]  # chosen while training
    html = (run / "report.html").read_text()
    assert "How invariant the model is, with confidence" in html
    assert "are right as they are and under all" in html


def test_the_tables_say_the_same(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "150")
    certified(run, as_json=False)
    output = capsys.readouterr()
    assert output.err == ""
    for words in (
        "Clopper and Pearson 1934",
        "Waudby-Smith",
        "R_inv",
        "λ_c",
        "leave nothing to see",
        *sets.wide().names,
    ):
        assert words in output.out


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light")])
def test_a_browser_shows_the_verdict_and_cuts_off_nothing(
    browser: Browser, default: Path, width: int, scheme: str
) -> None:
    text = refuse_constants((default / "certificate.json").read_text())["constraints"][0]["verdict"]["text"]
    browser.open((default / "report.html").as_uri(), width, scheme=scheme)
    left, right, shown = browser.run(
        "const p = [...document.querySelectorAll('p')].find(p => "
        "/^(Holds|Does not hold|Cannot tell)/.test(p.textContent)); const b = p.getBoundingClientRect();"
        "return [b.left, b.right, p.textContent]"
    )
    assert shown == text
    assert 0 <= left < right <= width
    assert browser.run("return document.documentElement.scrollWidth") <= width
    assert browser.complaints() == []


@pytest.mark.parametrize(
    ("answer", "needed", "command"),
    [
        ("holds", None, "invaug export {run}"),
        ("no level", None, "invaug export {run}"),
        ("does not hold", None, "invaug insights {data}"),
        ("cannot tell", 90, "invaug certify {run} --images 90"),
        ("cannot tell", 900, "invaug insights {data}"),
    ],
)
def test_the_last_line_is_the_next_command(
    certified_run: Path,
    data: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
    needed: int | None,
    command: str,
) -> None:
    verdict = {"answer": answer, "text": "", "context": [], "images_needed": needed}
    monkeypatch.setattr(certify, "judge", lambda *_: verdict)
    certified(certified_run, as_json=False)
    assert capsys.readouterr().out.splitlines()[-1] == f"next: {command.format(run=certified_run, data=data)}"


def test_a_second_certificate_scores_nothing(certified_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = certified_run
    first = (run / "certificate.json").read_bytes()
    monkeypatch.setattr(scored, "score_block", lambda *_: pytest.fail("scored again"))
    certified(run)
    assert (run / "certificate.json").read_bytes() == first
    certified(run, confidence=0.5)
    assert (run / "certificate.json").read_bytes() != first


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_interrupted_certificate_can_be_resumed_to_the_same_bytes(
    run: Path, known: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    calls, score = 0, scored.score_block

    def interrupted(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 3:
            os.kill(os.getpid(), number)
        return score(*arguments)

    monkeypatch.setattr(scored, "score_block", interrupted)
    with pytest.raises(Stopped, match=f"stopped by {number.name}; .* run the same command again to resume"):
        certified(run)
    assert calls == 3
    assert not (run / "certificate.json").exists()
    certified(run)
    assert (run / "certificate.json").read_bytes() == (known / "certificate.json").read_bytes()


def test_the_command_exits_with_the_number_of_the_signal(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    score = scored.score_block

    def interrupted(*arguments: Any) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        return score(*arguments)

    monkeypatch.setattr(scored, "score_block", interrupted)
    monkeypatch.setattr("sys.argv", ["invaug", "certify", str(run), "--images", "5"])
    with pytest.raises(SystemExit) as exit_:
        main.main()
    assert exit_.value.code == 143


def test_other_weights_make_a_new_certificate_and_that_is_said(
    certified_run: Path, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = certified_run
    before = (run / "certificate.json").read_bytes()
    shutil.rmtree(run / "checkpoints")
    shutil.copytree(runs / "seed-1" / "checkpoints", run / "checkpoints")
    certified(run)
    assert "belong to other weights: scoring again from the start" in capsys.readouterr().err
    assert (run / "certificate.json").read_bytes() != before


def test_other_images_make_a_new_certificate_and_that_is_said(
    certified_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    certified(certified_run, 30)
    assert "belong to other images: scoring again from the start" in capsys.readouterr().err


def test_other_data_leave_the_page_and_the_scores_of_the_run_alone(
    certified_run: Path, data: Path, tmp_path: Path
) -> None:
    run = certified_run
    kept = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    certified(run, 20, data=str(shutil.copy(data, tmp_path / "other.npz")))
    assert all(path.read_bytes() == content for path, content in kept.items())


def test_families_have_a_certificate_each(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    families = {"flip": {"FlipX": True}, "turn": {"Rotation": 0.5}, "hole": {"Cutout": 8}}
    train(data, tmp_path / "run", model="cnn-small", epochs=1, families=families)
    capsys.readouterr()
    certified(tmp_path / "run", 20)
    found = refuse_constants(capsys.readouterr().out)["constraints"]
    assert [(entry["name"], entry["kind"]) for entry in found] == [
        ("flip", "exact"),
        ("turn", "sampled"),
        ("hole", "sampled"),
    ]
    html = (tmp_path / "run" / "report.html").read_text()
    assert all(f"certified-{i}" in html for i in (1, 2, 3))


@pytest.fixture(scope="module")
def default(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with default settings, two operations in sequence and a level that a rule sets, certified."""
    folder = tmp_path_factory.mktemp("default") / "run"
    train(data, folder, model="cnn-small", epochs=1, n_levels=2)
    certified(folder, 60)
    return folder


def test_the_default_is_held_to_its_level_on_the_sequences_it_trains_on(default: Path) -> None:
    report = refuse_constants((default / "certificate.json").read_text())
    (found,) = report["constraints"]
    assert report["epsilon"] == found["epsilon"] == read(default)[-1]["epsilon"][0]
    assert (found["kind"], found["depth"]) == ("sampled", 2)
    low, high = found["trained"]["loss_interval"]
    assert low < found["trained"]["loss"] < high
    expected = "holds" if high <= found["epsilon"] else "does not hold" if low > found["epsilon"] else "cannot tell"
    assert found["verdict"]["answer"] == expected
    assert found["verdict"]["text"].lower().startswith(expected)
    assert "random sequences of 2 operations (kept by chains of 2 draws, as in training)" in found["verdict"]["text"]


def test_each_operation_of_a_sequence_keeps_its_worst_case_but_has_no_level(default: Path) -> None:
    (found,) = refuse_constants((default / "certificate.json").read_text())["constraints"]
    alone = found["alone"]
    assert (alone["kind"], set(alone["operations"])) == ("exact", set(sets.mild().names))
    assert {alone[law]["verdict"] for law in ("uniform", "lambda_c", "worst")} == {None}


def test_page_and_terminal_give_the_verdict_of_the_document(default: Path) -> None:
    report = refuse_constants((default / "certificate.json").read_text())
    text = report["constraints"][0]["verdict"]["text"]
    assert text.replace("'", "&#x27;") in (default / "report.html").read_text()
    console = Console(width=2000)
    with console.capture() as captured:
        print_document(document(report, "run"), console)
    assert text in captured.get()
    assert "2 operations in sequence" in captured.get()
    assert "each operation alone" in captured.get()


def test_a_method_without_a_bound_has_no_verdict(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(data, tmp_path / "run", model="cnn-small", epochs=1, method="none", n_levels=2)
    capsys.readouterr()
    certified(tmp_path / "run", 20)
    report = refuse_constants(capsys.readouterr().out)
    assert report["epsilon"] is None
    assert report["constraints"][0]["uniform"]["verdict"] is None
    assert report["constraints"][0]["verdict"]["answer"] == "no level"
    assert "No level to hold" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"confidence": 1.0}, "confidence must lie strictly between 0 and 1, got 1.0"),
        ({"confidence": 95.0}, "confidence must lie strictly between 0 and 1, got 95.0"),
        ({"confidence": math.nan}, "confidence must lie strictly between 0 and 1, got nan"),
        ({"images": 129}, "--images must be 1 to 128, the held-out images of some-digits, got 129"),
        ({"images": 0}, "--images must be 1 to 128, .* got 0"),
        ({"images": -3}, "--images must be 1 to 128, .* got -3"),
        ({"device": "cpi"}, "unknown device cpi, did you mean cpu"),
        ({"data": "nowhere.npz"}, "nowhere.npz does not exist, as a file, a folder or a dataset"),
    ],
)
def test_bad_input_is_one_line(run: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        certified(run, **options)
    assert "\n" not in str(error.value)
    assert not (run / "certificate.json").exists()


def test_a_run_without_a_checkpoint_is_refused(run: Path) -> None:
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(UserError, match="has no checkpoint yet: train it first"):
        certified(run)


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"is not a run: it has no config\.toml"):
        certified(tmp_path)


def test_a_run_of_one_class_is_refused(run: Path) -> None:
    config = run / "config.toml"
    text = config.read_text()
    start, end = text.index("classes = ["), text.index("]", text.index("classes = ["))
    config.write_text(f'{text[:start]}classes = [\n    "cat",\n{text[end:]}')
    with pytest.raises(UserError, match="has one class, cat: every answer is right"):
        certified(run)


def test_images_of_one_class_alone_are_named(
    run: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with np.load(data) as arrays:
        content = dict(arrays)
    chosen = content["y_test"] == 3
    np.savez(
        tmp_path / "threes.npz", **content | {"x_test": content["x_test"][chosen], "y_test": content["y_test"][chosen]}
    )
    certified(run, None, data=str(tmp_path / "threes.npz"))
    report = refuse_constants(capsys.readouterr().out)
    assert report["images"] == report["of"] == chosen.sum()
    assert report["notes"] == [
        f"only {chosen.sum()} images: the intervals are wide",
        "all images are of class 3: nothing is known about the others",
    ]


def test_one_image_says_next_to_nothing_and_says_so(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    certified(run, 1)
    report = refuse_constants(capsys.readouterr().out)
    assert report["notes"][0] == "only 1 image: the intervals are wide"
    low, high = report["constraints"][0]["all"]["interval"]
    assert high - low > 0.9


def test_two_processes_do_not_certify_one_run(run: Path) -> None:
    from invaug.lab.run.lock import run_lock

    with run_lock(run / "certificate"), pytest.raises(UserError, match="is in use by process"):
        certified(run)


def test_a_certificate_folder_that_is_a_link_is_refused(run: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (run / "certificate").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="is a link, but a run keeps its certificate itself"):
        certified(run)
    assert not list((tmp_path / "elsewhere").iterdir())


HOSTILE = ("<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "[red]\x1b[2J\x07", "=cmd|' /C calc'!A0")


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_a_hostile_name_is_text_on_page_and_terminal(certified_run: Path, name: str) -> None:
    run = certified_run
    report = json.loads((run / "certificate.json").read_text())
    (entry,) = report["constraints"]
    entry["name"] = report["data"] = name
    entry["blinding"] = {"count": 1, "names": [name]}
    for key in ("classes", "operations", "levels"):
        entry[key] = {name: next(iter(entry[key].values()))}
    (run / "certificate.json").write_text(json.dumps(report))
    html = page.html(document_of(read_runs([run])))
    assert html.count("<script") == 1
    assert "<img src=x" not in html
    console = Console(width=150)
    with console.capture() as captured:
        print_document(document(report, name), console)
    assert "\x07" not in captured.get()
    assert "\x1b[2J" not in captured.get()


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        "null",
        "{",
        '{"constraints": 3}',
        '{"constraints": [3, {}, {"kind": "sampled"}]}',
        '{"constraints": [{"kind": "exact", "operations": {"a": {"share": "x"}}, "levels": {"a": [{"level": 1e99}]}}]}',
        '{"epsilon": "x", "constraints": [{"kind": "exact", "operations": {"a": {"share": 0.5, "interval": [1]}},'
        ' "levels": {"a": [{"level": 2, "accuracy": 0.5}]}, "classes": {"c": {"share": 0.5}},'
        ' "uniform": {"loss": null}}]}',
    ],
)
def test_whatever_a_certificate_says_there_is_a_page(run: Path, content: str) -> None:
    (run / "certificate.json").write_text(content)
    assert page.html(document_of(read_runs([run]))).startswith("<!doctype html>")
