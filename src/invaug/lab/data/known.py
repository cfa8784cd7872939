"""The known datasets as a table: which files they are, who publishes them, their checksums, how they are read."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from invaug.lab.data.cache import cache_folder
from invaug.lab.data.decode import Shape
from invaug.lab.data.download import fetch, verify
from invaug.lab.data.folder import Listing
from invaug.lab.data.readers import (
    DIGITS,
    Arrays,
    Classes,
    read_cifar,
    read_digits,
    read_image_folder,
    read_mnist,
    read_svhn,
    read_tiny_zip,
)
from invaug.lab.errors import UserError


class File(NamedTuple):
    """A published file; without an address it is found beside the others but not downloaded."""

    name: str
    md5: str
    urls: tuple[str, ...] = ()
    text: bool = False
    """Whether its lines may end as they like."""


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


def data_folders(data_dir: Path | None) -> tuple[Path, ...]:
    """Return the folders datasets are looked for in; downloads go to the first."""
    given = os.environ.get("INVAUG_DATA")
    return tuple(path.expanduser() for path in (data_dir, Path(given) if given else None, cache_folder()) if path)


def obtain(name: str, data_dir: Path | None, *, download: bool) -> Path | Arrays | Listing:
    """Return a known dataset: the path of its .npz, or what its official files or its folder hold."""
    source, places = SOURCES[name], data_folders(data_dir)
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
        if not path.is_file():
            fetch(file.urls, path, file.md5)
    return paths


def _checked(layout: Layout, paths: Sequence[Path]) -> Arrays | Listing:
    """Read files that are, byte for byte, the published ones: checked at every load, half a second for the largest."""
    for path, file in zip(paths, layout.files, strict=True):
        verify(path, file.md5, text=file.text)
    return layout.read(paths)


def _at(url: str, md5: str) -> File:
    return File(url.rsplit("/", 1)[1], md5, (url,))


def _idx_layouts(
    addresses: Sequence[str], folders: tuple[str, ...], classes: Classes, packed: str, unpacked: str
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
    archive: File, folders: tuple[str, ...], unpacked: tuple[File, ...], n_labels: int, classes: Classes = ()
) -> tuple[Layout, ...]:
    """Return the layouts of a CIFAR tar and of the files in it."""
    names = [file.name for file in unpacked]
    read = partial(read_cifar, folder=folders[0], names=names, n_labels=n_labels, classes=classes)
    return Layout(("", *folders), (archive,), read), Layout(folders, unpacked, read)


FASHION = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR_MEAN, CIFAR_STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)  # of CIFAR-10; the authors use it for both
IDX_NAMES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
CIFAR10_FILES = (
    File("data_batch_1.bin", "5dd7e06a14cb22eb9f671a540d1b7c25"),
    File("data_batch_2.bin", "5ea93a67294ea407fff1d09f752e9692"),
    File("data_batch_3.bin", "942cd6a4bcdd0dd3c604fbe906cb4421"),
    File("data_batch_4.bin", "ae636b3ba5c66a11e91e8cb52e771fcb"),
    File("data_batch_5.bin", "53f37980c15c3d472c316c40844f3f0d"),
    File("test_batch.bin", "803d5f7f4d78ea53de84dbe85f74fb6d"),
)
CIFAR100_FILES = (
    File("train.bin", "6172c7755cfe09b2fe270c85cebc1b15"),
    File("test.bin", "4499cfba6c016c1be1438163640a0898"),
    File("fine_label_names.txt", "b517b835c830bc54413daa4cf904aad9", text=True),  # line endings differ between copies
)

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
            CIFAR10_FILES,
            1,
            CIFAR10_CLASSES,
        ),
        mean=CIFAR_MEAN,
        std=CIFAR_STD,
    ),
    "cifar100": Source(
        "100 kinds of things, 50,000 + 10,000 colour images of 32 px",
        _cifar_layouts(
            _at("https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8"),
            ("cifar-100-binary", "cifar100/cifar-100-binary", "cifar100"),
            CIFAR100_FILES,
            2,
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
