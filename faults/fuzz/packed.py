"""Mutations of archives: .npz with odd arrays, zips and tars with odd members, checkpoints sealed again."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import random
import zipfile
from typing import Any

import numpy as np

from faults.fuzz.bytewise import mutate_bytes
from faults.fuzz.trees import mutate_json, mutate_tree, to_json
from invaug.lab.run import checkpoint

DTYPES = ("u1", "i1", "i8", "u8", ">i4", "f2", "f4", "f8", "c16", "?", "U7", "S3", "M8[s]", "m8[D]", "O", "V5", "i4,f4")
ODD_LABELS = (-1, 2**31, 2**32, 2**63 - 1, -(2**63), 1000, 3)
Members = list[tuple[str, bytes]]


def to_npy(array: np.ndarray[Any, Any]) -> bytes:
    """Return an array as .npy; objects as the pickle that nobody may read."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


def mutate_array(random: random.Random, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return an array of another type or shape, or with odd values."""
    match random.randrange(8):
        case 0:
            return np.zeros(array.shape, random.choice(DTYPES))
        case 1:
            return array.astype(random.choice(("f4", "f8", "i8", "U9", "O", "S2", "c8")))
        case 2:
            return array[: random.choice((0, 1, 2, len(array) // 2))] if array.ndim else array[None]
        case 3:
            return random.choice(
                (array[None], array[..., None], array.reshape(-1), array.T, array.reshape(-1)[:1].reshape(()))
            )
        case 4:
            return np.concatenate([array] * random.choice((2, 3))) if array.ndim else array
        case 5:
            return np.zeros([random.choice((0, 1, 2, 3, 9)) for _ in range(random.randrange(6))], array.dtype)
        case 6 if array.dtype.kind in "iu" and array.size:
            array = array.astype(np.int64)
            array.flat[random.randrange(array.size)] = random.choice(ODD_LABELS)
            return array
        case 7 if array.dtype.kind in "iuf" and array.size:
            array = array.astype(np.float64)
            array.flat[random.randrange(array.size)] = random.choice((np.nan, np.inf, -np.inf, 1e300, -1.0, 0.5))
            return array
    if array.dtype.kind == "U" and array.size:
        array = array.astype("U400")
        array.flat[random.randrange(array.size)] = random.choice(
            ("", "\x1b[2J", "a/b", "x" * 400, "\ud800", str(array.flat[0]))
        )
    return array


def unzip(content: bytes) -> Members:
    """Return the members of a zip."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return [(name, archive.read(name)) for name in archive.namelist()]


def to_zip(members: Members, method: int = zipfile.ZIP_STORED) -> bytes:
    """Return a zip with the right sizes and checksums."""
    import warnings

    buffer = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(buffer, "w", method) as archive:
        warnings.simplefilter("ignore")  # of names that occur twice
        for name, body in members:
            archive.writestr(zipfile.ZipInfo(name or "x"), body, method)
    return buffer.getvalue()


def mutate_members(random: random.Random, members: Members) -> Members:
    """Return the members with one left out, repeated, renamed, moved or of other bytes."""
    members = list(members)
    i = random.randrange(len(members))
    name, body = members[i]
    match random.randrange(5):
        case 0:
            del members[i]
        case 1:
            members.insert(random.randrange(len(members) + 1), (name, random.choice(members)[1]))
        case 2:
            members[i] = (
                random.choice((name.upper(), f"a/{name}", f"../{name}", f"{name}x", name[:-4], "\x1b[2J", "ü")),
                body,
            )
        case 3:
            members[i] = name, random.choice(members)[1]
        case 4:
            members[i] = name, random.choice((b"", b"text", random.randbytes(64), body[: len(body) // 2], body * 2))
    return members


def mutate_npz(random: random.Random, content: bytes) -> bytes:
    """Return an .npz with odd arrays, odd headers of arrays or odd members."""
    members, chance = unzip(content), random.random()
    if chance < 0.1:
        return mutate_bytes(random, content)
    if chance < 0.25:
        members = mutate_members(random, members)
    else:
        for _ in range(random.choice((1, 1, 2))):
            i = random.randrange(len(members))
            name, body = members[i]
            members[i] = name, mutate_npy(random, body)
    return to_zip(members, random.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)))


def mutate_npy(random: random.Random, body: bytes) -> bytes:
    """Return an array of other content, or with other words in its header."""
    if random.random() < 0.7:
        try:
            return to_npy(mutate_array(random, np.load(io.BytesIO(body))))
        except Exception:  # mutated before, or a value that the type cannot have
            return body[:-1]
    end = body.find(b"\n") + 1 or len(body)
    header = bytearray(body[:end])
    old, new = random.choice(
        (
            (b"(", b"(9999999999, "),
            (b"(", b"(-1, "),
            (b"'|u1'", b"'|O'"),
            (b"'<i8'", b"'<U9'"),
            (b"False", b"True"),
            (b"'descr'", b"'other'"),
            (b"{", b"["),
            (b"<i8", b"<f8"),
        )
    )
    if old in header and random.random() < 0.7:
        at = header.index(old)
        header[at : at + len(old)] = new
        while len(header) > end and b"  " in header:  # the padding gives the room
            header.remove(ord(" "))
    else:
        header = bytearray(mutate_bytes(random, bytes(header)))
    return bytes(header) + body[end:]


def mutate_zip(random: random.Random, content: bytes) -> bytes:
    """Return a zip with odd members or odd bytes."""
    if random.random() < 0.5:
        return mutate_bytes(random, content)
    members = mutate_members(random, unzip(content))
    if random.random() < 0.5:
        i = random.randrange(len(members))
        members[i] = members[i][0], mutate_bytes(random, members[i][1])
    return to_zip(members, zipfile.ZIP_DEFLATED)


def mutate_gzip(random: random.Random, content: bytes) -> bytes:
    """Return a gzip of odd content; of a tar, the checksums of its headers are right three times in four."""
    if random.random() < 0.1:
        return mutate_bytes(random, content)
    inner = gzip.decompress(content)
    if inner[257:262] != b"ustar" or random.random() < 0.25:
        return gzip.compress(mutate_bytes(random, inner), 1, mtime=0)
    return gzip.compress(mutate_tar(random, inner), 1, mtime=0)


def mutate_tar(random: random.Random, content: bytes) -> bytes:
    """Return a tar with bytes of one of its headers changed and the checksum repaired."""
    found = bytearray(content)
    headers = [at for at in range(0, len(found), 512) if found[at + 257 : at + 262] == b"ustar"]
    start = random.choice(headers)
    for _ in range(random.choice((1, 2, 4))):
        at = start + random.choice((random.randrange(512), random.randrange(100), random.randrange(124, 136), 156))
        found[at] = random.choice((*b"0123456789xgLKS", 0, 0x80, 0xFF))
    found[start + 148 : start + 156] = b" " * 8
    found[start + 148 : start + 156] = b"%06o\0 " % sum(found[start : start + 512])
    return bytes(found)


def mutate_manifest(random: random.Random, content: bytes) -> bytes:
    """Return a manifest with odd values and the right hash of what follows."""
    body = {key: value for key, value in json.loads(content).items() if key != "sha256"}
    if random.random() < 0.1:
        rest = mutate_bytes(random, content[content.index(b"\n") + 1 :])
    else:
        rest = to_json(mutate_tree(random, body))[1:] + b"\n"
    return checkpoint.first_line(rest) + rest


def mutate_state(random: random.Random, manifest: bytes, tensors: bytes) -> tuple[bytes, bytes]:
    """Return a manifest and its tensors with odd state in one of them, all hashes right."""
    body = {key: value for key, value in json.loads(manifest).items() if key != "sha256"}
    if random.random() < 0.6:
        part = random.choice(sorted(body["state"]))
        body["state"] |= mutate_tree(random, {part: body["state"].pop(part)})
    else:
        tensors = mutate_safetensors(random, tensors)
    about = {"size": len(tensors), "sha256": hashlib.sha256(tensors).hexdigest()}
    rest = to_json({**body, "tensors": {**body["tensors"], **about}})[1:] + b"\n"
    return checkpoint.first_line(rest) + rest, tensors


def mutate_safetensors(random: random.Random, content: bytes) -> bytes:
    """Return a safetensors file with odd values in its header, or numbers that are odd floats."""
    length = int.from_bytes(content[:8], "little")
    header, data = content[8 : 8 + length], bytearray(content[8 + length :])
    if random.random() < 0.3:
        at = random.randrange(len(data) // 4) * 4
        data[at : at + 4] = np.array(random.choice((np.nan, np.inf, -1.0, 1e38)), "f4").tobytes()
    else:
        header = mutate_json(random, header)
    return len(header).to_bytes(8, "little") + header + bytes(data)
