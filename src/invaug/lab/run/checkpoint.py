"""Checkpoints: tensors in a safetensors file, everything else in a JSON manifest that is written last.

A checkpoint exists once its manifest does. The first line of a manifest is the SHA-256 of the rest, and will be in
every later schema, so a damaged manifest can be told from one of a newer version before it is parsed. Nothing is
unpickled.
"""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.torch

from invaug.lab.errors import UserError
from invaug.lab.run import atomic, files
from invaug.lab.run.encoding import Encoder, decode
from invaug.lab.terminal import plain

SCHEMA = 1
MAX_MANIFEST = 16 << 20  # bytes; the manifest of a large network takes about 100 kB
MAX_VALUES = 1 << 20  # of lists, tables and items in a manifest, which all take memory; a large network has 10,000
MAX_COUNT = 2**53  # beyond it other readers of JSON round
KEYS = {"schema", "step", "epoch", "tensors", "meta", "state"}
ABOUT_TENSORS = {"file": str, "size": int, "sha256": str}
MAX_SHOWN = 300  # characters of another library's error message, into which a hostile file may put anything
MANIFEST = re.compile(r"step-(\d{8,})\.json")
TENSORS = re.compile(r"step-(\d{8,})(\.\d+)?\.safetensors")


class Checkpoint(NamedTuple):
    """A saved state, on the CPU."""

    state: dict[str, Any]
    step: int
    epoch: int
    meta: dict[str, Any]
    path: Path
    skipped: tuple[str, ...] = ()
    """One line for each later checkpoint that is damaged."""


class DamageError(Exception):
    """A file differs from what was written."""


class AllDamagedError(UserError):
    """No checkpoint of a folder is intact."""


def save(folder: Path, state: Mapping[str, Any], *, step: int, epoch: int, meta: Mapping[str, Any]) -> Path:
    """Write a checkpoint and return the path of its manifest; keep one earlier checkpoint and no later ones.

    The folder must have a single writer. A save that fails or is killed leaves the earlier checkpoints untouched.

    Args:
        state: Dicts, lists and tuples of tensors, numbers, strings and None. A tensor that occurs twice is stored once.
        meta: What the caller wants to know before using the state; the same types, without tensors.
    """
    if step < 0:
        raise ValueError(f"step must not be negative, got {step}")
    encoder, about = Encoder(), Encoder()
    content = {"meta": about.encode(meta, "meta"), "state": encoder.encode(state, "state")}
    if about.tensors:
        raise TypeError(f"{next(iter(about.tensors))} is a tensor, which only the state may hold")
    _refuse_link(folder)
    try:
        with atomic.reporting(folder):
            folder.mkdir(parents=True, exist_ok=True)
            _sweep(folder)
            return _write(folder, content, safetensors.torch.save(encoder.tensors), step, epoch)
    except atomic.WriteError as error:
        last = latest(folder)
        note = f"; {last.stem}, the last checkpoint, is intact" if last else ""
        raise atomic.WriteError(f"{error}{note}", error.errno) from error


def load(folder: Path) -> Checkpoint | None:
    """Return the newest intact checkpoint, or None if none was ever completed; refuse a newer schema."""
    _refuse_link(folder)
    skipped: list[str] = []
    for path in reversed(_manifests(folder)):
        try:
            return read(path)._replace(skipped=tuple(skipped))
        except PermissionError as error:  # the user can fix this, and would not want to lose the later steps
            raise UserError(f"cannot read {error.filename}: {error.strerror}") from error
        except (DamageError, OSError) as error:
            skipped.append(plain(f"{path.stem} was skipped: {error}"))
    if skipped:
        raise AllDamagedError(f"no checkpoint in {folder} can be used: {'; '.join(skipped)}")
    return None


def latest(folder: Path) -> Path | None:
    """Return the manifest of the newest checkpoint, unverified, or None."""
    return next(reversed(_manifests(folder)), None)


def seal(body: Mapping[str, Any]) -> bytes:
    """Return the bytes of a manifest: valid JSON whose first line is the SHA-256 of what follows."""
    rest = json.dumps(body, allow_nan=False).encode()[1:] + b"\n"
    return first_line(rest) + rest


def first_line(rest: bytes) -> bytes:
    """Return the line that seals the rest of a manifest."""
    return b'{"sha256": "%s",\n' % hashlib.sha256(rest).hexdigest().encode()


def _refuse_link(folder: Path) -> None:
    """Refuse a link, which in a run from elsewhere could lead to any folder of the user's."""
    if folder.is_symlink():
        raise UserError(f"{folder} is a link, but a run keeps its own checkpoints: link to the whole run instead")


def _write(folder: Path, content: Mapping[str, Any], data: bytes, step: int, epoch: int) -> Path:
    manifest = folder / f"step-{step:08d}.json"
    file = _free_name(manifest)
    about = {"file": file.name, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    sealed = seal({"schema": SCHEMA, "step": step, "epoch": epoch, "tensors": about, **content})
    if len(sealed) > MAX_MANIFEST:
        raise ValueError(f"the state without its tensors takes {len(sealed):,} bytes, over {MAX_MANIFEST:,}")
    if _n_values(sealed) > MAX_VALUES:
        raise ValueError(f"the state without its tensors holds {_n_values(sealed):,} values, over {MAX_VALUES:,}")
    try:
        atomic.write_bytes(file, data)
        atomic.write_bytes(manifest, sealed)
    except BaseException:
        with suppress(OSError):
            _sweep(folder)  # tensors without a manifest: a full disk needs the space
        raise
    _remove_replaced(folder, step, file)
    return manifest


def _free_name(manifest: Path) -> Path:
    """Return a new name for the tensors: saving a step again must not touch those of its present manifest."""
    names = (f"{manifest.stem}{f'.{i}' if i else ''}.safetensors" for i in range(2**31))
    return next(path for path in map(manifest.with_name, names) if not path.exists())


def _remove_replaced(folder: Path, step: int, file: Path) -> None:
    """Remove all but one earlier checkpoint, later ones (of an abandoned run), and other tensors of this step."""
    earlier = [path for path in _manifests(folder) if _step(path) < step]
    later = [path for path in _manifests(folder) if _step(path) > step]
    tensors = [path for path in folder.glob(f"step-{step:08d}*.safetensors") if path != file]
    for path in (*earlier[:-1], *later, *tensors):
        path.unlink(missing_ok=True)
    _sweep(folder)


def _sweep(folder: Path) -> None:
    """Remove temporary files, and tensors without a manifest."""
    atomic.sweep(folder)
    steps = {_step(path) for path in _manifests(folder)}
    for path in list(folder.iterdir()):
        match = TENSORS.fullmatch(path.name)
        if match and int(match[1]) not in steps:
            path.unlink(missing_ok=True)


def _manifests(folder: Path) -> list[Path]:
    """Return the manifests in the order of their steps."""
    if not folder.is_dir():
        return []
    named = (path for path in folder.iterdir() if MANIFEST.fullmatch(path.name))
    return sorted((path for path in named if path.is_file() or path.is_symlink()), key=_step)


def _step(path: Path) -> int:
    return int(path.stem.removeprefix("step-"))


def read(path: Path) -> Checkpoint:
    """Return the checkpoint of one manifest, or raise DamageError."""
    body = _open_seal(files.read_bytes(path, MAX_MANIFEST))
    _check_schema(path, body)
    _check_manifest(path, body)
    try:
        data = _read_tensors(path, **body["tensors"])
        # clones, because torch aligns its own memory, and kernels may round differently by alignment
        tensors = {name: tensor.clone() for name, tensor in safetensors.torch.load(data).items()}
        state, meta = decode(body["state"], tensors), decode(body["meta"], {})
        if not (isinstance(state, dict) and isinstance(meta, dict)):
            raise DamageError("its manifest was not written by invaug")
        return Checkpoint(state, body["step"], body["epoch"], meta, path)
    except (OSError, DamageError):
        raise
    except Exception as error:  # a hostile file may provoke any
        reason = plain(f"{type(error).__name__}: {error}"[:MAX_SHOWN])
        raise DamageError(f"its content cannot be read ({reason})") from error


def _open_seal(raw: bytes) -> dict[str, Any]:
    head, newline, rest = raw.partition(b"\n")
    if head + newline != first_line(rest):
        raise DamageError("its manifest was changed or cut (SHA-256 differs)")
    if _n_values(rest) > MAX_VALUES:
        raise DamageError(f"its manifest has {_n_values(rest):,} values, over {MAX_VALUES:,}")
    try:
        return dict(json.loads(b"{" + rest))
    except (ValueError, RecursionError) as error:
        raise DamageError(f"its manifest is not JSON ({error})") from error


def _n_values(text: bytes) -> int:
    """Return at least the number of values of a JSON text, without parsing it."""
    return sum(text.count(mark) for mark in (b"[", b"{", b","))


def _check_manifest(path: Path, body: Mapping[str, Any]) -> None:
    """Refuse other keys, types and counts than `save` writes."""
    about, counts = body.get("tensors"), [body.get("step"), body.get("epoch")]
    are_counts = all(type(count) is int and 0 <= count <= MAX_COUNT for count in counts)
    is_about = isinstance(about, dict) and {key: type(value) for key, value in about.items()} == ABOUT_TENSORS
    if not (set(body) == KEYS and is_about and are_counts and body["step"] == _step(path)):
        raise DamageError("its manifest was not written by invaug")


def _check_schema(path: Path, body: Mapping[str, Any]) -> None:
    schema = body.get("schema")
    if type(schema) is not int or schema < 1:
        raise DamageError(f"its manifest has no schema (got {schema!r})")
    if schema > SCHEMA:
        raise UserError(f"{path} is from a newer invaug (schema {schema}, this one reads {SCHEMA}): upgrade invaug")


def _read_tensors(manifest: Path, file: str, size: int, sha256: str) -> bytes:
    path = manifest.with_name(file) if TENSORS.fullmatch(file) else None
    if path is None or not path.is_file():
        raise DamageError(f"its tensors are missing ({plain(file[:MAX_SHOWN])})")
    if path.stat().st_size != size:
        raise DamageError(f"{file} has {path.stat().st_size} bytes instead of {size}")
    data = files.read_bytes(path, _memory())
    if hashlib.sha256(data).hexdigest() != sha256:
        raise DamageError(f"{file} was changed (SHA-256 differs)")
    return data


def _memory() -> int:
    """Return the bytes of memory of this machine, or a large number if the system does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 1 << 63
