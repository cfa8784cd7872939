"""The first ten minutes of a new user at a terminal: from a folder of images to an exported model."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file

from tests.support.images import load_labelled_digits
from tests.support.screen import Seen, draw, type_command

BAR = "━"


def write_folder(folder: Path, pixels: np.ndarray, labels: np.ndarray, classes: dict[int, str], per_class: int) -> None:
    for label, name in classes.items():
        (folder / name).mkdir(parents=True)
        for i, image in enumerate(pixels[labels == label][:per_class]):
            Image.fromarray(image).save(folder / name / f"{i:03}.png")


def typed(folder: Path, command: str, *, bar: str = "", until: str | None = None) -> Seen:
    """Type a command; whatever it is, it ends well, without a traceback, and with a bar while one waits."""
    seen = type_command(command, folder, until)
    assert "Traceback" not in seen.raw
    assert seen.code in ((0, 130) if until else (0,)), seen.raw
    assert seen.lines
    assert not any(BAR in line for line in seen.lines), "a bar is left on the screen"
    waited = [part for part in seen.raw.split("\r") if BAR in part]
    assert any(bar in part for part in waited) if bar else True, f"no bar for {bar}"
    return seen


def check_first_line(*commands: Seen) -> None:
    """Check that commands which need PyTorch say so at once, before they import it."""
    for seen in commands:
        assert seen.raw.startswith("loading PyTorch"), seen.raw[:200]


def travel(folder: Path, name: str, flags: dict[str, str]) -> None:
    """Go from a scan to an exported model; each command but the first is one that an earlier one suggested."""
    images = sorted((folder / "photos").rglob("*.png"))
    scan = typed(folder, "invaug scan photos", bar="checking images")
    assert scan.lines[0] == f"photos: {len(images)} images, 0 bad, 0 notes"
    assert scan.next_command == "invaug train photos"

    train = typed(folder, f"{scan.next_command} --out runs/a {flags['train']}", bar="epoch 1/")
    recipe = train.line(r"^(\d+) train / (\d+) test, .* steps × \d+ epochs?, .*; watch it with: (invaug watch \S+)$")
    assert int(recipe[1]) + int(recipe[2]) == len(images)
    page = folder / train.line(r"^report: (\S+)$")[1]
    assert page.read_text().startswith("<!doctype html>")
    assert train.line(r"^run: (\S+)$")[1] == "runs/a"
    page.unlink()
    assert train.next_command == "invaug predict runs/a IMAGE…"

    watch = typed(folder, recipe[3], until="http://")
    assert "127.0.0.1" in watch.raw

    report = typed(folder, "invaug report runs/a")
    assert report.lines[-1] == "runs/a/report.html"
    assert page.is_file()

    insights = typed(folder, f"invaug insights photos --only rotation --out runs/i {flags['insights']}", bar="run ")
    assert insights.line(rf"^rotation\s+[+-]\d.*{flags['verdict']}")
    assert insights.next_command.startswith(("invaug train photos", "invaug insights photos --only rotation"))
    assert (folder / insights.line(r"^report: (\S+)$")[1]).is_file()

    certify = typed(folder, f"invaug certify runs/a {flags['certify']}", bar=name)
    assert certify.line(r"^(Holds|Does not hold|Cannot tell): the mean loss on held-out images under random sequences")
    assert certify.next_command.startswith(("invaug export runs/a", "invaug insights photos", "invaug certify runs/a"))

    image = images[0].relative_to(folder)
    predict = typed(folder, train.next_command.replace("IMAGE…", str(image)))
    shown = predict.line(rf"^{image}: (\w+) [\d.]+%")
    assert shown[1] in {path.parent.name for path in images}

    export = typed(folder, "invaug export runs/a")
    assert export.lines[-1] == "runs/a/model.safetensors"
    check_first_line(train, insights, certify, predict, export)
    assert sum(weights.size for weights in load_file(folder / export.lines[-1]).values()) > 1000


def test_a_new_user_gets_from_a_folder_of_images_to_an_exported_model(tmp_path: Path) -> None:
    pixels, labels = load_labelled_digits()
    write_folder(tmp_path / "photos", pixels, labels, {0: "zero", 1: "one", 7: "seven"}, 12)
    tiny = {"train": "--epochs 1 --n-levels 4", "insights": "--epochs 1 --seeds 1 --rounds 0", "certify": "--images 6"}
    travel(tmp_path, "mild", tiny | {"verdict": "undecided: train longer"})


@pytest.mark.long
def test_the_same_with_photographs(tmp_path: Path) -> None:
    source = os.environ.get("INVAUG_DATA")
    if not source:
        pytest.skip("NOT TRAVELLED WITH PHOTOGRAPHS: INVAUG_DATA names no folder with cifar10.npz")
    with np.load(Path(source) / "cifar10.npz", allow_pickle=False) as arrays:
        pixels, labels = arrays["x_train"][:5000], arrays["y_train"][:5000].reshape(-1)
    write_folder(tmp_path / "photos", pixels, labels, {0: "plane", 1: "car", 6: "frog"}, 150)
    some = {"train": "--epochs 5", "insights": "--epochs 2 --seeds 2 --rounds 1", "certify": ""}
    travel(tmp_path, "mild", some | {"verdict": ""})


@pytest.mark.parametrize(
    ("raw", "left"),
    [
        ("a\r\nb\r\n", ["a", "b", ""]),
        ("abc\rX", ["Xbc"]),
        ("bar\r\x1b[2Kdone", ["done"]),
        ("one\r\ntwo\r\n\x1b[1A\x1b[2Kthree\r\n", ["one", "three", ""]),
        ("\x1b[?25l\x1b[1mbold\x1b[0m\x1b[?25h", ["bold"]),
    ],
)
def test_a_screen_shows_what_a_terminal_would(raw: str, left: list[str]) -> None:
    assert draw(raw) == left
