"""A set of transformations: the G of the paper, and the uniform law U(G) on it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from invaug import fused
from invaug.draws import Draw
from invaug.images import check_images, on_bytes
from invaug.ops import Op, Rule

Array = np.ndarray[Any, Any]

UNIFORMS = 6  # numbers per image: operation, level, two magnitudes or a sign, two for the place


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

    def draw(
        self, n: int, *, generator: torch.Generator | None = None,
        law: Callable[[Array], tuple[Array, Array]] | None = None,
    ) -> Draw:  # fmt: skip
        """Return one random transformation for each of n images, from the generator (or torch's own).

        Args:
            law: Makes operations and levels of two uniform numbers an image; by default by weight, and uniform levels.
        """
        if n < 0:
            raise ValueError(f"n must not be negative, got {n}")
        device = None if generator is None else generator.device
        # every set takes the same numbers from the generator, so changing a set does not shift what follows
        uniforms = torch.rand(UNIFORMS, n, dtype=torch.float64, generator=generator, device=device).cpu().numpy()
        # numpy, because for a few numbers per image the calls are the cost, and torch's cost five times as much
        op, level = (law or self._uniform)(uniforms[:2])
        magnitude = self._signed(op, self._magnitudes[op, level], uniforms[2] < 0.5)
        if self._any_continuous:
            magnitude, level = self._continuous(op, level, magnitude, uniforms[2:4])
        then = self._rest.draw(n, generator=generator, law=law) if self.depth > 1 else None
        return Draw(*map(torch.from_numpy, (op, level, magnitude, uniforms[4:].T.copy())), then=then)

    def _uniform(self, uniforms: Array) -> tuple[Array, Array]:
        op = self._shares.searchsorted(uniforms[0], side="right")
        return op, (uniforms[1] * (self.n_levels - self.min_level)).astype(np.int64) + self.min_level

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

    def _signed(self, op: Array, magnitude: Array, minus: Array) -> Array:
        return np.where(self._is_signed[op] & minus, -magnitude, magnitude) + 0.0  # no -0

    def _continuous(self, op: Array, level: Array, magnitude: Array, uniforms: Array) -> tuple[Array, Array]:
        start = np.array([-o.stop if o.signed else o.start for o in self.ops])[op]
        stop = np.array([o.stop for o in self.ops])[op]
        continuous = np.array([o.continuous for o in self.ops])[op]
        whole = np.array([o.whole for o in self.ops])[op]
        ranged = start + uniforms * (stop - start)
        ranged = np.where(continuous, np.where(whole, np.trunc(ranged), ranged), magnitude)
        return ranged.T.copy() if self.ops[0].n_magnitudes == 2 else ranged[0], np.where(continuous, -1, level)

    def apply(self, images: Tensor, draw: Draw) -> Tensor:
        """Return new images, each under its own transformation, on the device and in the dtype they came in."""
        check_images(images)
        self._check_draw(draw, len(images))
        changed = self._first(images, draw)
        return changed if draw.then is None else self.apply(changed, draw.then)

    def _first(self, images: Tensor, draw: Draw) -> Tensor:
        magnitudes = self._in_pixels(draw, images)
        if self._codes is not None and images.dtype == torch.uint8:
            return self._transform_bytes(images, draw, magnitudes)
        if self._codes is not None:
            return on_bytes(images, lambda batch: self._transform_bytes(batch, draw, magnitudes))
        if len(self.ops) == 1:
            return self._call(0, images, magnitudes, draw.place)
        return self._one_op_at_a_time(images, draw, magnitudes)

    def _check_draw(self, draw: Draw, n_images: int) -> None:
        if not isinstance(draw, Draw):
            raise TypeError(f"draw must be an invaug.Draw, got {type(draw).__name__}")
        if len(draw) != n_images:
            raise ValueError(f"draw must have one row per image, got {len(draw)} rows for {n_images} images")
        if len(draw) == 0:
            return
        ops = draw.op.cpu().numpy()  # numpy, because for so few numbers the calls of torch are the cost
        low, high = int(ops.min()), int(ops.max())
        if not 0 <= low <= high < len(self.ops):
            wrong = low if low < 0 else high
            raise ValueError(f"draw.op must lie in 0 to {len(self.ops) - 1}, got {wrong}: was it drawn from this set?")
        if draw.magnitude.ndim != self.ops[0].n_magnitudes:
            shape, count = tuple(draw.magnitude.shape), self.ops[0].n_magnitudes
            raise ValueError(f"magnitude must have {count} per image for {self.ops[0].name}, got shape {shape}")
        total = draw.magnitude.detach().cpu().numpy().sum()
        if not math.isfinite(total + draw.place.cpu().numpy().sum()):
            name = "place" if math.isfinite(total) else "magnitude"
            raise ValueError(f"{name} must be finite, got NaN or inf")

    def _in_pixels(self, draw: Draw, images: Tensor) -> Tensor:
        """Return the magnitudes with those that count pixels scaled to the image, cut to whole pixels."""
        if self.reference_size is None:
            return draw.magnitude
        height, width = images.shape[2:]
        extents = {"width": width, "height": height, "side": min(height, width), None: self.reference_size}
        scales = torch.tensor([extents[op.pixels_of] / self.reference_size for op in self.ops], dtype=torch.float64)
        whole = torch.tensor([op.pixels_of is not None and op.whole for op in self.ops])[draw.op.cpu()]
        scaled = draw.magnitude.cpu().double() * scales[draw.op.cpu()].view(-1, *[1] * (draw.magnitude.ndim - 1))
        return torch.where(whole, scaled.trunc(), scaled) if scaled.ndim == 1 else scaled

    def _transform_bytes(self, images: Tensor, draw: Draw, magnitudes: Tensor) -> Tensor:
        if fused.usable(images):
            return fused.apply(images, self._coded(draw), magnitudes.detach().cpu().double(), draw.place.cpu().double())
        return self._by_kernel(images, draw, magnitudes)

    def _coded(self, draw: Draw) -> Tensor:
        """Return the fused kernel's code of each image's operation."""
        return torch.from_numpy(self._codes.numpy()[draw.op.cpu().numpy()])  # type: ignore[union-attr]

    def _by_kernel(self, images: Tensor, draw: Draw, magnitudes: Tensor) -> Tensor:
        """Sort the batch by kernel and call each kernel once, whatever the mix of operations."""
        op = draw.op.cpu()
        rows_of = [(op == i).nonzero().squeeze(1) for i in range(len(self.ops))]
        changed = torch.empty_like(images, memory_format=torch.contiguous_format)
        for kernel, members in self._kernels.items():
            present = [i for i in members if len(rows_of[i])]
            if not present:
                continue
            rows = torch.cat([rows_of[i] for i in present])
            batch = images[rows.to(images.device)]
            parts = batch.split([len(rows_of[i]) for i in present])
            parameters = [
                self.ops[i].function.parameters(part, magnitudes[rows_of[i]], draw.place[rows_of[i]])  # type: ignore[attr-defined]
                for i, part in zip(present, parts, strict=True)
            ]
            changed[rows.to(images.device)] = kernel(
                batch, *(torch.cat(column) for column in zip(*parameters, strict=True))
            )
        return changed

    def _one_op_at_a_time(self, images: Tensor, draw: Draw, magnitudes: Tensor) -> Tensor:
        """Call each operation once on the images that drew it; gradients flow."""
        order = draw.op.cpu().argsort(stable=True)
        counts = torch.bincount(draw.op.cpu(), minlength=len(self.ops)).tolist()
        parts = [
            self._call(i, images[rows.to(images.device)], magnitudes[rows], draw.place[rows])
            for i, rows in enumerate(order.split(counts))
            if len(rows)
        ]
        return torch.cat(parts)[order.argsort().to(images.device)] if parts else images.clone()

    def _call(self, index: int, images: Tensor, magnitudes: Tensor, places: Tensor) -> Tensor:
        op = self.ops[index]
        changed = op(images, magnitudes.to(images.device), places)
        if not isinstance(changed, Tensor):
            raise TypeError(f"{op.name} must return a torch.Tensor, got {type(changed).__name__}")
        if changed.shape != images.shape:
            raise ValueError(f"{op.name} must keep the shape {tuple(images.shape)}, got {tuple(changed.shape)}")
        if changed.dtype != images.dtype:
            raise TypeError(f"{op.name} must keep the dtype {images.dtype}, got {changed.dtype}")
        return changed

    def describe(self, draw: Draw) -> list[str]:
        """Return each transformation in words: `Rotate -90`, `Equalize`, `Color 1.2, Equalize`."""
        self._check_draw(draw, len(draw))
        ops = (self.ops[i] for i in draw.op.tolist())
        words = [
            " ".join([op.name, *_in_words(op, magnitude)])
            for op, magnitude in zip(ops, draw.magnitude.tolist(), strict=True)
        ]
        return words if draw.then is None else [", ".join(w) for w in zip(words, self.describe(draw.then), strict=True)]

    @cached_property
    def _rest(self) -> TransformSet:
        """What follows the first operation."""
        return replace(self, depth=self.depth - 1)

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
    def _any_continuous(self) -> bool:
        return any(op.continuous for op in self.ops)

    @cached_property
    def _codes(self) -> Tensor | None:
        """The fused kernel's code of each operation; None if some operation is not a byte operation."""
        rules = [op.function for op in self.ops if isinstance(op.function, Rule)]
        return torch.tensor([rule.code for rule in rules]) if len(rules) == len(self.ops) else None

    @cached_property
    def _kernels(self) -> dict[Callable[..., Any], list[int]]:
        members: dict[Callable[..., Any], list[int]] = {}
        for i, op in enumerate(self.ops):
            if isinstance(op.function, Rule):
                members.setdefault(op.function.kernel, []).append(i)
        return members


def _in_words(op: Op, magnitude: float | list[float]) -> list[str]:
    if isinstance(magnitude, list):
        return [f"{m:+.4g}" for m in magnitude]
    if not op.has_magnitude:
        return []
    form = ".0f" if op.whole else ".4g"
    return [format(magnitude, "+" + form if op.signed else form)]
