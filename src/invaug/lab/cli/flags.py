"""Commands that take every setting of the config as a flag, listed under the headings of the config file."""

import inspect
from collections.abc import Callable
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Optional, Union, get_args, get_origin, get_type_hints

import typer
from pydantic.fields import FieldInfo
from typer.core import TyperCommand

from invaug.lab.config.schema import PLACES, RECORDS

ALL = "--help-all"
COMMON = {
    *("data", "data_dir", "val_fraction", "image_size", "model", "weights", "method", "preset", "set", "epsilon"),
    *("epochs", "batch_size", "lr", "seed", "device"),
}
"""Settings that `--help` lists; `--help-all` lists every one."""


def folder(name: str) -> Path:
    """Return the path; an empty one, as of an unset shell variable, would mean the current folder and is refused."""
    if not name:
        raise typer.BadParameter("the name is empty")
    return Path(name)


def split_at_commas(values: list[str] | None) -> list[str] | None:
    """Return the values of a flag that may be repeated, or list several separated by commas.

    Example:
        >>> split_at_commas(["Rotate,ShearX", "Invert"])
        ['Rotate', 'ShearX', 'Invert']
    """
    return values and [part.strip() for value in values for part in value.split(",") if part.strip()]


class GroupedCommand(TyperCommand):
    """A command whose `--help` lists the common flags and `--help-all` all of them, by the tables of the config."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the flags under their headings."""
        show_all, sections = ctx.params.get("help_all"), dict[str, list[tuple[str, str]]]()
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record and (show_all or param.name in COMMON or param.name not in PLACES):
                sections.setdefault(_heading(param.name or ""), []).append(record)
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records)
        if not show_all:
            formatter.write_paragraph()
            formatter.write_text(f"All settings: {ctx.command_path} {ALL}")


def _heading(name: str) -> str:
    """Return the heading of a setting's flag: the table of the config, and what it is about."""
    if name == "data" or name not in PLACES:  # data is an argument
        return "Options"
    record = PLACES[name].record
    return f"[{record}] {(RECORDS[record].__doc__ or '').strip().rstrip('.')}"


def _print_all(ctx: typer.Context, wanted: bool) -> None:
    """Print the whole help and end, when asked to."""
    if wanted:
        ctx.params["help_all"] = True
        typer.echo(ctx.get_help())
        raise typer.Exit


HelpAll = Annotated[bool, typer.Option(ALL, is_eager=True, callback=_print_all, help="list every setting and exit")]


def with_config(function: Callable[..., None]) -> Callable[..., None]:
    """Return the command: the flags of the function's own parameters, then one for each setting of the config."""
    hints = get_type_hints(function, include_extras=True)
    own = [p for p in inspect.signature(function).parameters.values() if p.kind is not p.VAR_KEYWORD]
    head = [p.replace(annotation=hints[p.name], kind=p.KEYWORD_ONLY) for p in own]
    parameters = [*head, *_flags({p.name for p in own})]
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    function.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return function


def _flags(taken: set[str]) -> list[inspect.Parameter]:
    """Return one command-line option per setting that has none yet."""
    parameters = []
    for name, place in PLACES.items():
        if name in {"data", *taken}:  # data is an argument
            continue
        flag = "--" + name.replace("_", "-")
        kind = _flag_type(place.info.annotation)
        spelled = f"{flag}/--no-{flag[2:]}" if kind is bool else flag
        split = split_at_commas if kind == list[str] else None
        option = typer.Option(spelled, help=_flag_help(place.info), show_default=False, callback=split)
        annotation: Any = Annotated[Optional[kind], option]  # noqa: UP045
        parameters.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation))
    return parameters


def _flag_help(field: FieldInfo) -> str:
    """Return the description, the choices if there are some, and the default."""
    kind = get_args(field.annotation)[0] if get_origin(field.annotation) is list else field.annotation
    choices = f": {', '.join(get_args(kind))}" if get_origin(kind) is Literal else ""
    default = "" if field.default in (None, []) else f" [{field.default}]"
    several = "; separate several by commas" if get_origin(field.annotation) is list else ""
    return f"{field.description}{choices}{several}{default}"


def _flag_type(kind: Any) -> Any:
    """Return the type typer parses: literals stay text, because the config names the nearest to a wrong one."""
    if get_origin(kind) in (Union, UnionType):
        parts = [part for part in get_args(kind) if part is not type(None)]
        if bool in parts:  # a switch that is automatic unless given
            return bool
        kind = str if len(parts) > 1 else parts[0]  # a number or a word: the config tells which
    if get_origin(kind) is list:
        return list[str]
    return str if get_origin(kind) is Literal else kind
