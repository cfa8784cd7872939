"""Images of any kind become bytes of one shape."""

from __future__ import annotations

import os
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from invaug.lab.data import decode
from invaug.lab.errors import UserError
from tests.support.datasets import GREY, saved

COLOUR = np.stack([GREY, 255 - GREY, GREY // 2], axis=-1)


ALPHA = np.linspace(0, 255, 48).astype(np.uint8).reshape(6, 8)


def decoded(path: Path, channels: int = 3, height: int = 6, width: int = 8) -> np.ndarray:
    return decode.decode(path, (channels, height, width)).transpose(1, 2, 0).squeeze()


def mode_of(path: Path) -> str:
    with Image.open(path) as image:
        return image.mode


def three(grey: np.ndarray) -> np.ndarray:
    return np.repeat(grey[..., None], 3, axis=-1)


def png(width: int, height: int, bits: int, colour: int, rows: bytes) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    parts = [struct.pack(">I", len(b)) + n + b + struct.pack(">I", zlib.crc32(n + b)) for n, b in chunks]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def bomb(side: int) -> bytes:
    return png(side, side, 1, 0, bytes(1000))  # refused before a pixel is decoded


def test_grey_and_colour_images_keep_their_bytes(tmp_path: Path) -> None:
    assert (decoded(saved(tmp_path / "a.png", COLOUR)) == COLOUR).all()
    assert (decoded(saved(tmp_path / "b.bmp", GREY), channels=1) == GREY).all()
    assert (decoded(saved(tmp_path / "c.tiff", GREY)) == three(GREY)).all()


def test_one_bit_images_are_black_and_white(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.png", Image.fromarray(GREY > 100))
    assert mode_of(path) == "1"
    assert (decoded(path, channels=1) == np.where(GREY > 100, 255, 0)).all()


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_transparent_images_are_laid_on_black(tmp_path: Path, mode: str) -> None:
    base = COLOUR if mode == "RGBA" else GREY[..., None]
    path = saved(tmp_path / "a.png", Image.fromarray(np.dstack([base, ALPHA]), mode))
    wanted = base * (ALPHA[..., None] / 255)
    found = decoded(path) if mode == "RGBA" else decoded(path, channels=1)[..., None]
    assert np.abs(found - wanted).max() <= 0.51


def test_fully_transparent_pixels_leave_no_colour_behind(tmp_path: Path) -> None:
    hidden = np.dstack([np.full((6, 8, 3), 200, np.uint8), np.zeros((6, 8), np.uint8)])
    assert not decoded(saved(tmp_path / "a.png", hidden)).any()


def test_sixteen_bit_grey_and_sixteen_bit_colour_agree(tmp_path: Path) -> None:
    deep = ((GREY.astype(np.uint16) << 8) + 200).astype(">u2")
    rows = b"".join(b"\0" + np.repeat(row, 3).tobytes() for row in deep)
    (tmp_path / "colour.png").write_bytes(png(8, 6, 16, 2, rows))
    grey = saved(tmp_path / "grey.png", deep.astype(np.uint16))
    assert (decoded(tmp_path / "colour.png") == decoded(grey)).all()


def test_float_images_in_the_unit_interval_are_rounded_to_bytes(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.tiff", (GREY / 255).astype(np.float32))
    assert (decoded(path, channels=1) == GREY).all()


@pytest.mark.parametrize("worst", [-0.1, 1.5, float("nan"), float("inf")])
def test_float_images_outside_it_are_refused(tmp_path: Path, worst: float) -> None:
    values = (GREY / 255).astype(np.float32)
    values[2, 3] = worst
    path = saved(tmp_path / "a.tiff", values)
    with pytest.raises(UserError, match=r"a\.tiff: values from .* only 0 to 1 can be converted to bytes"):
        decoded(path)


def test_palette_images_show_the_colours_of_their_palette(tmp_path: Path) -> None:
    indices = (np.arange(48).reshape(6, 8) % 3).astype(np.uint8)
    colours = np.array([[255, 0, 0], [0, 255, 0], [7, 8, 9]], np.uint8)
    image = Image.fromarray(indices, "P")
    image.putpalette(colours.tobytes())
    assert (decoded(saved(tmp_path / "a.png", image)) == colours[indices]).all()
    keyed = saved(tmp_path / "b.png", image, transparency=1)
    assert (decoded(keyed) == np.where(indices[..., None] == 1, 0, colours[indices])).all()


def test_cmyk_images_are_converted_as_pillow_does(tmp_path: Path) -> None:
    image = Image.fromarray(COLOUR).convert("CMYK")
    path = saved(tmp_path / "a.tiff", image)
    assert mode_of(path) == "CMYK"
    assert (decoded(path) == COLOUR).all()  # without black ink the conversion is its own inverse


def test_cmyk_jpegs_come_out_near_the_original(tmp_path: Path) -> None:
    smooth = np.broadcast_to(np.array([200, 60, 20], np.uint8), (16, 16, 3))
    path = saved(tmp_path / "a.jpg", Image.fromarray(smooth.copy()).convert("CMYK"), quality=95)
    assert np.abs(decoded(path, height=16, width=16).astype(int) - smooth).max() < 8


@pytest.mark.parametrize(
    ("orientation", "turned_back"),
    [
        (1, lambda upright: upright),
        (2, np.fliplr),
        (3, lambda upright: np.rot90(upright, 2)),
        (4, np.flipud),
        (5, lambda upright: np.transpose(upright, (1, 0, 2))),
        (6, lambda upright: np.rot90(upright, 1)),
        (7, lambda upright: np.rot90(np.transpose(upright, (1, 0, 2)), 2)),
        (8, lambda upright: np.rot90(upright, -1)),
    ],
)
def test_exif_orientation_is_honoured(
    tmp_path: Path, orientation: int, turned_back: Callable[[np.ndarray], np.ndarray]
) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    for name in ("a.png", "a.webp"):
        stored = np.ascontiguousarray(turned_back(COLOUR))
        path = saved(tmp_path / name, stored, exif=exif, **({"lossless": True} if name == "a.webp" else {}))
        assert decode.choose_shape([path], None) == (3, 6, 8)
        assert (decoded(path) == COLOUR).all()


def test_animations_show_their_first_frame(tmp_path: Path) -> None:
    frames = [Image.fromarray(three(np.full((6, 8), value, np.uint8))) for value in (10, 90, 200)]
    for suffix in ("gif", "webp", "png", "tiff"):
        options = {"lossless": True} if suffix == "webp" else {}
        path = saved(tmp_path / f"a.{suffix}", frames[0], save_all=True, append_images=frames[1:], **options)
        assert (decoded(path) == 10).all()


def test_the_centre_is_resized_to_fill_the_shape(tmp_path: Path) -> None:
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (30, 50, 3), np.uint8))
    path = saved(tmp_path / "a.png", image)
    by_hand = image.resize((20, 12), Image.Resampling.BILINEAR).crop((4, 0, 16, 12))
    assert (decoded(path, height=12, width=12) == np.asarray(by_hand)).all()


@pytest.mark.parametrize("size", [(1, 1), (1, 3000), (3000, 1), (33, 32)])
def test_images_of_odd_sizes_fill_the_shape(tmp_path: Path, size: tuple[int, int]) -> None:
    path = saved(tmp_path / "a.png", Image.new("RGB", size, (9, 8, 7)))
    assert (decoded(path, height=32, width=32) == (9, 8, 7)).all()


def test_large_jpegs_look_the_same_though_decoded_at_a_smaller_scale(tmp_path: Path) -> None:
    y, x = np.mgrid[0:800, 0:1000]
    waves = (127 + 60 * np.sin(x / 40) + 60 * np.cos(y / 50)).astype(np.uint8)
    path = saved(tmp_path / "a.jpg", np.dstack([waves, waves[::-1], waves[:, ::-1]]), quality=95)
    with Image.open(path) as image:
        whole = image.crop((100, 0, 900, 800)).resize((64, 64), Image.Resampling.BILINEAR)
    assert np.abs(decoded(path, height=64, width=64).astype(int) - np.asarray(whole)).max() <= 4


BAD = {
    "empty.png": lambda good: b"",
    "truncated.png": lambda good: good[: len(good) // 2],
    "header only.png": lambda good: good[:33],
    "page.jpg": lambda good: b"<html><body>404</body></html>",
    "noise.gif": lambda good: os.urandom(300),
    "changed.png": lambda good: good[:45] + bytes(byte ^ 255 for byte in good[45:60]) + good[60:],
    "program.png": lambda good: b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\nshowpage\n",
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_image_is_refused_by_name(tmp_path: Path, name: str) -> None:
    good = saved(tmp_path / "good.png", COLOUR).read_bytes()
    (tmp_path / name).write_bytes(BAD[name](good))
    with pytest.raises(UserError, match=rf"^cannot read image .*{name}: \S.*$") as caught:
        decoded(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_truncated_jpegs_are_refused_wherever_they_end(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    whole = saved(tmp_path / "whole.jpg", noise).read_bytes()
    for share in (0.01, 0.1, 0.3, 0.6, 0.9):
        (tmp_path / "cut.jpg").write_bytes(whole[: int(share * len(whole))])
        with pytest.raises(UserError, match=r"cannot read image .*cut\.jpg"):
            decoded(tmp_path / "cut.jpg", height=64, width=64)


@pytest.mark.parametrize("limit", [Image.MAX_IMAGE_PIXELS, None])
@pytest.mark.parametrize("side", [12000, 30000])
def test_decompression_bombs_are_refused_whatever_pillow_was_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, side: int, limit: int | None
) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    (tmp_path / "bomb.png").write_bytes(bomb(side))
    with decode.quiet(), pytest.raises(UserError, match=r"bomb\.png: .*(exceeds|over the) limit of"):
        decoded(tmp_path / "bomb.png")


def test_links_that_loop_and_pipes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "loop.png").symlink_to(tmp_path / "loop.png")
    os.mkfifo(tmp_path / "pipe.png")
    with pytest.raises(UserError, match=r"loop\.png: .*symbolic links"):
        decoded(tmp_path / "loop.png")
    with pytest.raises(UserError, match=r"pipe\.png: not a regular file"):
        decoded(tmp_path / "pipe.png")
    with pytest.raises(UserError, match=r"gone\.png: No such file"):
        decoded(tmp_path / "gone.png")


def test_images_are_read_out_of_a_zip_without_unpacking_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = saved(tmp_path / "a.png", COLOUR)
    with zipfile.ZipFile(tmp_path / "pack.zip", "w") as archive:
        archive.write(image, "in/a.png")
    assert (decoded(tmp_path / "pack.zip" / "in" / "a.png") == COLOUR).all()
    with pytest.raises(UserError, match=r"b\.png: .*no item named 'in/b\.png'"):
        decoded(tmp_path / "pack.zip" / "in" / "b.png")
    monkeypatch.setattr(decode, "MAX_MEMBER", 10)
    with pytest.raises(UserError, match=r"a\.png: \d+ bytes, over the limit of 10"):
        decoded(tmp_path / "pack.zip" / "in" / "a.png")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.png", "pack.zip"]


def test_many_images_are_decoded_in_their_order(tmp_path: Path) -> None:
    files = [saved(tmp_path / f"{value}.png", np.full((4, 4), value, np.uint8)) for value in range(150)]
    images = decode.decode_all(files, (1, 4, 4))
    assert images.shape == (150, 1, 4, 4)
    assert (images[:, 0, 0, 0] == np.arange(150)).all()


def test_batches_in_memory_are_resized_like_files(tmp_path: Path) -> None:
    image = np.random.default_rng(0).integers(0, 256, (20, 28, 3), np.uint8)
    resized = decode.resize_all(image.transpose(2, 0, 1)[None], 16)
    assert (resized[0].transpose(1, 2, 0) == decoded(saved(tmp_path / "a.png", image), height=16, width=16)).all()


@pytest.mark.parametrize(
    ("sizes", "image_size", "wanted"),
    [
        ([(40, 30)] * 3, None, (30, 40)),
        ([(256, 256)] * 3, None, (256, 256)),
        ([(300, 300)] * 3, None, (224, 224)),
        ([(500, 400), (300, 600), (250, 900)], None, (224, 224)),
        ([(500, 200), (300, 150), (250, 140)], None, (128, 128)),
        ([(90, 70), (80, 100), (64, 64)], None, (64, 64)),
        ([(9, 7), (8, 10), (6, 64)], None, (32, 32)),
        ([(40, 30)] * 3, 48, (48, 48)),
    ],
)
def test_the_default_shape_is_the_common_size_or_a_square_most_images_fill(
    tmp_path: Path, sizes: list[tuple[int, int]], image_size: int | None, wanted: tuple[int, int]
) -> None:
    files = [saved(tmp_path / f"{i}.png", Image.new("RGB", size)) for i, size in enumerate(sizes)]
    assert decode.choose_shape(files, image_size) == (3, *wanted)


def test_one_channel_only_if_every_image_is_grey(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "N_HEADERS", 4)  # so that most files are not among the first read
    greys = [Image.fromarray(GREY), Image.fromarray(GREY).convert("LA"), Image.fromarray(GREY > 9)]
    greys += [Image.fromarray(GREY.astype(np.uint16)), Image.fromarray(GREY).convert("P")]
    files = [saved(tmp_path / f"{i}.png", image) for i, image in enumerate(greys * 4)]
    assert decode.choose_shape(files, None) == (1, 6, 8)
    files[9] = saved(tmp_path / "colour.png", COLOUR)
    assert decode.choose_shape(files, None) == (3, 6, 8)
    files[9] = saved(tmp_path / "larger.png", np.zeros((64, 40), np.uint8))
    assert decode.choose_shape(files, None) == (1, 32, 32)
