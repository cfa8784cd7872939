"""The command line. Heavy imports wait inside the commands, so that `--help` answers at once."""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Optional, Union, get_args, get_origin

import typer
from pydantic.fields import FieldInfo

from invaug.lab import config as configs
from invaug.lab.errors import UserError, nearest

app = typer.Typer(
    help="Train networks that respect the symmetries you name, and learn what each symmetry costs.",
    no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None,
)  # fmt: skip
Json = Annotated[bool, typer.Option("--json", help="print one JSON document instead of tables")]
RunPath = Annotated[Path, typer.Argument(help="folder of a run")]


def main() -> None:
    """Run the command; the user's mistakes become one line and exit code 2, a failed run one line and 1."""
    try:
        code = app(prog_name="invaug", standalone_mode=False)
        sys.stdout.flush()
    except UserError as error:
        _stop(str(error), 2)
    except BrokenPipeError:  # whoever read our output has left; that is not an error
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains when it flushes at the end
        raise SystemExit(0) from None
    except PermissionError as error:
        _stop(f"no permission to use {error.filename or error}: choose another --out or --data-dir", 2)
    except OSError as error:
        where = f" {error.filename}" if error.filename else ""
        _stop(f"cannot use{where}: {error.strerror}" if error.strerror else str(error), 1)
    except Exception as error:
        _stop_for(error)
    raise SystemExit(code if isinstance(code, int) else 0)


def _stop_for(error: Exception) -> None:
    """Stop as the parser or the run asks, by the names of their errors: importing them would cost every --help."""
    kind = type(error).__name__
    if kind == "NoArgsIsHelpError":
        print(error)
        raise SystemExit(2) from None
    if kind == "Abort":
        raise SystemExit(130) from None
    if hasattr(error, "format_message"):  # a wrong flag, a missing argument
        _stop(f"{error.format_message()} (invaug --help)", 2)
    if kind != "RunError":
        raise error
    _stop(str(error), 1)


def _stop(message: str, code: int) -> None:
    print(f"invaug: {' '.join(message.split())}", file=sys.stderr)
    raise SystemExit(code)


TRAIN_HELP = """Train a network under an invariance constraint; without arguments on embedded digits, in minutes.

\b
Examples:
  invaug train
  invaug train cifar10 --model wrn-40-2 --set wide --epsilon 0.8 --epochs 200 --out runs/a
  invaug train photos/ --method trivial
  invaug train data.npz --config mine.toml --compare
  invaug train --resume --out runs/a
"""


def train(
    data: str | None, config: str | None, out: Path | None, resume: bool, compare: bool, quiet: bool,
    as_json: bool, **flags: Any,
) -> None:  # fmt: skip
    """Collect what was given, build the config, run."""
    given = configs.read(config) if config else {}
    given |= {key: value for key, value in flags.items() if value not in (None, [], ())}
    if data:
        given["data"] = data
    from invaug.lab.train import run_all

    results = run_all(given, out, resume=resume, compare=compare, quiet=quiet or as_json)
    if as_json:
        print(json.dumps(results))


def _flags() -> list[inspect.Parameter]:
    """Return one command-line option per key of the config."""
    parameters = []
    for name, field in configs.Config.model_fields.items():
        if name == "data":
            continue
        flag = "--" + name.replace("_", "-")
        spelled = f"{flag}/--no-{flag[2:]}" if field.annotation is bool else flag
        option = typer.Option(spelled, help=_flag_help(field), show_default=False)
        annotation: Any = Annotated[Optional[_flag_type(field.annotation)], option]  # noqa: UP045
        parameters.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation))
    return parameters


def _flag_help(field: FieldInfo) -> str:
    """Return the description, the choices if there are some, and the default."""
    kind = get_args(field.annotation)[0] if get_origin(field.annotation) is list else field.annotation
    choices = f": {', '.join(get_args(kind))}" if get_origin(kind) is Literal else ""
    default = "" if field.default in (None, [], -1) else f" [{field.default}]"
    return f"{field.description}{choices}{default}"


def _flag_type(kind: Any) -> Any:
    """Return the type typer parses: literals stay text, because the config says what is near a wrong one."""
    if get_origin(kind) in (Union, UnionType):
        kind = next(part for part in get_args(kind) if part is not type(None))
    if get_origin(kind) is list:
        return list[str]
    return str if get_origin(kind) is Literal else kind


def _train_command() -> Callable[..., None]:
    fixed: list[tuple[str, Any, Any, Any]] = [
        ("data", str | None, typer.Argument(help="a dataset, a folder, an .npz [digits]", show_default=False), None),
        ("config", str | None, typer.Option("--config", help="a TOML file, or a shipped config (invaug ls)"), None),
        ("out", Path | None, typer.Option("--out", help="folder of the run [a new one in runs/]"), None),
        ("resume", bool, typer.Option("--resume", help="go on from the last checkpoint in --out"), False),
        ("compare", bool, typer.Option("--compare", help="also plain training and TrivialAugment, same budget"), False),
        ("quiet", bool, typer.Option("--quiet", help="print only where the run is"), False),
        ("as_json", bool, typer.Option("--json", help="print one JSON document instead of tables"), False),
    ]  # fmt: skip
    head = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option])
        for name, kind, option, default in fixed
    ]
    parameters = head + _flags()

    def command(**values: Any) -> None:
        train(**values)

    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


app.command("train", help=TRAIN_HELP)(_train_command())


@app.command()
def evaluate(
    run: RunPath,
    data: Annotated[str | None, typer.Option(help="another dataset than the run's")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="where datasets lie [env: INVAUG_DATA]")] = None,
    draws: Annotated[int, typer.Option(min=1, help="random transformations per image")] = 16,
    images: Annotated[int, typer.Option(min=1, help="images for the table of operations and levels")] = 256,
    device: Annotated[str, typer.Option(help="cpu, cuda, mps")] = "cpu",
    as_json: Json = False,
) -> None:
    """Measure a run: clean, under its set (uniform, λ_c, worst), by operation, level and class; calibration.

    Example: invaug evaluate runs/a --json
    """
    from invaug.lab.inspect_run import evaluate_run

    evaluate_run(run, data, data_dir, draws, images, device, as_json)


@app.command()
def export(
    run: RunPath,
    to: Annotated[str, typer.Option(help="safetensors, torchscript, onnx or state-dict")] = "safetensors",
    output: Annotated[Path | None, typer.Option("-o", "--output", help="file to write [RUN/model.EXT]")] = None,
) -> None:
    """Write the trained model in a format other tools read.

    Example: invaug export runs/a --to onnx -o model.onnx
    """
    from invaug.lab.export import export_run

    print(export_run(run, to, output))


@app.command()
def predict(
    run: RunPath,
    images: Annotated[list[Path], typer.Argument(help="image files")],
    top: Annotated[int, typer.Option(min=1, help="classes to show per image")] = 3,
    as_json: Json = False,
) -> None:
    """Say what is on images.

    Example: invaug predict runs/a cat.jpg dog.png
    """
    from invaug.lab.export import predict_files

    rows = predict_files(run, images, top)
    if as_json:
        print(json.dumps(rows))
        return
    for row in rows:
        guesses = ", ".join(f"{guess['class']} {guess['probability']:.1%}" for guess in row["predictions"])
        print(f"{row['file']}: {guesses}")


@app.command()
def ls(as_json: Json = False) -> None:
    """List datasets, models, sets, methods, presets and shipped configs.

    Example: invaug ls --json
    """
    from invaug.lab.listing import catalogue

    names = catalogue()
    if as_json:
        print(json.dumps(names))
        return
    for title, entries in names.items():
        print(f"{title}:")
        width = max(map(len, entries), default=0)
        for name, summary in entries.items():
            print(f"  {name:{width}}  {summary}".rstrip())


@app.command()
def show(name: Annotated[str, typer.Argument(help="name of a shipped config")]) -> None:
    """Print a shipped config.

    Example: invaug show cifar10-wrn-40-2-wide-paper > mine.toml
    """
    if name not in configs.shipped_names():
        raise UserError(f"unknown config {name}, {nearest(name, configs.shipped_names())}")
    print((configs.CONFIGS / f"{name}.toml").read_text(encoding="utf-8"), end="")
