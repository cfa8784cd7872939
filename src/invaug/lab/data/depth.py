"""Images of more than 8 bits: which of their values become black and white, the same for all images of a dataset.

The bits of a file say little about its values: X-rays of 12 bits are often stored in files of 16. So the range is that
of the values themselves, over all files. Of 16-bit colour Pillow reads only the upper 8 bits.
"""

from collections.abc import Collection, Iterator
from statistics import median_high
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from invaug.lab.errors import UserError

Range = tuple[int, int]
"""The value that becomes black, and the one that becomes white."""
GREY_MODES = ("I", "I;16", "I;16B", "I;16L", "I;16N")
WHOLE_RANGE: Range = (0, 65535)
BLOCK = 1 << 20  # values that are counted or looked up at once
FEW_LEVELS = 32  # grey levels, of 256, that are too few for the pixels between the percentiles of `measure`
WAY_OUT = "save them as 8-bit images, with the contrast that matters"


class Depth(NamedTuple):
    """Values of an image: the ends of the range it asks for, and its first and 99th percentile."""

    low: int
    first: int
    last: int
    high: int


def is_deep(image: Image.Image) -> bool:
    """Whether an image that is open, but not decoded, has 16 bits per channel."""
    return image.mode in GREY_MODES or ";16" in str(getattr(image, "tile", ""))


def measure(image: Image.Image) -> Depth:
    """Return the values of a deep image that is decoded."""
    if image.mode in GREY_MODES:
        return Depth(*_percentiles(np.asarray(image), 0, 0.01, 0.99, 1))
    first, last = _percentiles(np.asarray(image.convert("RGB")), 0.01, 0.99)
    return Depth(WHOLE_RANGE[0], 256 * first, 256 * last, WHOLE_RANGE[1])


def _percentiles(values: NDArray[Any], *shares: float) -> list[int]:
    """Return the smallest value with such a share of all at or below it, 0 for the smallest of all."""
    counts = np.zeros(WHOLE_RANGE[1] + 1, np.int64)
    for (part,) in blocks_of(values):
        counts += np.bincount(part, minlength=len(counts))
    at_most = np.cumsum(counts)
    found: list[int] = np.searchsorted(at_most, [max(share * values.size, 1) for share in shares]).tolist()
    return found


def common_range(depths: Collection[Depth]) -> Range | None:
    """Return the range of all deep images, None if there are none; raise if it leaves most of them few levels."""
    if not depths:
        return None
    low, high = min(depth.low for depth in depths), max(depth.high for depth in depths)
    levels = median_high([(depth.last - depth.first) * 256 // (high - low + 1) for depth in depths])
    if levels < FEW_LEVELS and high - low > 255:
        found = f"scaled from {low:,}-{high:,} to bytes, most of the 16-bit images have {levels} grey levels or fewer"
        raise UserError(f"{found}, the brightest and darkest pixels aside: {WAY_OUT}")
    return low, high


def to_bytes(values: NDArray[Any], grey_range: Range) -> NDArray[np.uint8]:
    """Return grey values as bytes: 256 steps of one width from `low` to `high`; what is beyond is black or white."""
    low, high = grey_range
    steps = (np.clip(np.arange(WHOLE_RANGE[1] + 1), low, high) - low) * 256 // (high - low + 1)
    table, found = steps.astype(np.uint8), np.empty(values.shape, np.uint8)  # because to divide every pixel is slow
    for part, into in blocks_of(values, found):
        into[:] = table[part]
    return found


def floats_to_bytes(values: NDArray[Any]) -> NDArray[np.uint8]:
    """Return values in [0, 1] as bytes."""
    found = np.empty(values.shape, np.uint8)
    for part, into in blocks_of(values, found):
        into[:] = np.rint(part * 255)
    return found


def blocks_of(*arrays: NDArray[Any]) -> Iterator[tuple[NDArray[Any], ...]]:
    """Yield equal parts of contiguous arrays: numpy widens what it counts or looks up to eight bytes per value."""
    flat = [array.reshape(-1) for array in arrays]
    for start in range(0, len(flat[0]), BLOCK):
        yield tuple(each[start : start + BLOCK] for each in flat)


def check_levels(pixels: NDArray[np.uint8]) -> None:
    """Raise if a deep image whose range is not known has become too dark to tell its pixels apart."""
    first, last = _percentiles(pixels, 0.01, 0.99)
    if last - first < FEW_LEVELS:
        raise UserError(f"{last - first} grey levels or fewer are left of 16 bits: {WAY_OUT}")
