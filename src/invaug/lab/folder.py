"""Folders of images: which files they hold, and how an image of any kind becomes bytes of one shape.

An image is turned upright by its EXIF tag, and the first frame of an animation is taken. Transparent pixels are laid on
black, then alpha is dropped. Of 16 bits the upper 8 are kept, as Pillow does for 16-bit colour; floats are in [0, 1].
"""

from __future__ import annotations

import os
import stat
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache, partial
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from statistics import median_low
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from invaug.lab.errors import UserError, nearest

Shape = tuple[int, int, int]
"""Channels, height, width."""

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".pnm", ".ppm", ".tif", ".tiff", ".webp")
FORMATS = ("JPEG", "PNG", "BMP", "GIF", "PPM", "TIFF", "WEBP")  # a list, because others (EPS) start programs
PARTS = {"train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
MAX_PIXELS = 89_478_485  # where Pillow starts to warn of decompression bombs: a quarter of a GiB as RGB
MAX_MEMBER = 256 << 20  # bytes of one image inside a zip
KEPT_SIDE = 256  # images of one common size stay as they are up to this side
SIDES = (32, 64, 128, 224)  # otherwise they become squares of the largest of these that the median image fills
THREADED_SIDE = 128  # smaller images spend their time in Python, where threads only wait for one another
N_GLANCED = 512  # files whose headers tell that median
GREY = frozenset(("1", "L", "LA", "La", "I", "F", "I;16", "I;16B", "I;16L", "I;16N"))
ORIENTATION, SIDEWAYS = 0x0112, (5, 6, 7, 8)  # an EXIF tag, and the values that swap width and height


class Files(NamedTuple):
    """Image files and their classes."""

    paths: tuple[Path, ...]
    targets: tuple[int, ...]


class Listing(NamedTuple):
    """What a folder of images holds; `test` is None where a split is still to be made."""

    classes: tuple[str, ...]
    train: Files
    val: Files | None = None
    test: Files | None = None


def scan(root: Path) -> Listing:
    """Return the files of `root`: train/<class>/* beside val/ or test/<class>/*, or just <class>/*.

    With both val/ and test/ they are what they say; with one of them, that one is the test set.
    """
    parts = _parts(root)
    if "train" not in parts:
        if parts:
            way_out = "name the training folder train, or give a folder of class folders"
            raise UserError(f"{root} has {', '.join(p.name for p in parts.values())} but no train folder: {way_out}")
        return Listing(*_classes_of(root))
    classes, train = _classes_of(parts.pop("train"))
    found = {part: files for part, folder in parts.items() if (files := _known_classes(folder, classes))}
    if parts and not found:
        folder = next(iter(parts.values()))
        raise UserError(f"{folder} holds none of the classes of train: expected {folder / classes[0]} and so on")
    test = found.pop("test", None) or found.pop("val", None)
    return Listing(classes, train, found.get("val"), test)


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
            glances = [_glance(path) for path in shown(files, "looking at images")]
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
        for _ in shown(pool.map(fill, blocks), "decoding images", len(blocks)):
            pass
    return images


def resize_all(images: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """Return a batch (n, channels, height, width) with the centre of each image resized to a square."""
    resized = np.empty((*images.shape[:2], size, size), np.uint8)
    for row in shown(range(len(images)), "resizing images"):
        for channel, plane in enumerate(images[row]):
            resized[row, channel] = np.asarray(_fitted(Image.fromarray(np.ascontiguousarray(plane)), (size, size)))
    return resized


@contextmanager
def quiet() -> Iterator[None]:
    """Silence Pillow's warnings (odd EXIF, large images): what matters is refused by name. Not for use in threads."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def shown(items: Iterable[Any], description: str, total: int | None = None) -> Iterable[Any]:
    """Return the items under a progress bar on stderr."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    return track(items, description, total=total, console=console, transient=True, disable=not console.is_terminal)


def _parts(root: Path) -> dict[str, Path]:
    """Return the folders that are a split, by the split they are."""
    folders = _subfolders(root)
    named = [folder for folder in folders if folder.name.lower() in PARTS]
    if len(named) < len(folders) and not any(_subfolders(folder) for folder in named):
        return {}  # beside car and bus, train is a class
    parts: dict[str, Path] = {}
    for folder in named:
        part = PARTS[folder.name.lower()]
        if part in parts:
            raise UserError(f"{root} has both {parts[part].name} and {folder.name}: keep one of them")
        parts[part] = folder
    return parts


def _subfolders(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir() and path.name[0] not in "._")
    except OSError as error:
        raise UserError(f"cannot read folder {folder}: {error.strerror or error}") from error


def _classes_of(folder: Path) -> tuple[tuple[str, ...], Files]:
    """Return the classes of a training folder and their files: none empty, two at least."""
    folders = _subfolders(folder)
    if not folders:
        raise UserError(f"{folder} has no class folders: put the images in {folder}/<class>/")
    if len(folders) == 1:
        raise UserError(f"{folder} has one class, {printable(folders[0].name)}: there must be at least two")
    files = [_images_in(path) for path in folders]
    for path, found in zip(folders, files, strict=True):
        if not found:
            raise UserError(f"class folder {path} holds no image ({' '.join(SUFFIXES)})")
    return tuple(printable(path.name) for path in folders), _labelled(files, range(len(files)))


def _known_classes(folder: Path, classes: tuple[str, ...]) -> Files | None:
    """Return the files of a test folder; None if it has no class of the training folder, as unlabelled sets have."""
    folders = {printable(path.name): path for path in _subfolders(folder)}
    if not folders.keys() & set(classes):
        return None
    for name in folders.keys() - set(classes):
        raise UserError(f"{folders[name]} is a class that train has not: {nearest(name, classes)}")
    files = _labelled([_images_in(path) for path in folders.values()], [classes.index(name) for name in folders])
    return files if files.paths else None


def _labelled(files: Sequence[Sequence[Path]], labels: Iterable[int]) -> Files:
    pairs = [(path, label) for paths, label in zip(files, labels, strict=True) for path in paths]
    return Files(tuple(path for path, _ in pairs), tuple(label for _, label in pairs))


def _images_in(folder: Path) -> list[Path]:
    """Return the image files below a folder, sorted; links to further folders are not followed."""

    def refuse(error: OSError) -> None:
        raise UserError(f"cannot read folder {error.filename}: {error.strerror}")

    found = [os.path.join(place, name) for place, _, names in os.walk(folder, onerror=refuse) for name in names]  # noqa: PTH118 - Path is slow for a million names
    return [Path(name) for name in sorted(found) if _is_image_name(name)]


def _is_image_name(name: str) -> bool:
    stem, suffix = os.path.splitext(os.path.basename(name))  # noqa: PTH119, PTH122 - the same
    return suffix.lower() in SUFFIXES and not stem.startswith(".")


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
        with _stream(path) as stream, Image.open(stream, formats=FORMATS) as image:
            if image.width * image.height > MAX_PIXELS:
                raise UserError(f"{image.width} x {image.height} pixels, over the limit of {MAX_PIXELS:,}")
            yield image
    except Exception as error:  # decoders raise what they like on hostile bytes
        raise UserError(f"cannot read image {printable(str(path))}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return "not an image of a known kind"
    return " ".join((getattr(error, "strerror", None) or str(error) or type(error).__name__).split())


def _stream(path: Path) -> IO[bytes]:
    """Open a file, or a member of a zip where the path leads through one."""
    archive = _archive_above(path)
    if archive is None:
        if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe would wait for ever
            raise UserError("not a regular file")
        return path.open("rb")
    members = _archive(archive, os.getpid())
    info = members.getinfo(path.relative_to(archive).as_posix())
    if info.file_size > MAX_MEMBER:
        raise UserError(f"{info.file_size:,} bytes, over the limit of {MAX_MEMBER:,}")
    return BytesIO(members.read(info))


def _archive_above(path: Path) -> Path | None:
    if ".zip" not in str(path):  # walking up every path would cost a fifth of the decoding
        return None
    return next((parent for parent in path.parents if parent.suffix == ".zip" and parent.is_file()), None)


@lru_cache(maxsize=4)
def _archive(path: Path, process: int) -> zipfile.ZipFile:
    """Return an open zip; each process has its own, for two may not share a position in the file."""
    return zipfile.ZipFile(path)


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
