"""Batches that keep the bytes of PIL images, for `DataLoader(collate_fn=...)` and `Trainer(data_collator=...)`."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

IMAGES, LABELS = ("pixel_values", "image", "img"), ("labels", "label")
MODES = ("L", "RGB")  # of PIL images whose bytes are their pixels


def collate_bytes(rows: Sequence[Any]) -> Any:
    """Return a batch of images, shape (batch, channels, height, width), and labels: uint8 where images are PIL's.

    Pairs (image, label) become a list of two tensors. Dictionaries, such as the rows of Hugging Face `datasets`, become
    one with `pixel_values` and `labels`; they may call the image `image` or `img`, and the label `label`. Tensors keep
    their dtype, so that normalised images for evaluation go through as well.

    Example:
        >>> from PIL import Image
        >>> images, labels = collate_bytes([(Image.new("RGB", (6, 4)), 1), (Image.new("RGB", (6, 4)), 0)])
        >>> images.shape, images.dtype, labels
        (torch.Size([2, 3, 4, 6]), torch.uint8, tensor([1, 0]))
    """
    if not isinstance(rows[0], Mapping):
        return [_stack_images([row[0] for row in rows]), _stack_labels([row[1] for row in rows])]
    image, label = _name_of(rows[0], IMAGES), _name_of(rows[0], LABELS)
    images, labels = _stack_images([row[image] for row in rows]), _stack_labels([row[label] for row in rows])
    return {"pixel_values": images, "labels": labels}


def _name_of(row: Mapping[str, Any], known: Sequence[str]) -> str:
    """Return the name of the first known column; the Trainer takes columns away that the model does not know."""
    for name in known:
        if name in row:
            return name
    way = f"rename one to {known[0]}; with a Hugging Face Trainer set remove_unused_columns=False"
    raise ValueError(f"rows must have a column {' or '.join(known)}, got {', '.join(row) or 'none'}: {way}")


def _stack_images(images: Sequence[Any]) -> Tensor:
    tensors = [_tensor_of(image) for image in images]
    shapes = sorted({tuple(tensor.shape) for tensor in tensors})
    if len(shapes) > 1:
        way = "resize them to one size, and convert them to one mode, in the dataset"
        raise ValueError(f"the images of a batch must have one shape, got {shapes[0]} and {shapes[1]}: {way}")
    return torch.stack(tensors)


def _tensor_of(image: Any) -> Tensor:
    """Return an image as a tensor, shape (channels, height, width)."""
    if isinstance(image, Tensor):
        return image
    mode = getattr(image, "mode", None)
    if mode is None:
        way = "make an array a tensor with torch.from_numpy(array).permute(2, 0, 1)"
        raise TypeError(f"images must be PIL images or tensors, got {type(image).__name__}: {way}")
    if mode not in MODES:
        raise ValueError(f'PIL images must have mode L or RGB, got {mode}: convert them with .convert("RGB")')
    pixels = torch.from_numpy(np.array(image))
    return pixels[None] if pixels.ndim == 2 else pixels.permute(2, 0, 1)


def _stack_labels(labels: Sequence[Any]) -> Tensor:
    return torch.stack([torch.as_tensor(label) for label in labels])
