"""Image files of any kind become bytes of one shape.

An image is turned upright by its EXIF tag; of an animation, the first frame is taken. Transparent images are composited
on black. Grey values of 16 bits are scaled (see `depth`), of 16-bit colour the upper 8 are kept; floats must be in
[0, 1].
"""

import os
import stat
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from io import BufferedReader, BytesIO
from itertools import chain
from pathlib import Path
from statistics import median_low
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from invaug.lab.data import depth
from invaug.lab.data.archives import read_zip_member, zip_above
from invaug.lab.data.depth import Range
from invaug.lab.data.memory import room_for
from invaug.lab.errors import UserError, reason_of
from invaug.lab.terminal import with_progress

Item = TypeVar("Item")
Result = TypeVar("Result")
Stream = BufferedReader | BytesIO
Shape = tuple[int, int, int]
"""Channels, height, width."""

SUFFIXES = {
    "BMP": (".bmp",),
    "GIF": (".gif",),
    "JPEG": (".jpeg", ".jpg"),
    "PNG": (".png",),
    "PPM": (".pbm", ".pgm", ".pnm", ".ppm"),
    "TIFF": (".tif", ".tiff"),
    "WEBP": (".webp",),
}
"""The formats that are read; a closed list, because some others (EPS) start programs."""
FORMATS = {suffix: kind for kind, suffixes in SUFFIXES.items() for suffix in suffixes}
MAX_PIXELS = 89_478_485  # where Pillow starts to warn of decompression bombs: a quarter of a GiB as RGB
MAX_MEMBER = 256 << 20  # bytes of one image file, or inside a zip
KEPT_SIDE = 256  # images of one common size stay as they are up to this side
SIDES = (32, 64, 128, 224)  # otherwise they become squares of the largest of these that the median image fills
MAX_THREADS = 8  # together they hold no more than the budget of `memory`
N_HEADERS = 512  # files whose headers tell that median
BLOCK = 64  # images per task of a thread
GREY = frozenset(("1", "L", "LA", "La", "F", *depth.GREY_MODES))
ORIENTATION, SIDEWAYS = 0x0112, (5, 6, 7, 8)  # an EXIF tag, and the values that swap width and height


def printable(name: str) -> str:
    """Return a file name that can be printed and stored: bytes that are not UTF-8 become question marks."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def choose_shape(files: Sequence[Path], image_size: int | None) -> Shape:
    """Return the shape the files are decoded to: one channel if all are grey, else three.

    The side is `image_size` if given; else the common size of all images, up to 256 pixels; else the largest of
    32, 64, 128 and 224 that the shorter side of the median image fills (and 32 if none).
    """
    with quiet():
        sizes, grey = _read_headers(files[:: max(1, len(files) // N_HEADERS)])
        median = median_low(min(size) for size in sizes)
        if grey or (image_size is None and len(set(sizes)) == 1):  # true of all, or only of these?
            sizes, grey = _read_headers(with_progress(files, "reading image headers"))
    channels, (width, height) = 1 if grey else 3, sizes[0]
    if image_size is None and len(set(sizes)) == 1 and max(width, height) <= KEPT_SIDE:
        return channels, height, width
    side = image_size or max([size for size in SIDES if size <= median], default=SIDES[0])
    return channels, side, side


def decode(path: Path, shape: Shape, grey_range: Range | None = None) -> NDArray[np.uint8]:
    """Return one image as bytes of shape (channels, height, width): its centre, resized to fill the shape.

    Args:
        grey_range: What becomes black and white of 16 bits; None, for a dataset that has none, refuses dark ones.
    """
    target = (2 * shape[2], 2 * shape[1])
    with _open_named(path) as image, room_for(image, target):
        image.draft(None, target)  # a JPEG decodes at 1/2, 1/4 or 1/8 where that loses nothing here
        return _to_shape(image, shape, grey_range)


def _to_shape(image: Image.Image, shape: Shape, grey_range: Range | None) -> NDArray[np.uint8]:
    channels, height, width = shape
    is_unknown = grey_range is None and depth.is_deep(image)
    ImageOps.exif_transpose(image, in_place=True)
    flat = _convert(to_eight_bits(image, grey_range), "L" if channels == 1 else "RGB")
    if is_unknown:
        depth.check_levels(np.asarray(flat))
    pixels = np.asarray(_fit(flat, (width, height)))
    return pixels.reshape(height, width, channels).transpose(2, 0, 1)


def decode_all(files: Sequence[Path], shape: Shape, grey_range: Range | None = None) -> NDArray[np.uint8]:
    """Return all images, shape (n, channels, height, width)."""
    images = np.empty((len(files), *shape), np.uint8)

    def fill(row: int) -> None:
        images[row] = decode(files[row], shape, grey_range)

    map_in_threads(fill, range(len(files)), "decoding images")
    return images


def resize_all(images: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """Return a batch (n, channels, height, width) with the centre of each image resized to a square."""
    resized = np.empty((*images.shape[:2], size, size), np.uint8)
    for row in with_progress(range(len(images)), "resizing images"):
        for channel, plane in enumerate(images[row]):
            resized[row, channel] = np.asarray(_fit(Image.fromarray(np.ascontiguousarray(plane)), (size, size)))
    return resized


def map_in_threads(function: Callable[[Item], Result], items: Sequence[Item], description: str) -> list[Result]:
    """Return the function of each item, under a progress bar."""
    blocks = [items[start : start + BLOCK] for start in range(0, len(items), BLOCK)]
    with quiet(), ThreadPoolExecutor(min(os.cpu_count() or 1, MAX_THREADS)) as pool:
        results = pool.map(lambda block: [function(item) for item in block], blocks)
        return list(chain.from_iterable(with_progress(results, description, len(blocks))))


@contextmanager
def quiet() -> Iterator[None]:
    """Silence Pillow's warnings (odd EXIF, large images): what matters is refused by name. Not for use in threads."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _read_headers(files: Iterable[Path]) -> tuple[list[tuple[int, int]], bool]:
    """Return the upright width and height of each image, and whether all images are grey."""
    sizes, grey = [], True
    for path in files:
        with _open_named(path) as image:
            turned = image.getexif().get(ORIENTATION, 1) in SIDEWAYS
            sizes.append((image.height, image.width) if turned else image.size)
            grey = grey and (image.mode in GREY or _has_grey_palette(image))
    return sizes, grey


def _has_grey_palette(image: Image.Image) -> bool:
    colours = np.array((image.getpalette() if image.mode in ("P", "PA") else None) or [0, 1, 2]).reshape(-1, 3)
    return bool((colours == colours[:, :1]).all())


@contextmanager
def _open_named(path: Path) -> Iterator[Image.Image]:
    """Yield an image under the pixel cap; every error names the file."""
    try:
        with open_stream(path) as stream, open_image(stream) as image:
            yield image
    except Exception as error:  # decoders raise what they like on hostile bytes
        raise UserError(f"cannot read image {printable(str(path))}: {why_unreadable(error)}") from error


@contextmanager
def open_image(stream: Stream) -> Iterator[Image.Image]:
    """Yield an image whose header respects the pixel cap; no pixel is decoded yet."""
    with Image.open(stream, formats=tuple(SUFFIXES)) as image:
        if image.width * image.height > MAX_PIXELS:
            raise UserError(f"{image.width} x {image.height} pixels, over the limit of {MAX_PIXELS:,}")
        yield image


def why_unreadable(error: Exception) -> str:
    """Return in one line why an image cannot be read."""
    return "not an image of a known kind" if isinstance(error, UnidentifiedImageError) else reason_of(error)


def open_stream(path: Path) -> Stream:
    """Open a file, or a member of a zip where the path leads through one."""
    archive = zip_above(path)
    if archive is not None:
        return BytesIO(read_zip_member(archive, path.relative_to(archive).as_posix(), MAX_MEMBER))
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):  # opening a pipe would wait for ever
        raise UserError("not a regular file")
    if found.st_size > MAX_MEMBER:  # some decoders read a file whole
        raise UserError(f"{found.st_size:,} bytes, over the limit of {MAX_MEMBER:,}: save the image smaller")
    return path.open("rb")


def _fit(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    return image if image.size == size else ImageOps.fit(image, size, Image.Resampling.BILINEAR)


def to_eight_bits(image: Image.Image, grey_range: Range | None) -> Image.Image:
    """Return an image of any mode as 8-bit grey or RGB; Pillow's own conversion would clip deep ones."""
    if image.mode in depth.GREY_MODES:
        values = _check_range(image, 65535)
        return Image.fromarray(depth.to_bytes(values, grey_range or depth.WHOLE_RANGE))
    if image.mode == "F":
        return Image.fromarray(depth.floats_to_bytes(_check_range(image, 1)))
    if image.has_transparency_data:
        black = Image.new("RGBA", image.size, (0, 0, 0, 255))
        return Image.alpha_composite(black, _convert(image, "RGBA")).convert("RGB")
    return _convert(image, "L" if image.mode in GREY else "RGB")


def _convert(image: Image.Image, mode: str) -> Image.Image:
    """Return the image in a mode, itself if it is in it: Pillow would copy it."""
    return image if image.mode == mode and not image.has_transparency_data else image.convert(mode)


def _check_range(image: Image.Image, most: int) -> NDArray[Any]:
    values = np.asarray(image)
    low, high = values.min(), values.max()
    if not (low >= 0 and high <= most):  # NaN fails too
        raise UserError(f"values from {low:g} to {high:g}, only 0 to {most} can be converted to bytes")
    return values
