"""Figures as SVG, in classes that a style sheet colours.

Written here because the page may load nothing and stay small: plotly.js inline is over 4 MB of the 5 MB a report of
twenty runs may have, and a page whose policy allows only the scripts it was made with needs one that can be read.
"""

from collections.abc import Callable
from html import escape
from typing import Any

from invaug.lab.report.drawing.axes import WIDTH, Sketch
from invaug.lab.report.drawing.bars import draw_bars, draw_histograms
from invaug.lab.report.drawing.figures import Bars, Figure, Heat, Histograms, Lines, Scatter
from invaug.lab.report.drawing.lines import draw_lines
from invaug.lab.report.drawing.shades import draw_dots, draw_heat

DRAW: dict[type, Callable[[Any], Sketch]] = {
    Lines: draw_lines,
    Bars: draw_bars,
    Histograms: draw_histograms,
    Scatter: draw_dots,
    Heat: draw_heat,
}


def draw(figure: Figure, style: str = "") -> str:
    """Return a figure as one SVG element; a style sheet inside makes it a picture of its own."""
    sketch = DRAW[type(figure.drawing)](figure.drawing)
    sheet = f"<style>{style}</style>" if style else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="figure" viewBox="0 0 {WIDTH} {sketch.height:g}" role="img" '
        f'aria-label="{escape(figure.title)}. {escape(figure.reading)}"{sketch.attributes}>{sheet}{sketch.body}</svg>'
    )
