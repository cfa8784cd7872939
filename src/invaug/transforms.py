"""A set of transformations: the G of the paper, and the uniform law U(G) on it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property
from itertools import product

import numpy as np
import torch
from torch import Tensor

from invaug.draws import Draw
from invaug.images import check_images, floats_for, on_bytes, on_host
from invaug.ops import Op, Rule, transform_bytes
from invaug.rules import Actions, Array

UNIFORMS = 6  # numbers per image and layer: operation, level, two magnitudes or a sign, two for the place


@dataclass(frozen=True)
class TransformSet:
    """A table of operations. `draw` makes the randomness, `apply` uses it and has none of its own."""

    ops: tuple[Op, ...]
    n_levels: int = 31
    min_level: int = 0
    """The lowest level drawn: 1 leaves out level 0, as the authors' proposals do."""
    weights: tuple[float, ...] | None = None
    """How often each operation is drawn, relative to the others; equally often by default."""
    reference_size: int | None = None
    """If given, magnitudes in pixels are for images this large and grow with the image."""
    depth: int = 1
    """How many operations, drawn independently, follow one another on each image."""
    _codes: tuple[int, ...] = field(init=False, repr=False, compare=False)
    """The code of each operation; empty if some operation is not a byte operation."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "ops", tuple(self.ops))
        if not self.ops:
            raise ValueError("ops must hold at least one operation, got none")
        if not all(isinstance(op, Op) for op in self.ops):
            raise TypeError(f"ops must be invaug.Op, got {[type(op).__name__ for op in self.ops]}")
        if len(set(self.names)) < len(self.ops):
            raise ValueError(f"ops must have different names, got {', '.join(self.names)}")
        if len({op.n_magnitudes for op in self.ops}) > 1:
            raise ValueError(f"ops of one set must take equally many magnitudes, got {', '.join(self.names)}")
        if self.n_levels < 2:
            raise ValueError(f"n_levels must be at least 2, got {self.n_levels}")
        if not 0 <= self.min_level < self.n_levels:
            raise ValueError(f"min_level must lie in 0 to {self.n_levels - 1}, got {self.min_level}")
        if self.reference_size is not None and self.reference_size < 1:
            raise ValueError(f"reference_size must be a positive number of pixels, got {self.reference_size}")
        if self.depth < 1:
            raise ValueError(f"depth must be at least 1, got {self.depth}")
        self._check_weights()
        codes = tuple(op.function.code for op in self.ops if isinstance(op.function, Rule))
        object.__setattr__(self, "_codes", codes if len(codes) == len(self.ops) else ())

    def _check_weights(self) -> None:
        if self.weights is None:
            return
        object.__setattr__(self, "weights", tuple(float(weight) for weight in self.weights))
        if len(self.weights) != len(self.ops):
            raise ValueError(f"weights must have one number per operation ({len(self.ops)}), got {len(self.weights)}")
        if not all(0 <= weight < float("inf") for weight in self.weights) or sum(self.weights) == 0:
            raise ValueError(f"weights must be finite, not negative and not all zero, got {self.weights}")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the operations, in order."""
        return tuple(op.name for op in self.ops)

    @property
    def geometric(self) -> bool:
        """Whether some operation moves pixels, so that masks, boxes and points would have to move along."""
        return any(op.geometric for op in self.ops)

    def only(self, *names: str) -> TransformSet:
        """Return the set with these operations alone."""
        wanted = self._indices(names)
        return self._keep(i for i in range(len(self.ops)) if i in wanted)

    def without(self, *names: str) -> TransformSet:
        """Return the set without these operations."""
        unwanted = self._indices(names)
        return self._keep(i for i in range(len(self.ops)) if i not in unwanted)

    def weighted(self, weights: Mapping[str, float]) -> TransformSet:
        """Return the set with these weights by name; operations not named weigh 1."""
        self._indices(tuple(weights))
        return replace(self, weights=tuple(weights.get(name, 1.0) for name in self.names))

    def _indices(self, names: tuple[str, ...]) -> set[int]:
        for name in names:
            if name not in self.names:
                near = get_close_matches(name, self.names, 1, 0.5)
                hint = f"did you mean {near[0]}?" if near else f"the set has {', '.join(self.names)}"
                raise ValueError(f"unknown operation {name}, {hint}")
        return {self.names.index(name) for name in names}

    def _keep(self, indices: Iterable[int]) -> TransformSet:
        kept = list(indices)
        weights = None if self.weights is None else tuple(self.weights[i] for i in kept)
        return replace(self, ops=tuple(self.ops[i] for i in kept), weights=weights)

    def draw(self, n: int, *, generator: torch.Generator | None = None) -> Draw:
        """Return `depth` random transformations for each of n images, from the generator (or torch's own)."""
        if n < 0:
            raise ValueError(f"n must not be negative, got {n}")
        device = None if generator is None else generator.device
        # every set takes the same numbers from the generator, so changing a set does not shift what follows
        shape = (self.depth, UNIFORMS, n)
        numbers = torch.rand(shape, dtype=torch.float64, generator=generator, device=device).cpu().numpy()
        # numpy, because for a few numbers per image the calls are the cost, and torch's cost five times as much
        op = self._shares.searchsorted(numbers[:, 0], side="right")
        level = (numbers[:, 1] * (self.n_levels - self.min_level)).astype(np.int64) + self.min_level
        magnitude = self._signed(op, self._magnitudes[op, level], numbers[:, 2] < 0.5)[..., None]
        if self._any_continuous:
            magnitude, level = self._continuous(op, level, magnitude, self._uniforms(numbers))
        columns = (op.T, level.T, magnitude.swapaxes(0, 1), numbers[:, 4:].transpose(2, 0, 1))
        return Draw(*(torch.from_numpy(np.ascontiguousarray(column)) for column in columns))

    def _uniforms(self, numbers: Array) -> Array:
        """Return one number per magnitude, shape (depth, batch, magnitudes); beyond two they follow from the others."""
        further = (self.depth, numbers.shape[2], max(self._n_magnitudes - 2, 0))
        more = np.random.default_rng([*numbers[:, :, :1].tobytes()]).random(further)
        return np.concatenate([numbers[:, 2:4].swapaxes(1, 2), more], axis=2)[..., : self._n_magnitudes]

    def _continuous(self, op: Array, level: Array, magnitude: Array, uniforms: Array) -> tuple[Array, Array]:
        start, stop, continuous, whole = (column[op][..., None] for column in self._ranges)
        ranged = start + uniforms * (stop - start)
        ranged = np.where(whole, np.trunc(ranged), ranged)
        return np.where(continuous, ranged, magnitude), np.where(continuous[..., 0], -1, level)

    def _signed(self, op: Array, magnitude: Array, minus: Array) -> Array:
        return np.where(self._is_signed[op] & minus, -magnitude, magnitude) + 0.0  # no -0

    def every(self) -> Draw:
        """Return each distinct transformation of a finite set once: every operation, level and sign that differ."""
        if self._any_continuous:
            raise ValueError(f"a continuous set cannot be listed: {', '.join(self.names)}")
        if self.depth > 1:
            raise ValueError(f"a set of depth {self.depth} is not listed: list dataclasses.replace(set, depth=1)")
        levels = range(self.min_level, self.n_levels)
        op, level, minus = np.array(list(product(range(len(self.ops)), levels, (0, 1)))).T
        magnitude = self._signed(op, self._magnitudes[op, level], minus == 1)
        _, first = np.unique(np.stack([op, magnitude]), axis=1, return_index=True)
        first.sort()
        return Draw(*(torch.from_numpy(column[first]) for column in (op, level, magnitude)))

    def apply(self, images: Tensor, draw: Draw) -> Tensor:
        """Return new images, each under its own transformations, on the device and in the dtype they came in.

        Images are uint8, or floats in [0, 1], of shape (batch, channels, height, width). A set of your own operations
        takes whatever they take: tensors of any shape with a batch dimension, of any dtype.
        """
        if self._codes:
            return on_bytes(images, lambda batch: self._transform_bytes(batch, *self._on_host(draw, len(batch))))
        self._check_inputs(images)
        ops, *_ = self._on_host(draw, len(images))
        for i in range(draw.depth):
            images = self._transform(images, ops[:, i], draw.magnitude[:, i], draw.place[:, i])
        return images

    def _check_inputs(self, images: Tensor) -> None:
        if self.reference_size:
            check_images(images)
        if not isinstance(images, Tensor):
            raise TypeError(f"images must be a torch.Tensor, got {type(images).__name__}")
        if images.ndim == 0:
            raise ValueError("images must have a batch dimension, got a single number: unsqueeze(0) adds one")

    def _on_host(self, draw: Draw, n_images: int) -> tuple[Array, Array, Array]:
        """Return operations, magnitudes and places in numpy, once it is clear that they fit this set."""
        if not isinstance(draw, Draw):
            raise TypeError(f"draw must be an invaug.Draw, got {type(draw).__name__}")
        ops, magnitudes, places = on_host(draw.op), on_host(draw.magnitude), on_host(draw.place)
        if torch.compiler.is_compiling():
            return ops, magnitudes, places
        if len(ops) != n_images:
            raise ValueError(f"draw must have one row per image, got {len(ops)} rows for {n_images} images")
        if magnitudes.shape[2] != self._n_magnitudes:
            found = f"got {magnitudes.shape[2]}: was it drawn from this set?"
            raise ValueError(f"magnitude must have {self._n_magnitudes} per operation for {self.ops[0].name}, {found}")
        if ops.size and not 0 <= ops.min() <= ops.max() < len(self.ops):
            wrong = ops.min() if ops.min() < 0 else ops.max()
            raise ValueError(f"draw.op must lie in 0 to {len(self.ops) - 1}, got {wrong}: was it drawn from this set?")
        for name, numbers in (("magnitude", magnitudes), ("place", places)):
            if not math.isfinite(numbers.sum()):
                raise ValueError(f"{name} must be finite, got NaN or inf")
        return ops, magnitudes, places

    def _transform_bytes(self, images: Tensor, ops: Array, magnitudes: Array, places: Array) -> Tensor:
        codes, numbers = np.array(self._codes)[ops], magnitudes[..., 0]
        if self.reference_size:
            scale, whole = self._pixel_scales(images, self.reference_size)
            numbers = np.where(whole[ops], np.trunc(numbers * scale[ops]), numbers * scale[ops])
        for i in range(ops.shape[1]):
            images = transform_bytes(images, Actions(codes[:, i], numbers[:, i], places[:, i], self._codes))
        return images

    def _transform(self, images: Tensor, op: Array, magnitudes: Tensor, places: Tensor) -> Tensor:
        """Call each operation once on the inputs that drew it; gradients flow."""
        if self.reference_size:
            scales = self._pixel_scales(images, self.reference_size)
            scale, whole = (torch.from_numpy(each[op]).unsqueeze(1) for each in scales)
            magnitudes = magnitudes.cpu() * scale
            magnitudes = torch.where(whole, magnitudes.trunc(), magnitudes)
        if len(self.ops) == 1:
            return self._call(0, images, magnitudes, places)
        order = torch.from_numpy(op.argsort(kind="stable"))
        counts = np.bincount(op, minlength=len(self.ops)).tolist()
        parts = [
            self._call(i, images.index_select(0, rows.to(images.device)), magnitudes[rows], places[rows])
            for i, rows in enumerate(order.split(counts))
            if len(rows)
        ]
        return torch.cat(parts).index_select(0, order.argsort().to(images.device)) if parts else images.clone()

    def _pixel_scales(self, images: Tensor, reference: int) -> tuple[Array, Array]:
        """Return by what each operation's magnitude grows with the image, and whether it is cut to whole pixels."""
        height, width = images.shape[2:]
        extents = {"width": width, "height": height, "side": min(height, width), None: reference}
        scales = [extents[op.pixels_of] / reference for op in self.ops]
        return np.array(scales), np.array([op.pixels_of is not None and op.whole for op in self.ops])

    def _call(self, index: int, images: Tensor, magnitudes: Tensor, places: Tensor) -> Tensor:
        op = self.ops[index]
        given = magnitudes.squeeze(1) if op.n_magnitudes == 1 else magnitudes
        # byte operations want their numbers on the host
        changed = op(images, given if isinstance(op.function, Rule) else floats_for(images, given), places)
        if not isinstance(changed, Tensor):
            raise TypeError(f"{op.name} must return a torch.Tensor, got {type(changed).__name__}")
        if changed.shape != images.shape:
            raise ValueError(f"{op.name} must keep the shape {tuple(images.shape)}, got {tuple(changed.shape)}")
        if changed.dtype != images.dtype:
            raise TypeError(f"{op.name} must keep the dtype {images.dtype}, got {changed.dtype}")
        return changed

    def describe(self, draw: Draw) -> list[str]:
        """Return each image's transformations in words: `Rotate -90`, `Equalize`, `Color 1.2, Equalize`."""
        ops, magnitudes, _ = self._on_host(draw, len(draw))
        rows = zip(ops.tolist(), magnitudes.tolist(), strict=True)
        return [
            ", ".join(_in_words(self.ops[i], magnitudes) for i, magnitudes in zip(*row, strict=True)) for row in rows
        ]

    @property
    def _n_magnitudes(self) -> int:
        return self.ops[0].n_magnitudes

    @cached_property
    def _shares(self) -> Array:
        weights = np.array(self.weights or [1.0] * len(self.ops))
        shares: Array = np.cumsum(weights)[:-1] / weights.sum()
        return shares

    @cached_property
    def _magnitudes(self) -> Array:
        levels = torch.arange(self.n_levels)
        return np.stack([op.magnitude(levels, self.n_levels).numpy() for op in self.ops])

    @cached_property
    def _is_signed(self) -> Array:
        return np.array([op.signed for op in self.ops])

    @cached_property
    def _ranges(self) -> tuple[Array, ...]:
        """Where the magnitudes of each operation start and stop, and whether they are continuous and whole."""
        rows = [(-op.stop if op.signed else op.start, op.stop, op.continuous, op.whole) for op in self.ops]
        start, stop, continuous, whole = zip(*rows, strict=True)
        return np.array(start), np.array(stop), np.array(continuous), np.array(whole)

    @cached_property
    def _any_continuous(self) -> bool:
        return any(op.continuous for op in self.ops)


def _in_words(op: Op, magnitudes: list[float]) -> str:
    form = ".0f" if op.whole and op.n_magnitudes == 1 else ".4g"
    sign = "+" if op.signed or op.n_magnitudes > 1 else ""
    return " ".join([op.name, *(format(m, sign + form) for m in magnitudes if op.has_magnitude)])
