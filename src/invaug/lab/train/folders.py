"""The folders of runs: chosen, checked, locked by one process, and resumed only under the config they began with."""

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

from invaug.lab.config.schema import Config
from invaug.lab.data.known import SOURCES, is_stored
from invaug.lab.data.load import Dataset
from invaug.lab.environment import is_first
from invaug.lab.errors import UserError
from invaug.lab.run import atomic, checkpoint, expect, record
from invaug.lab.run.files import CONFIG, shorten
from invaug.lab.run.folder import check_usable, open_run, read_config, versions, write_config
from invaug.lab.run.lock import NAME as LOCK
from invaug.lab.run.lock import run_lock
from invaug.lab.terminal import say
from invaug.lab.train import ranks
from invaug.lab.train.one_process import Processes

CHANGEABLE = {
    *("workers", "data_dir", "threads", "log", "device"),
    *("scoring_batch", "checkpoint_minutes", "checkpoint_steps", "on_nan"),
}
"""Settings that may change when a run is resumed."""
MAX_SHOWN = 300  # characters of a setting in a message


def default_folder(config: Config) -> Path:
    """Return where a run goes that was given no folder."""
    return Path("runs") / f"{Path(config.data.name).stem}-{config.method.name}"


def free_folder(folder: Path) -> Path:
    """Return the folder, or the first of folder-2, folder-3, … that does not exist."""
    names = (folder.with_name(f"{folder.name}-{n}") if n > 1 else folder for n in count(1))
    return next(name for name in names if not name.exists())


def check_folder(folder: Path, resume: bool) -> None:
    """Refuse a folder that holds another run, or nothing to resume."""
    check_usable(folder)
    found = [] if not folder.exists() else list(folder.iterdir()) if folder.is_dir() else [folder]
    # a run that was killed before it wrote its config leaves these, and may be started or resumed
    left = [path for path in found if path.name == LOCK or atomic.LEFTOVER.fullmatch(path.name)]
    if resume and not (folder / CONFIG).exists() and not (left and len(left) == len(found)):
        reason = f"no {CONFIG} there" if folder.exists() else "it does not exist"
        raise UserError(f"nothing to resume in {folder}: {reason}; leave out --resume to start")
    if not resume and len(found) > len(left):
        raise UserError(f"{folder} exists and is not empty: add --resume to continue, or choose another --out")


def stored_settings(folder: Path, given: Mapping[str, Any], trust_model: bool) -> dict[str, Any]:
    """Return the settings a run was started with, none if it has not written its config yet."""
    if not (folder / CONFIG).exists():
        return {}
    named = given.get("model") == read_config(folder)[0].model.name  # naming the model is trusting it
    settings = open_run(folder, trust_model or named)[0].flat()
    return own_places({key: value for key, value in settings.items() if value is not None}, given)


def own_places(stored: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return stored settings for a resume, without a `data_dir` in which the dataset would have to be downloaded.

    The folder of a run may come from elsewhere: what it names outside is read, but nothing is written there. The
    dataset is then searched for, and downloaded, where the user's own `--data-dir`, INVAUG_DATA or cache is.
    """
    name = str(given.get("data", stored.get("data", ""))).partition("+")[0]
    place = stored.get("data_dir")
    if "data_dir" in given or name not in SOURCES or not isinstance(place, str | Path) or is_stored(name, Path(place)):
        return dict(stored)
    if is_first():
        say(f"{name} is not in {shorten(Path(place))}, which only the run names: give --data-dir to use that folder")
    return {key: value for key, value in stored.items() if key != "data_dir"}


@contextmanager
def locked(folder: Path, fabric: Processes) -> Iterator[None]:
    """Hold the folder of a run for all ranks, by the lock of the first; a run that is refused leaves nothing behind."""
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    with ExitStack() as stack:
        ranks.on_first_rank(fabric, lambda: stack.enter_context(run_lock(folder)))
        new = fabric.is_global_zero and [path.name for path in folder.iterdir()] == [LOCK]
        try:
            yield
        except UserError:
            if new and not (folder / record.NAME).exists() and checkpoint.load(folder / "checkpoints") is None:
                _remove(folder, made)
            raise


def _remove(folder: Path, made: list[Path]) -> None:
    """Remove what is in a folder, and the folders that were made for it."""
    with suppress(OSError):
        for path in folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        for path in made:
            path.rmdir()


def begin(config: Config, dataset: Dataset, folder: Path, resume: bool) -> None:
    """Write the config of a run whose folder is locked."""
    check_folder(folder, resume)  # again: another process may have used it since
    refuse_changes(folder, config)
    write_config(folder, config, dataset)


def refuse_changes(folder: Path, config: Config) -> None:
    """Refuse to resume a run under another config; more epochs would change the schedule too."""
    saved = checkpoint.load(folder / "checkpoints")
    if saved is None:
        return
    before, now = saved.meta.get("config"), identity(config)["config"]
    if not isinstance(before, dict):
        raise UserError(f"cannot resume {folder}: {saved.path.stem} does not say its config; use a new --out")
    changed = [
        f"{key}: {expect.shorten(repr(before.get(key)), MAX_SHOWN)} -> {now[key]!r}"
        for key in now
        if before.get(key) != now[key]
    ]
    if changed:
        raise UserError(f"{folder} was started with another config ({'; '.join(changed)}): use a new --out")


def identity(config: Config) -> dict[str, Any]:
    """Return what a checkpoint says of its run; it names no folders, because checkpoints are passed on."""
    decisive = {key: value for key, value in config.flat("json").items() if key not in CHANGEABLE}
    for key in ("data", "policy", "weights"):
        decisive[key] = Path(decisive[key]).name if decisive[key] else None
    digest = hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()
    return {"versions": versions(), "config": decisive, "config_sha256": digest}
