"""Policies in tests: draws counted, bytes by Pillow, and policy files of DeepAA as its search makes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageOps
from scipy import stats
from torch import Tensor

from invaug import Draw
from invaug.lab.baselines.policy import Policy

Picture = Image.Image


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def assert_frequencies(observed: Counter[Any], expected: dict[Any, float]) -> None:
    """Fail if counts differ from probabilities by more than chance explains, rare outcomes taken together."""
    n = observed.total()
    assert set(observed) <= {outcome for outcome, share in expected.items() if share > 0}
    common = [outcome for outcome, share in expected.items() if share * n >= 10]
    seen = [observed[outcome] for outcome in common]
    awaited = [expected[outcome] * n for outcome in common]
    if n - sum(awaited) >= 10:
        seen, awaited = [*seen, n - sum(seen)], [*awaited, n - sum(awaited)]
    scale = sum(seen) / sum(awaited)
    if len(seen) == 1:
        assert seen == [n]
        return
    assert stats.chisquare(seen, [scale * count for count in awaited]).pvalue > 1e-4


def names_of(policy: Policy, draw: Draw) -> list[str]:
    return [policy.transforms.names[i] for i in draw.op.flatten().tolist()]


def layers(draw: Draw) -> list[Draw]:
    """Return the layers of a draw, each with one operation per image."""
    return [draw.layer(i) for i in range(draw.depth)]


FILE_OPS: list[tuple[str, float, float]] = [
    ("Identity", 0.0, 1.0),
    ("ShearX", -0.3, 0.3),
    ("ShearY", -0.3, 0.3),
    ("TranslateX", -0.45, 0.45),
    ("TranslateY", -0.45, 0.45),
    ("Rotate", -30.0, 30.0),
    ("AutoContrast", 0.0, 1.0),
    ("Invert", 0.0, 1.0),
    ("Equalize", 0.0, 1.0),
    ("Solarize", 0.0, 256.0),
    ("Posterize", 4.0, 8.0),
    ("Contrast", 0.1, 1.9),
    ("Color", 0.1, 1.9),
    ("Brightness", 0.1, 1.9),
    ("Sharpness", 0.1, 1.9),
    ("RandFlip", 0.0, 1.0),
    ("RandCutout", 0.0, 1.0),
    ("RandCrop", 0.0, 1.0),
]


WITHOUT_MAGNITUDE = {"Identity", "AutoContrast", "Invert", "Equalize", "RandFlip", "RandCutout", "RandCrop"}


NO_CHANGE_AT_END = {"Solarize", "Posterize"}


def file_rows() -> list[tuple[int, int]]:
    """Return the 139 pairs of operation and magnitude: all but the magnitude that changes nothing."""
    rows = []
    for i, (name, _, _) in enumerate(FILE_OPS):
        nothing = 12 if name in NO_CHANGE_AT_END else 6
        rows += [(i, 6)] if name in WITHOUT_MAGNITUDE else [(i, m) for m in range(13) if m != nothing]
    return rows


def file_arrays(n_layers: int = 6, seed: int = 0) -> dict[str, Any]:
    rows = np.array(file_rows(), dtype=np.int32)
    logits = np.random.default_rng(seed).normal(0, 2, (n_layers, len(rows)))
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    return {
        "policy_probs": probabilities.astype(np.float32),
        "l_ops": 18,
        "l_mags": 13,
        "ops": rows[:, :1],
        "mags": rows[:, 1:],
        "op_names": [f"{name}:({low},,{high})" for name, low, high in FILE_OPS],
    }


MakeFile = Callable[..., Path]


def shifted(image: Picture, *six: float, fill: int = 0) -> Picture:
    return image.transform(image.size, Image.Transform.AFFINE, six, fillcolor=fill)


SIGNED = {"Rotate", "ShearX", "ShearY", "TranslateX", "TranslateY"}


def by_pillow(image: Picture, name: str, strength: float, sign: int) -> Picture:
    """Return the image under an operation of AutoAugment's table, strength 0 to 1 of its range."""
    width, height = image.size
    calls: dict[str, Callable[[], Picture]] = {
        "Identity": lambda: image,
        "AutoContrast": lambda: ImageOps.autocontrast(image),
        "Equalize": lambda: ImageOps.equalize(image),
        "Invert": lambda: ImageOps.invert(image),
        "Rotate": lambda: image.rotate(sign * strength * 30),
        "Solarize": lambda: ImageOps.solarize(image, 256 - int(strength * 256 + 1e-9)),
        "Posterize": lambda: ImageOps.posterize(image, 8 - int(strength * 4 + 1e-9)),
        "Color": lambda: ImageEnhance.Color(image).enhance(0.1 + strength * 1.8),
        "Contrast": lambda: ImageEnhance.Contrast(image).enhance(0.1 + strength * 1.8),
        "Brightness": lambda: ImageEnhance.Brightness(image).enhance(0.1 + strength * 1.8),
        "Sharpness": lambda: ImageEnhance.Sharpness(image).enhance(0.1 + strength * 1.8),
        "ShearX": lambda: shifted(image, 1, sign * strength * 0.3, 0, 0, 1, 0),
        "ShearY": lambda: shifted(image, 1, 0, 0, sign * strength * 0.3, 1, 0),
        "TranslateX": lambda: shifted(image, 1, 0, sign * strength * 150 / 331 * width, 0, 1, 0),
        "TranslateY": lambda: shifted(image, 1, 0, 0, 0, 1, sign * strength * 150 / 331 * height),
    }
    return calls[name]()


def to_picture(image: Tensor) -> Picture:
    return Image.fromarray((image[0] if len(image) == 1 else image.permute(1, 2, 0)).contiguous().numpy())


def to_tensor(picture: Picture) -> Tensor:
    array = torch.from_numpy(np.array(picture))
    return array.unsqueeze(0) if array.ndim == 2 else array.permute(2, 0, 1)


def assert_pillow_agrees(policy: Policy, images: Tensor, draws: Draw, n_levels: int) -> None:
    changed = policy.apply(images, draws)
    for i, image in enumerate(images):
        picture = to_picture(image)
        for draw in layers(draws):
            name = policy.transforms.names[int(draw.op[i])]
            sign = -1 if float(draw.magnitude[i]) < 0 else 1
            picture = by_pillow(picture, name, int(draw.level[i]) / (n_levels - 1), sign)
        assert torch.equal(changed[i], to_tensor(picture)), policy.describe(draws)[i]
