"""One image file looked at closely: whether training can use it, and what is odd about it."""

from __future__ import annotations

import hashlib
import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
from PIL import Image, ImageOps

from invaug.lab.data.decode import DEEP, FORMATS, ORIENTATION, open_image, open_stream, printable, why_unreadable
from invaug.lab.errors import UserError

THIN = 20  # times one side is the other: most of such an image is cut away
SMALL = 2  # pixels of a side that shows nothing
PIECE = 1 << 20
MODES = {
    "1": "1 bit a pixel: becomes grey",
    "LA": "grey with transparency: laid on black",
    "La": "grey with transparency: laid on black",
    "PA": "palette with transparency: laid on black",
    "RGBA": "colour with transparency: laid on black",
    "RGBa": "colour with transparency: laid on black",
    "P": "palette: becomes the colours it names",
    "CMYK": "CMYK, made for printing: becomes RGB, colours may shift",
    "YCbCr": "YCbCr: becomes RGB",
    "LAB": "Lab colours: become RGB",
    "HSV": "HSV colours: become RGB",
    "F": "floating point: becomes bytes",
    **dict.fromkeys(("I", "I;16", "I;16B", "I;16L", "I;16N"), "16 bits: the upper 8 are kept"),
}
"""What becomes of images that are neither 8-bit grey nor 8-bit RGB."""
FOREIGN = (
    (0, b"<!doctype html", "an HTML page, not an image"),
    (0, b"<html", "an HTML page, not an image"),
    (0, b"<?xml", "XML, not an image of pixels"),
    (0, b"<svg", "SVG, not an image of pixels"),
    (0, b"version https://git-lfs", "a Git LFS pointer: git lfs pull fetches the image"),
    (0, b"%pdf", "a PDF"),
    (0, b"pk\x03\x04", "a zip archive"),
    (0, b"\x1f\x8b", "gzipped"),
    (4, b"ftyp", "HEIC or AVIF, which is not read: convert it to JPEG"),
    (0, bytes(16), "nothing but zeros at its start"),
)
"""What is often found under the name of an image: where, which bytes (lower case), what it is."""


WORDS = (
    ("limit of", "too large"),
    ("truncated", "cut short"),
    ("broken", "damaged"),
    ("could not create decoder", "damaged or cut short"),
)
"""What decoders mean by their words."""


class Look(NamedTuple):
    """What was found out about a file."""

    bad: str = ""
    """Why training cannot use it, or nothing."""
    passing: bool = False
    """Whether that may be otherwise tomorrow: no permission, a disk that is away."""
    notes: tuple[str, ...] = ()
    size: tuple[int, int] | None = None
    mode: str = ""
    digest: bytes = b""


def look(path: Path) -> Look:
    """Return what there is to say about a file, which is read and decoded to its end."""
    notes: tuple[str, ...] = ()
    start = b""
    try:
        notes = tuple(_odd_places(path))
        with open_stream(path) as stream:
            start = stream.read(64)
            if not start:
                return Look("empty: 0 bytes", notes=notes)
            digest = _digest(stream)
            with open_image(stream) as image:
                size, mode = image.size, image.mode
                notes += (*_odd_headers(image, path), *_odd_pixels(image))
                if image.format == "PNG":
                    _check_png(stream)
                if image.format == "GIF" and not _ends_with(stream, b";"):
                    notes += ("no mark at its end: perhaps cut short",)
    except Exception as error:  # decoders raise what they like on hostile bytes
        return Look(_why(error, start), isinstance(error, OSError) and bool(error.errno), notes)
    return Look("", False, notes, size, mode, digest)


def _why(error: Exception, start: bytes) -> str:
    """Return why an image cannot be read; what it is instead, if its first bytes tell."""
    reason = why_unreadable(error)
    if "not an image" not in reason:
        return next((f"{word}: {reason}" for sign, word in WORDS if sign in reason.lower()), reason)
    start = start.lower()
    return next((what for place, sign, what in FOREIGN if start[place:].startswith(sign)), reason)


def _odd_places(path: Path) -> Iterator[str]:
    """Say what is odd about a file before it is opened."""
    yield from odd_name(path.name)
    if path.is_symlink():
        yield f"a link to {printable(str(path.readlink()))}"


def odd_name(name: str) -> Iterator[str]:
    """Say what is odd about the name of a file or folder."""
    if printable(name) != name:
        yield "odd name: not UTF-8"
    elif not name.isprintable() or name != name.strip() or name.startswith("-"):
        yield f"odd name: {name!a}"


def _odd_headers(image: Image.Image, path: Path) -> Iterator[str]:
    """Say what is odd about an image that is open but not decoded."""
    kind, claimed = image.format or "", FORMATS.get(path.suffix.lower())
    if claimed and kind.replace("MPO", "JPEG") != claimed:  # photographs of two pictures are JPEGs by another name
        yield f"{kind} named {path.suffix}"
    width, height = image.size
    if min(width, height) <= SMALL:
        yield f"only {width} x {height} pixels"
    if max(width, height) > THIN * min(width, height):
        yield f"{width} x {height} pixels: all but the centre is cut away"
    if image.mode in MODES:
        yield MODES[image.mode]
    elif ";16" in str(getattr(image, "tile", "")):
        yield "16 bits a channel: the upper 8 are kept"
    if image.mode == "RGB" and "transparency" in image.info:
        yield "one colour is transparent: laid on black"


def _odd_pixels(image: Image.Image) -> Iterator[str]:
    """Decode an image as training does, at the smallest scale; say what is odd about it."""
    image.draft(None, (1, 1))  # a JPEG is read to its end all the same
    image.load()
    if image.getexif().get(ORIENTATION, 1) in range(2, 9):
        ImageOps.exif_transpose(image)
        yield "turned by its EXIF tag: is set upright"
    if image.mode in DEEP:
        DEEP[image.mode](np.asarray(image))
    with suppress(Exception):  # training needs none of this
        if _is_blank(image):
            yield "blank: all pixels are the same"
        if image.format != "MPO" and (n_frames := getattr(image, "n_frames", 1)) > 1:
            yield f"{n_frames} frames: the first is taken"


def _is_blank(image: Image.Image) -> bool:
    extrema = image.getextrema()
    ranges = extrema if isinstance(extrema[0], tuple) else (extrema,)
    return all(low == high for low, high in ranges)


def _digest(stream: IO[bytes]) -> bytes:
    stream.seek(0)
    digest = hashlib.blake2b(digest_size=16)
    while piece := stream.read(PIECE):
        digest.update(piece)
    return digest.digest()


def _ends_with(stream: IO[bytes], mark: bytes) -> bool:
    stream.seek(-min(64, stream.seek(0, os.SEEK_END)), os.SEEK_END)
    return stream.read().rstrip(b"\0").endswith(mark)


def _check_png(stream: IO[bytes]) -> None:
    """Raise at damage that Pillow reads over: it skips the checksums of pixels, and what should follow them."""
    stream.seek(8)
    name = b""
    while name != b"IEND":
        head = stream.read(8)
        if len(head) < 8:
            raise UserError("cut short: a PNG without its end")
        length, name = struct.unpack(">I4s", head)
        checksum = zlib.crc32(name)
        while length and (piece := stream.read(min(length, PIECE))):
            checksum, length = zlib.crc32(piece, checksum), length - len(piece)
        if stream.read(4) != struct.pack(">I", checksum):
            raise UserError(f"damaged: the checksum of {name.decode('ascii', 'replace')} is wrong, or cut short")
