"""Small datasets in the forms the real ones come in."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import struct
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from invaug.lab.data import known as sources
from invaug.lab.data import readers
from invaug.lab.data.load import Dataset
from invaug.lab.data.scan.report import Finding
from invaug.lab.data.splits import Split

OFFICIAL = os.environ.get("INVAUG_DATA")


RNG = np.random.default_rng(0)


CIFAR10_NAMES = list(readers.CIFAR10_NAMES)


IDX_NAMES = [name.removesuffix(".gz") for name in sources.SOURCES["mnist"].files]


def official(*names: str) -> Path:
    root = Path(OFFICIAL or "-")
    if not all((root / name).exists() for name in names):
        pytest.skip(f"INVAUG_DATA names no folder with {' and '.join(names)}")
    return root


def trust(monkeypatch: pytest.MonkeyPatch, name: str, root: Path) -> None:
    """Let the files in a folder be the published ones."""
    source = sources.SOURCES[name]
    found = {path.name: path for path in root.rglob("*")}
    files = {
        file: hashlib.md5(found[file].read_bytes(), usedforsecurity=False).hexdigest() if file in found else md5
        for file, md5 in source.files.items()
    }
    monkeypatch.setitem(sources.SOURCES, name, source._replace(files=files))


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


def write_gzipped_tar(path: Path, files: dict[str, bytes], *extra: tuple[tarfile.TarInfo, bytes]) -> None:
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


def rows_of(dataset: Dataset, part: str = "train") -> set[bytes]:
    return {image.numpy().tobytes() for image in getattr(dataset, part).images}


def put(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def reasons(found: list[Finding]) -> dict[str, list[str]]:
    grouped: dict[str, list[str]] = {}
    for finding in found:
        grouped.setdefault(finding.file, []).append(finding.reason)
    return grouped


GREY = np.arange(0, 240, 5, np.uint8).reshape(6, 8)


def saved(path: Path, image: Image.Image | np.ndarray, **options: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    (image if isinstance(image, Image.Image) else Image.fromarray(image)).save(path, **options)
    return path
