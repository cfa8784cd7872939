"""The command line: `main` runs a command, and turns what goes wrong into one line and an exit code."""

import re
import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import typer

from invaug.lab.cli import reading, training
from invaug.lab.cli.app import app
from invaug.lab.config.build import REMOVED
from invaug.lab.environment import is_first
from invaug.lab.errors import RunError, UserError, is_out_of_memory, shown
from invaug.lab.terminal import safe_streams, say
from invaug.lab.train.signals import Stopped

UsageError: type[Exception] = typer.BadParameter.__mro__[1]  # click's own, which newer versions of typer carry inside
MAX_LINE = 2000  # characters of what is said in the end
NO_MEMORY = "memory ran out: lower batch_size, scoring_batch, n_views, image_size or workers, or use fewer images"
__all__ = ["app", "main", "reading", "training"]  # the two register their commands


def main() -> None:
    """Run the command; the user's mistakes become one line and exit code 2, a failed run one line and 1."""
    with safe_streams():
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
    except MemoryError as error:
        _stop_memory(error)
    except OSError as error:
        if is_out_of_memory(error):
            _stop_memory(error)
        where = f" {error.filename}" if error.filename else ""
        _stop(f"cannot use{where}: {error.strerror}" if error.strerror else str(error), 1)
    except (KeyboardInterrupt, typer.Abort) as error:
        if isinstance(error.__cause__, EOFError):  # typer aborts for it
            way_out = "if it is byte code of Python's, as a full disk leaves it, install invaug again"
            _stop(f"a file ends too early, {error.__cause__}: {way_out}", 1)
        raise SystemExit(130) from None  # before there is a run that could be saved
    except UsageError as error:
        _stop_usage(error)
    except RuntimeError as error:
        if is_out_of_memory(error):
            _stop_memory(error)
        if not isinstance(error, RecursionError):
            raise
        _stop("the input is nested too deeply", 2)
    except OverflowError as error:
        _stop(f"a number of the input is too large: {error}", 2)
    raise SystemExit(code if isinstance(code, int) else 0)


def _stop_memory(error: BaseException) -> None:
    """Stop for want of memory; the run, if there is one, keeps its last checkpoint."""
    first = next(iter(str(error).splitlines()), "")
    _stop(f"{NO_MEMORY}{f' ({first[:200]})' if first else ''}", 1)


def _stop_usage(error: Any) -> None:
    """Stop because of a wrong flag or a missing argument; print the help if there was none at all."""
    if len(sys.argv) == 1:
        print(error)
        raise SystemExit(2) from None
    message = error.format_message()
    _stop(_removed_flag(message) or f"{message}{_value_of(message, sys.argv)} (invaug --help)", 2)


def _removed_flag(message: str) -> str | None:
    """Return what to say of a flag that older versions had."""
    flag = re.search(r"No such option:? '?(--[\w-]+)", message)
    name = flag[1].removeprefix("--").removeprefix("no-").replace("-", "_") if flag else ""
    return f"{flag[1]} was removed: use {REMOVED[name]}" if flag and name in REMOVED else None


def _value_of(message: str, words: Sequence[str]) -> str:
    """Return what was given for the flag a complaint of the parser names, which does not say it."""
    flag = re.search(r"Invalid value for '(--[\w-]+)'", message)
    if not flag:
        return ""
    given = [word.partition("=")[2] for word in words if word.startswith(f"{flag[1]}=")]
    given += [after for word, after in pairwise(words) if word == flag[1]]
    return f", got {shown(given[-1])}" if given else ""


def _stop(message: str, code: int, shared: bool = False) -> None:
    if shared and not is_first():  # the first rank says it; a code here would make Fabric kill that rank meanwhile
        raise SystemExit(0)
    line = " ".join(message.split())
    say(f"invaug: {line if len(line) <= MAX_LINE else f'{line[: MAX_LINE // 2]} … {line[-MAX_LINE // 2 :]}'}")
    raise SystemExit(code)
