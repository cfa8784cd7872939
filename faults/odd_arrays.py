"""An .npz whose members are odd, under right checksums, so that what is odd reaches the reader."""

from __future__ import annotations

import io
import random
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Members = dict[str, bytes]
SHAPES = ("()", "(3,)", "(0,)", "(-1,)", "(48, 8, 8, 1)", "(2**62,)", "(4611686018427387904, 4)", "(True,)", "[48]")
SHAPES += ("(9" + "9" * 2000 + ",)", "(" * 90 + ")" * 90, "(1.5,)", "'x'", "None", "(48, 0)", "(1,) * 40")
TYPES = ("'|u1'", "'>i8'", "'<i2'", "'|O'", "'<U0'", "'<U268435456'", "'|S5'", "'<M8[s]'", "'<c16'", "'|b1'", "'<f16'")
TYPES += ("[('a', '<i4'), ('b', '|O')]", "('|u1', (3,))", "'\\\\d'", "'nonsense'", "None", "{'names': 5}", "'|V9'")
NAMES: tuple[Any, ...] = (
    np.array([b"cat", b"dog", b"\xff"]),
    np.array(["a", "a", "b"]),
    np.array(["", "b", "c"]),
    np.array(["a\0b", "b", "c"]),
    np.array(["x" * 1_000_000, "b", "c"]),
    np.array(["\ud800", "b", "c"]),
    np.array([["a", "b", "c"]]),
    np.array("a"),
    np.array(["a"]),
    np.array(list("abcd") * 40),
    np.array([1.5, 2.5, 3.5]),
    np.array([0, 1, 2], "M8[s]"),
    np.array([]),
    np.array([2**31, -5, 7]),
    np.frombuffer(struct.pack("<3I", 0x110000, 2**32 - 1, 5), "<U1"),
)
LABELS: tuple[Any, ...] = tuple(np.array([0, 1, 2] * 15 + [0, 1, odd]) for odd in (2**31, 2**62, -(2**63), 47, 48))
LABELS += (
    np.array([0, 1] * 23 + [0, 2**64 - 1], np.uint64),
    np.array([0, 1, 2] * 16, ">i4"),
    np.frombuffer(struct.pack("<I", 0x110000) * 48, "<U1"),
    np.zeros((48, 2), np.int64, "F"),
    np.zeros(48, [("a", "i4")]),
    np.array(7),
)


def members_of(path: Path) -> Members:
    """Return the members of a zip."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write_members(path: Path, members: Members) -> Path:
    """Write a zip of these members with the checksums they have."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def encoded(array: Any) -> bytes:
    """Return an array as a member."""
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def with_header(content: bytes, header: str, version: int = 1) -> bytes:
    """Return a member with another header before the same bytes."""
    (length,) = struct.unpack("<H", content[8:10])
    text = header.encode()
    size = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + size + text + content[10 + length :]


def _change_bytes(content: bytes, chance: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(chance.randint(1, 4)):
        changed[chance.randrange(min(len(changed), 128))] = chance.randrange(256)
    return bytes(changed)


def _change_header(content: bytes, chance: random.Random) -> bytes:
    order = chance.choice(("False", "True", "7"))
    shape, kind = chance.choice(SHAPES), chance.choice(TYPES)
    header = f"{{'descr': {kind}, 'fortran_order': {order}, 'shape': {shape}}}\n"
    return with_header(content, header, chance.choice((1, 1, 2, 3)))


def _replace(content: bytes, chance: random.Random) -> bytes:
    cut = content[: chance.randrange(len(content))]
    return chance.choice((b"", b"text\n" * 9, cut, content + b"more", content[6:], b"\x93NUMPY", b"PK\3\4" + content))


CHANGES: tuple[Callable[[bytes, random.Random], bytes], ...] = (_change_bytes, _change_header, _replace)


def change(members: Members, chance: random.Random) -> Members:
    """Return the members with one of them odd."""
    kind = chance.randrange(6)
    if kind == 0:
        return {**members, "classes.npy": encoded(chance.choice(NAMES))}
    if kind == 1:
        return {**members, "y_train.npy": encoded(chance.choice(LABELS))}
    name = chance.choice(list(members))
    if kind == 2 and chance.random() < 0.3:  # the same array twice, or one without a suffix
        stem = name.removesuffix(".npy")
        return {**members, stem: members[name]} if chance.random() < 0.5 else {stem: members[name]}
    return {**members, name: chance.choice(CHANGES)(members[name], chance)}
