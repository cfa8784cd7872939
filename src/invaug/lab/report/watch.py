"""`invaug watch`: the page of a run, served to this machine alone and renewed while the run is training.

It may be started before the run: the page then says what it waits for.
"""

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from invaug.lab.errors import UserError, names_beside
from invaug.lab.report import page
from invaug.lab.report.assemble import document_of
from invaug.lab.report.document import Document
from invaug.lab.report.read import RUN_FILES, read_runs, run_folders
from invaug.lab.report.server import LocalServer
from invaug.lab.report.values import short
from invaug.lab.run.files import CONFIG, shorten


class Server(LocalServer):
    """Serves the page of some runs, and a stamp that changes with their files."""

    def __init__(self, folders: Sequence[Path], port: int, with_token: bool = True) -> None:
        self.folders = folders
        self.awaited = [folder for folder in folders if _is_awaited(folder)]
        answers = {"": ("text/html", self.page), "stamp": ("text/plain", self.stamp)}
        super().__init__(port, answers, f"{page.policy(live=True)}; frame-ancestors 'none'", with_token)

    def stamp(self) -> str:
        """Return a text that differs whenever a file of the runs has changed."""
        paths = [run / name for folder in self.folders for run in run_folders(folder) for name in RUN_FILES]
        found = [path.stat() for path in paths if path.exists()]
        return ";".join(f"{each.st_mtime_ns},{each.st_size}" for each in found)

    def page(self) -> str:
        """Return the page as it is now; what is awaited is named on it."""
        awaited = [folder for folder in self.folders if _is_awaited(folder)]
        notes = tuple(f"waiting for {short(folder.resolve().name)}" for folder in awaited)
        if len(awaited) == len(self.folders):
            verdict = "It has not begun yet: this page shows it as soon as training starts."
            return page.html(Document(title=notes[0].capitalize(), verdict=verdict, notes=notes[1:]), live=True)
        document = document_of(read_runs([folder for folder in self.folders if folder not in awaited]))
        return page.html(replace(document, notes=notes + document.notes), live=True)

    def service_actions(self) -> None:
        """Say, while serving, which of the awaited runs have begun."""
        for folder in [folder for folder in self.awaited if not _is_awaited(folder)]:
            print(f"{shorten(folder)} has begun", flush=True)
            self.awaited.remove(folder)


def watch_runs(runs: Sequence[Path], port: int = 0, with_token: bool = True) -> None:
    """Serve the page of some runs, which may not have begun, until Ctrl-C."""
    for run in runs:
        _check(run)  # before anything is served
    try:
        server = Server(runs, port, with_token)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"cannot serve on port {port}: {reason}; choose another --port, 0 for any") from None
    with server:
        print(f"watching at {server.address} (Ctrl-C ends it)", flush=True)
        for run in server.awaited:
            print(_describe_wait(run), flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return


def _check(run: Path) -> None:
    """Refuse what is neither a run nor a place where one can begin."""
    if not _is_awaited(run):
        read_runs([run])
    elif not run.parent.is_dir():
        raise UserError(f"{shorten(run)} cannot be watched: the folder {shorten(run.parent)} does not exist")


def _is_awaited(path: Path) -> bool:
    """Whether a run may begin here: there is nothing yet, or only what training leaves before it writes its config."""
    if any((run / CONFIG).is_file() for run in run_folders(path)):
        return False
    if not path.is_dir():
        return not path.exists()
    return all(entry.name.startswith(".") or entry.suffix == ".toml" for entry in path.iterdir())


def _describe_wait(run: Path) -> str:
    command = f"invaug train --out {shlex.quote(shorten(run))}"
    state = "has not begun" if run.is_dir() else f"does not exist yet{names_beside(run)}"
    return f"waiting for {shorten(run)}, which {state}; start it with: {command}"
