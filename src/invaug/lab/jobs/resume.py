"""How a stopped command is resumed: the same words again, in one line."""

import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from invaug.lab.train.signals import Stopped


def resume_command(verb: str, name: str, flags: Mapping[str, Any], defaults: Mapping[str, Any]) -> str:
    """Return the command line of a verb; flags at their default, None or empty are left out."""
    words = ["invaug", verb, name]
    for key, value in flags.items():
        flag = key.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        elif value is not None and value != defaults.get(key):
            parts = value if isinstance(value, list | tuple) else [value]
            words += [word for part in parts for word in (f"--{flag}", str(part))]
    return shlex.join(words)


@contextmanager
def resumable(command: str) -> Iterator[None]:
    """Name the command that resumes when a signal stops what runs inside."""
    try:
        yield
    except Stopped as error:
        raise Stopped(error.signum, f"stopped and saved; resume with: {command}") from None
