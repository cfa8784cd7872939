"""The known datasets as a table: what they are, which files they consist of, and how those are read.

To add a dataset, add a row to `SOURCES`; if its files have a new format, add a reader to `readers.py`.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from invaug.lab.data import readers
from invaug.lab.data.cache import cache_folder
from invaug.lab.data.decode import Shape
from invaug.lab.data.download import fetch, verify
from invaug.lab.data.folder import Listing
from invaug.lab.data.readers import Arrays
from invaug.lab.errors import UserError

Reader = Callable[[Sequence[Path]], Arrays | Listing]
Moments = tuple[tuple[float, ...], tuple[float, ...]]


class File(NamedTuple):
    """A published file: its MD5 and its addresses, which all end in its name."""

    md5: str
    urls: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name of the file on disk."""
        return self.urls[0].rpartition("/")[2]


class Source(NamedTuple):
    """A known dataset: a row of the table."""

    about: str
    """One line for `invaug ls`."""
    read: Reader | None = None
    """How its files are read; None if it cannot be downloaded."""
    files: tuple[File, ...] = ()
    folders: tuple[str, ...] = ("",)
    """Folders that may hold the files, all in one of them; downloads go to the first."""
    image_folders: tuple[str, ...] = ()
    """Folders that may hold it as train/<class>/ and val/<class>/."""
    shape: Shape | None = None
    """The size its images are decoded to, if they are image files."""
    moments: Moments | None = None
    """Mean and std of each channel as published; otherwise they are measured."""
    mirrored: bool = False
    """Whether a mirror image keeps its label, so that flips are on unless the user turns them off."""


def data_folders(data_dir: Path | None) -> tuple[Path, ...]:
    """Return the folders that are searched for datasets; downloads go to the first."""
    given = os.environ.get("INVAUG_DATA")
    return tuple(path.expanduser() for path in (data_dir, Path(given) if given else None, cache_folder()) if path)


def obtain_source(name: str, data_dir: Path | None, *, download: bool) -> Path | Arrays | Listing:
    """Return a known dataset: the path of its .npz, or the contents of its official files or its folder."""
    source, places = SOURCES[name], data_folders(data_dir)
    for root in places:
        if (root / f"{name}.npz").is_file():
            return root / f"{name}.npz"
        for folder in source.folders:
            paths = [root / folder / file.name for file in source.files]
            if source.read and all(path.is_file() for path in paths):
                return _read_verified(source.read, source.files, paths)
        for folder in source.image_folders:
            if (root / folder / "train").is_dir():
                return readers.read_image_folder(root / folder)
    if source.read is None:
        where = places[0] / source.image_folders[0]
        way_out = f"put its images in {where}/train/<class>/ and {where}/val/<class>/ (links work too)"
        raise UserError(f"{name} cannot be downloaded without an account: {way_out}")
    if not download:
        way_out = f"put {', '.join(file.name for file in source.files)} in one of them, or allow the download"
        raise UserError(f"{name} is not in {' or '.join(map(str, places))}: {way_out}")
    target = places[0] / source.folders[0]
    paths = [fetch(file.urls, target / file.name, file.md5) for file in source.files]
    return _read_verified(source.read, source.files, paths)


def _read_verified(read: Reader, files: Sequence[File], paths: Sequence[Path]) -> Arrays | Listing:
    """Read files that are byte for byte the published ones; every load checks, which takes half a second at most."""
    for path, file in zip(paths, files, strict=True):
        verify(path, file.md5)
    return read(paths)


def _idx_files(addresses: Sequence[str], checksums: str) -> tuple[File, ...]:
    """Return the four gzipped IDX files that each address serves."""
    names = (f"{part}-{kind}-ubyte.gz" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1"))
    return tuple(
        File(md5, tuple(address + name for address in addresses))
        for name, md5 in zip(names, checksums.split(), strict=True)
    )


CIFAR_MOMENTS = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)  # of CIFAR-10; the authors use it for both

SOURCES: dict[str, Source] = {
    "digits": Source("5,000 MNIST digits that come with the installation", readers.read_digits),
    "mnist": Source(
        "handwritten digits, 60,000 + 10,000 grey images of 28 px",
        readers.read_mnist,
        _idx_files(
            # the first is PyTorch's mirror, because the author's own server often refuses
            ("https://ossci-datasets.s3.amazonaws.com/mnist/", "http://yann.lecun.com/exdb/mnist/"),
            "f68b3c2dcbeaaa9fbdd348bbdeb94873 d53e105ee54ea40749a09fcbcd1e9432"
            " 9fb629c4189551a2d022fa330f9573f3 ec29112dd5afa0611ce80d1b7f02629c",
        ),
        folders=("mnist", "MNIST/raw", "MNIST", ""),
        moments=((0.1307,), (0.3081,)),
    ),
    "fashion-mnist": Source(
        "clothes, 60,000 + 10,000 grey images of 28 px",
        readers.read_fashion_mnist,
        _idx_files(
            ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",),
            "8d4fb7e6c68d591d4c3dfef9ec88bf0d 25c81989df183df01b3e8a0aad5dffbe"
            " bef4ecab320f06d8554ea6380940ec79 bb300cfdad3c16e7a12a480ee83cd310",
        ),
        folders=("fashion-mnist", "FashionMNIST/raw", "FashionMNIST", ""),
    ),
    "cifar10": Source(
        "10 kinds of things, 50,000 + 10,000 colour images of 32 px",
        readers.read_cifar10,
        (File("c32a1d4ab5d03f1284b67883e8d87530", ("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",)),),
        folders=("", "cifar10"),
        moments=CIFAR_MOMENTS,
        mirrored=True,
    ),
    "cifar100": Source(
        "100 kinds of things, 50,000 + 10,000 colour images of 32 px",
        readers.read_cifar100,
        (File("03b5dce01913d631647c71ecec9e9cb8", ("https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",)),),
        folders=("", "cifar100"),
        moments=CIFAR_MOMENTS,
        mirrored=True,
    ),
    "svhn": Source(
        "house numbers (core), 73,257 + 26,032 colour images of 32 px",
        readers.read_svhn,
        (
            File("e26dedcc434d2e4c54c9b2d4a06d8373", ("http://ufldl.stanford.edu/housenumbers/train_32x32.mat",)),
            File("eb5a983be6a315427106f1b164d9cef3", ("http://ufldl.stanford.edu/housenumbers/test_32x32.mat",)),
        ),
        folders=("svhn", "SVHN", ""),
        moments=((0.4379, 0.4440, 0.4729), (0.1980, 0.2010, 0.1970)),
    ),
    "tiny-imagenet": Source(
        "200 kinds of things, 100,000 + 10,000 colour images of 64 px",
        readers.read_tiny_imagenet,
        (File("90528d7ca1a48142e341f4ef8d21d0de", ("http://cs231n.stanford.edu/tiny-imagenet-200.zip",)),),
        folders=("", "tiny-imagenet"),
        image_folders=("tiny-imagenet", "tiny-imagenet-200"),
        shape=(3, 64, 64),
        mirrored=True,
    ),
    "imagenet100": Source(
        "100 classes of ImageNet, from a folder of yours, 224 px",
        image_folders=("imagenet100", "imagenet-100", "ImageNet100"),
        shape=(3, 224, 224),
        mirrored=True,
    ),
}
