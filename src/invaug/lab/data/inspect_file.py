"""One image file inspected closely: whether training can use it, and what is unusual about it."""

import hashlib
import re
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageOps

from invaug.lab.data import decode, depth
from invaug.lab.data.decode import Stream, printable
from invaug.lab.data.depth import Depth
from invaug.lab.data.memory import room_for
from invaug.lab.errors import UserError

THIN = 20  # times one side is the other: most of such an image is cut away
IEND_CHECKSUM = b"\xaeB`\x82"
LARGE = (1024, 1024)  # pixels that training may ask a JPEG for
SMALL = 2  # pixels of a side that shows nothing
TABLES: dict[str, dict[str, str]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
"""What is said about modes, about the words of decoders, and about files that are something else."""


class Inspection(NamedTuple):
    """What was found out about a file."""

    bad: str = ""
    """Why training cannot use it, or nothing."""
    transient: bool = False
    """Whether the reason may be gone tomorrow: no permission, a disk that is not mounted."""
    notes: tuple[str, ...] = ()
    size: tuple[int, int] | None = None
    mode: str = ""
    digest: bytes = b""
    depth: Depth | None = None
    """The values of an image of more than 8 bits."""


def inspect_file(path: Path) -> Inspection:
    """Return what there is to say about a file, which is read and decoded to its end."""
    notes: tuple[str, ...] = ()
    start = b""
    try:
        notes = tuple(name_notes(path.name))
        notes += (f"a link to {printable(str(path.readlink()))}",) if path.is_symlink() else ()
        with decode.open_stream(path) as stream:
            start = stream.read(64)
            if not start:
                return Inspection("empty: 0 bytes", notes=notes)
            stream.seek(0)
            digest = hashlib.file_digest(stream, partial(hashlib.blake2b, digest_size=16)).digest()
            with decode.open_image(stream) as image:
                size, mode, kind, is_deep = image.size, image.mode, image.format, depth.is_deep(image)
                notes += tuple(_header_notes(image, path))
                with room_for(image, LARGE):
                    notes += tuple(_pixel_notes(image))
                    values = depth.measure(image) if is_deep else None
            if kind == "PNG":
                _check_png(stream)
    except Exception as error:  # decoders raise what they like on hostile bytes
        return Inspection(_explain(error, start), isinstance(error, OSError) and bool(error.errno), notes)
    return Inspection("", False, notes, size, mode, digest, values)


def _explain(error: Exception, start: bytes) -> str:
    """Return why an image cannot be read; what it is instead, if its first bytes tell."""
    reason = decode.why_unreadable(error)
    if "not an image" not in reason:
        meanings = TABLES["meanings"].items()
        return next((f"{meaning}: {reason}" for words, meaning in meanings if words in reason.lower()), reason)
    kinds = TABLES["foreign"].items()
    return next((kind for sign, kind in kinds if re.match(sign.encode(), start, re.IGNORECASE | re.DOTALL)), reason)


def name_notes(name: str) -> Iterator[str]:
    """Yield what is unusual about the name of a file or folder."""
    if printable(name) != name:
        yield "odd name: not UTF-8"
    elif not name.isprintable() or name != name.strip() or name.startswith("-"):
        yield f"odd name: {name!a}"


def _header_notes(image: Image.Image, path: Path) -> Iterator[str]:
    """Yield what is unusual about an image that is open but not decoded."""
    kind, claimed = image.format or "", decode.FORMATS.get(path.suffix.lower())
    if claimed and kind.replace("MPO", "JPEG") != claimed:  # photographs of two pictures are JPEGs by another name
        yield f"{kind} named {path.suffix}"
    width, height = image.size
    if min(width, height) <= SMALL:
        yield f"only {width} x {height} pixels"
    if max(width, height) > THIN * min(width, height):
        yield f"{width} x {height} pixels: everything but the centre is cut away"
    if image.mode in TABLES["modes"]:
        yield TABLES["modes"][image.mode]
    elif depth.is_deep(image):
        yield "16 bits per channel: the upper 8 are kept"
    if image.has_transparency_data:
        yield "transparency: composited on black"


def _pixel_notes(image: Image.Image) -> Iterator[str]:
    """Decode an image as training does, at the smallest scale; yield what is unusual about it."""
    image.draft(None, (1, 1))  # a JPEG is read to its end all the same
    image.load()
    if image.getexif().get(decode.ORIENTATION, 1) in range(2, 9):
        ImageOps.exif_transpose(image, in_place=True)
        yield "turned upright by its EXIF tag"
    if image.mode in ("F", *depth.GREY_MODES):
        decode.to_eight_bits(image, None)
    with suppress(Exception):  # training needs none of this
        if all(low == high for low, high in np.reshape(image.getextrema(), (-1, 2))):
            yield "blank: all pixels are the same"
        if image.format != "MPO" and (n_frames := getattr(image, "n_frames", 1)) > 1:
            yield f"{n_frames} frames: the first is taken"


def _check_png(stream: Stream) -> None:
    """Raise at damage that decoding does not show: Pillow skips the checksums of pixels and what follows them."""
    stream.seek(0)
    with Image.open(stream, formats=("PNG",)) as image:
        image.verify()  # all checksums but that of IEND, before which it stops
    if stream.read(4) != IEND_CHECKSUM:
        raise UserError("damaged or cut short: the checksum of IEND is wrong")
