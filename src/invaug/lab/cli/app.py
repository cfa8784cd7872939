"""The application that every verb registers with, and the flags that several of them share."""

from pathlib import Path
from typing import Annotated

import typer

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
