"""The page of a gallery: random draws, what a run kept, and every operation at its levels."""

from collections.abc import Iterator, Sequence
from itertools import chain
from math import isqrt

from torch import Tensor

from invaug import Op, TransformSet
from invaug.lab.config.schema import Config
from invaug.lab.evaluate.pictures import png
from invaug.lab.gallery.kept import kept_strips, reading
from invaug.lab.gallery.levels import Strip, draw_strips, level_strips
from invaug.lab.report.document import Document, Figure, Gallery, Picture, Section
from invaug.lab.report.groups import group_runs
from invaug.lab.report.runs import Run
from invaug.lab.report.sections import kept
from invaug.lab.train.sets import set_name, transform_sets

MOST_BYTES = 4_400_000  # of all pictures, so that the page stays under 5 MB
LARGEST = 112  # pixels of a picture's side, about as wide as it is shown
Sets = Sequence[tuple[str, TransformSet]]
Parts = tuple[str | Figure | list[Strip], ...]


def document_of(config: Config, images: Tensor, data: str, run: Run | None = None) -> Document:
    """Return the page of the transformations of a resolved config on images, uint8, of one or three channels."""
    named = transform_sets(config)
    n_ops, depth = sum(len(transforms.ops) for _, transforms in named), int(config.method.depth)
    found = [*_draws(named, images, depth), *(_kept(named, images, run) if run else ()), *_levels(named, images)]
    side = _side([part for _, parts in found for part in parts if isinstance(part, list)], images.shape[1])
    sections = (
        Section(title, tuple(_gallery(part, side) if isinstance(part, list) else part for part in parts))
        for title, parts in found
    )
    title = f"The set {set_name(config)} on images of {data}{f', and what {run.name} kept of it' if run else ''}"
    count = f"{n_ops} operations" if n_ops > 1 else "One operation"
    verdict = f"{count}{f'; training applies {depth} in sequence' if depth > 1 else ''}."
    return Document(title, verdict, notes=_notes(run), sections=tuple(sections))


def _notes(run: Run | None) -> tuple[str, ...]:
    if run is None or (run.epochs and run.epochs[-1].kept):
        return run.notes if run else ()
    return (*run.notes, "The record of this run has no kept draws: shown are the transformations alone.")


def _draws(named: Sets, images: Tensor, depth: int) -> Iterator[tuple[str, Parts]]:
    for name, transforms in named:
        words = "Drawn uniformly, as training proposes them."
        yield _title("Random draws", name, named), (words, draw_strips(transforms, images, depth))


def _kept(named: Sets, images: Tensor, run: Run) -> Iterator[tuple[str, Parts]]:
    """Yield what the record says of the first and the last epoch, in pictures and in figures."""
    ends = [epoch.kept for epoch in (*run.epochs[:1], *run.epochs[-1:])]
    for k, (name, transforms) in enumerate(named):
        counts = [kept[k] for kept in ends if k < len(kept)]
        if len(counts) == 2:
            strips = kept_strips(transforms, images[0], *counts)
            yield _title("What the chain kept", name, named), (reading(*counts), strips)
    if figures := kept.figures(group_runs([run])):
        yield "How often, and at which levels", tuple(figures)


def _levels(named: Sets, images: Tensor) -> Iterator[tuple[str, Parts]]:
    for name, transforms in named:
        strips = [level_strips(transforms, i, images) for i in range(len(transforms.ops))]
        pairs = list(zip(transforms.ops, strips, strict=True))
        for op, found in pairs:
            if op.has_magnitude:
                yield _title(op.name, name, named), (_range(op, transforms.n_levels), found)
        if plain := [found for op, found in pairs if not op.has_magnitude]:
            together = [list(chain(*same_image)) for same_image in zip(*plain, strict=True)]
            yield _title("Operations without levels", name, named), (together,)


def _title(words: str, name: str, named: Sets) -> str:
    return f"{words}, {name}" if len(named) > 1 else words


def _range(op: Op, n_levels: int) -> str:
    ends = f"up to ±{op.stop:g}" if op.signed else f"from {op.start:g} to {op.stop:g}"
    return f"Any magnitude {ends}." if op.continuous else f"{n_levels} levels, {ends}."


def _side(strips: Sequence[Sequence[Strip]], n_channels: int) -> int:
    """Return how large pictures can be: a PNG has hardly more bytes than its pixels, and four thirds of it as text."""
    n_pictures = sum(len(strip) for some in strips for strip in some)
    return min(isqrt(MOST_BYTES * 3 // (4 * n_channels * n_pictures)), LARGEST)


def _gallery(strips: Sequence[Strip], side: int) -> Gallery:
    return Gallery(tuple(tuple(Picture(png(s.image, side), s.caption, s.is_kept) for s in strip) for strip in strips))
