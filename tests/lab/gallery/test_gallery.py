"""The gallery: its pictures are what Pillow makes of the same images, and what a record says was kept."""

from __future__ import annotations

import base64
import io
import math
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from invaug.lab.cli.main import main
from invaug.lab.config.build import build
from invaug.lab.data.load import load_dataset
from invaug.lab.gallery.command import write_gallery
from invaug.lab.gallery.kept import quantiles
from invaug.lab.gallery.levels import PLACE
from invaug.lab.run.folder import write_config
from tests.support.browser import Browser
from tests.support.images import real_images
from tests.support.pages import write_rows
from tests.support.pillow_reference import PILLOW

WIDE = {
    "Rotate": (0, 135),
    "Solarize": (256, 0),
    "Color": (0.01, 2),
    "Posterize": (8, 2),
    "Contrast": (0.01, 2),
    "Brightness": (0.01, 2),
    "Sharpness": (0.01, 2),
    "ShearX": (0, 0.99),
    "ShearY": (0, 0.99),
    "TranslateX": (0, 32),
    "TranslateY": (0, 32),
}
"""TrivialAugment's wide ranges, as its paper prints them."""
WHOLE = ("Rotate", "Solarize", "Posterize", "TranslateX", "TranslateY")
SIGNED = ("Rotate", "ShearX", "ShearY", "TranslateX", "TranslateY")


class Page(HTMLParser):
    """The pictures of a page, by section and strip: caption, image, whether it is marked as kept."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.sections: dict[str, list[list[tuple[str, Image.Image, bool]]]] = {}
        self.title, self.in_heading, self.is_kept = "", False, False
        self.text = path.read_text(encoding="utf-8")
        self.feed(self.text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.in_heading = tag == "h2"
        if given.get("class") == "strip":
            self.sections.setdefault(self.title, []).append([])
        self.is_kept = given.get("class") == "picture kept" if tag == "figure" else self.is_kept
        if tag == "img":
            kind, _, content = given["src"].partition(",")
            assert kind == "data:image/png;base64"
            picture = Image.open(io.BytesIO(base64.b64decode(content)))
            self.sections[self.title][-1].append((given["alt"], picture, self.is_kept))

    def handle_data(self, data):
        if self.in_heading:
            self.title, self.in_heading = data, False


def write_photographs(folder: Path, n_classes: int = 2) -> Path:
    return write_npz(folder / "photos.npz", real_images(20, 32, 32, 3).permute(0, 2, 3, 1).numpy(), n_classes)


def write_npz(path: Path, images: np.ndarray, n_classes: int) -> Path:
    labels = np.arange(len(images)) % n_classes
    np.savez(path, x_train=images, y_train=labels, x_test=images[:1], y_test=labels[:1])
    return path


def shown_images(data: Path, n: int = 2) -> list[Image.Image]:
    found = load_dataset(str(data), per_class=1).train.images
    rows = np.linspace(0, len(found) - 1, n).round().astype(int)
    return [Image.fromarray(found[row].permute(1, 2, 0).numpy()) for row in rows]


def magnitudes(name: str, sign: int) -> list[float]:
    """Return the magnitudes of levels 0, 6, ..., 30 of 31."""
    start, stop = WIDE[name]
    steps = [level * (stop - start) / 30 for level in range(0, 31, 6)]
    return [sign * (start + (math.trunc(step) if name in WHOLE else step)) for step in steps]


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gallery")
    data = write_photographs(folder)
    return Page(write_gallery("wide", str(data), None, 2, folder / "gallery.html")), shown_images(data), folder


def test_every_picture_is_what_pillow_makes_of_the_image_at_that_level(wide):
    page, images, _ = wide
    for name in WIDE:
        signs = (1, -1) if name in SIGNED else (1,)
        strips = iter(page.sections[name])
        for image in images:
            for sign in signs:
                expected = magnitudes(name, sign) if sign > 0 else magnitudes(name, sign)[1:]
                strip = next(strips)
                assert len(strip) == len(expected)
                for (caption, picture, _), magnitude in zip(strip, expected, strict=True):
                    assert caption.startswith(f"{name} ")
                    assert float(caption.split()[1]) == pytest.approx(magnitude, rel=1e-3)
                    assert picture.tobytes() == PILLOW[name](image, magnitude, PLACE).tobytes(), caption
        assert next(strips, None) is None


def test_operations_without_levels_are_shown_once_and_draws_as_they_are_named(wide):
    page, images, folder = wide
    plain = ("Identity", "AutoContrast", "Equalize")
    for strip, image in zip(page.sections["Operations without levels"], images, strict=True):
        assert [caption for caption, *_ in strip] == list(plain)
        assert [picture.tobytes() for _, picture, _ in strip] == [PILLOW[op](image, 0, PLACE).tobytes() for op in plain]
    assert [len(strip) for strip in page.sections["Random draws"]] == [9, 9]
    assert set(page.sections) == {*WIDE, "Operations without levels", "Random draws"}
    assert str(folder) not in page.text
    assert "on images of photos" in page.text


def test_random_draws_are_sequences_where_training_applies_several(tmp_path):
    data = write_photographs(tmp_path)
    page = Page(write_gallery("mild", str(data), None, 1, tmp_path / "page.html"))
    (image,) = shown_images(data, 1)
    whole = re.compile(r"(\w+)(?: ([+-]?\d+))?$")
    n_compared = 0
    for caption, picture, _ in page.sections["Random draws"][0]:
        found = [whole.match(part) for part in caption.split(", ")]
        assert len(found) == 2
        if all(found):  # captions with fractions are rounded
            made = image
            for name, magnitude in (match.groups() for match in found):
                made = PILLOW[name](made, float(magnitude or 0), PLACE)
            assert picture.tobytes() == made.tobytes(), caption
            n_compared += 1
    assert n_compared


def test_a_page_of_eight_noisy_photographs_stays_under_five_megabytes(tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (16, 96, 96, 3), np.uint8)
    data = write_npz(tmp_path / "noise.npz", noise, 8)
    path = write_gallery("standard", str(data), None, 8, tmp_path / "page.html")
    assert 3_000_000 < path.stat().st_size < 5_000_000
    image = shown_images(data, 8)[0]
    shown = Page(path).sections["Operations without levels"][0][0][1]
    image.thumbnail(shown.size)
    assert shown.width < 96
    assert shown.tobytes() == image.tobytes()


def test_a_continuous_set_is_shown_along_each_axis_and_in_both_directions(tmp_path):
    data = write_photographs(tmp_path)
    page, (image,) = (
        Page(write_gallery("translations", str(data), None, 1, tmp_path / "page.html")),
        shown_images(data, 1),
    )
    strips = page.sections["Translation"]
    assert [len(strip) for strip in strips] == [6, 5, 6, 5]
    assert strips[3][-1][0] == "Translation +0 -7"
    moved = [Image.new("RGB", image.size) for _ in range(4)]
    for picture, corner in zip(moved, ((7, 0), (-7, 0), (0, 7), (0, -7)), strict=True):
        picture.paste(image, corner)
    assert [strip[-1][1].tobytes() for strip in strips] == [picture.tobytes() for picture in moved]


def test_photographs_without_class_folders_and_a_single_file_are_shown_at_the_size_of_training(tmp_path):
    images = [Image.fromarray(each) for each in real_images(3, 48, 48, 3).permute(0, 2, 3, 1).numpy()]
    (tmp_path / "holiday").mkdir()
    for i, image in enumerate(images):
        image.save(tmp_path / "holiday" / f"{i}.png")
    for data, shown in ((tmp_path / "holiday", [images[0], images[2]]), (tmp_path / "holiday" / "1.png", images[1:2])):
        page = Page(write_gallery("standard", str(data), None, 2, tmp_path / "page.html"))
        assert [strip[0][1].tobytes() for strip in page.sections["Operations without levels"]] == [
            image.tobytes() for image in shown
        ]
        assert f"on images of {data.name}" in page.text
        assert str(tmp_path) not in page.text


def write_run(folder: Path, data: Path, kept: list[list[dict[str, list[int]]]], **settings: object) -> Path:
    folder.mkdir()
    write_config(folder, build({"data": str(data), **settings}), load_dataset(str(data)))
    base = {"train_loss": 1.0, "gamma": [0.1], "slack": [0.0], "constraint_loss": [1.0], "acceptance": [0.5]}
    write_rows(folder, [{"epoch": i, **base, "entropy": [1.0], "kept": each} for i, each in enumerate(kept, 1)])
    return folder


def test_what_a_run_kept_first_and_last_is_shown_at_the_levels_of_its_record(tmp_path):
    data = write_photographs(tmp_path)
    low, high = ([20] * 8 + [0] * 23, [0] * 23 + [20] * 8)
    first, last = {"Rotate": low, "Invert": [160] * 31}, {"Rotate": high, "Invert": [1] * 31}
    run = write_run(tmp_path / "run", data, [[first], [last]], families={"turns": {"Rotate": 90, "Invert": True}})
    path = write_gallery(str(run), None, None, 1, None)
    page, (image,) = Page(path), shown_images(data, 1)
    assert path == run / "gallery.html"
    turned, inverted = page.sections["What the chain kept"]
    degrees = [math.trunc(level * 3) for level in (1, 3, 5, 24, 26, 28)]
    assert [caption for caption, *_ in turned][::3] == ["Rotate +3: first epoch, 3.1%", "Rotate +72: last epoch, 83.8%"]
    assert [kept for *_, kept in turned] == [False] * 3 + [True] * 3
    for (_, picture, _), angle in zip(turned, degrees, strict=True):
        assert picture.tobytes() == PILLOW["Rotate"](image, angle, PLACE).tobytes()
    assert [caption for caption, *_ in inverted] == ["Invert: first epoch, 96.9%", "Invert: last epoch, 16.2%"]
    assert "How often each operation was kept" in page.text
    assert "among all kept: 5,120 in the first epoch, 191 in the last" in page.text
    assert str(tmp_path) not in page.text


def test_quantiles_are_those_of_the_counted_levels():
    counts = np.random.default_rng(0).integers(0, 5, 31)
    expected = np.quantile(np.repeat(np.arange(31), counts), [0.25, 0.5, 0.75], method="inverted_cdf")
    assert quantiles(counts.tolist()) == expected.tolist()


def test_a_run_that_keeps_nothing_says_so_and_its_set_is_shown(tmp_path):
    data = write_photographs(tmp_path)
    run = write_run(tmp_path / "run", data, [[], []], method="trivial")
    page = Page(write_gallery(str(run), None, None, 1, tmp_path / "page.html"))
    assert "no kept draws: shown are the transformations alone" in page.text
    assert "Rotate" in page.sections
    assert "What the chain kept" not in page.sections


def test_a_config_is_shown_with_its_own_families_and_crops_move(tmp_path):
    (tmp_path / "mine.toml").write_text("[families.mine]\nCrop = true\nCutout = 8\n")
    data = write_photographs(tmp_path)
    page = Page(write_gallery(str(tmp_path / "mine.toml"), str(data), None, 1, tmp_path / "page.html"))
    (image,) = shown_images(data, 1)
    for name, last in (("Crop", 4), ("Cutout", 8)):
        picture = page.sections[name][0][-1][1]
        assert picture.tobytes() == PILLOW[name](image, last, PLACE).tobytes() != image.tobytes()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["wiide"], "unknown set wiide, and no such config or run: did you mean wide?"),
        (["wide", "nope"], "nope does not exist, as a file, a folder or a dataset"),
        (["wide", "-o", "folder"], "folder is a folder: name a file for the page"),
        (["wide", "--images", "0"], "Invalid value for '--images'"),
        (["folder"], "unknown set folder, and no such config or run"),
        (["wide", "folder"], "folder has no class folders"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(tmp_path, monkeypatch, capsys, words, said):
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["invaug", "gallery", *words])
    with pytest.raises(SystemExit) as stopped:
        main()
    told = capsys.readouterr()
    assert (stopped.value.code, told.out) == (2, "")
    assert said in told.err
    assert told.err.count("\n") == 1
    assert [path.name for path in tmp_path.rglob("*")] == ["folder"]


def test_show_names_the_gallery_for_a_set_and_the_gallery_prints_where_it_is(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Image.new("L", (32, 32)).save("not-asked-for.png")
    for words, code in ((["show", "wide"], 2), (["gallery", "rotations"], 0)):
        monkeypatch.setattr("sys.argv", ["invaug", *words])
        with pytest.raises(SystemExit) as stopped:
            main()
        assert stopped.value.code == code
    told = capsys.readouterr()
    assert told.err == "invaug: wide is a set, not a config: see it with invaug gallery wide\n"
    assert told.out == "gallery.html\n"
    assert "on images of digits" in Path("gallery.html").read_text()


@pytest.fixture(scope="module")
def page_of_a_run(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("gallery")
    generator = torch.Generator().manual_seed(0)
    names = ["Identity", "AutoContrast", "Equalize", *WIDE]
    kept = [{name: torch.randint(1, 9, (31,), generator=generator).tolist() for name in names} for _ in range(2)]
    run = write_run(folder / "run", write_photographs(folder), [[each] for each in kept])
    return write_gallery(str(run), None, None, 2, None).as_uri()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")])
def test_the_gallery_is_shown_whole_in_a_browser(browser: Browser, page_of_a_run: str, width: int, scheme: str) -> None:
    browser.open(page_of_a_run, width, scheme=scheme)
    shown = browser.run(
        "return [...document.querySelectorAll('.picture')].map(p => {const i = p.querySelector('img'),"
        "b = p.getBoundingClientRect(); return [i.naturalWidth, b.left, b.right, b.width,"
        "parseFloat(getComputedStyle(p).fontSize)]})"
    )
    assert len(shown) > 200
    assert all(natural == 32 and left >= 0 and right <= width for natural, left, right, *_ in shown)
    assert all(wide >= 80 and letters >= 11 for *_, wide, letters in shown)
    assert browser.run("return document.documentElement.scrollWidth") <= width
    paper = browser.run("return getComputedStyle(document.body).backgroundColor")
    assert paper == {"light": "rgb(246, 247, 249)", "dark": "rgb(15, 18, 22)"}[scheme]
    assert browser.complaints() == []
