"""`invaug certify` of ResNet-8 under the wide set, against one image at a time with Pillow and the same network."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch.nn import functional as F

import timing
from invaug import sets
from invaug.lab.certify import certificate
from invaug.lab.certify import matrix as scored
from invaug.lab.certify.certificate import Question
from invaug.lab.certify.matrix import Exhaustive
from invaug.lab.data.batches import Batch
from invaug.lab.models.build import build_model
from invaug.lab.run.folder import Predictor
from invaug.lab.train import malloc
from invaug.lab.train.finish import Finish
from timing import Clock

GOAL = 120.0  # seconds for 512 images
CLASSES = tuple(map(str, range(10)))
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
EXAMPLE = "INVAUG_DATA=~/data python bench/certify.py"


def affine(*six: float) -> Callable[[Image.Image], Image.Image]:
    return lambda image: image.transform(image.size, Image.Transform.AFFINE, six, Image.Resampling.NEAREST)


PEER: dict[str, Callable[[float], Callable[[Image.Image], Image.Image]]] = {
    "Identity": lambda m: lambda image: image,
    "AutoContrast": lambda m: ImageOps.autocontrast,
    "Equalize": lambda m: ImageOps.equalize,
    "Rotate": lambda m: lambda image: image.rotate(m),
    "Solarize": lambda m: lambda image: ImageOps.solarize(image, int(m)),
    "Color": lambda m: lambda image: ImageEnhance.Color(image).enhance(m),
    "Posterize": lambda m: lambda image: ImageOps.posterize(image, int(m)),
    "Contrast": lambda m: lambda image: ImageEnhance.Contrast(image).enhance(m),
    "Brightness": lambda m: lambda image: ImageEnhance.Brightness(image).enhance(m),
    "Sharpness": lambda m: lambda image: ImageEnhance.Sharpness(image).enhance(m),
    "ShearX": lambda m: affine(1, m, 0, 0, 1, 0),
    "ShearY": lambda m: affine(1, 0, 0, m, 1, 0),
    "TranslateX": lambda m: affine(1, 0, m, 0, 1, 0),
    "TranslateY": lambda m: affine(1, 0, 0, 0, 1, m),
}


def certified(predictor: Predictor, sample: Batch, folder: Path, clock: Clock) -> tuple[float, scored.Matrix]:
    """Return the seconds of a certificate from images to numbers, files included, and its matrix."""
    transforms = sets.wide()
    start = clock()
    every, probability = certificate.list_transformations(transforms)
    score = partial(scored.score_block, predictor, sample, transforms, losses)
    matrix = scored.fill_matrix(Exhaustive(every, len(sample.targets)), folder, {}, score)
    question = Question(transforms, sample.targets.numpy(), CLASSES, (3, 32, 32), 0.95, 10.0, len(sample.targets), 0.8)
    certificate.certify_exactly(matrix, every, probability, question)
    return clock() - start, matrix


def losses(scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(scores, targets, reduction="none")


@torch.no_grad()
def one_by_one(
    predictor: Predictor, sample: Batch, rows: list[int], batch: int, clock: Clock
) -> tuple[float, np.ndarray]:
    """Return the seconds of some transformations: Pillow image by image, then the network on batches of them."""
    every = sets.wide().every()
    names = [sets.wide().ops[i].name for i in every.op.flatten().tolist()]
    mean, std = (torch.tensor(numbers).view(1, 3, 1, 1) for numbers in (MEAN, STD))
    pictures = [Image.fromarray(image) for image in sample.images.permute(0, 2, 3, 1).contiguous().numpy()]
    found = []
    start = clock()
    for row in rows:
        transform = PEER[names[row]](float(every.magnitude[row]))
        changed = [torch.from_numpy(np.array(transform(picture))).permute(2, 0, 1) for picture in pictures]
        inputs = (torch.stack(changed).float() / 255 - mean) / std
        parts = [predictor.network(part) for part in inputs.split(batch)]
        found.append(losses(torch.cat(parts), sample.targets).numpy())
    return clock() - start, np.stack(found)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, epilog=f"example: {EXAMPLE}")
    options.add_argument("--images", type=int, default=512, help="images certified (default: %(default)s)")
    options.add_argument("--every", type=int, default=10, help="the peer does one transformation in so many")
    options.add_argument("--threads", type=int, default=2, help="threads of torch and invaug (default: %(default)s)")
    options.add_argument(
        "--cpu-time", action="store_true", help="count processor time on one thread: for busy machines"
    )
    options.add_argument("--json", type=Path, metavar="FILE", help="write the numbers to a file as well")
    given = options.parse_args()
    clock = timing.prepare(given)
    malloc.keep_freed()
    torch.manual_seed(0)
    network = build_model("resnet-8", 10, (3, 32, 32)).to(memory_format=torch.channels_last)
    predictor = Predictor(network, Finish(MEAN, STD), CLASSES).eval()
    images, source = timing.real_images(32, given.images)
    targets = torch.randint(10, (len(images),), generator=torch.Generator().manual_seed(0))
    sample = Batch(images, targets, torch.arange(len(images)))
    print(f"{len(images)} images of {source}, ResNet-8, wide set; {timing.machine(given, 'torch', 'numba', 'pillow')}")
    timing.warn_if_busy(given)
    sets.wide().apply(images[:2], sets.wide().draw(2))  # compiles, or reads what was compiled
    with tempfile.TemporaryDirectory() as folder:
        seconds, matrix = certified(predictor, sample, Path(folder), clock)
    rows = list(range(0, len(matrix.losses) - 1, given.every))
    peers = {batch: one_by_one(predictor, sample, rows, batch, clock) for batch in (1, 128)}
    n_all = len(matrix.losses) - 1
    scaled = {batch: taken * n_all / len(rows) for batch, (taken, _) in peers.items()}
    agree = max(float(np.abs(found - matrix.losses[1:][rows]).max()) for _, found in peers.values())
    timing.print_table(
        ["all transformations of all images", "seconds", "ratio"],
        [[f"invaug certify ({n_all} transformations)", f"{seconds:.1f}", "1.0"]]
        + [
            [
                f"Pillow, then batches of {batch} (from {len(rows)} transformations, scaled)",
                f"{taken:.1f}",
                f"{taken / seconds:.1f}",
            ]
            for batch, taken in scaled.items()
        ],
    )
    print(f"largest difference between a loss of ours and of the peer: {agree:.1e}")
    print(f"goal: {GOAL:g} s, {'met' if seconds <= GOAL else 'missed'}")
    if given.json:
        given.json.write_text(json.dumps({"seconds": seconds, "peers": scaled, "largest_difference": agree}))


if __name__ == "__main__":
    main()
