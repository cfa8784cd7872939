"""A document as one HTML page with everything in it, every text escaped."""

import base64
import hashlib
from html import escape
from itertools import groupby
from string import Template

import invaug
from invaug.lab.report.document import Document, Figure, Gallery, Lines, Part, Picture, Section, Table
from invaug.lab.report.drawing import svg
from invaug.lab.report.drawing.axes import N_COLOURS
from invaug.lab.report.tables import to_html


def html(document: Document, live: bool = False) -> str:
    """Return the page; a live one asks its server for news."""
    script, sheet = svg.text_of("page.js"), _sheet()
    return Template(svg.text_of("page.html").rstrip()).substitute(
        watching=' data-watch="1"' if live else "",
        policy=policy(live),
        title=escape(document.title),
        sheet=sheet,
        verdict=escape(document.verdict),
        answers=_answers(document),
        notes="".join(f'<p class="note">{escape(note)}</p>' for note in document.notes),
        tiles=_tiles(document),
        main="".join([_switches(document), *map(_section, document.sections)]),
        version=escape(invaug.__version__),
        script=script,
    )


def policy(live: bool = False) -> str:
    """Return what the page may load: its own sheet and script, pictures inside it; if live, its server's news."""
    rules = [
        "default-src 'none'",
        f"style-src 'sha256-{_hash(_sheet())}'",
        f"script-src 'sha256-{_hash(svg.text_of('page.js'))}'",
        "img-src data:",
        *(["connect-src 'self'"] if live else []),
        "base-uri 'none'",
        "form-action 'none'",
    ]
    return "; ".join(rules)


def _sheet() -> str:
    """Return the whole style sheet: light, dark where the reader prefers it, light again on paper."""
    dark = f"@media screen and (prefers-color-scheme: dark) {{ {svg.text_of('dark.css')} }}"
    return "\n".join([svg.text_of("light.css"), dark, svg.text_of("figure.css"), svg.text_of("page.css")])


def _hash(text: str) -> str:
    """Return how the page's policy, which allows its own sheet and script alone, names them."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _answers(document: Document) -> str:
    answers = "".join(
        f"<dt>{escape(answer.name)}</dt><dd>{escape(answer.text)}"
        f"{f'<code>{escape(answer.command)}</code>' if answer.command else ''}"
        f"{_gallery(Gallery(answer.strips)) if answer.strips else ''}</dd>"
        for answer in document.answers
    )
    return f'<dl class="answers">{answers}</dl>' if answers else ""


def _tiles(document: Document) -> str:
    numbers = "".join(
        f"<div><dt>{escape(tile.name)}</dt><dd>{escape(tile.value)}</dd><dd>{escape(tile.note)}</dd></div>"
        for tile in document.tiles
    )
    return f'<dl class="tiles">{numbers}</dl>' if numbers else ""


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
    parts = []
    for are_figures, group in groupby(section.parts, lambda part: isinstance(part, Figure)):
        content = "".join(map(_part, group))
        parts.append(f'<div class="cards">{content}</div>' if are_figures else content)
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
