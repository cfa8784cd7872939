"""A set of transformations: the paper's G, and the uniform law U(G) on it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product

import numpy as np
import torch
from torch import Tensor

from invaug.checks import check_known, check_type, require
from invaug.kernels import dispatch
from invaug.kernels.rules import Actions, Array
from invaug.transforms.draw import Draw
from invaug.transforms.images import check_images, check_output, floats_for, on_bytes, on_host
from invaug.transforms.ops import Op, Rule


@dataclass(frozen=True)
class TransformSet:
    """A table of operations. `draw` makes the randomness; `apply` uses it and has none of its own.

    Example:
        >>> from invaug import sets
        >>> transforms = TransformSet(sets.wide().ops[3:5])
        >>> transforms.names
        ('Rotate', 'Solarize')
    """

    ops: tuple[Op, ...]
    n_levels: int = 31
    min_level: int = 0
    """The lowest level drawn: 1 leaves out level 0, as the authors' proposals do."""
    reference_size: int | None = None
    """If given, magnitudes in pixels refer to images of this size and grow with the image."""
    depth: int = 1
    """How many operations, drawn independently, are applied in sequence to each image."""
    # a field, because torch.compile cannot enter a cached property
    _codes: tuple[int, ...] = field(init=False, repr=False, compare=False)
    """The code of each operation; empty if some operation is not a byte operation."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "ops", tuple(self.ops))
        kinds = [type(op).__name__ for op in self.ops]
        require(all(isinstance(op, Op) for op in self.ops), f"ops must be invaug.Op, got {kinds}", TypeError)
        names, size, last = ", ".join(self.names), self.reference_size, self.n_levels - 1
        require(self.ops, "ops must hold at least one operation, got none")
        require(len(set(self.names)) == len(self.ops), f"ops must have different names, got {names}")
        alike = len({op.n_magnitudes for op in self.ops}) == 1
        require(alike, f"ops of one set must take equally many magnitudes, got {names}")
        require(self.n_levels >= 2, f"n_levels must be at least 2, got {self.n_levels}")
        require(0 <= self.min_level <= last, f"min_level must lie in 0 to {last}, got {self.min_level}")
        require(size is None or size >= 1, f"reference_size must be a positive number of pixels, got {size}")
        require(self.depth >= 1, f"depth must be at least 1, got {self.depth}")
        codes = tuple(op.function.code for op in self.ops if isinstance(op.function, Rule))
        object.__setattr__(self, "_codes", codes if len(codes) == len(self.ops) else ())

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the operations, in order."""
        return tuple(op.name for op in self.ops)

    def only(self, *names: str) -> TransformSet:
        """Return the set with these operations alone.

        Example:
            >>> from invaug import sets
            >>> sets.wide().only("Rotate", "Color").names
            ('Rotate', 'Color')
        """
        check_known(names, self.names)
        return replace(self, ops=tuple(op for op in self.ops if op.name in names))

    def without(self, *names: str) -> TransformSet:
        """Return the set without these operations.

        Example:
            >>> from invaug import sets
            >>> len(sets.wide().without("Solarize").ops)
            13
        """
        check_known(names, self.names)
        return replace(self, ops=tuple(op for op in self.ops if op.name not in names))

    def draw(self, n: int, *, generator: torch.Generator | None = None) -> Draw:
        """Return `depth` random transformations for each of n images, from the generator (or torch's global one).

        Example:
            >>> from invaug import sets
            >>> draw = sets.mild().draw(64, generator=torch.Generator().manual_seed(0))
            >>> draw.op.shape, draw.magnitude.shape
            (torch.Size([64, 2]), torch.Size([64, 2, 1]))
        """
        require(n >= 0, f"n must not be negative, got {n}")
        device = None if generator is None else generator.device
        # operation, level, magnitudes (the first is a sign where levels are drawn), two for the place; sets of up to
        # two magnitudes consume equally many numbers, so exchanging a set does not change later draws
        shape = (self.depth, 4 + max(self._n_magnitudes, 2), n)
        numbers = torch.rand(shape, dtype=torch.float64, generator=generator, device=device).cpu().numpy()
        # numpy, because for a few numbers per image the cost is in the calls, and torch's are five times as slow
        op = (numbers[:, 0] * len(self.ops)).astype(np.int64)
        level = (numbers[:, 1] * (self.n_levels - self.min_level)).astype(np.int64) + self.min_level
        magnitude = self._magnitudes[(numbers[:, 2] < 0.5).view(np.int8), op, level][..., None]
        if self._any_continuous:
            start, stop, whole, continuous = self._ranges[:, op, None]
            ranged = start + numbers[:, 2 : 2 + self._n_magnitudes].swapaxes(1, 2) * (stop - start)
            magnitude = np.where(continuous, np.where(whole, np.trunc(ranged), ranged), magnitude)
            level = np.where(continuous[..., 0], -1, level)
        columns = (op.T, level.T, magnitude.swapaxes(0, 1), numbers[:, -2:].transpose(2, 0, 1))
        return Draw(*(torch.from_numpy(np.ascontiguousarray(column)) for column in columns))

    def every(self) -> Draw:
        """Return each distinct transformation of a finite set once: all operations, levels and signs that differ.

        Example:
            >>> from invaug import sets
            >>> len(sets.wide().every())
            470
        """
        require(not self._any_continuous, f"a continuous set cannot be listed: {', '.join(self.names)}")
        deep = f"a set of depth {self.depth} is not listed: list dataclasses.replace(set, depth=1)"
        require(self.depth == 1, deep)
        levels = range(self.min_level, self.n_levels)
        op, level, minus = np.array(list(product(range(len(self.ops)), levels, (0, 1)))).T
        magnitude = self._magnitudes[minus, op, level]
        _, first = np.unique(np.stack([op, magnitude]), axis=1, return_index=True)
        first.sort()
        return Draw(*(torch.from_numpy(column[first]) for column in (op, level, magnitude)))

    def apply(self, images: Tensor, draw: Draw) -> Tensor:
        """Return new images, each under its own transformations, on the device and in the dtype they came in.

        Images are uint8, or floats in [0, 1], of shape (batch, channels, height, width). A set of your own operations
        accepts what they accept: tensors of any shape with a batch dimension, of any dtype.

        Example:
            >>> from invaug import sets
            >>> flips = sets.of({"FlipX": True})
            >>> images = torch.tensor([[[[1, 2, 3]]]], dtype=torch.uint8)
            >>> flips.apply(images, flips.draw(1)).tolist()
            [[[[3, 2, 1]]]]
        """
        if self._codes:
            return on_bytes(images, lambda batch: self._transform_bytes(batch, draw))
        check_type("images", images, Tensor, "a torch.Tensor")
        require(images.ndim, "images must have a batch dimension, got a single number: unsqueeze(0) adds one")
        ops, numbers, _ = self._read(draw, len(images))
        # without scaling, the tensor of the draw itself, so that gradients reach it
        magnitudes = torch.from_numpy(self._scale(images, ops, numbers)) if self.reference_size else draw.magnitude
        for i in range(draw.depth):
            images = self._transform(images, ops[:, i], magnitudes[:, i], draw.place[:, i])
        return images

    def _read(self, draw: Draw, n_images: int) -> tuple[Array, Array, Array]:
        """Return operations, magnitudes and places as numpy arrays, after checking that they fit this set."""
        check_type("draw", draw, Draw, "an invaug.Draw")
        ops, magnitudes, places = on_host(draw.op), on_host(draw.magnitude), on_host(draw.place)
        if torch.compiler.is_compiling():
            return ops, magnitudes, places
        require(len(ops) == n_images, f"draw must have one row per image, got {len(ops)} rows for {n_images} images")
        if magnitudes.shape[2] != self._n_magnitudes:
            found = f"got {magnitudes.shape[2]}: was it drawn from this set?"
            raise ValueError(f"magnitude must have {self._n_magnitudes} per operation for {self.ops[0].name}, {found}")
        strange = ops[(ops < 0) | (ops >= len(self.ops))]
        if strange.size:
            found = f"got {strange[0]}: was it drawn from this set?"
            raise ValueError(f"draw.op must lie in 0 to {len(self.ops) - 1}, {found}")
        for name, numbers in (("magnitude", magnitudes), ("place", places)):
            if not math.isfinite(numbers.sum()):
                raise ValueError(f"{name} must be finite, got NaN or inf")
        return ops, magnitudes, places

    def _scale(self, images: Tensor, ops: Array, numbers: Array) -> Array:
        """Return the magnitudes for images of this size; those in whole pixels are truncated to whole pixels again."""
        if not self.reference_size:
            return numbers
        check_images(images)
        height, width = images.shape[2:]
        extents = {"width": width, "height": height, "side": min(height, width), None: self.reference_size}
        growth = np.array([extents[op.pixels_of] / self.reference_size for op in self.ops])
        whole = np.array([op.pixels_of is not None and op.whole for op in self.ops])
        scaled: Array = numbers * growth[ops][..., None]
        return np.where(whole[ops][..., None], np.trunc(scaled), scaled)

    def _transform_bytes(self, images: Tensor, draw: Draw) -> Tensor:
        ops, numbers, places = self._read(draw, len(images))
        codes, numbers = np.array(self._codes)[ops], self._scale(images, ops, numbers)
        for i in range(ops.shape[1]):
            images = dispatch.transform(images, Actions(codes[:, i], numbers[:, i, 0], places[:, i], self._codes))
        return images

    def _transform(self, images: Tensor, op: Array, magnitudes: Tensor, places: Tensor) -> Tensor:
        """Call each operation once, on the inputs that drew it; gradients flow."""
        if len(self.ops) == 1:
            return _call(self.ops[0], images, magnitudes, places)
        order = torch.from_numpy(op.argsort(kind="stable"))
        counts = np.bincount(op, minlength=len(self.ops)).tolist()
        parts = [
            _call(each, images.index_select(0, rows.to(images.device)), magnitudes[rows], places[rows])
            for each, rows in zip(self.ops, order.split(counts), strict=True)
            if len(rows)
        ]
        return torch.cat(parts).index_select(0, order.argsort().to(images.device)) if parts else images.clone()

    def describe(self, draw: Draw) -> list[str]:
        """Return the transformations of each image in words: `Rotate -90`, `Equalize`, `Color 1.2, Equalize`.

        Example:
            >>> from invaug import sets
            >>> turns = sets.wide().only("Rotate")
            >>> turns.describe(turns.every())[-2:]
            ['Rotate +135', 'Rotate -135']
        """
        ops, magnitudes, _ = self._read(draw, len(draw))
        images = zip(ops.tolist(), magnitudes.tolist(), strict=True)
        return [", ".join(_describe(self.ops[i], m) for i, m in zip(*image, strict=True)) for image in images]

    @property
    def _n_magnitudes(self) -> int:
        return self.ops[0].n_magnitudes

    @cached_property
    def _magnitudes(self) -> Array:
        """The magnitudes by sign (plus, minus), operation and level."""
        levels = torch.arange(self.n_levels)
        plus = np.stack([op.magnitude(levels, self.n_levels).numpy() for op in self.ops])
        signs = np.array([[-1.0 if op.signed else 1.0] for op in self.ops])
        return np.stack([plus, plus * signs]) + 0.0  # no -0

    @cached_property
    def _ranges(self) -> Array:
        """Where the magnitudes of each operation start and stop, and whether they are whole and continuous."""
        rows = [(-op.stop if op.signed else op.start, op.stop, op.whole, op.continuous) for op in self.ops]
        return np.array(rows, dtype=np.float64).T

    @cached_property
    def _any_continuous(self) -> bool:
        return any(op.continuous for op in self.ops)


def _call(op: Op, images: Tensor, magnitudes: Tensor, places: Tensor) -> Tensor:
    given = magnitudes.squeeze(1) if op.n_magnitudes == 1 else magnitudes
    # byte operations read their numbers on the host
    numbers = given if isinstance(op.function, Rule) else floats_for(images, given)
    return check_output(op.name, images, op(images, numbers, places))


def _describe(op: Op, magnitudes: list[float]) -> str:
    form = ".0f" if op.whole and op.n_magnitudes == 1 else ".4g"
    sign = "+" if op.signed or op.n_magnitudes > 1 else ""
    return " ".join([op.name, *(format(m, sign + form) for m in magnitudes if op.has_magnitude)])
