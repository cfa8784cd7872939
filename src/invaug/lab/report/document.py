"""Everything that is shown, as records: a document is sections of sentences, tables, figures and pictures.

A document is described once and rendered by `page` (HTML), `terminal` (rich) and `tables` (CSV, Markdown). Texts are
plain: escaping is the renderer's job. A figure holds what is drawn, a sentence that reads it and the table behind it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

Cell = str | int | float | None
Points = tuple[tuple[float, float | None], ...]


@dataclass(frozen=True)
class Table:
    """Rows of text and numbers under named columns."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    key: str = ""
    """Names its files, if `--tables` is to write it."""
    percent: tuple[str, ...] = ()
    """Columns of shares, which people read in percent; files for machines keep the plain number."""


@dataclass(frozen=True)
class Series:
    """A line: its colour says which group, its dash which kind; `run` lets the reader switch it off."""

    label: str
    points: Points
    colour: int = 0
    dash: int = 0
    group: str = ""
    kind: str = ""
    run: int | None = None
    intervals: tuple[tuple[float, float] | None, ...] = ()
    """Of the points, drawn as whiskers."""


class Rule(NamedTuple):
    """A horizontal line that means something: epsilon, zero, the most there can be."""

    at: float
    label: str


@dataclass(frozen=True)
class Lines:
    """Numbers over epochs."""

    y_label: str
    series: Sequence[Series]
    rules: tuple[Rule, ...] = ()
    percent: bool = False
    x_label: str = "epoch"


@dataclass(frozen=True)
class Bars:
    """Horizontal bars, one or two per name; the legend names the columns, whiskers are intervals."""

    x_label: str
    names: tuple[str, ...]
    columns: tuple[tuple[str, tuple[float | None, ...]], ...]
    rule: Rule | None = None
    percent: bool = False
    whiskers: tuple[tuple[float, float] | None, ...] = ()
    colours: tuple[int, ...] = ()


@dataclass(frozen=True)
class Histograms:
    """One small histogram per name; the dashed line is what uniform draws would give."""

    panels: tuple[tuple[str, tuple[int, ...]], ...]


class Point(NamedTuple):
    """A dot: its place, its label, the value that colours it, the interval of its height."""

    x: float
    y: float
    label: str
    value: float | None = None
    interval: tuple[float, float] | None = None
    colour: int = 0


@dataclass(frozen=True)
class Scatter:
    """Dots over shares of 0 to 100 %, joined from left to right if asked."""

    x_label: str
    y_label: str
    points: tuple[Point, ...]
    value_label: str = ""
    joined: tuple[tuple[float, float], ...] = ()
    legend: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Heat:
    """A map of shares between 0 and 1: one row per name, one cell per column; None stays empty."""

    x_label: str
    names: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[tuple[float | None, ...], ...]
    value_label: str


Drawing = Lines | Bars | Histograms | Scatter | Heat


@dataclass(frozen=True)
class Figure:
    """A figure of the page: a key that names its files, a title, what to draw, how to read it, its numbers."""

    key: str
    title: str
    drawing: Drawing
    reading: str
    table: Table


class Tile(NamedTuple):
    """A headline number: its name, its value, and a note on what it rests on."""

    name: str
    value: str
    note: str = ""


class Answer(NamedTuple):
    """What a reader asks first: the question in a word or two, the answer, a command to run, pictures."""

    name: str
    text: str
    command: str = ""
    strips: tuple[tuple["Picture", ...], ...] = ()


class Picture(NamedTuple):
    """An image with its caption; `source` is a PNG as a data URL."""

    source: str
    caption: str
    is_kept: bool = False


@dataclass(frozen=True)
class Gallery:
    """Strips of pictures; only a page can show them."""

    strips: tuple[tuple[Picture, ...], ...]


Part = str | Table | Figure | Gallery
"""What a section is made of; a text is a paragraph."""


@dataclass(frozen=True)
class Section:
    """A heading and the parts below it."""

    title: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Document:
    """A title, what to know first in a few sentences, notes, headline numbers, sections."""

    title: str
    verdict: str = ""
    notes: tuple[str, ...] = ()
    tiles: tuple[Tile, ...] = ()
    sections: tuple[Section, ...] = ()
    switches: tuple[tuple[str, int], ...] = ()
    """Name and colour of each run that a reader of the page can hide."""
    answers: tuple[Answer, ...] = ()
    """What comes right after the verdict."""

    @property
    def figures(self) -> tuple[Figure, ...]:
        """All figures, in the order of the document."""
        return tuple(part for part in self._parts() if isinstance(part, Figure))

    @property
    def tables(self) -> tuple[Table, ...]:
        """All tables, in the order of the document, without those behind the figures."""
        return tuple(part for part in self._parts() if isinstance(part, Table))

    def _parts(self) -> Iterator[Part]:
        return (part for section in self.sections for part in section.parts)
