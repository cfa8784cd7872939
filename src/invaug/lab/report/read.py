"""Reading runs: config.toml, record.jsonl and what other commands left beside them, without torch and without trust."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from invaug.lab.config.build import flatten
from invaug.lab.config.levels import rule_of_table
from invaug.lab.errors import UserError
from invaug.lab.report import values
from invaug.lab.report.runs import Epoch, Run
from invaug.lab.report.values import MAX_CONSTRAINTS, MAX_OPS, short, table_in
from invaug.lab.run import files, record
from invaug.levels import Resilient

# what writes each document
COMMANDS = {files.EVALUATION: "evaluate", files.CERTIFICATE: "certify", files.INSIGHTS: "insights"}
RUN_FILES = (files.CONFIG, record.NAME, files.EVALUATION, files.CERTIFICATE)
MAX_BYTES = 32 << 20  # of a document
MEASURED = ("train_loss", "train_accuracy", "val_loss", "val_accuracy", "test_loss", "test_accuracy", "seconds")
BY_CONSTRAINT = ("slack", "constraint_loss", "gamma", "acceptance", "entropy")


def read_runs(paths: Sequence[Path]) -> list[Run]:
    """Return the runs of the folders given, each once, under names that differ; a folder of runs stands for them."""
    folders = list(dict.fromkeys(folder for path in paths for folder in run_folders(path)))
    names = _distinct([folder.resolve() for folder in folders])
    return [read_run(folder, name) for folder, name in zip(folders, names, strict=True)]


def run_folders(path: Path) -> list[Path]:
    """Return the folder, or the runs directly in it if it is none itself, as `train --compare` leaves them."""
    if (path / files.CONFIG).is_file() or not path.is_dir():
        return [path]
    inside = sorted(entry for entry in path.iterdir() if (entry / files.CONFIG).is_file())
    return inside or [path]


def read_run(folder: Path, name: str = "") -> Run:
    """Return the run of a folder, by its own name unless told; what is missing or damaged becomes a note."""
    content = files.read_run_config(folder)
    data, versions = table_in(content.pop("dataset", {})), table_in(content.pop("versions", {}))
    config = flatten(content, f"{files.shorten(folder)} is a run of an older version: ")
    epochs, record_notes = _read_record(folder)
    evaluation, evaluation_notes = read_document(folder, files.EVALUATION)
    certificate, certificate_notes = read_document(folder, files.CERTIFICATE)
    return Run(
        name=name or short(folder.resolve().name),
        settings=_settings(config),
        dataset=_base_name(data.get("name") or config.get("data") or "unknown data"),
        images={key: values.whole(value) for key, value in table_in(data.get("images")).items()},
        versions={short(key, 30): short(value, 30) for key, value in versions.items()},
        epochs=epochs,
        evaluation=evaluation,
        notes=(*record_notes, *evaluation_notes, *certificate_notes, *_shortcomings(config, epochs)),
        families=tuple(short(name, 30) for name in _families(config)),
        rule=_rule(config.get("epsilon")),
        bounded=tuple(short(name, 30) for name, family in _families(config).items() if "epsilon" in family),
        certificate=certificate,
        place=place_of(folder),
    )


def _settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is one value; the families as text, for two runs may differ in these or their ranges alone."""
    found = {key: value for key, value in config.items() if not isinstance(value, dict)}
    for key in found.keys() & {"policy", "weights"}:
        found[key] = _base_name(found[key])
    if rule := _rule(config.get("epsilon")):
        found["epsilon"] = f"resilient (alpha {rule.alpha:g}, base {rule.base}, cap {rule.cap:g})"
    if families := _families(config):
        found["families"] = f"{len(families)}: {' + '.join(families)}"
        found["ranges"] = "; ".join(f"{name}: {_one_line(family)}" for name, family in families.items())
        if all("epsilon" in family for family in families.values()):
            found["epsilon"] = "of each family"  # the common one is nobody's
    return found


def _rule(epsilon: Any) -> Resilient | None:
    """Return the rule that a config names, None for a number or for anything that is not one."""
    try:
        return rule_of_table(epsilon) if isinstance(epsilon, dict) else None
    except ValueError:
        return None


def _families(config: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the tables [families.NAME], one per constraint, in their order."""
    entries = list(table_in(config.get("families")).items())[:MAX_CONSTRAINTS]
    return {name: table_in(family) for name, family in entries}


def _one_line(family: Mapping[str, Any]) -> str:
    return ", ".join(f"{operation} {size}" for operation, size in list(family.items())[:MAX_OPS])


def _read_record(folder: Path) -> tuple[tuple[Epoch, ...], list[str]]:
    """Return the epochs that can be read, and notes on the rest."""
    path = folder / record.NAME
    try:
        rows = record.read(folder)
    except UserError as error:
        return (), [short(str(error).replace(str(path), record.NAME), 300)]
    if not path.exists():
        return (), ["this folder has no record.jsonl yet: training has not finished its first epoch"]
    if not rows:
        return (), ["the record holds no whole epoch yet"]
    # a run that was resumed by hand may repeat epochs: the later line counts
    unique = {row["epoch"]: row for row in rows if abs(row["epoch"]) < 1e9}
    order = sorted(unique)
    epochs = tuple(_epoch(unique[key], with_kept=key in (order[0], order[-1])) for key in order)
    is_whole = files.read_bytes(path, record.MAX_BYTES).endswith(b"\n")
    return epochs, [] if is_whole else ["the last line of the record is incomplete and was left out"]


def _epoch(row: Mapping[str, Any], with_kept: bool) -> Epoch:
    uniform, kept, stuck = (
        values.list_in(row.get(key), MAX_CONSTRAINTS) for key in ("entropy_uniform", "kept", "out_of_reach")
    )
    return Epoch(
        int(row["epoch"]),
        {key: values.number(row.get(key)) for key in MEASURED},
        {key: values.numbers(row.get(key)) for key in BY_CONSTRAINT},
        tuple(map(values.interval, uniform)),
        tuple(map(values.counts_in, kept)) if with_kept else (),
        tuple(flag is True for flag in stuck),
        values.whole(row.get("skipped_batches")),
    )


def _shortcomings(config: Mapping[str, Any], epochs: Sequence[Epoch]) -> list[str]:
    """Return what a reader must know about the numbers."""
    if not epochs:
        return []
    lost = [epoch.number for epoch in epochs if epoch.measured["train_loss"] is None]
    skipped, planned = sum(epoch.skipped for epoch in epochs), values.whole(config.get("epochs"))
    notes = []
    if len(epochs) < planned:
        notes.append(f"{len(epochs)} of {planned} epochs are recorded: the run is still training or was stopped")
    if lost:
        notes.append(f"epochs without a finite training loss: {len(lost)}, the first is {lost[0]}")
    if skipped:
        notes.append(f"{skipped} batches were skipped because their loss was not finite")
    return notes


def read_document(folder: Path, name: str) -> tuple[dict[str, Any] | None, list[str]]:
    """Return what `invaug evaluate`, `certify` or `insights` left in a folder, if it did, and notes."""
    try:
        found = json.loads(files.read_bytes(folder / name, MAX_BYTES))
    except FileNotFoundError:
        return None, []
    except (ValueError, OSError, RecursionError):
        return None, [f"{name} is damaged and was left out: run invaug {COMMANDS[name]} again"]
    if not isinstance(found, dict):
        return None, [f"{name} holds no {Path(name).stem} and was left out"]
    return found, []


def _distinct(folders: Sequence[Path]) -> list[str]:
    """Return the last part of each path, and as many before it as tell them apart; never a whole one."""
    for length in (1, 2, 3):
        names = ["/".join(folder.parts[-length:]) for folder in folders]
        if len(set(names)) == len(names):
            return [short(name) for name in names]
    return [short(f"{folder.name} ({i})") for i, folder in enumerate(folders, 1)]


def place_of(folder: Path) -> str:
    """Return a folder as a command names it from here; its name alone where that would say where on the disk it is."""
    whole, here = folder.resolve(), Path.cwd()
    is_inside = whole.is_relative_to(here) and whole != here
    return short(whole.relative_to(here).as_posix() if is_inside else whole.name, 200)


def _base_name(text: Any) -> str:
    """Return the last part of what may be a path: a report is passed on, and reveals nothing of the disk."""
    return short(str(text).rstrip("/\\").replace("\\", "/").rpartition("/")[2] or "unknown data")
