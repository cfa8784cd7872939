"""The command as people type it: its exit code, its one line; in a process of its own where that matters."""

from __future__ import annotations

import json
import os
import py_compile
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import invaug as invaug_package
from invaug.lab.cli.main import app, main
from invaug.lab.config import build as configs
from invaug.lab.config.schema import PLACES, RECORDS
from invaug.lab.errors import UserError
from tests.support.runs import train, write_digits


def invaug(*arguments: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "invaug", *arguments]
    variables = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=300)  # noqa: S603


@dataclass(frozen=True)
class Done:
    """What a command that ran in this process left."""

    code: object
    out: str
    err: str


Call = Callable[..., Done]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Return what runs a command in this process, which need not import torch again, in an empty folder."""

    def run(*arguments: str) -> Done:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["invaug", *arguments])
        with pytest.raises(SystemExit) as stopped:
            main()
        return Done(stopped.value.code, *capsys.readouterr())

    return run


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_digits(tmp_path_factory.mktemp("data"))


def test_a_process_trains_as_python_does_and_what_it_wrote_can_be_evaluated(
    data: Path, tmp_path: Path, call: Call
) -> None:
    (here,) = train(data, tmp_path / "here", epochs=1)
    flags = ["--epochs", "1", "--batch-size", "64", "--lr", "0.05", "--workers", "0", "--threads", "1"]
    trained = invaug("train", str(data), *flags, "--out", "run", "--json", folder=tmp_path)
    assert trained.returncode == 0, trained.stderr
    (summary,) = json.loads(trained.stdout)
    assert summary["run"] == "run"
    assert summary["test_loss"] == here["test_loss"]
    measured = call("evaluate", "run", "--json", "--draws", "2", "--images", "32")
    assert measured.code == 0, measured.err
    report = json.loads(measured.out)
    assert report["clean"]["accuracy"] == pytest.approx(summary["test_accuracy"])
    assert report["transformed"]["worst"]["loss"] >= report["transformed"]["lambda_c"]["loss"]
    assert report["transformed"]["lambda_c"]["loss"] >= report["transformed"]["uniform"]["loss"]


def test_default_job_ends_with_a_table_and_where_run_and_report_are(tmp_path: Path, call: Call) -> None:
    done = call("train", "--epochs", "1", "--per-class", "20", "--threads", "1")
    assert done.code == 0, done.err
    assert "transformed" in done.out
    run, report, after = done.out.strip().splitlines()[-3:]
    assert run == "run: runs/digits-constrained"
    assert after.startswith("next: open the report; use the network: invaug predict runs/digits-constrained IMAGE…")
    assert report == "report: runs/digits-constrained/report.html"
    assert (tmp_path / report.removeprefix("report: ")).exists()
    assert (tmp_path / "runs" / "digits-constrained" / "record.jsonl").exists()


def test_a_quiet_run_prints_only_where_it_is(data: Path, tmp_path: Path, call: Call) -> None:
    done = call("train", str(data), "--epochs", "1", "--threads", "1", "--quiet")
    assert (done.code, done.out, done.err) == (0, "runs/some-digits-constrained\n", "")
    assert (tmp_path / "runs" / "some-digits-constrained" / "report.html").exists()


def test_a_dry_run_says_what_would_be_trained_and_writes_nothing(data: Path, tmp_path: Path, call: Call) -> None:
    done = call("train", str(data), "--threads", "1", "--dry-run")
    recipe, method = done.out.splitlines()
    expected = r"256 train / 128 test, 28 px, cnn-small, batch 8, 32 steps × 30 epochs, flips off, about \d+ (s|min)"
    assert re.fullmatch(expected, recipe)
    assert method == "invaug (mild set, epsilon set by the resilient rule) on some-digits"
    (plan,) = json.loads(call("train", str(data), "--threads", "1", "--dry-run", "--json").out)
    assert (plan["run"], plan["steps_per_epoch"]) == ("runs/some-digits-constrained", 32)
    assert plan["seconds"] > 0
    assert plan["config"]["lr"] == 0.025
    together = call("train", str(data), "--threads", "1", "--dry-run", "--compare", "--batch-size", "64")
    recipe, methods = together.out.splitlines()
    assert re.search(r"batch 64, 4 steps × 100 epochs, flips off, about \d+ (s|min) in all$", recipe)
    assert methods.startswith("3 trainings: none, trivial, invaug (mild set")
    assert not list(tmp_path.iterdir())


def test_the_first_line_comes_before_torch_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('torch was imported')")
    done = invaug("train", folder=tmp_path, PYTHONPATH=f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    assert done.stderr.splitlines()[0] == "loading PyTorch, which takes a few seconds"
    assert "torch was imported" in done.stderr


def test_the_version_is_that_of_the_package(call: Call) -> None:
    done = call("--version")
    assert (done.code, done.out) == (0, f"invaug {invaug_package.__version__}\n")


@pytest.mark.parametrize("flags", [["--only", "Rotate,ShearX"], ["--only", "Rotate", "--only", "ShearX,"]])
def test_lists_are_given_by_commas_or_by_repeating_the_flag(flags: list[str], data: Path, call: Call) -> None:
    done = call("train", str(data), "--threads", "1", "--dry-run", "--json", *flags)
    assert json.loads(done.out)[0]["config"]["only"] == ["Rotate", "ShearX"]


def test_closed_pipe_does_not_kill_training(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        assert call("train", str(data), "--epochs", "2", "--threads", "1", "--out", "run").code == 0
    assert len((tmp_path / "run" / "record.jsonl").read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("redirection", "code", "said"),
    [
        (">&-", 0, ""),
        ("<&- >&- 2>&-", 0, ""),
        ("2>/dev/full", 0, ""),
        (">/dev/full", 1, "invaug: cannot write the output: No space left on device\n"),
        ("| head -0", 0, ""),
    ],
)
def test_output_that_cannot_be_written_is_said_in_one_line_or_not_at_all(
    redirection: str, code: int, said: str, tmp_path: Path
) -> None:
    words = [sys.executable, "-m", "invaug", "train", "--help"]
    script = f'set -o pipefail; "$@" {redirection} 3>&-'
    done = subprocess.run(["bash", "-c", script, "bash", *words], cwd=tmp_path, capture_output=True, text=True)  # noqa: S603, S607
    assert (done.returncode, done.stderr) == (code, said)


def test_letters_that_the_output_lacks_are_written_as_numbers(tmp_path: Path) -> None:
    done = invaug("show", "Käfer", folder=tmp_path, LC_ALL="C", PYTHONIOENCODING="ascii")
    assert done.returncode == 2
    assert "unknown config K\\xe4fer" in done.stderr


def test_a_run_has_a_name(call: Call) -> None:
    done = call("train", "--out", "")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "Invalid value for '--out': the name is empty, got ''" in done.err


def hostile_npz(folder: Path, **changes: np.ndarray) -> str:
    arrays = dict(np.load(write_digits(folder), allow_pickle=False))
    path = folder / "changed.npz"
    np.savez(path, **{**arrays, **changes})
    return str(path)


WRONG = {
    "unknown dataset": (["cifar11"], "cifar10"),
    "unknown model": (["--model", "wnr-40-2"], "wrn-40-2"),
    "unknown set": (["--set", "wild"], "wide"),
    "unknown method": (["--method", "constraind"], "constrained"),
    "unknown preset": (["--preset", "papper"], "paper"),
    "unknown operation": (["--without", "Rotat"], "Rotate"),
    "epochs 0": (["--epochs", "0"], "epochs"),
    "negative epsilon": (["--epsilon", "-0.2"], "epsilon must be positive, got -0.2"),
    "no such folder": (["no/such/folder"], "no/such/folder"),
    "no such config": (["--config", "nothing.toml"], "nothing.toml"),
    "device not there": (["--device", "cuda"], "cuda"),
    "policy missing": (["--method", "deepaa"], "--policy"),
    "resume nothing": (["--resume", "--out", "nowhere"], "nowhere"),
    "too few images": (["--per-class", "3", "--batch-size", "128", "--drop-last"], "30 images are too few"),
    "too few to compare": (["--per-class", "3", "--batch-size", "64", "--drop-last", "--compare"], "too few"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_input_is_one_line_and_leaves_nothing_behind(kind: str, tmp_path: Path, call: Call) -> None:
    arguments, hint = WRONG[kind]
    done = call("train", *arguments)
    assert done.code == 2
    assert hint in done.err
    assert "Traceback" not in done.err
    assert done.err.count("\n") <= 5  # typer's own complaints take a few lines, ours one
    assert not list(tmp_path.iterdir())


def test_labels_out_of_range_are_refused_before_the_first_step(tmp_path: Path, call: Call) -> None:
    path = hostile_npz(tmp_path, y_train=np.full(256, -1))
    done = call("train", path, "--out", "run")
    assert done.code == 2
    assert "-1" in done.err
    assert not (tmp_path / "run").exists()


VERBS = [str(command.name or getattr(command.callback, "__name__", "")) for command in app.registered_commands]


def test_every_verb_is_registered() -> None:
    reading = {"evaluate", "certify", "export", "predict", "report", "watch", "scan", "ls", "show", "gallery"}
    assert set(VERBS) == {"train", "tune", "insights", "reproduce", *reading}


@pytest.mark.parametrize("name", VERBS)
def test_help_of_every_command_has_an_example(name: str) -> None:
    result = CliRunner().invoke(app, [name, "--help"])
    assert result.exit_code == 0
    _, found, after = " ".join(result.output.split()).partition("Example")
    assert found
    assert f"invaug {name}" in after


@pytest.mark.parametrize("name", ["train", "tune"])
def test_help_lists_common_flags_by_table_and_help_all_lists_every_setting(name: str) -> None:
    common, everything = (CliRunner().invoke(app, [name, flag]).output for flag in ("--help", "--help-all"))
    flags = {f"--{key.replace('_', '-')}" for key in PLACES} - {"--data"}
    assert flags <= set(everything.split())
    assert "--epochs" in common.split()
    assert "--label-smoothing" not in common.split()
    assert f"{name} --help-all" in common
    for record in RECORDS:
        assert f"[{record}]" in common
        assert f"[{record}]" in everything


def test_help_needs_no_torch() -> None:
    code = "import sys; from invaug.lab.cli import main; assert 'torch' not in sys.modules, 'torch was imported'"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)  # noqa: S603


def test_missing_lab_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise ModuleNotFoundError('no typer', name='typer')")
    done = invaug("--help", folder=tmp_path, PYTHONPATH=str(tmp_path))
    assert done.returncode == 2
    assert done.stderr == 'invaug: the command line needs typer: pip install "invaug[lab]"\n'


def test_byte_code_cut_by_a_full_disk_is_no_silent_interrupt(tmp_path: Path) -> None:
    source = tmp_path / "safetensors.py"
    source.write_text("x = 1\n")
    compiled = Path(py_compile.compile(str(source), doraise=True))
    compiled.write_bytes(compiled.read_bytes()[:30])
    done = invaug("train", "--epochs=1", folder=tmp_path, PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert re.search(r"^invaug: a file ends too early, .+install invaug again$", done.stderr, re.MULTILINE)
    assert "Traceback" not in done.stderr


def test_config_file_and_flags_have_the_same_names(data: Path, tmp_path: Path, call: Call) -> None:
    file = tmp_path / "mine.toml"
    tables = {"data": {"name": str(data)}, "method": {"name": "none"}, "train": {"epochs": 1, "batch_size": 32}}
    file.write_text(configs.dump(tables))
    done = call("train", "--config", "mine.toml", "--batch-size", "64", "--threads", "1", "--out", "run")
    assert done.code == 0, done.err
    saved = configs.read_toml(tmp_path / "run" / "config.toml")
    assert (saved["method"]["name"], saved["train"]["batch_size"]) == ("none", 64)


def test_unknown_key_answers_with_the_nearest() -> None:
    with pytest.raises(UserError, match=r"unknown key epsilo, did you mean epsilon"):
        configs.build({"epsilo": 0.8})


def test_preset_is_recorded_and_yields_to_what_is_given() -> None:
    config = configs.build({"preset": "authors-code", "dual_lr": 0.5}).method
    assert (config.preset, config.n_steps, config.dual_lr, config.identity) == ("authors-code", 1, 0.5, False)


def test_config_written_is_the_config_read(tmp_path: Path) -> None:
    config = configs.build({"only": ["Rotate"], "epsilon": float("inf"), "data_dir": str(tmp_path)})
    file = tmp_path / "config.toml"
    file.write_text(configs.dump(config.model_dump()))
    assert configs.build(configs.read(file)) == config


def test_a_run_that_is_locked_is_not_touched(data: Path, tmp_path: Path, call: Call) -> None:
    from invaug.lab.run.lock import run_lock

    (tmp_path / "run").mkdir()
    with run_lock(tmp_path / "run"):
        done = call("train", str(data), "--threads", "1", "--out", "run")
    assert done.code == 2
    assert f"run is in use by process {os.getpid()}" in done.err
    assert [path.name for path in (tmp_path / "run").iterdir()] == [".lock"]
