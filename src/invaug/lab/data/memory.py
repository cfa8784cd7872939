"""What decoding an image takes: bytes, counted before a pixel is decoded, under one budget per process."""

import ctypes
import math
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from PIL import Image

from invaug.lab.errors import UserError

MAX_BYTES = 512 << 20  # for all images that a process decodes at a time, beside what it has
LARGE = 32 << 20  # bytes that are returned to the system before others may be taken
STORED = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16B": 2, "I;16L": 2, "I;16N": 2}
"""Bytes that Pillow stores per pixel; all other modes take 4."""
CONVERTED = {"1": 6, "I": 9, "F": 9, "I;16": 6, "I;16B": 6, "I;16L": 6, "I;16N": 6}
"""Bytes per pixel of the copies on the way to 8 bits; all other modes take 5."""
COMPOSITED = 14  # bytes per pixel of what lays a transparent image on black
DECODERS = {"GIF": 5, "WEBP": 12}
"""Bytes per pixel of the canvases of a decoder, beside the image itself."""
COPIES = {"BMP": 2, "PPM": 2, "TIFF": 1}
"""How often a decoder may hold all pixels, as strips or as rows, beside the image itself."""
JPEG = ("JPEG", "MPO")
COEFFICIENT = 2  # bytes; a JPEG of several scans is held whole, a coefficient for each value
SCALES = (8, 4, 2)  # a JPEG is decoded at one of these fractions if what is left is large enough
TILE = (322, 323)  # TIFF tags: width and height of the tiles, which may be larger than the image


def bytes_needed(image: Image.Image, target: tuple[int, int]) -> int:
    """Return about how many bytes it takes to decode an open image, turn it upright and convert it.

    Args:
        target: Width and height that `Image.draft` is asked for.
    """
    width, height = image.size
    whole = width * height
    if image.format in JPEG:
        scale = next((s for s in SCALES if width // target[0] >= s and height // target[1] >= s), 1)
        scaled = -(-width // scale) * -(-height // scale)
        return whole * COEFFICIENT * len(image.getbands()) + scaled * _per_pixel(image)
    return whole * _per_pixel(image) + _buffers(image)


def _per_pixel(image: Image.Image) -> int:
    stored = STORED.get(image.mode, 4)
    converted = COMPOSITED if image.has_transparency_data else CONVERTED.get(image.mode, 5)
    return max(2 * stored, stored + converted)


def _buffers(image: Image.Image) -> int:
    """Return the bytes that a decoder holds beside the image."""
    kind, area = image.format or "", image.width * image.height
    tile = [tag for tag in map(getattr(image, "tag_v2", {}).get, TILE) if isinstance(tag, int)]
    copied = max(area, math.prod(tile) if tile else 0) * COPIES.get(kind, 0) * STORED.get(image.mode, 4)
    return copied + area * DECODERS.get(kind, 0)


class Budget:
    """Bytes that the threads of a process share; one that needs more than is left waits for the others."""

    def __init__(self, total: int) -> None:
        self.total, self.taken, self.changed = total, 0, threading.Condition()

    @contextmanager
    def take(self, n_bytes: int) -> Iterator[None]:
        """Hold so many bytes, at most all of them."""
        n_bytes = min(n_bytes, self.total)
        with self.changed:
            self.changed.wait_for(lambda: self.taken + n_bytes <= self.total)
            self.taken += n_bytes
        try:
            yield
        finally:
            with self.changed:
                self.taken -= n_bytes
                self.changed.notify_all()


_budget = Budget(MAX_BYTES)


@contextmanager
def room_for(image: Image.Image, target: tuple[int, int]) -> Iterator[None]:
    """Wait until there is room to decode an open image, and free its pixels at the end; raise if it is too large."""
    needed = bytes_needed(image, target)
    if needed > MAX_BYTES:
        what = f"{image.width} x {image.height} pixels of mode {image.mode} take {needed >> 20:,} MB to decode"
        raise UserError(f"{what}, over the limit of {MAX_BYTES >> 20:,} MB: save the image smaller, or as JPEG")
    with _budget.take(needed):
        try:
            yield
        finally:
            Image.Image.close(image)  # frees the pixels; the method of a file's image would close the stream too
            if needed > LARGE:
                _give_back()


def _give_back() -> None:
    """Return freed memory to the system where the C library can: glibc keeps it for each thread on its own.

    Of the last block of every thread it still keeps up to 64 MB.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform.startswith("linux") else None
    if trim is not None:
        trim(0)
