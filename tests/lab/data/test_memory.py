"""Memory of images: counted before a pixel is decoded, and shared by threads."""

from __future__ import annotations

import threading
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image

from invaug.lab.data import decode, memory
from invaug.lab.data.inspect_file import inspect_file
from invaug.lab.errors import UserError


def opened(mode: str, kind: str, size: tuple[int, int] = (100, 50)) -> Image.Image:
    buffer = BytesIO()
    Image.new(mode, size).save(buffer, kind)
    return Image.open(buffer)


@pytest.mark.parametrize(
    ("mode", "kind", "per_pixel"),
    [("L", "PNG", 6), ("RGB", "PNG", 9), ("RGBA", "PNG", 18), ("I;16", "PNG", 8), ("F", "TIFF", 17), ("P", "GIF", 11)],
)
def test_bytes_are_counted_by_mode_and_format(mode: str, kind: str, per_pixel: int) -> None:
    assert memory.bytes_needed(opened(mode, kind), (64, 64)) == 5000 * per_pixel


def test_a_jpeg_that_is_decoded_smaller_takes_its_coefficients_and_the_small_image() -> None:
    image = opened("RGB", "JPEG", (1600, 800))
    assert memory.bytes_needed(image, (100, 100)) == 1600 * 800 * 6 + 200 * 100 * 9
    assert memory.bytes_needed(image, (1000, 1000)) == 1600 * 800 * (6 + 9)


def test_a_tile_larger_than_the_image_counts() -> None:
    image = opened("L", "TIFF")
    image.tag_v2[322] = image.tag_v2[323] = 30_000  # type: ignore[attr-defined]
    assert memory.bytes_needed(image, (64, 64)) > 900_000_000


def test_an_image_over_the_limit_is_refused_with_its_size_and_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "MAX_BYTES", 2 << 20)
    Image.new("RGBA", (400, 500)).save(tmp_path / "a.png")
    words = r"400 x 500 pixels of mode RGBA take 3 MB to decode, over the limit of 2 MB: save the image smaller"
    with pytest.raises(UserError, match=rf"cannot read image .*a\.png: {words}"):
        decode.decode(tmp_path / "a.png", (3, 32, 32))
    assert "over the limit of 2 MB" in inspect_file(tmp_path / "a.png").bad


def test_a_file_over_the_limit_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.new("RGB", (40, 50)).save(tmp_path / "a.png")
    monkeypatch.setattr(decode, "MAX_MEMBER", 10)
    with pytest.raises(UserError, match=r"a\.png: [\d,]+ bytes, over the limit of 10: save the image smaller"):
        decode.decode(tmp_path / "a.png", (3, 32, 32))


def test_a_thread_waits_until_there_is_room() -> None:
    budget, events = memory.Budget(10), []

    def wait() -> None:
        with budget.take(6):
            events.append("second")

    with budget.take(6):
        thread = threading.Thread(target=wait)
        thread.start()
        thread.join(0.2)
        events.append("first")
    thread.join(10)
    assert events == ["first", "second"]
    assert budget.taken == 0


def test_a_budget_gives_back_what_a_failure_took() -> None:
    budget = memory.Budget(10)
    with pytest.raises(ZeroDivisionError), budget.take(99):
        1 / 0  # noqa: B018
    assert budget.taken == 0
