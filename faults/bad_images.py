"""Forty image files that people have: empty, cut short, mislabelled, damaged, odd; what a scan must say of each."""

from __future__ import annotations

import ctypes
import io
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

CAPABILITIES = 0x20080522  # the version of the kernel's structure that holds 64 of them
READ_ANYTHING = (1 << 1) | (1 << 2)  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH


class Kind(NamedTuple):
    """A file: its name, how it is written, whether training must refuse it, and words of the reason."""

    name: str
    write: Callable[[Path], Any]
    bad: bool
    reason: str


def photograph(seed: int = 0, size: tuple[int, int] = (24, 24)) -> Image.Image:
    """Return a colour image that no other seed gives."""
    random = np.random.default_rng(seed)
    return Image.fromarray(random.integers(256, size=(size[1], size[0], 3), dtype=np.uint8))


@cache
def encoded(kind: str) -> bytes:
    """Return a whole image of a format."""
    buffer = io.BytesIO()
    photograph().save(buffer, kind)
    return buffer.getvalue()


def png(width: int, height: int, bits: int, colour: int, rows: bytes) -> bytes:
    """Return a PNG made by hand."""
    header = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    parts = [struct.pack(">I", len(b)) + n + b + struct.pack(">I", zlib.crc32(n + b)) for n, b in chunks]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def _cut(kind: str, share: float) -> Callable[[Path], Any]:
    """Write the first share of an image; a negative one is a number of bytes that are missing at the end."""
    whole = encoded(kind)
    kept = whole[: int(share)] if share < 0 else whole[: int(share * len(whole))]
    return partial(_write, content=kept)


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def _save(path: Path, make: Callable[[], Image.Image], kind: str, **options: Any) -> None:
    make().save(path, kind, **options)


def _with_changed_byte(place: int) -> bytes:
    """Return a PNG with a byte changed, counted from the start of its pixels or, if negative, from their end."""
    content = bytearray(encoded("PNG"))
    start = content.index(b"IDAT")
    (length,) = struct.unpack(">I", content[start - 4 : start])
    content[start + 4 + (place if place >= 0 else length - 1 - place)] ^= 0x10
    return bytes(content)


def _animated(path: Path) -> None:
    photograph().save(path, "GIF", save_all=True, append_images=[photograph(1), photograph(2)])


def _turned(path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    photograph(3).save(path, "JPEG", exif=exif)


def _deep(path: Path) -> None:
    path.write_bytes(png(2, 1, 16, 2, b"\0" + bytes(range(0, 252, 21))))


def _not_a_number(path: Path) -> None:
    Image.fromarray(np.array([[0.5, np.nan], [0.1, 0.2]], np.float32)).save(path, "TIFF")


def _unreadable(path: Path) -> None:
    path.write_bytes(encoded("PNG"))
    path.chmod(0)


def _link(path: Path, target: str) -> None:
    path.symlink_to(target)


def _to_another(path: Path) -> None:
    store = path.parent.parent.parent / "store.png"
    photograph(9).save(store)
    path.symlink_to(store)


def _converted(mode: str) -> Callable[[], Image.Image]:
    return lambda: photograph(4).convert(mode)


def _plain(size: tuple[int, int]) -> Callable[[], Image.Image]:
    return partial(photograph, 5, size)


def _grey16() -> Image.Image:
    return Image.fromarray(np.arange(0, 57600, 100, np.uint16).reshape(24, 24))


KINDS = (
    Kind("empty.jpg", partial(_write, content=b""), True, "empty"),
    Kind("cut-1.jpg", _cut("JPEG", 0.01), True, "cut short"),
    Kind("cut-20.jpg", _cut("JPEG", 0.2), True, "cut short"),
    Kind("cut-60.jpg", _cut("JPEG", 0.6), True, "truncated"),
    Kind("cut-90.jpg", _cut("JPEG", 0.9), True, "truncated"),
    Kind("cut-end.jpg", _cut("JPEG", -2), True, "truncated"),
    Kind("cut-head.png", _cut("PNG", 0.02), True, "not an image"),
    Kind("cut-half.png", _cut("PNG", 0.5), True, "truncated"),
    Kind("cut-sum.png", _cut("PNG", -14), True, "cut short"),
    Kind("cut-end.png", _cut("PNG", -12), True, "cut short"),
    Kind("cut.gif", _cut("GIF", 0.7), True, "truncated"),
    Kind("cut.webp", _cut("WEBP", 0.7), True, "cut short"),
    Kind("cut.bmp", _cut("BMP", 0.7), True, "truncated"),
    Kind("cut.tiff", _cut("TIFF", 0.7), True, "truncated"),
    Kind("page.jpg", partial(_write, content=b"<!DOCTYPE html><html>404</html>"), True, "HTML"),
    Kind("pointer.png", partial(_write, content=b"version https://git-lfs.github.com/spec/v1\n"), True, "Git LFS"),
    Kind("noise.gif", partial(_write, content=bytes(np.random.default_rng(1).bytes(500))), True, "not an image"),
    Kind("sum.png", partial(_write, content=_with_changed_byte(-1)), True, "checksum"),
    Kind("byte.png", partial(_write, content=_with_changed_byte(60)), True, "damaged"),
    Kind("bomb.png", partial(_write, content=png(12000, 12000, 8, 0, bytes(1000))), True, "too large"),
    Kind("numbers.tiff", _not_a_number, True, "values from"),
    Kind("loop.png", partial(_link, target="loop.png"), True, "symbolic links"),
    Kind("dangling.png", partial(_link, target="nowhere.png"), True, "No such file"),
    Kind("locked.png", _unreadable, True, "Permission denied"),
    Kind("pipe.png", os.mkfifo, True, "not a regular file"),
    Kind("bit.png", partial(_save, make=_converted("1"), kind="PNG"), False, "1 bit"),
    Kind("LA.png", partial(_save, make=_converted("LA"), kind="PNG"), False, "transparency"),
    Kind("palette.png", partial(_save, make=_converted("P"), kind="PNG"), False, "palette"),
    Kind("RGBA.png", partial(_save, make=_converted("RGBA"), kind="PNG"), False, "transparency"),
    Kind("CMYK.jpg", partial(_save, make=_converted("CMYK"), kind="JPEG"), False, "CMYK"),
    Kind("grey16.png", partial(_save, make=_grey16, kind="PNG"), False, "16 bits"),
    Kind("colour16.png", _deep, False, "16 bits"),
    Kind("animated.gif", _animated, False, "3 frames"),
    Kind("turned.jpg", _turned, False, "EXIF"),
    Kind("dot.png", partial(_save, make=_plain((1, 1)), kind="PNG"), False, "1 x 1"),
    Kind("line.png", partial(_save, make=_plain((1, 10000)), kind="PNG"), False, "1 x 10000"),
    Kind("really-png.jpg", partial(_save, make=partial(photograph, 6), kind="PNG"), False, "PNG named .jpg"),
    Kind("two\nlines\x1b[31m.png", partial(_save, make=partial(photograph, 7), kind="PNG"), False, "odd name"),
    Kind(os.fsdecode(b"latin-\xe9.png"), partial(_save, make=partial(photograph, 8), kind="PNG"), False, "UTF-8"),
    Kind("link.png", _to_another, False, "a link to"),
)


def write_folder(root: Path, n_good: int, *kinds: Kind) -> Path:
    """Write so many good images of two classes, and the given files among them; return the folder."""
    for i in range(n_good):
        folder = root / ("cat", "dog")[i % 2]
        folder.mkdir(parents=True, exist_ok=True)
        photograph(1000 + i).save(folder / f"{i:04}.png")
    for i, kind in enumerate(kinds):
        kind.write(root / ("cat", "dog")[i % 2] / kind.name)
    return root


def flat_png(side: int) -> bytes:
    """Return a whole, valid grey PNG of side x side black pixels."""
    packer, row = zlib.compressobj(1), bytes(1 + side)
    pixels = b"".join([packer.compress(row * 100) for _ in range(side // 100)]) + packer.flush()
    head, _, tail = png(side, side, 8, 0, b"").partition(struct.pack(">I", 8) + b"IDAT")
    body = b"IDAT" + pixels
    return head + struct.pack(">I", len(pixels)) + body + struct.pack(">I", zlib.crc32(body)) + tail[12:]


def flat_bmp(side: int) -> bytes:
    """Return the header of a BMP of side x side pixels; the pixels would be gigabytes."""
    return b"BM" + struct.pack("<IHHIIiiHHIIiiII", 54, 0, 0, 54, 40, side, side, 1, 24, 0, 0, 0, 0, 0, 0)


def flat_gif(side: int) -> bytes:
    """Return a GIF of side x side pixels of which the data is missing."""
    size = struct.pack("<HH", side, side)
    return b"GIF89a" + size + b"\x80\0\0" + bytes(6) + b",\0\0\0\0" + size + b"\0\x02\x01\0\0;"


def flat_tiff(side: int) -> bytes:
    """Return a TIFF of side x side grey pixels in one strip that is missing."""
    tags = [(256, side), (257, side), (258, 8), (259, 1), (262, 1), (273, 8), (277, 1), (278, side), (279, side * side)]
    body = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags)
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + body + bytes(4)


@contextmanager
def unprivileged() -> Iterator[None]:
    """Take from this thread, and from those it starts, the right of the superuser to read any file."""
    if os.geteuid() != 0:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    head, rights = (ctypes.c_uint32 * 2)(CAPABILITIES, 0), (ctypes.c_uint32 * 6)()
    libc.capget(head, rights)
    effective = rights[0]
    rights[0] = effective & ~READ_ANYTHING
    libc.capset(head, rights)
    try:
        yield
    finally:
        rights[0] = effective
        libc.capset(head, rights)
