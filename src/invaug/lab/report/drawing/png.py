"""Figures as PNG for slides: the SVG of the page, rasterised by resvg."""

from importlib.util import find_spec

from invaug.lab.report.drawing import style, svg
from invaug.lab.report.drawing.figures import Figure

ZOOM = 3  # pixels per unit of the drawing: 1440 across
MISSING = "PNG left out: resvg-py is not installed (pip install 'invaug[lab]'); every figure is there as SVG"


def is_available() -> bool:
    """Whether the package that rasterises is installed."""
    return find_spec("resvg_py") is not None


def to_png(figure: Figure) -> bytes:
    """Return a figure as PNG on a white ground, with the fonts of this machine."""
    import resvg_py

    text = svg.draw(figure, style.picture_style())
    return bytes(resvg_py.svg_to_bytes(svg_string=text, background="#ffffff", zoom=ZOOM))
