"""The application that every verb registers with, the flags that several of them share, and their first line."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from invaug import __version__
from invaug.lab.environment import is_first
from invaug.lab.terminal import say

app = typer.Typer(
    help="Train networks that respect the symmetries you name, and learn what each symmetry costs.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
)
Json = Annotated[bool, typer.Option("--json", help="print one JSON document instead of tables")]
Trust = Annotated[bool, typer.Option("--trust-model", help="run the code of the run's own module:factory")]
DataDir = Annotated[Path | None, typer.Option(help="folder of downloaded datasets [env: INVAUG_DATA]")]


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"invaug {__version__}")
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", is_eager=True, callback=_print_version, help="print the version and exit")
]


@app.callback()
def before_every_verb(version: Version = False) -> None:
    """Take the flags that belong to no verb."""


def announce_torch(quiet: bool = False) -> None:
    """Say that PyTorch is loading before it is imported, because that takes seconds."""
    if not quiet and "torch" not in sys.modules and is_first():
        say("loading PyTorch, which takes a few seconds")
