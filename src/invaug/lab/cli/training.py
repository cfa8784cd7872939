"""The commands that train; heavy imports wait inside them, so that --help answers at once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from invaug.lab.cli.app import Json, app
from invaug.lab.cli.flags import Fixed, GroupedCommand, folder, with_config
from invaug.lab.config import build
from invaug.lab.environment import is_first

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
    from invaug.lab.train.command import run_all

    results = run_all(
        given, out, resume=resume, compare=compare, quiet=quiet or as_json, trust_model=trust_model
    )  # fmt: skip
    if as_json and is_first():
        print(json.dumps(results))


def _given(data: str | None, config: str | None, flags: dict[str, Any]) -> dict[str, Any]:
    """Return what a file, flags and the argument say, the last first."""
    given = build.read(config) if config else {}
    given |= {key: value for key, value in flags.items() if value not in (None, [], ())}
    return given | ({"data": data} if data else {})


def _train_command() -> Callable[..., None]:
    fixed: list[Fixed] = [
        ("data", str | None, typer.Argument(help="a dataset, a folder, an .npz [digits]", show_default=False), None),
        ("config", str | None, typer.Option("--config", help="a TOML file, or a shipped config (invaug ls)"), None),
        ("out", Path | None, typer.Option("--out", parser=folder, metavar="PATH", help=OUT_HELP), None),
        ("resume", bool, typer.Option("--resume", help="resume from the last checkpoint in --out"), False),
        ("compare", bool, typer.Option("--compare", help="also plain training and TrivialAugment, same budget"), False),
        ("quiet", bool, typer.Option("--quiet", help="print only where the run is"), False),
        ("as_json", bool, typer.Option("--json", help="print one JSON document instead of tables"), False),
        ("trust_model", bool, typer.Option("--trust-model", help="--resume: run the run's own module:factory"), False),
    ]  # fmt: skip
    return with_config(train, fixed)


app.command("train", cls=GroupedCommand, help=TRAIN_HELP)(_train_command())
TUNE_HELP = """Choose epsilon, or other keys of the config, by cross-validation; resumable.

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


app.command("tune", cls=GroupedCommand, help=TUNE_HELP)(_tune_command())


@app.command()
def insights(
    data: Annotated[str, typer.Argument(help="a dataset, a folder, an .npz; known+r180 and the like plant a symmetry")],
    data_dir: Annotated[Path | None, typer.Option(help="where datasets lie [env: INVAUG_DATA]")] = None,
    out: Annotated[Path | None, typer.Option(parser=folder, metavar="PATH", help=OUT_HELP)] = None,
    families: Annotated[Path | None, typer.Option(help="TOML with [families.NAME] tables of your own")] = None,
    only: Annotated[list[str] | None, typer.Option(help="ask about this family alone; may be repeated")] = None,
    seeds: Annotated[int, typer.Option(min=1, max=20, help="trainings for the interval of gamma")] = 3,
    rounds: Annotated[int, typer.Option(min=0, max=6, help="trainings that search how far a family is learned")] = 3,
    images: Annotated[int, typer.Option(min=20, help="training images to use at most")] = 5000,
    epochs: Annotated[int, typer.Option(min=1, help="passes over them in each training")] = 8,
    model: Annotated[str, typer.Option(help="the network to train [a small one]")] = "auto",
    image_size: Annotated[int | None, typer.Option(min=8, help="side to resize images to [at most 64]")] = None,
    as_json: Json = False,
) -> None:
    """Rank symmetries by how fully a network learns them from the data, and suggest a set to train with; resumable.

    Example: invaug insights photos/ --out runs/photos-insights
    """
    from invaug.lab.insights.command import Asked, run_insights

    asked = Asked(data, data_dir, families, tuple(only or ()), seeds, rounds, images, epochs, model, image_size)
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
    """Reproduce a table or figure of the paper and show its numbers next to ours; resumable.

    Example: invaug reproduce table-1 --scale small
    """
    from invaug.lab.reproduce.command import reproduce as run

    run(
        name, scale, listing=listing, dry_run=dry_run, as_json=as_json, seeds=seeds, out=out, results=results,
        data_dir=data_dir, only=tuple(only or ()), without=tuple(without or ()), at_once=jobs, on=on,
    )  # fmt: skip
