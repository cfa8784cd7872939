"""Each operation as a plain call of Pillow on one image: what "byte for byte" is measured against."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

Picture = Image.Image
Place = tuple[float, float]


def affine(image: Picture, *six: float) -> Picture:
    return image.transform(image.size, Image.Transform.AFFINE, six, Image.Resampling.NEAREST)


def crop(image: Picture, padding: int, place: Place) -> Picture:
    """Pad with black, cut the old size out again at one of the (2 padding + 1)² corners."""
    left, top = (math.floor(p * (2 * padding + 1)) for p in place)
    return ImageOps.expand(image, padding, 0).crop((left, top, left + image.width, top + image.height))


def cutout(image: Picture, size: int, place: Place) -> Picture:
    """Paint a black square about one pixel; where it leaves the image it is cut off."""
    x, y = math.floor(place[0] * image.width), math.floor(place[1] * image.height)
    painted = image.copy()
    painted.paste(0, (x - size // 2, y - size // 2, x + size // 2, y + size // 2))
    return painted


PILLOW: dict[str, Callable[[Picture, float, Place], Picture]] = {
    "Identity": lambda image, m, _: image,
    "AutoContrast": lambda image, m, _: ImageOps.autocontrast(image),
    "Equalize": lambda image, m, _: ImageOps.equalize(image),
    "Rotate": lambda image, m, _: image.rotate(m, Image.Resampling.NEAREST),
    "Solarize": lambda image, m, _: ImageOps.solarize(image, int(m)),
    "Color": lambda image, m, _: ImageEnhance.Color(image).enhance(m),
    "Posterize": lambda image, m, _: ImageOps.posterize(image, int(m)),
    "Contrast": lambda image, m, _: ImageEnhance.Contrast(image).enhance(m),
    "Brightness": lambda image, m, _: ImageEnhance.Brightness(image).enhance(m),
    "Sharpness": lambda image, m, _: ImageEnhance.Sharpness(image).enhance(m),
    "ShearX": lambda image, m, _: affine(image, 1, m, 0, 0, 1, 0),
    "ShearY": lambda image, m, _: affine(image, 1, 0, 0, m, 1, 0),
    "TranslateX": lambda image, m, _: affine(image, 1, 0, m, 0, 1, 0),
    "TranslateY": lambda image, m, _: affine(image, 1, 0, 0, 0, 1, m),
    "Invert": lambda image, m, _: ImageOps.invert(image),
    "FlipX": lambda image, m, _: ImageOps.mirror(image),
    "FlipY": lambda image, m, _: ImageOps.flip(image),
    "Crop": lambda image, m, place: crop(image, int(m), place),
    "Cutout": lambda image, m, place: cutout(image, int(m), place),
}


def pictures(images: Tensor) -> list[Picture]:
    """Return uint8 images of one or three channels as Pillow's, modes L and RGB."""
    planes_last = images[:, 0] if images.shape[1] == 1 else images.permute(0, 2, 3, 1)
    return [Image.fromarray(array) for array in planes_last.contiguous().numpy()]


def tensor(images: list[Picture], like: Tensor) -> Tensor:
    """Return Pillow images as a batch, shaped as the batch they came from."""
    n_channels, height, width = like.shape[1:]
    rows = np.stack([np.asarray(image) for image in images]).reshape(-1, height, width, n_channels)
    return torch.from_numpy(rows).permute(0, 3, 1, 2).contiguous()


def by_pillow(names: list[str], images: Tensor, magnitudes: Tensor, places: Tensor) -> Tensor:
    """Return each image under the operation it is paired with, one Pillow call per image."""
    rows = zip(names, pictures(images), magnitudes.tolist(), places.tolist(), strict=True)
    return tensor([PILLOW[name](image, m, tuple(place)) for name, image, m, place in rows], images)
