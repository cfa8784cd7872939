"""Known datasets: where they are found, what is downloaded, what is refused."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from invaug.lab.data import known as sources
from invaug.lab.data.load import channel_moments, load_dataset
from invaug.lab.errors import UserError
from tests.support.datasets import (
    IDX_NAMES,
    counts,
    images,
    official,
    trust,
    write_images,
    write_mnist,
    write_npz,
)


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
    monkeypatch.setitem(sources.SOURCES, "mnist", source._replace(addresses=(address,)))
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
        assert all(len(md5) == 32 for md5 in source.files.values()), name
        assert all(address.startswith("http") and address.endswith("/") for address in source.addresses)
        assert bool(source.addresses) == bool(source.files)


def test_a_known_name_is_found_as_an_npz(tmp_path: Path) -> None:
    x = images(40).transpose(0, 2, 3, 1)
    write_npz(tmp_path / "cifar10.npz", x_train=x, y_train=np.arange(40) % 10, x_test=x[:8])
    dataset = load_dataset("cifar10", data_dir=tmp_path)
    assert (dataset.name, dataset.mean) == ("cifar10", (0.4914, 0.4822, 0.4465))
    assert (dataset.train.images.numpy() == x.transpose(0, 3, 1, 2)).all()


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
