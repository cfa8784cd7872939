"""The commands that train; heavy imports wait inside them, so that --help answers at once."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from invaug.lab.cli.app import DataDir, Json, Trust, announce_torch, app
from invaug.lab.cli.flags import GroupedCommand, HelpAll, folder, split_at_commas, with_config
from invaug.lab.config import build
from invaug.lab.config.machine import check_jobs
from invaug.lab.config.schema import MOST_IMAGES
from invaug.lab.environment import is_first
from invaug.lab.errors import UserError
from invaug.lab.terminal import plain

DataArgument = Annotated[str | None, typer.Argument(help="a dataset, a folder, an .npz [digits]", show_default=False)]
ConfigFile = Annotated[str | None, typer.Option("--config", help="a TOML file, or a shipped config (invaug ls)")]
Out = Annotated[Path | None, typer.Option(parser=folder, metavar="PATH", help="output folder [a new one in runs/]")]
Jobs = Annotated[int, typer.Option(min=1, max=1024, help="trainings at the same time, each in its own process")]
On = Annotated[str, typer.Option(help="processes; ray on this machine; or the address of a Ray cluster")]


@app.command(cls=GroupedCommand)
@with_config
def train(
    data: DataArgument = None,
    config: ConfigFile = None,
    out: Out = None,
    resume: Annotated[bool, typer.Option("--resume", help="resume from the last checkpoint in --out")] = False,
    compare: Annotated[bool, typer.Option("--compare", help="also plain training and TrivialAugment")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="say what would be trained, how long; train nothing")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="print only where the run is")] = False,
    as_json: Json = False,
    trust_model: Trust = False,
    jobs: Jobs = 1,
    on: On = "processes",
    help_all: HelpAll = False,
    **settings: Any,
) -> None:
    """Train a network under an invariance constraint; without arguments on embedded digits, in minutes.

    \b
    Examples:
      invaug train
      invaug train cifar10 --model wrn-40-2 --set wide --epsilon 0.8 --epochs 200 --out runs/a
      invaug train photos/ --method trivial
      invaug train data.npz --config mine.toml --compare
      invaug train --resume --out runs/a
    """
    check_jobs(jobs, on)
    given = _given(data, config, settings)
    silent = quiet or as_json
    announce_torch(silent)
    if compare:
        from invaug.lab.train.compare import compare_methods

        options: dict[str, Any] = {"jobs": jobs, "on": on, "trust_model": trust_model, "dry_run": dry_run}
        results = compare_methods(given, out, resume=resume, quiet=silent, **options)
    else:
        from invaug.lab.train.command import run_one

        if jobs > 1 or on != "processes":
            raise UserError("--jobs and --on need --compare, which trains several methods: add it, or leave them out")
        results = [run_one(given, out, resume=resume, quiet=silent, trust_model=trust_model, dry_run=dry_run)]
    if silent and is_first():
        print(json.dumps(results) if as_json else "\n".join(plain(result["run"]) for result in results))


def _given(data: str | None, config: str | None, flags: dict[str, Any]) -> dict[str, Any]:
    """Return what a file, flags and the argument give, the later ones overriding the earlier."""
    given = build.read(config) if config else {}
    given |= {key: value for key, value in flags.items() if value not in (None, [], ())}
    return given | ({"data": data} if data else {})


@app.command(cls=GroupedCommand)
@with_config
def tune(
    data: DataArgument = None,
    config: ConfigFile = None,
    out: Out = None,
    search: Annotated[
        list[str] | None, typer.Option(help="KEY=A,B,C or KEY=LOW:HIGH; may be repeated [levels of epsilon]")
    ] = None,
    trials: Annotated[int | None, typer.Option(min=1, max=100_000, help="combinations Optuna tries [20]")] = None,
    folds: Annotated[int, typer.Option(min=2, max=100, help="parts; each is held out once")] = 3,
    jobs: Jobs = 1,
    on: On = "processes",
    as_json: Json = False,
    help_all: HelpAll = False,
    **settings: Any,
) -> None:
    """Choose epsilon, or other settings, by cross-validation; resumable.

    No test image is read. Lists are tried in every combination; a range, or --trials, is searched by Optuna.

    \b
    Examples:
      invaug tune photos/ --jobs 2
      invaug tune cifar10 --per-class 100 --search epsilon=0.5,1,1.5
      invaug tune cifar10 --search epsilon=0.2:2.3 --search lr=0.01:0.3 --trials 24
      invaug tune cifar10 --jobs 16 --on ray://head:10001
    """
    check_jobs(jobs, on)
    announce_torch(as_json)
    from invaug.lab.tune.command import TuneRequest, run_tune

    given = _given(data, config, settings)
    run_tune(TuneRequest(given, tuple(search or ()), trials, folds, out, jobs, on, config), as_json)


@app.command()
def insights(
    data: Annotated[str, typer.Argument(help="a dataset, a folder, an .npz; known+r180 and the like plant a symmetry")],
    data_dir: DataDir = None,
    out: Out = None,
    families: Annotated[Path | None, typer.Option(help="TOML with [families.NAME] tables of your own")] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(callback=split_at_commas, help="ask about these families alone, separated by commas"),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, max=20, help="trainings of each kind, for the intervals")] = 3,
    rounds: Annotated[int, typer.Option(min=0, max=6, help="halvings in the search for how far one is learned")] = 3,
    images: Annotated[int, typer.Option(min=20, max=MOST_IMAGES, help="training images to use at most")] = 5000,
    epochs: Annotated[
        int | None, typer.Option(min=1, max=1_000_000, help="passes over them [400 steps, at least 8 epochs]")
    ] = None,
    model: Annotated[str, typer.Option(help="the network to train")] = "cnn-small",
    image_size: Annotated[
        int | None, typer.Option(min=8, max=8192, help="side to resize images to [at most 32]")
    ] = None,
    jobs: Jobs = 1,
    on: On = "processes",
    as_json: Json = False,
) -> None:
    """Say which symmetries a network learns and what they cost on held-out images; suggest a set to train with.

    Example: invaug insights photos/ --out runs/photos-insights
    """
    check_jobs(jobs, on)
    announce_torch(as_json)
    from invaug.lab.insights.command import InsightsRequest, run_insights

    size: dict[str, Any] = {"images": images, "epochs": epochs, "model": model, "image_size": image_size}
    places: dict[str, Any] = {"data_dir": data_dir, "out": out, "jobs": jobs, "on": on}
    asked: dict[str, Any] = {"families": families, "only": tuple(only or ()), "seeds": seeds, "rounds": rounds}
    run_insights(InsightsRequest(data, **asked, **size, **places), as_json)


@app.command()
def reproduce(
    name: Annotated[str | None, typer.Argument(help="a table or figure of the paper, by its name in --list")] = None,
    scale: Annotated[str, typer.Option(help="small: two cores finish it; full: as published")] = "small",
    seeds: Annotated[int | None, typer.Option(min=1, max=100, help="runs of each cell [the plan's]")] = None,
    listing: Annotated[bool, typer.Option("--list", help="show every experiment, its cost, what is done")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print every config and the cost; train nothing")] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(callback=split_at_commas, help="only cells with such names (*), separated by commas"),
    ] = None,
    without: Annotated[
        list[str] | None, typer.Option(callback=split_at_commas, help="leave out cells with such names (*); the same")
    ] = None,
    out: Out = None,
    results: Annotated[
        Path | None, typer.Option(parser=folder, metavar="PATH", help="folder of compact results [results]")
    ] = None,
    data_dir: DataDir = None,
    jobs: Jobs = 1,
    on: On = "processes",
    as_json: Json = False,
) -> None:
    """Reproduce a table or figure of the paper and show its numbers next to ours; resumable.

    Example: invaug reproduce table-1 --scale small
    """
    check_jobs(jobs, on)
    announce_torch(as_json or listing or dry_run)
    from invaug.lab.reproduce.command import run_reproduce

    cells: dict[str, Any] = {"seeds": seeds, "only": tuple(only or ()), "without": tuple(without or ())}
    places: dict[str, Any] = {"out": out, "results": results, "data_dir": data_dir, "jobs": jobs, "on": on}
    run_reproduce(name, scale=scale, listing=listing, dry_run=dry_run, as_json=as_json, **cells, **places)
