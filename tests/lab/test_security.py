"""What a hostile run cannot do, and what our own code may not call."""

from __future__ import annotations

import ast
import io
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from rich.console import Console

import invaug
from invaug import lab
from invaug.lab import terminal
from invaug.lab.errors import UserError
from invaug.lab.evaluate.command import evaluate_run
from invaug.lab.export.command import export_run
from invaug.lab.export.predict import predict_files
from invaug.lab.report.sections.evaluation import document
from invaug.lab.report.terminal import print_document
from invaug.lab.run import checkpoint, record
from invaug.lab.run import folder as run
from invaug.lab.terminal import Forgiving, plain
from invaug.lab.train.display import Screen
from tests.support.runs import train, write_digits

SOURCES = Path(invaug.__file__).parent

BANNED_MODULES = {
    "pickle",
    "cPickle",
    "_pickle",
    "marshal",
    "shelve",
    "dill",
    "cloudpickle",
    "joblib",
    "jsonpickle",
    "pty",
    "commands",
    "imp",
    "code",
    "codeop",
    "xmlrpc",
    "telnetlib",
    "ftplib",
}
BANNED_NAMES = {"eval", "exec", "compile", "__import__"}
BANNED_CALLS = {
    "os.system",
    "os.popen",
    "os.execv",
    "os.execve",
    "os.execvp",
    "os.spawnv",
    "os.spawnl",
    "os.startfile",
    "torch.load",
    "torch.jit.load",
    "torch.hub.load",
    "torch.package",
    "yaml.load",
    "tempfile.mktemp",
    "builtins.eval",
    "builtins.exec",
    "pandas.read_pickle",
}
BANNED_METHODS = {"extractall", "extract", "load_state_dict_from_url"}
BANNED_ARGUMENTS = {"allow_pickle", "shell"}  # unless they are False

ALLOWED = {
    (
        "__init__.py",
        "import_module(f'invaug.{_MODULES[name]}')",
    ): "our own modules, by the table in the same file",
    ("__init__.py", "import_module(f'invaug.{file}')"): "the same",
    (
        "lab/models/build.py",
        "import_module(module_name)",
    ): "the user's module:factory; a stored one needs --trust-model",
    (
        "lab/models/weights.py",
        "torch.load(io.BytesIO(data), map_location='cpu', weights_only=True)",
    ): "tensors alone: nothing is unpickled",
    ("lab/models/weights.py", "torch.load"): "the same",
    ("lab/run/loggers.py", "import_module(module)"): "names of the table in the same file",
    ("lab/train/problem.py", "import_module(f'invaug.lab.baselines.{module}')"): "names of the table of methods",
}


def dotted(node: ast.expr) -> str:
    """The name a call is written with; numpy and torch under their usual short names count as themselves."""
    if isinstance(node, ast.Name):
        return {"np": "numpy"}.get(node.id, node.id)
    return f"{dotted(node.value)}.{node.attr}" if isinstance(node, ast.Attribute) else "?"


def offences(tree: ast.Module) -> Iterator[str]:
    """Yield what in a file is on the ban list."""
    aliases = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                aliases[alias.asname or alias.name.partition(".")[0]] = alias.name if alias.asname else ""
                if alias.name.partition(".")[0] in BANNED_MODULES:
                    yield f"import {alias.name}"
        elif isinstance(node, ast.ImportFrom):
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            aliases |= {a.asname or a.name: name for a, name in zip(node.names, whole, strict=True)}
            banned = [name for name in whole if name in BANNED_CALLS or name.partition(".")[0] in BANNED_MODULES]
            if banned and not node.level:
                yield f"from {banned[0]}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield from offences_of_call(node, aliases)
        elif isinstance(node, ast.Attribute) and dotted(node) in BANNED_CALLS:
            yield dotted(node)


def offences_of_call(call: ast.Call, aliases: dict[str, str]) -> Iterator[str]:
    name = dotted(call.func)
    first, _, rest = name.partition(".")
    full = ".".join(filter(None, (aliases.get(first) or first, rest)))
    last = name.rpartition(".")[2]
    if name in BANNED_NAMES or full in BANNED_CALLS:
        yield ast.unparse(call)
    if isinstance(call.func, ast.Attribute) and last in BANNED_METHODS:
        yield ast.unparse(call)
    if last == "import_module" and not (call.args and isinstance(call.args[0], ast.Constant)):
        yield f"import_module({ast.unparse(call.args[0]) if call.args else ''})"
    for keyword in call.keywords:
        harmless = isinstance(keyword.value, ast.Constant) and keyword.value.value is False
        if keyword.arg in BANNED_ARGUMENTS and not harmless:
            yield ast.unparse(call)


@pytest.mark.parametrize("file", sorted(SOURCES.rglob("*.py")), ids=lambda file: str(file.relative_to(SOURCES)))
def test_no_source_calls_what_could_run_what_it_reads(file: Path) -> None:
    name = file.relative_to(SOURCES).as_posix()
    found = set(offences(ast.parse(file.read_text(encoding="utf-8"))))
    assert not {offence for offence in found if (name, offence) not in ALLOWED}


def test_every_exception_to_the_ban_list_is_still_needed() -> None:
    for name, offence in ALLOWED:
        assert offence in set(offences(ast.parse((SOURCES / name).read_text(encoding="utf-8"))))


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "from pickle import loads",
        "import pickle as p",
        "import marshal",
        "import shelve",
        "import dill",
        "eval('1')",
        "exec('1')",
        "compile('1', '', 'eval')",
        "__import__(name)",
        "__import__('os')",
        "import os; os.system('x')",
        "from os import system",
        "import os as o; o.popen('x')",
        "f = os.system",
        "import subprocess; subprocess.run('x', shell=True)",
        "subprocess.Popen(x, shell=flag)",
        "archive.extractall()",
        "tarfile.open(x).extract(y)",
        "import torch; torch.load(x)",
        "import torch as t; t.load(x)",
        "from torch import load",
        "np.load(x, allow_pickle=True)",
        "numpy.load(x, allow_pickle=flag)",
        "yaml.load(x)",
        "import tempfile; tempfile.mktemp()",
        "from tempfile import mktemp",
        "importlib.import_module(name)",
        "from importlib import import_module; import_module(f'{x}')",
    ],
)
def test_the_ban_list_sees(code: str) -> None:
    assert list(offences(ast.parse(code)))


@pytest.mark.parametrize(
    "code",
    [
        "model.eval()",
        "re.compile('x')",
        "np.load(x, allow_pickle=False)",
        "checkpoint.load(x)",
        "subprocess.run(['x'])",
        "import_module('timm')",
        "json.load(file)",
        "torch.save(x, y)",
        "'eval(x)'",
        "run(x, shell=False)",
    ],
)
def test_the_ban_list_lets_pass(code: str) -> None:
    assert not list(offences(ast.parse(code)))


OWN = """
from pathlib import Path
from torch import nn
Path("sang").write_text("")

def factory(n_classes, image_shape):
    return nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, n_classes))
"""


@pytest.fixture
def own_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run whose model is a module that says so when it is imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_model.py").write_text(OWN)
    train(write_digits(tmp_path), tmp_path / "run", model="own_model:factory", epochs=1, only=["Identity"], n_levels=2)
    assert (tmp_path / "sang").exists()
    (tmp_path / "sang").unlink()
    del sys.modules["own_model"]
    return tmp_path / "run"


def test_code_that_a_run_names_runs_only_for_who_trusts_it(
    own_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    readers = {
        "load": lambda **trust: lab.load(own_run, **trust),
        "predict": lambda **trust: predict_files(own_run, [], 1, **trust),
        "export": lambda **trust: export_run(own_run, "safetensors", tmp_path / "out.safetensors", **trust),
        "evaluate": lambda **trust: evaluate_run(own_run, None, None, 1, 4, "cpu", as_json=True, **trust),
        "resume": lambda **trust: train(tmp_path / "some-digits.npz", own_run, resume=True, epochs=1, **trust),
    }
    message = "the model of .*run is code, own_model:factory, which would run here: add --trust-model"
    for name, read in readers.items():
        with pytest.raises(UserError, match=message):
            read()
        assert not (tmp_path / "sang").exists(), name
    for name, read in readers.items():
        read(**({"model": "own_model:factory"} if name == "resume" else {"trust_model": True}))
        assert (tmp_path / "sang").exists(), name
    assert "accuracy" in json.loads(capsys.readouterr().out)["clean"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    train(write_digits(folder), folder / "run", model="mlp", only=["Identity"], n_levels=2, epochs=1)
    return folder / "run"


def copy(trained: Path, folder: Path, *changes: tuple[str, str]) -> Path:
    """Copy a run, with other words in its config."""
    target = folder / "copy"
    (target / "checkpoints").mkdir(parents=True)
    for file in (trained / "checkpoints").iterdir():
        (target / "checkpoints" / file.name).write_bytes(file.read_bytes())
    text = (trained / "config.toml").read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (target / "config.toml").write_text(text)
    return target


def test_a_run_names_where_data_are_read_but_never_where_they_are_written(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from invaug.lab.data import known

    asked: list[object] = []
    monkeypatch.setattr(known, "fetch", lambda *given: asked.append(given))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("INVAUG_DATA", raising=False)
    data = next(line for line in (trained / "config.toml").read_text().splitlines() if line.startswith("name ="))
    folder = copy(trained, tmp_path, (data, f'name = "cifar10"\ndata_dir = "{tmp_path / "elsewhere"}"'))
    with pytest.raises(UserError, match="cifar10 is not in "):
        evaluate_run(folder, None, None, 1, 4, "cpu", as_json=True)
    assert not asked
    assert not (tmp_path / "elsewhere").exists()


def test_a_checkpoint_holds_nothing_of_the_machine(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home-k4n4ry"
    home.mkdir()
    for name in ("HOME", "USER", "SESSION_TOKEN"):
        monkeypatch.setenv(name, str(home))
    data = write_digits(home)
    train(data, home / "run", model="mlp", only=["Identity"], n_levels=2, epochs=1)
    files = list((home / "run" / "checkpoints").iterdir())
    assert len(files) == 2
    assert not [file.name for file in files if b"k4n4ry" in file.read_bytes()]
    assert "k4n4ry" in (home / "run" / "config.toml").read_text()  # where the data are is the run's own business


FACTS = {
    "text for numbers": ("std = [\n", 'std = [\n    "x",\n'),
    "a std of zero": ("std = [\n", "std = [\n    0.0,\n"),
    "no shape": ("image_shape = [\n    1,", "image_shape = [\n    -1,"),
    "a class that is a number": ("classes = [\n", "classes = [\n    1,\n"),
    "a mean that is none": ("mean = [\n", "mean = [\n    nan,\n"),
}


@pytest.mark.parametrize("change", FACTS.values(), ids=FACTS.keys())
def test_facts_that_are_none_are_refused(change: tuple[str, str], trained: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no complete \[dataset\] table"):
        run.load(copy(trained, tmp_path, change))


def test_weights_of_another_model_are_refused_before_memory_is_taken(trained: Path, tmp_path: Path) -> None:
    folder = copy(trained, tmp_path, ('name = "mlp"', 'name = "wrn-16-999"'))
    with pytest.raises(UserError, match=r"does not fit the model wrn-16-999 with 10 classes: was config\.toml changed"):
        run.load(folder)


def test_whoever_uses_a_run_hears_of_damaged_checkpoints(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = copy(trained, tmp_path)
    checkpoint.save(folder / "checkpoints", {"model": {}}, step=10**6, epoch=9, meta={})
    (folder / "checkpoints" / "step-01000000.safetensors").write_bytes(b"")
    model = run.load(folder)
    assert len(model.classes) == 10
    assert "step-01000000 was skipped: " in capsys.readouterr().err


@pytest.mark.parametrize("name", ["checkpoints", "config.toml"])
def test_links_inside_a_run_are_not_followed(name: str, trained: Path, tmp_path: Path) -> None:
    folder = copy(trained, tmp_path)
    (folder / name).rename(tmp_path / "elsewhere")
    (folder / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match=r"is a link|not a regular file"):
        run.load(folder)
    linked = tmp_path / "link"
    linked.symlink_to(trained)
    run.load(linked)  # the whole run may be elsewhere


def test_a_record_that_is_a_link_or_a_pipe_is_refused(tmp_path: Path) -> None:
    (tmp_path / "record.jsonl").symlink_to(tmp_path / "elsewhere")
    for use in (record.read, lambda folder: record.append(folder, {"epoch": 1})):
        with pytest.raises(UserError, match="is not a regular file"):
            use(tmp_path)
    assert not (tmp_path / "elsewhere").exists()
    (tmp_path / "record.jsonl").unlink()
    os.mkfifo(tmp_path / "record.jsonl")
    with pytest.raises(UserError, match="is not a regular file"):
        record.read(tmp_path)


def test_a_table_holds_half_a_letter_as_a_question_mark(tmp_path: Path) -> None:
    record.to_csv([{"epoch": 1, "name": "a\udcff"}], tmp_path / "table.csv")
    assert (tmp_path / "table.csv").read_text() == '"epoch","name"\n1,"a?"\n'


def test_a_folder_that_holds_a_link_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "tensorboard").symlink_to("/tmp")  # noqa: S108
    with pytest.raises(UserError, match="contains a link, tensorboard, but a run keeps its own files: remove it"):
        run.check_usable(tmp_path)


@pytest.mark.parametrize("text", ["a\x1b[2Jb", "a\nb", "a\x9bb", "a\u202eb", "a\udcffb", "a\x7fb"])
def test_plain_text_does_nothing_to_a_terminal(text: str) -> None:
    assert plain(text).isprintable()
    assert plain(text)[0] == "a"
    assert plain(text)[-1] == "b"


def test_plain_text_stays_as_it_is() -> None:
    assert plain("[bold]Käfer[/] 日本 :skull:") == "[bold]Käfer[/] 日本 :skull:"


def test_the_screen_shows_markup_and_emoji_codes_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    Screen(width=80).print("run: [bold]x[/bold] :skull: \x1b[2J")
    assert capsys.readouterr().out == "run: [bold]x[/bold] :skull: ?[2J\n"


def test_a_report_shows_markup_and_emoji_codes_as_they_are(capsys: pytest.CaptureFixture[str], trained: Path) -> None:
    report = {
        "run": ":skull:",
        "method": "none",
        "preset": "default",
        "model": "[red]mlp",
        "images": 60,
        "data": ":skull:",
        "clean": {"accuracy": 0.5, "loss": 1.0},
        "calibration_error": 0.1,
        "classes": {"[/]": {"accuracy": 0.5, "images": 5}},
    }
    console = Console(file=io.StringIO(), width=100, emoji=False)
    with console.capture() as captured:
        print_document(document(report), console)
    text = captured.get()
    assert text.startswith(":skull:\n")
    assert all(words in text for words in ("[red]mlp", "60 of :skull:", "[/]"))


class Full(io.StringIO):
    """A stream whose disk is full."""

    def __init__(self, error: OSError) -> None:
        super().__init__()
        self.error = error

    def write(self, text: str) -> int:
        raise self.error


def test_an_output_that_is_lost_is_said_and_one_that_nobody_reads_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    silenced: list[object] = []
    monkeypatch.setattr(terminal, "_silence", silenced.append)
    full, left = Full(OSError(28, "No space left on device")), Full(BrokenPipeError(32, "Broken pipe"))
    with pytest.raises(OSError, match="cannot write the output: No space left on device"):
        Forgiving(full, BrokenPipeError).write("x")
    assert Forgiving(left, BrokenPipeError).write("x") == 1
    assert Forgiving(full).write("x") == 1
    assert silenced == [full, left, full]


def test_a_hostile_epoch_is_damage(tmp_path: Path) -> None:
    state = {"x": torch.zeros(1)}
    for step, epoch in ((1, 1), (2, -1), (3, 2**70)):
        checkpoint.save(tmp_path / str(step), state, step=step, epoch=epoch, meta={})
    assert checkpoint.load(tmp_path / "1") is not None
    for step in (2, 3):
        with pytest.raises(UserError, match="its manifest was not written by invaug"):
            checkpoint.load(tmp_path / str(step))


def test_a_state_too_large_for_a_manifest_is_refused_when_it_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "MAX_MANIFEST", 1000)
    with pytest.raises(ValueError, match=r"takes .* bytes, over 1,000"):
        checkpoint.save(tmp_path, {"words": "x" * 1000}, step=1, epoch=1, meta={})
    assert not list(tmp_path.iterdir())
