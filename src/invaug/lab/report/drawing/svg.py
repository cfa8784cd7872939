"""Figures as SVG, in classes that a style sheet colours, and as PNG.

Written here because the page may load nothing and stay small: plotly.js inline is over 4 MB of the 5 MB a report of
twenty runs may have, and a page whose policy allows only the scripts it was made with needs one that can be read.
"""

import re
from collections.abc import Callable
from functools import cache
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from invaug.lab.report.document import Bars, Figure, Heat, Histograms, Lines, Scatter
from invaug.lab.report.drawing.axes import WIDTH, Sketch
from invaug.lab.report.drawing.bars import draw_bars, draw_heat, draw_histograms
from invaug.lab.report.drawing.plots import draw_dots, draw_lines

DRAW: dict[type, Callable[[Any], Sketch]] = {
    Lines: draw_lines,
    Bars: draw_bars,
    Histograms: draw_histograms,
    Scatter: draw_dots,
    Heat: draw_heat,
}
ZOOM = 3  # pixels of a PNG per unit of the drawing: 1440 across
NO_PNG = "PNG left out: resvg-py is not installed (pip install 'invaug[lab]'); every figure is there as SVG"


@cache
def text_of(name: str) -> str:
    """Return one of the files beside this one."""
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


def draw(figure: Figure, style: str = "") -> str:
    """Return a figure as one SVG element; a style sheet inside makes it a picture of its own."""
    sketch = DRAW[type(figure.drawing)](figure.drawing)
    sheet = f"<style>{style}</style>" if style else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="figure" viewBox="0 0 {WIDTH} {sketch.height:g}" role="img" '
        f'aria-label="{escape(figure.title)}. {escape(figure.reading)}"{sketch.attributes}>{sheet}{sketch.body}</svg>'
    )


def picture(figure: Figure) -> str:
    """Return a figure as a file of its own; its style sheet has no variables, which few programs know."""
    colours = dict(re.findall(r"--(\w+): ([^;]+);", text_of("light.css")))
    return draw(figure, re.sub(r"var\(--(\w+)\)", lambda match: colours[match[1]], text_of("figure.css")))


def can_draw_png() -> bool:
    """Whether the package that rasterises is installed."""
    return find_spec("resvg_py") is not None


def to_png(picture: str) -> bytes:
    """Return the SVG of a picture as PNG for slides, on a white ground, with the fonts of this machine."""
    import resvg_py

    return bytes(resvg_py.svg_to_bytes(svg_string=picture, background="#ffffff", zoom=ZOOM))
