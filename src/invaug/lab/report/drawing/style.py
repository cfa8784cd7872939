"""The style sheets and the script, and the colours both schemes give them."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from pathlib import Path

LIGHT = {
    "paper": "#f6f7f9", "card": "#ffffff", "ink": "#1b1f24", "soft": "#5b6470", "line": "#dfe3e8",
    "c0": "#0b62a8", "c1": "#c4501b", "c2": "#1c7f4f", "c3": "#a0318d", "c4": "#7a6a00", "c5": "#c2255c",
    "c6": "#0d7f86", "c7": "#5c5f66",
}  # fmt: skip
DARK = {
    "paper": "#0f1216", "card": "#171b21", "ink": "#e7eaee", "soft": "#a3adb8", "line": "#2c333c",
    "c0": "#6cb6ff", "c1": "#ffa06b", "c2": "#5fd39a", "c3": "#e58fdb", "c4": "#d9c84a", "c5": "#ff8fb1",
    "c6": "#5fd6d6", "c7": "#b0b4bb",
}  # fmt: skip
HERE = Path(__file__).parent


@cache
def text_of(name: str) -> str:
    """Return one of the files beside this one."""
    return (HERE / name).read_text(encoding="utf-8")


def page_style() -> str:
    """Return the page's whole style sheet: light, dark where the reader prefers it, light again on paper."""
    dark = f"@media screen and (prefers-color-scheme: dark) {{ {_root(DARK)} }}"
    return "\n".join([_root(LIGHT), dark, text_of("figure.css"), text_of("page.css")])


def picture_style() -> str:
    """Return the sheet of a figure in a file of its own, without variables, which few programs know."""
    return re.sub(r"var\(--(\w+)\)", lambda match: LIGHT[match[1]], text_of("figure.css"))


def _root(colours: dict[str, str]) -> str:
    return f":root {{ {' '.join(f'--{name}: {value};' for name, value in colours.items())} }}"


def hashed(text: str) -> str:
    """Return how a content security policy names an inline text."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def policy(style: str, script: str, live: bool) -> str:
    """Return the content security policy: this sheet, this script, pictures inside the page, nothing else."""
    talk = "connect-src 'self'; " if live else ""
    return (
        f"default-src 'none'; style-src {hashed(style)}; script-src {hashed(script)}; img-src data:; {talk}"
        "base-uri 'none'; form-action 'none'"
    )
