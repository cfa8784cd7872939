"""The command line. Heavy imports wait inside the commands, so that `--help` answers at once."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from invaug.lab import config as configs
from invaug.lab.environment import is_first
from invaug.lab.errors import RunError, UserError, nearest
from invaug.lab.flags import Fixed, folder, with_config
from invaug.lab.outlets import outlets, plain, say
from invaug.lab.signals import Stopped

app = typer.Typer(
    help="Train networks that respect the symmetries you name, and learn what each symmetry costs.",
    no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None,
)  # fmt: skip
Json = Annotated[bool, typer.Option("--json", help="print one JSON document instead of tables")]
RunPath = Annotated[Path, typer.Argument(help="folder of a run")]
Trust = Annotated[bool, typer.Option("--trust-model", help="run the code of the run's own module:factory")]


def main() -> None:
    """Run the command; the user's mistakes become one line and exit code 2, a failed run one line and 1."""
    with outlets():
        _run()


def _run() -> None:
    try:
        code = app(prog_name="invaug", standalone_mode=False)
        sys.stdout.flush()
    except (UserError, RunError) as error:
        _stop(str(error), 2 if isinstance(error, UserError) else 1, error.shared)
    except Stopped as error:
        _stop(str(error), 128 + error.signum, shared=True)
    except PermissionError as error:
        _stop(f"no permission to use {error.filename or error}: choose another --out or --data-dir", 2)
    except OSError as error:
        where = f" {error.filename}" if error.filename else ""
        _stop(f"cannot use{where}: {error.strerror}" if error.strerror else str(error), 1)
    except KeyboardInterrupt:  # before there is a run that could be saved
        raise SystemExit(130) from None
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
    raise error


def _stop(message: str, code: int, shared: bool = False) -> None:
    if shared and not is_first():  # the first rank says it; a code here would make Fabric kill that rank meanwhile
        raise SystemExit(0)
    say(f"invaug: {' '.join(message.split())}")
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


JOBS_HELP = "trainings at the same time, each in a process of its own"
ON_HELP = "processes; ray on this machine; or the address of a Ray cluster"
OUT_HELP = "folder of the run [a new one in runs/]"


def train(
    data: str | None, config: str | None, out: Path | None, resume: bool, compare: bool, quiet: bool,
    as_json: bool, trust_model: bool, **flags: Any,
) -> None:  # fmt: skip
    """Collect what was given, build the config, run."""
    given = _given(data, config, flags)
    from invaug.lab.train import run_all

    results = run_all(
        given, out, resume=resume, compare=compare, quiet=quiet or as_json, trust_model=trust_model
    )  # fmt: skip
    if as_json and is_first():
        print(json.dumps(results))


def _given(data: str | None, config: str | None, flags: dict[str, Any]) -> dict[str, Any]:
    """Return what a file, flags and the argument say, the last first."""
    given = configs.read(config) if config else {}
    given |= {key: value for key, value in flags.items() if value not in (None, [], ())}
    return given | ({"data": data} if data else {})


def _train_command() -> Callable[..., None]:
    fixed: list[Fixed] = [
        ("data", str | None, typer.Argument(help="a dataset, a folder, an .npz [digits]", show_default=False), None),
        ("config", str | None, typer.Option("--config", help="a TOML file, or a shipped config (invaug ls)"), None),
        ("out", Path | None, typer.Option("--out", parser=folder, metavar="PATH", help=OUT_HELP), None),
        ("resume", bool, typer.Option("--resume", help="go on from the last checkpoint in --out"), False),
        ("compare", bool, typer.Option("--compare", help="also plain training and TrivialAugment, same budget"), False),
        ("quiet", bool, typer.Option("--quiet", help="print only where the run is"), False),
        ("as_json", bool, typer.Option("--json", help="print one JSON document instead of tables"), False),
        ("trust_model", bool, typer.Option("--trust-model", help="--resume: run the run's own module:factory"), False),
    ]  # fmt: skip
    return with_config(train, fixed)


app.command("train", help=TRAIN_HELP)(_train_command())
TUNE_HELP = """Choose epsilon, or other keys of the config, by cross-validation; goes on after a stop.

No test image is read. Lists are tried in every combination; a range, or --trials, is searched by Optuna.

\b
Examples:
  invaug tune photos/ --jobs 2
  invaug tune cifar10 --per-class 100 --search epsilon=0.5,1,1.5
  invaug tune cifar10 --search epsilon=0.2:2.3 --search lr=0.01:0.3 --trials 24
  invaug tune cifar10 --jobs 16 --on ray://head:10001
"""


def tune(
    data: str | None, config: str | None, out: Path | None, search: list[str] | None, trials: int | None, folds: int,
    jobs: int, on: str, as_json: bool, **flags: Any,
) -> None:  # fmt: skip
    """Collect what was given, search."""
    from invaug.lab.tune.command import Asked, run_tune

    given = _given(data, config, flags)
    run_tune(Asked(given, tuple(search or ()), trials, folds, out, jobs, on, config), as_json)


def _tune_command() -> Callable[..., None]:
    fixed: list[Fixed] = [
        ("data", str | None, typer.Argument(help="a dataset, a folder, an .npz [digits]", show_default=False), None),
        ("config", str | None, typer.Option("--config", help="a TOML file, or a shipped config (invaug ls)"), None),
        ("out", Path | None, typer.Option("--out", parser=folder, metavar="PATH", help="[runs/DATA-tune]"), None),
        ("search", list[str] | None, typer.Option("--search", help="KEY=A,B,C or KEY=LOW:HIGH; may be repeated"), None),
        ("trials", int | None, typer.Option("--trials", min=1, help="combinations Optuna tries [20]"), None),
        ("folds", int, typer.Option("--folds", min=2, max=100, help="parts; each is held out once"), 3),
        ("jobs", int, typer.Option("--jobs", min=1, max=1024, help=JOBS_HELP), 1),
        ("on", str, typer.Option("--on", help=ON_HELP), "processes"),
        ("as_json", bool, typer.Option("--json", help="print one JSON document instead of tables"), False),
    ]  # fmt: skip
    return with_config(tune, fixed)


app.command("tune", help=TUNE_HELP)(_tune_command())


@app.command()
def evaluate(
    run: RunPath,
    data: Annotated[str | None, typer.Option(help="another dataset than the run's")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="where datasets lie [env: INVAUG_DATA]")] = None,
    draws: Annotated[int, typer.Option(min=1, help="random transformations per image")] = 16,
    images: Annotated[int, typer.Option(min=1, help="images for the table of operations and levels")] = 256,
    device: Annotated[str, typer.Option(help="cpu, cuda, mps")] = "cpu",
    trust_model: Trust = False,
    as_json: Json = False,
) -> None:
    """Measure a run: clean, under its set (uniform, λ_c, worst), by operation, level and class; calibration.

    Example: invaug evaluate runs/a --json
    """
    from invaug.lab.inspect_run import evaluate_run

    evaluate_run(run, data, data_dir, draws, images, device, as_json, trust_model=trust_model)


@app.command()
def certify(
    run: RunPath,
    images: Annotated[int | None, typer.Option(help="held-out images to check [512, or all]")] = None,
    data: Annotated[str | None, typer.Option(help="another dataset than the run's")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="where datasets lie [env: INVAUG_DATA]")] = None,
    confidence: Annotated[float, typer.Option(help="probability that an interval holds")] = 0.95,
    device: Annotated[str, typer.Option(help="cpu, cuda, mps")] = "cpu",
    trust_model: Trust = False,
    as_json: Json = False,
) -> None:
    """Bound how invariant a model is: every transformation of its set on held-out images; goes on after a stop.

    Example: invaug certify runs/a --images 1000
    """
    from invaug.lab.certify import certify_run

    certify_run(run, images, data, data_dir, confidence, device, as_json, trust_model=trust_model)


@app.command()
def insights(
    data: Annotated[str, typer.Argument(help="a dataset, a folder, an .npz; known+r180 and the like plant a symmetry")],
    data_dir: Annotated[Path | None, typer.Option(help="where datasets lie [env: INVAUG_DATA]")] = None,
    out: Annotated[Path | None, typer.Option(parser=folder, metavar="PATH", help=OUT_HELP)] = None,
    families: Annotated[Path | None, typer.Option(help="TOML with [families.NAME] tables of your own")] = None,
    only: Annotated[list[str] | None, typer.Option(help="ask about this family alone; may be repeated")] = None,
    seeds: Annotated[int, typer.Option(min=1, max=20, help="trainings for the interval of a price")] = 3,
    rounds: Annotated[int, typer.Option(min=0, max=6, help="trainings that search how far a family is cheap")] = 3,
    images: Annotated[int, typer.Option(min=20, help="training images to use at most")] = 5000,
    epochs: Annotated[int, typer.Option(min=1, help="passes over them in each training")] = 8,
    model: Annotated[str, typer.Option(help="the network to train [a small one]")] = "auto",
    epsilon: Annotated[float | None, typer.Option(help="loss allowed under a family [0.35 log(classes)]")] = None,
    image_size: Annotated[int | None, typer.Option(min=8, help="side to resize images to [at most 64]")] = None,
    as_json: Json = False,
) -> None:
    """Say which symmetries the labels have and what each costs, and suggest a set to train with; goes on after a stop.

    Example: invaug insights photos/ --out runs/photos-insights
    """
    from invaug.lab.insights import Asked, run_insights

    asked = Asked(
        data, data_dir, families, tuple(only or ()), seeds, rounds, images, epochs, model, epsilon, image_size
    )
    run_insights(asked, out, as_json)


@app.command()
def reproduce(
    name: Annotated[str | None, typer.Argument(help="a table or figure of the paper, by its name in --list")] = None,
    scale: Annotated[str, typer.Option(help="small: two cores finish it; full: as published")] = "small",
    seeds: Annotated[int | None, typer.Option(min=1, max=100, help="runs of each cell [the plan's]")] = None,
    listing: Annotated[bool, typer.Option("--list", help="show every experiment, its cost, what is done")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="print every config and the estimate; train nothing")
    ] = False,
    only: Annotated[list[str] | None, typer.Option(help="only cells with such names (*); may be repeated")] = None,
    without: Annotated[list[str] | None, typer.Option(help="leave out cells with such names (*); the same")] = None,
    out: Annotated[
        Path | None, typer.Option(parser=folder, metavar="PATH", help="folder of all runs [runs/reproduce]")
    ] = None,
    results: Annotated[
        Path | None, typer.Option(parser=folder, metavar="PATH", help="folder of compact results [results]")
    ] = None,
    data_dir: Annotated[Path | None, typer.Option(help="where datasets lie [env: INVAUG_DATA]")] = None,
    jobs: Annotated[int, typer.Option(min=1, max=1024, help=JOBS_HELP)] = 1,
    on: Annotated[str, typer.Option(help=ON_HELP)] = "processes",
    as_json: Json = False,
) -> None:
    """Reproduce a table or figure of the paper, and put its numbers beside ours; goes on after a stop.

    Example: invaug reproduce table-1 --scale small
    """
    from invaug.lab.reproduce.command import reproduce as run

    run(
        name, scale, listing=listing, dry_run=dry_run, as_json=as_json, seeds=seeds, out=out, results=results,
        data_dir=data_dir, only=tuple(only or ()), without=tuple(without or ()), at_once=jobs, on=on,
    )  # fmt: skip


@app.command()
def export(
    run: RunPath,
    to: Annotated[str, typer.Option(help="safetensors, torchscript, onnx or state-dict")] = "safetensors",
    output: Annotated[Path | None, typer.Option("-o", "--output", help="file to write [RUN/model.EXT]")] = None,
    trust_model: Trust = False,
) -> None:
    """Write the trained model in a format other tools read.

    Example: invaug export runs/a --to onnx -o model.onnx
    """
    from invaug.lab.export import export_run

    print(plain(str(export_run(run, to, output, trust_model=trust_model))))


@app.command()
def predict(
    run: RunPath,
    images: Annotated[list[Path], typer.Argument(help="image files")],
    top: Annotated[int, typer.Option(min=1, help="classes to show per image")] = 3,
    trust_model: Trust = False,
    as_json: Json = False,
) -> None:
    """Say what is on images.

    Example: invaug predict runs/a cat.jpg dog.png
    """
    from invaug.lab.export import predict_files

    rows = predict_files(run, images, top, trust_model=trust_model)
    if as_json:
        print(json.dumps(rows))
        return
    for row in rows:
        guesses = ", ".join(f"{guess['class']} {guess['probability']:.1%}" for guess in row["predictions"])
        print(plain(f"{row['file']}: {guesses}"))


RunPaths = Annotated[list[Path], typer.Argument(metavar="RUN", help="folders of runs, or folders that hold some")]


@app.command()
def report(
    runs: RunPaths,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="page to write [RUN/report.html; report.html for several]")
    ] = None,
    figures: Annotated[Path | None, typer.Option(help="folder for every figure as SVG and PNG")] = None,
    tables: Annotated[Path | None, typer.Option(help="folder for every table as CSV, Markdown and LaTeX")] = None,
) -> None:
    """Make one page of what runs say; several are compared.

    Example: invaug report runs/a runs/b -o report.html
    """
    from invaug.lab.report import report_runs

    for path in report_runs(runs, output, figures, tables):
        print(plain(str(path)))


@app.command()
def watch(
    runs: RunPaths,
    port: Annotated[int, typer.Option(min=0, max=65535, help="port on this machine; 0 takes a free one")] = 0,
) -> None:
    """Serve the page of runs on this machine while they go on.

    Example: invaug watch runs/a
    """
    from invaug.lab.report.watch import watch_runs

    watch_runs(runs, port)


@app.command()
def scan(
    path: Annotated[Path, typer.Argument(help="a folder of images, or an .npz")],
    as_json: Json = False,
) -> None:
    """Check data before training: every bad or odd file with its reason, classes, sizes, modes; 1 if some are bad.

    Example: invaug scan photos/ --json
    """
    from invaug.lab.scan import scan as scan_path
    from invaug.lab.scan_table import lines

    report = scan_path(path.expanduser())
    print(report.as_json() if as_json else "\n".join(lines(report)))
    raise typer.Exit(int(bool(report.bad)))


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
