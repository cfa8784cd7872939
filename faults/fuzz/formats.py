"""The formats, and the commands that read each: a good example, how it is mutated, and in which place it is used."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from faults import archives
from faults.fuzz import bytewise, packed, trees

FLAGS = ("--model=cnn-small", "--epochs=2", "--batch-size=8", "--workers=0", "--threads=1", "--n-levels=2", "--quiet")
RUN, DATA, NEW = "run", "data.npz", "new"
RESUME = ("train", "--resume", "--quiet", "--out", RUN)
REPORT = ("report", RUN, "-o", "page.html")
CLASSIFY = ("predict", RUN, "image.png")
Files = dict[str, bytes]
"""What a mutation changes, by the path below the place of the good examples."""
Words = tuple[str, ...]


@dataclass(frozen=True)
class Format:
    """A format that invaug reads from others."""

    mutate: Callable[[random.Random, Path], Files]
    """(random numbers, the place of the good examples) -> the files that are different."""
    commands: tuple[Words, ...]
    """What reads it; one mutation after another goes through each in turn."""
    n_steps: int = 0
    """Training steps until the command has shown what it does with the file."""
    dataset: str = ""
    """Known dataset whose files are to pass for the published ones."""

    def trusting(self, place: Path) -> Any:
        """Let the mutated files pass for the published ones, whose hash would give them away."""
        return archives.trusted(self.dataset, place / self.dataset) if self.dataset else nullcontext()


def train(data: str, *more: str) -> Words:
    """Return the command that trains on data."""
    return ("train", data, "--out", NEW, *FLAGS, *more)


def of_file(mutate: Callable[[random.Random, bytes], bytes], *paths: str) -> Callable[[random.Random, Path], Files]:
    """Return what mutates one of some files."""

    def choose(random: random.Random, place: Path) -> Files:
        path = random.choice(paths)
        return {path: mutate(random, (place / path).read_bytes())}

    return choose


def newest(place: Path) -> Path:
    """Return the newest manifest, by its path below the place."""
    return max((place / RUN / "checkpoints").glob("*.json")).relative_to(place)


def manifest(random: random.Random, place: Path) -> Files:
    """Return a mutated manifest, alone in its folder: no earlier checkpoint takes its place."""
    path = newest(place)
    return {str(path): packed.mutate_manifest(random, (place / path).read_bytes())}


def state(random: random.Random, place: Path) -> Files:
    """Return a manifest and tensors with mutated state."""
    paths = newest(place), newest(place).with_suffix(".safetensors")
    changed = packed.mutate_state(random, *((place / path).read_bytes() for path in paths))
    return {str(path): content for path, content in zip(paths, changed, strict=True)}


def image(random: random.Random, place: Path) -> Files:
    """Return an image of one of the formats, mutated, among good ones and alone."""
    path = random.choice(sorted((place / "kinds").iterdir()))
    changed = bytewise.mutate_image(random, path.read_bytes())
    return {f"photos/a/odd{path.suffix}": changed, f"alone/odd{path.suffix}": changed}


def known(name: str, mutate: Callable[[random.Random, bytes], bytes], *files: str) -> Format:
    """Return the format of the files of a known dataset."""
    command = train(name, "--data-dir", name)
    return Format(of_file(mutate, *(f"{name}/{file}" for file in files)), (command,), dataset=name)


FORMATS = {
    "config of a run": Format(of_file(trees.mutate_toml, f"{RUN}/config.toml"), (REPORT, RESUME, CLASSIFY)),
    "config of a user": Format(of_file(trees.mutate_toml, "mine.toml"), (train(DATA, "--config", "mine.toml"),)),
    "record": Format(of_file(trees.mutate_lines, f"{RUN}/record.jsonl"), (REPORT, REPORT, REPORT, RESUME), n_steps=2),
    "manifest": Format(manifest, (CLASSIFY, RESUME), n_steps=1),
    "state": Format(state, (CLASSIFY, RESUME), n_steps=2),
    "npz": Format(of_file(packed.mutate_npz, DATA), (train(DATA), ("scan", DATA))),
    "policy": Format(
        of_file(packed.mutate_npz, "policy.npz"), (train(DATA, "--method=deepaa", "--policy", "policy.npz"),), n_steps=1
    ),
    "certificate": Format(of_file(trees.mutate_json, f"{RUN}/certificate.json"), (REPORT,)),
    "evaluation": Format(of_file(trees.mutate_json, f"{RUN}/evaluation.json"), (REPORT,)),
    "insights": Format(of_file(trees.mutate_json, "insights/insights.json"), (("report", "insights"),)),
    "images": Format(image, (train("photos"), ("scan", "photos"), ("predict", RUN, "alone"))),
    "tar": known("cifar10", packed.mutate_gzip, "cifar-10-binary.tar.gz"),
    "zip": known("tiny-imagenet", packed.mutate_zip, "tiny-imagenet-200.zip"),
    "mat": known("svhn", bytewise.mutate_bytes, "train_32x32.mat", "test_32x32.mat"),
    "idx": known("mnist", packed.mutate_gzip, *archives.idx_files()),
}


def write_examples(place: Path) -> None:
    """Write a good example of every format into a folder; uses the commands in this process."""
    place.mkdir(parents=True)
    write_arrays(place)
    write_images(place)
    for name, folder in archives.write_cached(place / "cached"):
        shutil.move(folder, place / name)
    write_run(place)
    write_insights(place)


def write_arrays(place: Path) -> None:
    """Write a small dataset and a policy."""
    random = np.random.default_rng(0)
    labels = np.arange(24) % 3
    images = random.integers(256, size=(24, 8, 8, 1), dtype=np.uint8)
    np.savez(
        place / DATA, x_train=images, y_train=labels, x_test=images, y_test=labels, classes=np.array(["a", "b", "c"])
    )
    names = np.array(["Identity:(0.0,,1.0)", "ShearX:(-0.3,,0.3)", "RandFlip:(0.0,,1.0)"])
    arrays = {"ops": np.array([0, 1, 1, 2]), "mags": np.array([0, 0, 11, 0]), "l_mags": np.array(12), "op_names": names}
    np.savez(place / "policy.npz", policy_probs=np.full((2, 4), 0.25), **arrays)
    (place / "mine.toml").write_text('[method]\nset = "wide"\nepsilon = 0.5\nonly = ["Rotate"]\n[train]\nlr = 0.1\n')


def write_images(place: Path) -> None:
    """Write a folder of two classes, and an image of every format and of several modes."""
    random = np.random.default_rng(0)
    pixels = random.integers(256, size=(12, 12, 4), dtype=np.uint8)
    colour = Image.fromarray(pixels[..., :3].copy())
    for folder in ("photos/a", "photos/b", "kinds", "alone"):
        (place / folder).mkdir(parents=True)
    for path in ("image.png", "alone/good.png", *(f"photos/{label}/{i}.png" for label in "ab" for i in range(2))):
        colour.rotate(90 * len(path)).save(place / path)
    for suffix in ("png", "jpg", "gif", "bmp", "tif", "webp", "ppm"):
        colour.save(place / "kinds" / f"colour.{suffix}")
        colour.convert("L").save(place / "kinds" / f"grey.{suffix}")
    Image.fromarray(pixels, "RGBA").save(place / "kinds" / "clear.png")
    colour.convert("P").save(place / "kinds" / "palette.png")
    Image.fromarray(random.integers(2**16, size=(12, 12), dtype=np.uint16)).save(place / "kinds" / "deep.png")
    colour.save(place / "kinds" / "packed.tif", compression="tiff_lzw")
    colour.save(place / "kinds" / "moving.gif", save_all=True, append_images=[colour.rotate(90)])
    Image.fromarray(random.random((12, 12)).astype(np.float32)).save(place / "kinds" / "float.tif")


def write_run(place: Path) -> None:
    """Train a run, stopped in its second epoch, and let the other commands leave their documents in it."""
    from faults.fuzz.worker import answer

    words = ("train", DATA, "--out", RUN, *FLAGS, "--checkpoint-steps=1", "--ema=0.9", "--only=Rotate")
    documents = ("evaluate", RUN, "--draws=1", "--images=4", "--json"), ("certify", RUN, "--images=4", "--json")
    for command, n_steps in ((words, 5), *((command, 0) for command in documents)):
        found = answer(command, place, n_steps)
        if found.kind not in ("accepted", "refused") or not (place / RUN / "checkpoints").is_dir():
            raise RuntimeError(f"{' '.join(command)}: {found}")
    for path in sorted((place / RUN / "checkpoints").iterdir())[:-2]:  # of the newest, so that no other takes its place
        path.unlink()


def write_insights(place: Path) -> None:
    """Write what `invaug insights` leaves, of numbers that were not measured."""
    from invaug.lab.insights.command import as_json
    from invaug.lab.insights.examples import examples
    from invaug.lab.insights.judge import HeldOut
    from invaug.lab.insights.verdicts import Answer, Finding

    held_out, rotate = HeldOut(100, 0.2, [0.9, 0.92], 2), {"Rotate": (0.0, 30.0)}
    numbers = {"gammas": [0.1, 0.2], "settled": True, "clean": [0.9, 0.91], "loss_gaps": [0.1, 0.1]}
    found = [
        Finding("rotations", rotate, under=[0.89, 0.9], held_out=held_out, **numbers),
        Finding("flips", {"FlipX": True}, under=[0.4, 0.5], held_out=held_out, **numbers),
    ]
    answer = Answer("data", "cnn-small", held_out, found, ["colour"], 1.0)
    shown = examples(answer, torch.zeros(2, 1, 8, 8, dtype=torch.uint8))
    (place / "insights").mkdir()
    (place / "insights" / "insights.json").write_text(json.dumps({**as_json(answer), "examples": shown}))
