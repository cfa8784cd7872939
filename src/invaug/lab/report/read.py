"""Runs as the report sees them: config.toml, record.jsonl and evaluation.json, read without torch and without trust."""

from __future__ import annotations

import json
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from invaug.lab.config import build as configs
from invaug.lab.config.levels import rule_of_table
from invaug.lab.config.methods import label
from invaug.lab.errors import UserError
from invaug.lab.run import record
from invaug.lab.terminal import plain
from invaug.levels import Resilient

EVALUATION, CERTIFICATE, INSIGHTS = "evaluation.json", "certificate.json", "insights.json"
MAX_BYTES = {"config.toml": 16 << 20, EVALUATION: 32 << 20, CERTIFICATE: 32 << 20, INSIGHTS: 1 << 20}
COMMANDS = {EVALUATION: "evaluate", CERTIFICATE: "certify", INSIGHTS: "insights"}  # what writes a file
MAX_TEXT = 80  # characters of a name that a page shows
MAX_CONSTRAINTS, MAX_OPS, MAX_LEVELS = 16, 64, 200  # more than any run has, and no more than a page can hold
LARGEST = 1e30  # a number beyond it has diverged, and no axis holds it
Numbers = tuple[float | None, ...]
Counts = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Epoch:
    """One line of the record: numbers are finite or None, whatever the file said.

    `kept`, by far most of a record, is read for the first and the last epoch alone: no figure shows another.
    """

    number: int
    train_loss: float | None = None
    train_accuracy: float | None = None
    val_loss: float | None = None
    val_accuracy: float | None = None
    test_loss: float | None = None
    test_accuracy: float | None = None
    seconds: float | None = None
    slack: Numbers = ()
    constraint_loss: Numbers = ()
    gamma: Numbers = ()
    acceptance: Numbers = ()
    entropy: Numbers = ()
    entropy_uniform: tuple[tuple[float, float] | None, ...] = ()
    """The 95 % range of the entropy of as many uniform draws."""
    kept: tuple[Counts, ...] = ()
    out_of_reach: tuple[bool, ...] = ()
    skipped: int = 0


@dataclass(frozen=True)
class Run:
    """A run: what it was asked to do, what it did, what is wrong with its files."""

    name: str
    settings: Mapping[str, Any]
    dataset: str
    n_classes: int
    images: Mapping[str, int]
    versions: Mapping[str, str]
    epochs: tuple[Epoch, ...] = ()
    evaluation: Mapping[str, Any] | None = None
    notes: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    rule: Resilient | None = None
    """What set epsilon while training, if a rule did."""
    bounded: tuple[str, ...] = ()
    """Families with an epsilon of their own, which no rule sets."""
    certificate: Mapping[str, Any] | None = None

    @property
    def last(self) -> Epoch:
        """The last epoch; only for runs that have one."""
        return self.epochs[-1]

    @property
    def n_constraints(self) -> int:
        """How many constraints the run was trained under."""
        return max((len(epoch.gamma) for epoch in self.epochs), default=0)

    def text(self, key: str) -> str:
        """Return a setting as text that a page can show."""
        return short(self.settings.get(key, "?"))

    @property
    def method(self) -> str:
        """What the method is called on a page."""
        return label(self.text("method"))

    def number(self, key: str) -> float | None:
        """Return a setting as a finite number, None where it is not one."""
        return number(self.settings.get(key))


def read_runs(paths: Sequence[Path]) -> list[Run]:
    """Return the runs of the folders given, each once, under names that differ; a folder of runs stands for them."""
    folders = list(dict.fromkeys(folder for path in paths for folder in _expanded(path)))
    runs = [read_run(folder) for folder in folders]
    names = _distinct([folder.resolve() for folder in folders])
    return [replace(run, name=name) for run, name in zip(runs, names, strict=True)]


def read_run(folder: Path) -> Run:
    """Return the run of a folder; what is missing or damaged beside its config becomes a note."""
    content = _table(folder)
    found = content.get("dataset")
    data: dict[str, Any] = found if isinstance(found, dict) else {}
    epochs, record_notes = _epochs(folder)
    evaluation, evaluation_notes = document(folder, EVALUATION)
    certificate, certificate_notes = document(folder, CERTIFICATE)
    classes, images, versions = data.get("classes"), data.get("images"), content.get("versions")
    return Run(
        name=short(folder.resolve().name),
        settings=_settings(content),
        dataset=_base_name(data.get("name") or content.get("data") or "unknown data"),
        n_classes=len(classes) if isinstance(classes, list) else 0,
        images={key: whole(value) for key, value in images.items()} if isinstance(images, dict) else {},
        versions={short(k, 30): short(v, 30) for k, v in versions.items()} if isinstance(versions, dict) else {},
        epochs=epochs,
        evaluation=evaluation,
        notes=(*record_notes, *evaluation_notes, *certificate_notes, *_shortcomings(content, epochs)),
        families=tuple(short(name, 30) for name in _families(content)),
        rule=_rule(content.get("epsilon")),
        bounded=tuple(short(name, 30) for name, family in _families(content).items() if _has_level(family)),
        certificate=certificate,
    )


def _settings(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is one value; the families as text, for two runs may differ in these or their ranges alone."""
    found = {key: value for key, value in content.items() if not isinstance(value, dict)}
    if rule := _rule(content.get("epsilon")):
        found["epsilon"] = f"resilient (alpha {rule.alpha:g}, base {rule.base}, cap {rule.cap:g})"
    if families := _families(content):
        found["families"] = f"{len(families)}: {' + '.join(families)}"
        if all(map(_has_level, families.values())):
            found["epsilon"] = "of each family"  # the common one is nobody's
        found["ranges"] = "; ".join(f"{name}: {_one_line(family)}" for name, family in families.items())
    return found


def _rule(epsilon: Any) -> Resilient | None:
    """Return the rule that a config names, None for a number or for anything that is not one."""
    try:
        return rule_of_table(epsilon) if isinstance(epsilon, dict) else None
    except ValueError:
        return None


def _has_level(family: Any) -> bool:
    return isinstance(family, dict) and "epsilon" in family


def _families(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tables [families.NAME], one a constraint, in their order."""
    found = content.get("families")
    return dict(islice(found.items(), MAX_CONSTRAINTS)) if isinstance(found, dict) else {}


def _one_line(family: Any) -> str:
    entries = list(islice(family.items(), MAX_OPS)) if isinstance(family, dict) else []
    return ", ".join(f"{operation} {size}" for operation, size in entries) or str(family)


def _expanded(path: Path) -> list[Path]:
    """Return the folder, or the runs directly in it if it is none itself, as `train --compare` leaves them."""
    if (path / "config.toml").is_file() or not path.is_dir():
        return [path]
    inside = sorted(entry for entry in path.iterdir() if (entry / "config.toml").is_file())
    return inside or [path]


def _table(folder: Path) -> dict[str, Any]:
    """Return config.toml; not through a link, which in a run from elsewhere could lead to any file."""
    _check_regular(folder, "config.toml", f"{short(folder)} is not a run: it has no config.toml")
    content = configs.read_toml(folder / "config.toml")
    facts = {"versions": content.pop("versions", None), "dataset": content.pop("dataset", None)}
    return {**configs.flatten(content, f"{short(folder)} is a run of an older version: "), **facts}


def _check_regular(folder: Path, name: str, missing: str) -> None:
    try:
        found = (folder / name).lstat()
    except (OSError, ValueError):  # a name that is too long, or cannot be one
        raise UserError(missing) from None
    if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_BYTES[name]:
        limit = f"{MAX_BYTES[name]:,} bytes"
        raise UserError(f"{short(folder)}: {name} is not a regular file or over {limit}; remove it or choose another")


def _epochs(folder: Path) -> tuple[tuple[Epoch, ...], list[str]]:
    """Return the epochs that can be read, and what is to be said of the rest."""
    try:
        rows = record.read(folder)
    except UserError as error:
        return (), [short(str(error).replace(str(folder / record.NAME), record.NAME), 300)]
    if not (folder / record.NAME).exists():
        return (), ["this folder has no record.jsonl yet: training has not finished its first epoch"]
    if not rows:
        return (), ["the record holds no whole epoch yet"]
    notes = (
        []
        if (folder / record.NAME).read_bytes().endswith(b"\n")
        else ["the last line of the record is cut and was left out"]
    )
    # a run that was resumed by hand may repeat epochs: the later line counts
    unique = {row["epoch"]: row for row in rows if abs(row["epoch"]) < 1e9}
    order = sorted(unique)
    ends = order[:1] + order[-1:]
    return tuple(_epoch(unique[key], with_kept=key in ends) for key in order), notes


def _epoch(row: Mapping[str, Any], with_kept: bool) -> Epoch:
    single = ("train_loss", "train_accuracy", "val_loss", "val_accuracy", "test_loss", "test_accuracy", "seconds")
    several = ("slack", "constraint_loss", "gamma", "acceptance", "entropy")
    return Epoch(
        number=int(row["epoch"]),
        **{key: number(row.get(key)) for key in single},  # type: ignore[arg-type]
        **{key: numbers(row.get(key)) for key in several},  # type: ignore[arg-type]
        entropy_uniform=tuple(_pair(entry) for entry in _listed(row.get("entropy_uniform"))),
        kept=tuple(_counts(entry) for entry in _listed(row.get("kept"))) if with_kept else (),
        out_of_reach=tuple(flag is True for flag in _listed(row.get("out_of_reach"))),
        skipped=whole(row.get("skipped_batches")),
    )


def _pair(entry: Any) -> tuple[float, float] | None:
    ends = numbers(entry)
    return (ends[0], ends[1]) if len(ends) == 2 and ends[0] is not None and ends[1] is not None else None


def _counts(entry: Any) -> Counts:
    if not isinstance(entry, dict):
        return {}
    return {
        short(name, 30): tuple(whole(count) for count in counts[:MAX_LEVELS])
        for name, counts in islice(entry.items(), MAX_OPS)
        if isinstance(counts, list)
    }


def _shortcomings(content: Mapping[str, Any], epochs: Sequence[Epoch]) -> list[str]:
    """Return what a reader must know of the numbers."""
    if not epochs:
        return []
    lost = [epoch.number for epoch in epochs if epoch.train_loss is None] or [0]
    skipped, planned = sum(epoch.skipped for epoch in epochs), whole(content.get("epochs"))
    said = {
        f"{len(epochs)} of {planned} epochs are recorded: the run goes on or was stopped": len(epochs) < planned,
        f"epochs without a finite training loss: {len(lost)}, the first is {lost[0]}": lost != [0],
        f"{skipped} batches were skipped because their loss was not finite": skipped > 0,
    }
    return [text for text, holds in said.items() if holds]


def document(folder: Path, name: str) -> tuple[dict[str, Any] | None, list[str]]:
    """Return what `invaug evaluate`, `certify` or `insights` left in a folder, if it did."""
    path = folder / name
    if not path.exists() and not path.is_symlink():
        return None, []
    try:
        _check_regular(folder, name, f"{name} cannot be read")
        found = json.loads(path.read_bytes())
    except (ValueError, OSError, RecursionError):
        return None, [f"{name} is damaged and was left out: run invaug {COMMANDS[name]} again"]
    return (found, []) if isinstance(found, dict) else (None, [f"{name} holds no {path.stem} and was left out"])


def _distinct(folders: Sequence[Path]) -> list[str]:
    """Return the last part of each path, and as many before it as tell them apart; never a whole one."""
    for length in (1, 2, 3):
        names = ["/".join(folder.parts[-length:]) for folder in folders]
        if len(set(names)) == len(names):
            return [short(name) for name in names]
    return [short(f"{folder.name} ({i})") for i, folder in enumerate(folders, 1)]


def _base_name(text: Any) -> str:
    """Return the last part of what may be a path: a report is passed on, and says nothing of the disk it came from."""
    return short(str(text).rstrip("/\\").replace("\\", "/").rpartition("/")[2] or "unknown data")


def short(text: object, most: int = MAX_TEXT) -> str:
    """Return one harmless line of at most so many characters."""
    line = plain(str(text)[: most + 1])
    return line if len(line) <= most else f"{line[: most - 1]}…"


def number(value: Any) -> float | None:
    """Return a finite float, None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if abs(found) <= LARGEST else None  # not a number compares as false


def numbers(values: Any) -> Numbers:
    """Return finite floats, with None for what is not one."""
    return tuple(number(value) for value in _listed(values))


def whole(value: Any) -> int:
    """Return a whole number, 0 for anything else."""
    return int(found) if (found := number(value)) is not None and 0 <= found < 1e15 else 0


def _listed(values: Any) -> Sequence[Any]:
    return values[:MAX_CONSTRAINTS] if isinstance(values, list) else ()
