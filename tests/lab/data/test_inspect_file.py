"""One image file: damage that is found, and what is called by its name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from faults.bad_images import encoded
from invaug.lab.data.inspect_file import inspect_file
from tests.support.datasets import put


@pytest.mark.parametrize("cut", [*range(1, 40, 3), 200])
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "BMP", "TIFF", "WEBP", "PPM"])
def test_an_image_cut_short_by_any_number_of_bytes_is_bad(tmp_path: Path, kind: str, cut: int) -> None:
    found = inspect_file(put(tmp_path / f"a.{kind.lower()}", encoded(kind)[:-cut]))
    assert found.bad


def test_every_changed_byte_of_the_pixels_of_a_png_is_found(tmp_path: Path) -> None:
    content = encoded("PNG")
    for place in np.random.default_rng(0).integers(8, len(content), 60):
        changed = content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :]
        assert inspect_file(put(tmp_path / "a.png", changed)).bad, place


def test_foreign_files_are_called_what_they_are(tmp_path: Path) -> None:
    wanted = {
        b"%PDF-1.7": "a PDF",
        b"\0\0\0\x1cftypheic": "HEIC or AVIF, which is not supported: convert it to JPEG",
        b"PK\x03\x04rest": "a zip archive",
        bytes(500): "nothing but zeros at its start",
        b"words": "not an image of a known kind",
    }
    assert {content: inspect_file(put(tmp_path / "a.jpg", content)).bad for content in wanted} == wanted


def test_a_blank_image_is_noted(tmp_path: Path) -> None:
    Image.new("RGB", (30, 30), (1, 2, 3)).save(tmp_path / "a.png")
    assert inspect_file(tmp_path / "a.png").notes == ("blank: all pixels are the same",)
