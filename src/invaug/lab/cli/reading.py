"""The commands that read: runs, models and data."""

import json
from pathlib import Path
from typing import Annotated, get_args

import typer

from invaug.lab.cli.app import DataDir, Json, Trust, announce_torch, app
from invaug.lab.config import build
from invaug.lab.config.schema import MOST_IMAGES, PLACES
from invaug.lab.errors import UserError, nearest
from invaug.lab.terminal import plain, say

RunPath = Annotated[Path, typer.Argument(help="folder of a run")]


@app.command()
def evaluate(
    run: RunPath,
    data: Annotated[str | None, typer.Option(help="another dataset than the run's")] = None,
    data_dir: DataDir = None,
    draws: Annotated[int, typer.Option(min=1, max=100_000, help="random transformations per image")] = 16,
    images: Annotated[
        int, typer.Option(min=1, max=MOST_IMAGES, help="images for the table of operations and levels")
    ] = 256,
    device: Annotated[str, typer.Option(help="cpu, cuda, mps")] = "cpu",
    trust_model: Trust = False,
    as_json: Json = False,
) -> None:
    """Measure a run: clean, under its set (uniform, λ_c, worst), by operation, level and class; calibration.

    Example: invaug evaluate runs/a --json
    """
    announce_torch(as_json)
    from invaug.lab.evaluate.command import evaluate_run

    evaluate_run(run, data, data_dir, draws, images, device, as_json, trust_model=trust_model)


@app.command()
def certify(
    run: RunPath,
    images: Annotated[
        int | None, typer.Option(min=1, max=MOST_IMAGES, help="held-out images to check [512, or all]")
    ] = None,
    data: Annotated[str | None, typer.Option(help="another dataset than the run's")] = None,
    data_dir: DataDir = None,
    confidence: Annotated[float, typer.Option(min=0, max=1, help="probability that an interval holds")] = 0.95,
    device: Annotated[str, typer.Option(help="cpu, cuda, mps")] = "cpu",
    trust_model: Trust = False,
    as_json: Json = False,
) -> None:
    """Bound how invariant a model is: every transformation of its set on held-out images; resumable.

    Example: invaug certify runs/a --images 1000
    """
    announce_torch(as_json)
    from invaug.lab.certify.command import certify_run

    certify_run(run, images, data, data_dir, confidence, device, as_json, trust_model=trust_model)


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
    announce_torch()
    from invaug.lab.export.command import export_run

    print(plain(str(export_run(run, to, output, trust_model=trust_model))))


@app.command()
def predict(
    run: RunPath,
    images: Annotated[list[Path], typer.Argument(help="image files, or folders of them")],
    top: Annotated[int, typer.Option(min=1, max=1_000_000, help="classes to show per image")] = 3,
    trust_model: Trust = False,
    as_json: Json = False,
) -> None:
    """Classify image files; 1 if some cannot be read, 2 if none can.

    Example: invaug predict runs/a cat.jpg photos/
    """
    announce_torch(as_json)
    from invaug.lab.export.predict import predict_files

    rows = predict_files(run, images, top, trust_model=trust_model)
    bad = [row for row in rows if "error" in row]
    for row in bad:
        say(f"invaug: {row['error']}")
    if as_json:
        print(json.dumps(rows))
    else:
        for row in (row for row in rows if "predictions" in row):
            guesses = ", ".join(f"{guess['class']} {guess['probability']:.1%}" for guess in row["predictions"])
            print(plain(f"{row['file']}: {guesses}"))
    raise typer.Exit(2 if len(bad) == len(rows) else int(bool(bad)))


RunPaths = Annotated[list[Path], typer.Argument(metavar="RUN", help="folders of runs, or folders that contain some")]


@app.command()
def report(
    runs: RunPaths,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="page to write [RUN/report.html; report.html for several]")
    ] = None,
    figures: Annotated[Path | None, typer.Option(help="folder for every figure as SVG and PNG")] = None,
    tables: Annotated[Path | None, typer.Option(help="folder for every table as CSV and Markdown")] = None,
) -> None:
    """Write one page about a run, or about several compared.

    Example: invaug report runs/a runs/b -o report.html
    """
    from invaug.lab.report.command import report_runs

    for path in report_runs(runs, output, figures, tables):
        print(plain(str(path)))


@app.command()
def gallery(
    transforms: Annotated[
        str, typer.Argument(metavar="SET", help="a set (invaug ls), a config, or the folder of a run")
    ],
    data: Annotated[
        str | None,
        typer.Argument(help="a dataset, a folder, an image, an .npz [digits, or the run's]", show_default=False),
    ] = None,
    data_dir: DataDir = None,
    images: Annotated[int, typer.Option(min=1, max=8, help="images to show")] = 2,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="page to write [gallery.html; RUN/gallery.html]")
    ] = None,
) -> None:
    """Write one page of a set on images of yours: each operation at its levels; of a run also what its chain kept.

    Example: invaug gallery mild photos/ -o gallery.html
    """
    from invaug.lab.gallery.command import write_gallery

    print(plain(str(write_gallery(transforms, data, data_dir, images, output))))


@app.command()
def watch(
    runs: RunPaths,
    port: Annotated[int, typer.Option(min=0, max=65535, help="port on this machine; 0 takes a free one")] = 0,
    token: Annotated[
        bool, typer.Option("--token/--no-token", help="a random part in the address, without which nothing is shown")
    ] = True,
) -> None:
    """Serve the report of runs to a browser on this machine while they train.

    Example: invaug watch runs/a
    """
    from invaug.lab.report.watch import watch_runs

    watch_runs(runs, port, token)


@app.command()
def scan(path: Annotated[Path, typer.Argument(help="a folder of images, or an .npz")], as_json: Json = False) -> None:
    """Check data before training: every bad or odd file with its reason, classes, sizes, modes; 1 if some are bad.

    Example: invaug scan photos/ --json
    """
    from invaug.lab.data.scan.command import scan as scan_path
    from invaug.lab.data.scan.report import lines

    report = scan_path(path.expanduser())
    print(report.as_json() if as_json else "\n".join(lines(report)))
    raise typer.Exit(int(bool(report.bad)))


@app.command()
def ls(as_json: Json = False) -> None:
    """List datasets, models, sets, methods, presets and shipped configs.

    Example: invaug ls --json
    """
    from invaug.lab.cli.listing import catalogue

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
    if name in get_args(PLACES["set"].info.annotation):
        raise UserError(f"{name} is a set, not a config: see it with invaug gallery {name}")
    if name not in build.shipped_names():
        raise UserError(f"unknown config {name}, {nearest(name, build.shipped_names())}")
    print((build.SHIPPED / f"{name}.toml").read_text(encoding="utf-8"), end="")
