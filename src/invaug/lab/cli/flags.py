"""Commands that take every key of the config as a flag."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Optional, Union, get_args, get_origin

import typer
from pydantic.fields import FieldInfo

from invaug.lab.config import schema as configs

Fixed = tuple[str, Any, Any, Any]
"""Name, type, typer's option, default."""


def folder(name: str) -> Path:
    """Return the path; the empty one, as of a shell variable that is not set, would be the folder we are in."""
    if not name:
        raise typer.BadParameter("the name is empty")
    return Path(name)


def with_config(function: Callable[..., None], fixed: list[Fixed]) -> Callable[..., None]:
    """Return the command: its own flags, then one for each key of the config."""
    head = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option])
        for name, kind, option, default in fixed
    ]
    parameters = head + _flags({name for name, *_ in fixed})

    def command(**values: Any) -> None:
        function(**values)

    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def _flags(taken: set[str]) -> list[inspect.Parameter]:
    """Return one command-line option per key of the config that has none yet."""
    parameters = []
    for name, field in configs.Config.model_fields.items():
        if name in {"data", "families", *taken}:  # an argument; tables, which a flag cannot say
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
        parts = [part for part in get_args(kind) if part is not type(None)]
        kind = str if len(parts) > 1 else parts[0]  # a number or a word: the config tells which
    if get_origin(kind) is list:
        return list[str]
    return str if get_origin(kind) is Literal else kind
