"""Speed of one random operation of the wide set per image, including the draw, next to Pillow and other libraries."""

from __future__ import annotations

import json
import os
import random
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"  # or it looks for a newer version on the network

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

import timing
from invaug import TransformSet, sets
from invaug.kernels import dispatch
from timing import Clock, Spread, Task, cycle_through, one_by_one

torchvision = timing.import_torchvision()

import albumentations  # noqa: E402 - after torchvision, which kornia may import
import cv2  # noqa: E402
from kornia.augmentation.auto import TrivialAugment  # noqa: E402
from torchvision.transforms import TrivialAugmentWide, v2  # noqa: E402

PILLOW = "Pillow loop, PIL to PIL"
FUSED = "invaug"
GOALS = {32: 10.0, 224: 1.5}
BATCH = {32: 128, 224: 32}
N_BATCHES = {32: 8, 224: 4}
EXAMPLE = "INVAUG_DATA=~/data python bench/ops.py --rounds 15 --json ops.json"


def transform(image: Image.Image, *six: float) -> Image.Image:
    return image.transform(image.size, Image.Transform.AFFINE, six, Image.Resampling.NEAREST)


PILLOW_OPS: dict[str, Callable[[Image.Image, float], Image.Image]] = {
    "Identity": lambda image, _: image,
    "AutoContrast": lambda image, _: ImageOps.autocontrast(image),
    "Equalize": lambda image, _: ImageOps.equalize(image),
    "Rotate": lambda image, degrees: image.rotate(degrees),
    "Solarize": lambda image, threshold: ImageOps.solarize(image, int(threshold)),
    "Color": lambda image, factor: ImageEnhance.Color(image).enhance(factor),
    "Posterize": lambda image, bits: ImageOps.posterize(image, int(bits)),
    "Contrast": lambda image, factor: ImageEnhance.Contrast(image).enhance(factor),
    "Brightness": lambda image, factor: ImageEnhance.Brightness(image).enhance(factor),
    "Sharpness": lambda image, factor: ImageEnhance.Sharpness(image).enhance(factor),
    "ShearX": lambda image, shear: transform(image, 1, shear, 0, 0, 1, 0),
    "ShearY": lambda image, shear: transform(image, 1, 0, 0, shear, 1, 0),
    "TranslateX": lambda image, pixels: transform(image, 1, 0, pixels, 0, 1, 0),
    "TranslateY": lambda image, pixels: transform(image, 1, 0, 0, 0, 1, pixels),
}


def pillow_table(transforms: TransformSet) -> list[tuple[Callable[..., Image.Image], list[float], bool]]:
    """Return for each operation Pillow's function, the magnitude at every level, and whether it takes a sign."""
    levels = torch.arange(transforms.n_levels)
    return [
        (PILLOW_OPS[op.name], op.magnitude(levels, transforms.n_levels).tolist(), op.signed) for op in transforms.ops
    ]


def pillow_one(table: list[tuple[Callable[..., Image.Image], list[float], bool]], image: Image.Image) -> Image.Image:
    """Apply one random operation of the table to the image, as a data loader's worker would."""
    function, magnitudes, signed = random.choice(table)  # noqa: S311
    magnitude = random.choice(magnitudes)  # noqa: S311
    return function(image, -magnitude if signed and random.random() < 0.5 else magnitude)  # noqa: S311


def pillow_round_trip(table: Any, image: np.ndarray) -> np.ndarray:
    return np.asarray(pillow_one(table, Image.fromarray(image)))


def albumentations_one_of() -> Callable[[np.ndarray], np.ndarray]:
    """Return the transformations closest to the 14 operations; of two equally close, the faster."""
    a, nearest = albumentations, {"interpolation": cv2.INTER_NEAREST, "p": 1}
    one_of = a.OneOf(
        [
            a.NoOp(p=1),
            a.AutoContrast(method="pil", p=1),
            a.Equalize(p=1),
            a.Rotate(135, **nearest),
            a.Solarize((0, 1), p=1),
            a.ColorJitter(brightness=0, contrast=0, saturation=(0.01, 2.0), hue=0, p=1),
            a.Posterize((2, 8), p=1),
            a.RandomBrightnessContrast(brightness_limit=0, contrast_limit=0.99, p=1),
            a.RandomBrightnessContrast(brightness_limit=0.99, contrast_limit=0, p=1),
            a.Sharpen((0, 1), (1, 1), p=1),
            a.Affine(shear={"x": (-45, 45), "y": 0}, **nearest),
            a.Affine(shear={"x": 0, "y": (-45, 45)}, **nearest),
            a.Affine(translate_px={"x": (-32, 32), "y": 0}, **nearest),
            a.Affine(translate_px={"x": 0, "y": (-32, 32)}, **nearest),
        ],
        p=1,
    )
    return lambda image: one_of(image=image)["image"]


def by_torch(transforms: TransformSet, images: Tensor) -> Tensor:
    """Return what `apply` gives without numba."""
    can_run, dispatch.can_run_compiled = dispatch.can_run_compiled, lambda images: False
    try:
        return transforms.apply(images, transforms.draw(len(images)))
    finally:
        dispatch.can_run_compiled = can_run


def by_invaug(transforms: TransformSet, images: Tensor) -> Tensor:
    return transforms.apply(images, transforms.draw(len(images)))


def on_one_thread(function: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return function(images)
    finally:
        torch.set_num_threads(n_threads)


def contenders(images: Tensor, batch_size: int) -> dict[str, Task]:
    """Return one task per library, each with the same images in the format it handles fastest."""
    wide = sets.wide()
    table = pillow_table(wide)
    tensors = images.split(batch_size)
    arrays = [batch.permute(0, 2, 3, 1).contiguous().numpy() for batch in tensors]
    pictures = [[Image.fromarray(image) for image in batch] for batch in arrays]
    floats = [(batch.float() / 255).split(1) for batch in tensors]
    invaug = partial(by_invaug, wide)
    functions: dict[str, tuple[Callable[[Any], object], Iterable[Any]]] = {
        PILLOW: (partial(one_by_one, partial(pillow_one, table)), pictures),
        "Pillow loop, array to array": (partial(one_by_one, partial(pillow_round_trip, table)), arrays),
        "torchvision v1, PIL": (partial(one_by_one, TrivialAugmentWide()), pictures),
        "torchvision v1, tensor": (partial(one_by_one, TrivialAugmentWide()), tensors),
        "torchvision v2, PIL": (partial(one_by_one, v2.TrivialAugmentWide()), pictures),
        "torchvision v2, tensor": (partial(one_by_one, v2.TrivialAugmentWide()), tensors),
        "kornia TrivialAugment": (partial(one_by_one, TrivialAugment()), floats),
        "albumentations OneOf": (partial(one_by_one, albumentations_one_of()), arrays),
        "invaug, torch kernels": (partial(by_torch, wide), tensors),
        "invaug, one thread": (partial(on_one_thread, invaug), tensors),
        FUSED: (invaug, tensors),
    }
    return {name: cycle_through(function, batches) for name, (function, batches) in functions.items()}


def race(size: int, rounds: int, slot: float, clock: Clock) -> dict[str, Any]:
    """Time all contenders at one image size, print the table, return the numbers."""
    batch = BATCH[size]
    images, source = timing.real_images(size, batch * N_BATCHES[size])
    times = timing.interleaved(contenders(images, batch), rounds, slot, clock)
    rates = {name: Spread.of([batch / seconds for seconds in taken]) for name, taken in times.items()}
    ratios = {name: Spread.of(each) for name, each in timing.ratios(times, PILLOW).items()}
    print(f"{size} px, batches of {batch}, {source}: median (quartiles) of {rounds} rounds")
    timing.print_table(
        ["one wide operation per image", "images/s", "× Pillow loop"],
        [[name, f"{rates[name]:,.0f}", f"{ratios[name]:.2f}"] for name in times],
    )
    return {
        "size": size,
        "batch": batch,
        "images": source,
        "images_per_second": {name: spread._asdict() for name, spread in rates.items()},
        "times_pillow": {name: spread._asdict() for name, spread in ratios.items()},
        "goals": judge(size, rates, ratios),
    }


def judge(size: int, rates: dict[str, Spread], ratios: dict[str, Spread]) -> dict[str, bool]:
    """Print whether the goals are met, and return it."""
    rivals = {name: rate.median for name, rate in rates.items() if not name.startswith("invaug")}
    fastest = max(rivals, key=rivals.__getitem__)
    goals = {
        f"at least {GOALS[size]:g} × a Pillow loop": ratios[FUSED].median >= GOALS[size],
        "faster than every other library": rates[FUSED].median > rivals[fastest],
    }
    remarks = (f"{ratios[FUSED].median:.1f} ×", f"{rates[FUSED].median / rivals[fastest]:.1f} × {fastest}")
    for (goal, met), remark in zip(goals.items(), remarks, strict=True):
        print(f"goal: {goal}: {'met' if met else 'NOT MET'} ({remark})")
    print()
    return goals


def per_op(size: int, rounds: int, slot: float, clock: Clock) -> dict[str, dict[str, float]]:
    """Return the microseconds one image takes in the fused kernel and in Pillow, operation by operation."""
    images, _ = timing.real_images(size, BATCH[size])
    pictures = [Image.fromarray(image) for image in images.permute(0, 2, 3, 1).contiguous().numpy()]
    wide = sets.wide()
    times = {}
    for op, row in zip(wide.ops, pillow_table(wide), strict=True):
        draw = wide.only(op.name).draw(len(images))
        tasks: dict[str, Task] = {
            "fused": partial(wide.only(op.name).apply, images, draw),
            "pillow": partial(one_by_one, partial(pillow_one, [row]), pictures),
        }
        taken = timing.interleaved(tasks, rounds, slot, clock)
        times[op.name] = {name: Spread.of(each).median / len(images) * 1e6 for name, each in taken.items()}
    return times


def print_per_op(times: dict[int, dict[str, dict[str, float]]]) -> None:
    rows = [
        [name, *(f"{times[size][name][path]:.2f}" for size in times for path in ("fused", "pillow"))]
        for name in next(iter(times.values()))
    ]
    print("µs per image, operation by operation: the fused kernel and Pillow, including its draw")
    timing.print_table(["operation", *(f"{size} px {path}" for size in times for path in ("fused", "Pillow"))], rows)


def main() -> None:
    options = timing.parser(__doc__, EXAMPLE, slot=0.12).parse_args()
    clock = timing.prepare(options)
    cv2.setNumThreads(torch.get_num_threads())
    warnings.simplefilter("ignore")  # the peers' warnings about each other's versions
    machine = timing.machine(options, "torch", "numba", "pillow", "torchvision", "kornia", "albumentations")
    print(f"{machine}\n")
    timing.warn_if_busy(options)
    races = [race(size, options.rounds, options.slot, clock) for size in BATCH]
    times = {size: per_op(size, options.rounds, options.slot / 8, clock) for size in BATCH}
    print_per_op(times)
    if options.json:
        numbers = {"machine": machine, "rounds": options.rounds, "races": races, "microseconds_per_image": times}
        options.json.write_text(json.dumps(numbers, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
