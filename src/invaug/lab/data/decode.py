"""Images of any kind become bytes of one shape.

An image is turned upright by its EXIF tag, and the first frame of an animation is taken. Transparent pixels are laid on
black, then alpha is dropped. Of 16 bits the upper 8 are kept, as Pillow does for 16-bit colour; floats are in [0, 1].
"""

from __future__ import annotations

import os
import stat
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median_low
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from invaug.lab.data.archives import open_zip_member, zip_above
from invaug.lab.errors import UserError, reason_of

Shape = tuple[int, int, int]
"""Channels, height, width."""

FORMATS = {
    ".bmp": "BMP", ".gif": "GIF", ".jpeg": "JPEG", ".jpg": "JPEG", ".pbm": "PPM", ".pgm": "PPM", ".png": "PNG",
    ".pnm": "PPM", ".ppm": "PPM", ".tif": "TIFF", ".tiff": "TIFF", ".webp": "WEBP",
}  # fmt: skip
"""What is read, by suffix; a list, because other formats (EPS) start programs."""
KINDS = tuple(dict.fromkeys(FORMATS.values()))
MAX_PIXELS = 89_478_485  # where Pillow starts to warn of decompression bombs: a quarter of a GiB as RGB
MAX_MEMBER = 256 << 20  # bytes of one image inside a zip
KEPT_SIDE = 256  # images of one common size stay as they are up to this side
SIDES = (32, 64, 128, 224)  # otherwise they become squares of the largest of these that the median image fills
THREADED_SIDE = 128  # smaller images spend their time in Python, where threads only wait for one another
N_GLANCED = 512  # files whose headers tell that median
GREY = frozenset(("1", "L", "LA", "La", "I", "F", "I;16", "I;16B", "I;16L", "I;16N"))
ORIENTATION, SIDEWAYS = 0x0112, (5, 6, 7, 8)  # an EXIF tag, and the values that swap width and height


def printable(name: str) -> str:
    """Return a file name that can be printed and stored: bytes that are no UTF-8 become question marks."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def choose_shape(files: Sequence[Path], image_size: int | None) -> Shape:
    """Return the shape the files are decoded to: one channel if all are grey, else three.

    The side is `image_size` if given; else the common size of all images, up to 256 pixels; else the largest of
    32, 64, 128 and 224 that the shorter side of the median image fills (and 32 if none).
    """
    with quiet():
        glances = [_glance(path) for path in files[:: max(1, len(files) // N_GLANCED)]]
        median = median_low(min(glance.size) for glance in glances)
        if _all_grey(glances) or (image_size is None and _one_size(glances)):  # true of all, or only of these?
            glances = [_glance(path) for path in with_progress(files, "looking at images")]
    channels = 1 if _all_grey(glances) else 3
    width, height = glances[0].size
    if image_size is None and _one_size(glances) and max(width, height) <= KEPT_SIDE:
        return channels, height, width
    side = image_size or max([size for size in SIDES if size <= median], default=SIDES[0])
    return channels, side, side


def decode(path: Path, shape: Shape) -> NDArray[np.uint8]:
    """Return one image as bytes of shape (channels, height, width): its centre, resized to fill the shape."""
    channels, height, width = shape
    with _opened(path) as image:
        image.draft(None, (2 * width, 2 * height))  # a JPEG decodes at 1/2, 1/4 or 1/8 where that loses nothing here
        upright = ImageOps.exif_transpose(image)
        flat = _flat(upright).convert("L" if channels == 1 else "RGB")
        pixels = np.asarray(_fitted(flat, (width, height)))
    return pixels.reshape(height, width, channels).transpose(2, 0, 1)


def decode_all(files: Sequence[Path], shape: Shape) -> NDArray[np.uint8]:
    """Return all images, shape (n, channels, height, width); threads decode large ones."""
    images = np.empty((len(files), *shape), np.uint8)

    def fill(rows: range) -> int:
        for row in rows:
            images[row] = decode(files[row], shape)
        return len(rows)

    blocks = [range(start, min(start + 64, len(files))) for start in range(0, len(files), 64)]
    n_threads = os.cpu_count() if min(shape[1:]) >= THREADED_SIDE else 1
    with quiet(), ThreadPoolExecutor(n_threads) as pool:
        for _ in with_progress(pool.map(fill, blocks), "decoding images", len(blocks)):
            pass
    return images


def resize_all(images: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """Return a batch (n, channels, height, width) with the centre of each image resized to a square."""
    resized = np.empty((*images.shape[:2], size, size), np.uint8)
    for row in with_progress(range(len(images)), "resizing images"):
        for channel, plane in enumerate(images[row]):
            resized[row, channel] = np.asarray(_fitted(Image.fromarray(np.ascontiguousarray(plane)), (size, size)))
    return resized


@contextmanager
def quiet() -> Iterator[None]:
    """Silence Pillow's warnings (odd EXIF, large images): what matters is refused by name. Not for use in threads."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def with_progress(items: Iterable[Any], description: str, total: int | None = None) -> Iterable[Any]:
    """Return the items under a progress bar on stderr."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    return track(items, description, total=total, console=console, transient=True, disable=not console.is_terminal)


class _Glance(NamedTuple):
    size: tuple[int, int]
    grey: bool


def _glance(path: Path) -> _Glance:
    """Return what the header of an image says: its upright width and height, and whether it is grey."""
    with _opened(path) as image:
        turned = image.getexif().get(ORIENTATION, 1) in SIDEWAYS
        size = (image.height, image.width) if turned else image.size
        return _Glance(size, image.mode in GREY or _has_grey_palette(image))


def _has_grey_palette(image: Image.Image) -> bool:
    colours = np.array((image.getpalette() if image.mode in ("P", "PA") else None) or [0, 1, 2]).reshape(-1, 3)
    return bool((colours == colours[:, :1]).all())


def _all_grey(glances: Sequence[_Glance]) -> bool:
    return all(glance.grey for glance in glances)


def _one_size(glances: Sequence[_Glance]) -> bool:
    return all(one.size == other.size for one, other in pairwise(glances))


@contextmanager
def _opened(path: Path) -> Iterator[Image.Image]:
    """Yield an image under the pixel cap; whatever goes wrong with it names the file."""
    try:
        with open_stream(path) as stream, open_image(stream) as image:
            yield image
    except Exception as error:  # decoders raise what they like on hostile bytes
        raise UserError(f"cannot read image {printable(str(path))}: {why_unreadable(error)}") from error


@contextmanager
def open_image(stream: IO[bytes]) -> Iterator[Image.Image]:
    """Yield an image whose header keeps to the pixel cap; no pixel is decoded yet."""
    with Image.open(stream, formats=KINDS) as image:
        if image.width * image.height > MAX_PIXELS:
            raise UserError(f"{image.width} x {image.height} pixels, over the limit of {MAX_PIXELS:,}")
        yield image


def why_unreadable(error: Exception) -> str:
    """Return in one line why an image cannot be read."""
    return "not an image of a known kind" if isinstance(error, UnidentifiedImageError) else reason_of(error)


def open_stream(path: Path) -> IO[bytes]:
    """Open a file, or a member of a zip where the path leads through one."""
    archive = zip_above(path)
    if archive is not None:
        return open_zip_member(archive, path, MAX_MEMBER)
    if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe would wait for ever
        raise UserError("not a regular file")
    return path.open("rb")


def _fitted(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    return image if image.size == size else ImageOps.fit(image, size, Image.Resampling.BILINEAR)


def _flat(image: Image.Image) -> Image.Image:
    """Return an image of any mode as 8-bit grey or RGB."""
    if image.mode in DEEP:
        return Image.fromarray(DEEP[image.mode](np.asarray(image)))
    if image.has_transparency_data:
        black = Image.new("RGBA", image.size, (0, 0, 0, 255))
        return Image.alpha_composite(black, image.convert("RGBA")).convert("RGB")
    return image.convert("L" if image.mode in GREY else "RGB")


def _from_range(values: NDArray[Any], most: int, to_bytes: Callable[[NDArray[Any]], NDArray[Any]]) -> NDArray[np.uint8]:
    low, high = values.min(), values.max()
    if not (low >= 0 and high <= most):  # NaN fails too
        raise UserError(f"values from {low:g} to {high:g}, only 0 to {most} can be made bytes")
    return to_bytes(values).astype(np.uint8)


_deep_integers = partial(_from_range, most=65535, to_bytes=lambda values: values >> 8)
_floats = partial(_from_range, most=1, to_bytes=lambda values: np.rint(values * 255))
DEEP: dict[str, Callable[[NDArray[Any]], NDArray[np.uint8]]] = {
    **dict.fromkeys(("I", "I;16", "I;16B", "I;16L", "I;16N"), _deep_integers),
    "F": _floats,
}
"""Modes of more than 8 bits, which Pillow's own conversion would clip."""
