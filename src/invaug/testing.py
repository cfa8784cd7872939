"""The contract of operations and sets, to run on your own: `check_op(my_op)`, `check_set(my_set)`."""

import torch
from torch import Tensor

from invaug.checks import require
from invaug.transforms.draw import Draw
from invaug.transforms.ops import Op
from invaug.transforms.set import TransformSet


def check_op(op: Op, images: Tensor | None = None, *, n_levels: int = 31) -> None:
    """Raise AssertionError with the reason unless the operation keeps the contract; return nothing.

    Args:
        images: A batch to try it on, on any device; by default random uint8 images of several shapes.

    Example:
        >>> check_op(Op("Negative", lambda images, magnitudes: 255 - images))
        >>> check_op(Op("Half", lambda images, magnitudes: images[:, :, ::2]))
        Traceback (most recent call last):
        AssertionError: Half must keep the shape (64, 3, 32, 32), got (64, 3, 16, 32)
    """
    check_set(TransformSet((op,), n_levels=n_levels), images)


def check_set(transforms: TransformSet, images: Tensor | None = None) -> None:
    """Raise AssertionError with the reason unless drawing and applying keep the contract; return nothing.

    The contract: shape, dtype and device stay the same; the same draw gives the same images; the input is not modified;
    a batch gives what its images give one by one; the seed of a generator decides the draw.

    Example:
        >>> from invaug import sets
        >>> check_set(sets.rotations(1.0), torch.rand(4, 3, 8, 8))
    """
    for batch in [images] if images is not None else _batches():
        generator = torch.Generator().manual_seed(0)
        _check_batch(transforms, batch, transforms.draw(len(batch), generator=generator))
    _check_draw(transforms)


def _batches() -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = [(64, 3, 32, 32), (32, 1, 28, 28), (8, 3, 9, 14)]
    return [torch.randint(256, shape, dtype=torch.uint8, generator=generator) for shape in shapes]


def _check_batch(transforms: TransformSet, images: Tensor, draw: Draw) -> None:
    names = ", ".join(transforms.names)
    before = images.clone()
    try:
        changed = transforms.apply(images, draw)
    except (ValueError, TypeError) as error:  # the set has its own checks, with the same messages
        raise AssertionError(str(error)) from error
    require((images == before).all(), f"{names} must not write to its input", AssertionError)
    device = f"{names} must keep the device {images.device}, got {changed.device}"
    require(changed.device == images.device, device, AssertionError)
    same = (transforms.apply(images, draw) == changed).all()
    require(same, f"{names} must give the same for the same draw", AssertionError)
    # floats may differ in the last bit with the size of the batch
    for i, description in enumerate([] if images.is_floating_point() else transforms.describe(draw)):
        single = transforms.apply(images[i : i + 1], draw[i])
        alike = (single == changed[i : i + 1]).all()
        require(alike, f"{description} must do to one image what it does in a batch", AssertionError)


def _check_draw(transforms: TransformSet) -> None:
    first, again = (transforms.draw(100, generator=torch.Generator().manual_seed(7)) for _ in range(2))
    same = torch.equal(first.op, again.op) and torch.equal(first.magnitude, again.magnitude)
    require(same, "two draws from generators of one seed must be equal", AssertionError)
