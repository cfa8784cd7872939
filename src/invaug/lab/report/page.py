"""A document as one HTML page with everything in it, every text escaped."""

from html import escape
from itertools import groupby

import invaug
from invaug.lab.report.document import Document, Figure, Gallery, Part, Picture, Section, Table
from invaug.lab.report.drawing import style, svg
from invaug.lab.report.drawing.axes import N_COLOURS
from invaug.lab.report.drawing.figures import Lines
from invaug.lab.report.tables import to_html

ABOUT = (
    "Made from the record alone. γ is the weight of a constraint: it rises while the loss on transformed images is "
    "above its level ε, and falls while it is below."
)


def html(document: Document, live: bool = False) -> str:
    """Return the page; a live one asks its server for news."""
    watching = ' data-watch="1"' if live else ""
    main = "".join([_switches(document), *map(_section, document.sections)])
    return (
        f'<!doctype html><html lang="en"{watching}><head>{_head(document.title, live)}</head><body>'
        f'<a class="skip" href="#figures">skip to the figures</a>{_header(document)}<main id="figures">{main}</main>'
        f"<footer>invaug {escape(invaug.__version__)}. {ABOUT}</footer>"
        f"<script>{style.text_of('page.js')}</script></body></html>"
    )


def _head(title: str, live: bool) -> str:
    sheet = style.page_style()
    policy = style.policy(sheet, style.text_of("page.js"), live)
    return (
        f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="referrer" content="no-referrer"><link rel="icon" href="data:,">'
        f"<title>{escape(title)}</title><style>{sheet}</style>"
    )


def _header(document: Document) -> str:
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in document.notes)
    numbers = "".join(
        f"<div><dt>{escape(tile.name)}</dt><dd>{escape(tile.value)}</dd><dd>{escape(tile.note)}</dd></div>"
        for tile in document.tiles
    )
    tiles = f'<dl class="tiles">{numbers}</dl>' if numbers else ""
    verdict = f'<p class="verdict">{escape(document.verdict)}</p>'
    return f"<header><h1>{escape(document.title)}</h1>{verdict}{notes}{tiles}</header>"


def _switches(document: Document) -> str:
    """Return one box per run, which shows and hides its lines."""
    boxes = "".join(
        f'<label><input type="checkbox" checked data-toggle="{i}"><svg viewBox="0 0 16 10" aria-hidden="true">'
        f'<rect class="f{colour % N_COLOURS}" width="16" height="10" rx="2"/></svg>{escape(name)}</label>'
        for i, (name, colour) in enumerate(document.switches)
    )
    return f"<fieldset><legend>runs shown</legend>{boxes}</fieldset>" if boxes else ""


def _section(section: Section) -> str:
    """Return a section; figures that follow each other share a grid of cards."""
    runs = groupby(section.parts, lambda part: isinstance(part, Figure))
    parts = [
        f'<div class="cards">{html}</div>' if cards else html
        for cards, html in ((cards, "".join(map(_part, parts))) for cards, parts in runs)
    ]
    return f"<section><h2>{escape(section.title)}</h2>{''.join(parts)}</section>"


def _part(part: Part) -> str:
    if isinstance(part, str):
        return f'<p class="reading">{escape(part)}</p>'
    if isinstance(part, Table):
        return f'<div class="scroll" tabindex="0">{to_html(part)}</div>'
    return _gallery(part) if isinstance(part, Gallery) else _card(part)


def _gallery(gallery: Gallery) -> str:
    strips = "".join(f'<div class="strip">{"".join(map(_picture, strip))}</div>' for strip in gallery.strips)
    return f'<div class="gallery">{strips}</div>'


def _picture(picture: Picture) -> str:
    source, caption = escape(picture.source), escape(picture.caption)
    kind = "picture kept" if picture.is_kept else "picture"
    return f'<figure class="{kind}"><img src="{source}" alt="{caption}"><figcaption>{caption}</figcaption></figure>'


def _card(figure: Figure) -> str:
    # columns of a run say which, so that the script can leave them out of what it reads aloud
    drawn = figure.drawing.series if isinstance(figure.drawing, Lines) else ()
    numbers = to_html(figure.table, [None, *(series.run for series in drawn)])
    return (
        f'<figure class="card" id="{figure.key}"><h3>{escape(figure.title)}</h3>{svg.draw(figure)}'
        f'<figcaption class="reading">{escape(figure.reading)}</figcaption><p class="readout" aria-live="polite"></p>'
        f'<details><summary>the numbers</summary><div class="scroll" tabindex="0">{numbers}</div></details></figure>'
    )
