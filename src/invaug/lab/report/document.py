"""Everything that is shown, as records: a document is sections of sentences, tables, figures and pictures.

A document is described once and rendered by `page` (HTML), `terminal` (rich) and `tables` (CSV, Markdown, LaTeX).
Texts are plain: escaping is the renderer's job.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from invaug.lab.report.drawing.figures import Figure
from invaug.lab.report.tables import Cell, Table

__all__ = ["Cell", "Document", "Figure", "Gallery", "Part", "Picture", "Section", "Table", "Tile"]


class Tile(NamedTuple):
    """A headline number: its name, its value, and a note on what it rests on."""

    name: str
    value: str
    note: str = ""


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
    """A title, a sentence that says the main thing, notes, headline numbers, sections."""

    title: str
    verdict: str = ""
    notes: tuple[str, ...] = ()
    tiles: tuple[Tile, ...] = ()
    sections: tuple[Section, ...] = ()
    switches: tuple[tuple[str, int], ...] = ()
    """Name and colour of each run that a reader of the page can hide."""

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
