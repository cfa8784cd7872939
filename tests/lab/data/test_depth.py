"""Images of more than 8 bits keep their grey levels, on one scale for all images of a dataset."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from invaug.lab.cli.main import app
from invaug.lab.data import cache, check, load
from invaug.lab.data.decode import decode
from invaug.lab.data.load import Dataset, load_dataset
from invaug.lab.data.scan.command import scan
from invaug.lab.errors import UserError
from invaug.lab.export.predict import predict_files
from invaug.lab.run.folder import load as load_run
from invaug.lab.run.folder import read_config
from tests.support.datasets import put

RAMP = np.linspace(0, 1, 16 * 16).reshape(16, 16)  # an X-ray: values from its smallest to its largest


def xray(low: int, high: int, seed: int = 0) -> np.ndarray:
    """Return a picture with values from low to high, both among them."""
    return (
        np.random.default_rng(seed)
        .permutation(np.rint(low + RAMP * (high - low)).astype(np.uint16).ravel())
        .reshape(16, 16)
    )


def write_xrays(root: Path, low: int, high: int, suffix: str = "png") -> Path:
    """Write ten pictures of two classes; only one of them reaches both ends."""
    for i in range(10):
        inner = (high - low) // 10
        values = xray(low, high) if i == 3 else xray(low + inner, high - inner, i)
        path = put(root / "ab"[i % 2] / f"{i}.{suffix}", b"")
        Image.fromarray(values).save(path)
    return root


def by_numpy(values: np.ndarray, low: int, high: int) -> np.ndarray:
    """Return which of 256 equal steps from low to high each value is in."""
    edges = np.linspace(low, high + 1, 257)
    return np.clip(np.searchsorted(edges, values, side="right") - 1, 0, 255)


def pixels(path: Path) -> np.ndarray:
    with Image.open(path) as image:
        return np.asarray(image)


def all_images(dataset: Dataset) -> np.ndarray:
    assert dataset.train.images is not None
    assert dataset.test.images is not None
    return np.concatenate([dataset.train.images.numpy(), dataset.test.images.numpy()])[:, 0]


@pytest.mark.parametrize("suffix", ["png", "tiff"])
@pytest.mark.parametrize(
    ("low", "high"),
    [(0, 4095), (0, 65535), (31768, 35768), (17, 1500), (3, 200)],
    ids=["12 bits", "16 bits", "signed, shifted by 32,768", "a window", "8 bits"],
)
def test_values_are_scaled_by_their_range_in_all_files(tmp_path: Path, low: int, high: int, suffix: str) -> None:
    root = write_xrays(tmp_path, low, high, suffix)
    dataset = load_dataset(str(root))
    assert dataset.grey_range == (low, high)
    wanted = [by_numpy(pixels(path), low, high) for path in root.rglob(f"*.{suffix}")]
    found = {image.tobytes() for image in all_images(dataset)}
    assert found == {image.astype(np.uint8).tobytes() for image in wanted}
    assert min(len(np.unique(image)) for image in wanted) > min(140, high - low - 45)


def test_all_sixteen_bits_become_the_upper_eight_as_pillow_has_it_for_colour(tmp_path: Path) -> None:
    root = write_xrays(tmp_path, 0, 65535)
    path = next(root.rglob("3.png"))
    assert (decode(path, (1, 16, 16), (0, 65535)) == pixels(path) >> 8).all()


def test_the_header_of_a_pgm_says_what_is_white(tmp_path: Path) -> None:
    for i in range(6):
        values = xray(0, 4095, i).astype(">u2")
        put(tmp_path / "ab"[i % 2] / f"{i}.pgm", b"P5 16 16 4095\n" + values.tobytes())
    dataset = load_dataset(str(tmp_path))
    assert dataset.grey_range == (0, 65535)  # Pillow has scaled them
    assert np.abs(np.sort(all_images(dataset)[0].ravel()) - np.sort((RAMP * 255).ravel())).max() <= 1


def test_images_of_eight_bits_keep_their_bytes_beside_deep_ones(tmp_path: Path) -> None:
    root = write_xrays(tmp_path, 0, 4095)
    grey = np.random.default_rng(0).integers(0, 90, (16, 16), np.uint8)
    for i in range(3):
        Image.fromarray(grey + i).save(root / "a" / f"grey-{i}.png")
    found = {image.tobytes() for image in all_images(load_dataset(str(root)))}
    assert {(grey + i).tobytes() for i in range(3)} <= found


def test_the_range_is_that_of_all_images_whatever_is_used_and_wherever_it_is_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_xrays(tmp_path, 0, 4095)
    whole = load_dataset(str(root))
    for options in ({"per_class": 1}, {"seed": 3, "val_fraction": 0.3}, {"fraction": 0.5}):
        assert load_dataset(str(root), **options).grey_range == (0, 4095)
    assert load_dataset(str(root), grey_range=(0, 8191)).grey_range == (0, 8191)
    monkeypatch.setattr(load, "MAX_RESIDENT", 0)
    on_disk = load_dataset(str(root))
    assert on_disk.train.images is None
    from invaug.lab.data.batches import batches

    (batch,) = batches(on_disk.train, 100, epoch=0, seed=0, shuffle=False)
    assert whole.train.images is not None
    assert batch.images.equal(whole.train.images)
    assert (on_disk.mean, on_disk.std) == (whole.mean, whole.std)


def test_the_range_is_remembered_with_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "FRESH", -(10**9))
    root = write_xrays(tmp_path, 5, 4000)
    assert load_dataset(str(root)).grey_range == (5, 4000)
    monkeypatch.setattr(check, "inspect_file", lambda path: pytest.fail(f"looked at {path} again"))
    assert load_dataset(str(root)).grey_range == (5, 4000)


def colour_png(path: Path, values: np.ndarray) -> None:
    """Write 16 bits per channel, which Pillow cannot."""
    import zlib

    rows = b"".join(b"\0" + np.repeat(row, 3).astype(">u2").tobytes() for row in values)
    header = struct.pack(">IIBBBBB", *values.shape[::-1], 16, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    parts = [struct.pack(">I", len(b)) + n + b + struct.pack(">I", zlib.crc32(n + b)) for n, b in chunks]
    put(path, b"\x89PNG\r\n\x1a\n" + b"".join(parts))


def few_levels(root: Path, kind: str) -> Path:
    """Write a folder whose images would end with sixteen grey levels: by a hot pixel each, or as 12-bit colour."""
    for i in range(6):
        values, path = xray(0, 4095, i), root / "ab"[i % 2] / f"{i}.png"
        if kind == "colour":
            colour_png(path, values)
        else:
            values[3, 5] = 65535
            Image.fromarray(values).save(put(path, b""))
    return root


@pytest.mark.parametrize("kind", ["hot pixels", "colour"])
def test_what_would_end_with_few_grey_levels_is_refused_by_training_and_by_scan(tmp_path: Path, kind: str) -> None:
    root = few_levels(tmp_path, kind)
    reason = (
        "^scaled from 0-65,535 to bytes, most of the 16-bit images have 1[5-6] grey levels or fewer, the brightest "
        "and darkest pixels aside: save them as 8-bit images, with the contrast that matters$"
    )
    with pytest.raises(UserError, match=reason) as caught:
        load_dataset(str(root))
    assert [found.reason for found in scan(root).bad] == [str(caught.value)]


def test_a_run_keeps_the_range_and_predicts_with_it(tmp_path: Path) -> None:
    root, run = write_xrays(tmp_path / "xrays", 0, 4095), tmp_path / "run"
    flags = ["--epochs", "1", "--batch-size", "4", "--model", "cnn-small", "--quiet", "--out", str(run)]
    result = CliRunner().invoke(app, ["train", str(root), *flags], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert read_config(run)[1].grey_range == (0, 4095)
    dark = put(tmp_path / "dark.png", b"")
    values = xray(0, 500)
    Image.fromarray(values).save(dark)
    (row,) = predict_files(run, [dark], top=1)
    import torch

    batch = torch.from_numpy(by_numpy(values, 0, 4095).astype(np.uint8))[None, None]
    wanted = load_run(run)(batch).softmax(1).max().item()
    assert row["predictions"][0]["probability"] == pytest.approx(wanted, abs=1e-6)


def test_a_deep_image_that_a_run_of_eight_bits_would_see_black_is_refused(tmp_path: Path) -> None:
    path = put(tmp_path / "a.png", b"")
    Image.fromarray(xray(0, 4095)).save(path)
    with pytest.raises(UserError, match=r"a\.png: 1[45] grey levels or fewer are left of 16 bits: save them as 8-bit"):
        decode(path, (1, 16, 16))
    colour_png(path, xray(0, 4095))
    with pytest.raises(UserError, match="grey levels or fewer are left of 16 bits"):
        decode(path, (3, 16, 16))
    Image.fromarray(xray(0, 65535)).save(path)
    assert (decode(path, (1, 16, 16))[0] == pixels(path) >> 8).all()
