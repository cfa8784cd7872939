"""Mutations of bytes: numbers in a header, bits, cuts, repetitions; and of PNG's chunks, with the right checksums."""

from __future__ import annotations

import random
import struct
import zlib

ODD_BYTES = (0, 1, 0x7F, 0x80, 0xFF)
ODD_SIZES = (0, 1, 2, 3, 16, 255, 256, 4096, 0x7FFF, 0x8000, 0xFFFF, 30_000, 2**20, 2**24, 2**31 - 1, 2**31, 2**32 - 1)
HEADER = 64  # bytes at the start of a file, where most of its structure is
SIGNATURE = b"\x89PNG\r\n\x1a\n"


def mutate_bytes(random: random.Random, content: bytes) -> bytes:
    """Return the bytes with one to four changes, half of them near the start."""
    found = bytearray(content)
    for _ in range(random.choice((1, 1, 2, 4))):
        _mutate_once(random, found)
    return bytes(found)


def _mutate_once(random: random.Random, found: bytearray) -> None:
    size = len(found)
    if not size:
        found += bytes(random.randrange(8))
        return
    at, n = random.randrange(min(size, HEADER) if random.random() < 0.5 else size), random.randint(1, 16)
    match random.randrange(7):
        case 0:
            found[at] ^= 1 << random.randrange(8)
        case 1:
            found[at] = random.choice(ODD_BYTES)
        case 2:
            width, order = random.choice((1, 2, 4, 8)), random.choice(("<", ">"))
            number = random.choice(ODD_SIZES) % 256**width
            found[at : at + width] = struct.pack(order + {1: "B", 2: "H", 4: "I", 8: "Q"}[width], number)
        case 3:
            del found[at:]
        case 4:
            del found[at : at + n]
        case 5:
            found[at:at] = found[at : at + n] * random.choice((1, 1, 100))
        case 6:
            found[at:at] = random.randbytes(n)


def chunks_of(content: bytes) -> list[tuple[bytes, bytes]]:
    """Return the chunks of a PNG, each by its name and what it holds."""
    found, at = [], len(SIGNATURE)
    while at + 8 <= len(content):
        (length,) = struct.unpack(">I", content[at : at + 4])
        found.append((content[at + 4 : at + 8], content[at + 8 : at + 8 + length]))
        at += 12 + length
    return found


def join_chunks(chunks: list[tuple[bytes, bytes]]) -> bytes:
    """Return a PNG of chunks, with the right lengths and checksums."""
    parts = (
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body)) for name, body in chunks
    )
    return SIGNATURE + b"".join(parts)


EXTRA = (b"tEXt", b"zTXt", b"iTXt", b"iCCP", b"eXIf", b"acTL", b"fcTL", b"fdAT", b"PLTE", b"tRNS", b"gAMA", b"xxXx")


def mutate_png(random: random.Random, content: bytes) -> bytes:
    """Return a PNG with a chunk changed, left out, repeated or added, or its pixels packed anew with changes."""
    chunks = chunks_of(content)
    i, act = random.randrange(len(chunks)), random.randrange(6)
    name, body = chunks[i]
    if act == 0:
        del chunks[i]
    elif act == 1:
        chunks.insert(random.randrange(len(chunks) + 1), (name, body))
    elif act == 2:
        chunks.insert(random.randrange(len(chunks) + 1), (random.choice(EXTRA), random.randbytes(random.randrange(40))))
    elif act == 3 and name == b"IDAT":
        chunks[i] = name, zlib.compress(mutate_bytes(random, zlib.decompress(body)))
    else:
        chunks[i] = name, mutate_bytes(random, body)
    return join_chunks(chunks)


def mutate_image(random: random.Random, content: bytes) -> bytes:
    """Return an image file with changes to its bytes or, of a PNG two times in three, to its chunks."""
    if content.startswith(SIGNATURE) and random.random() < 2 / 3:
        return mutate_png(random, content)
    return mutate_bytes(random, content)
