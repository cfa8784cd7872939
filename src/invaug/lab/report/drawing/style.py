"""The style sheets and the script of a page, and the policy that allows nothing else."""

import base64
import hashlib
import re
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent


@cache
def text_of(name: str) -> str:
    """Return one of the files beside this one."""
    return (HERE / name).read_text(encoding="utf-8")


def page_style() -> str:
    """Return the page's whole style sheet: light, dark where the reader prefers it, light again on paper."""
    dark = f"@media screen and (prefers-color-scheme: dark) {{ {text_of('dark.css')} }}"
    return "\n".join([text_of("light.css"), dark, text_of("figure.css"), text_of("page.css")])


def picture_style() -> str:
    """Return the sheet of a figure in a file of its own, without variables, which few programs know."""
    colours = dict(re.findall(r"--(\w+): ([^;]+);", text_of("light.css")))
    return re.sub(r"var\(--(\w+)\)", lambda match: colours[match[1]], text_of("figure.css"))


def csp_hash(text: str) -> str:
    """Return how a content security policy names an inline text."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def policy(style: str, script: str, live: bool) -> str:
    """Return the content security policy: this sheet, this script, pictures inside the page, nothing else."""
    talk = "connect-src 'self'; " if live else ""
    return (
        f"default-src 'none'; style-src {csp_hash(style)}; script-src {csp_hash(script)}; img-src data:; {talk}"
        "base-uri 'none'; form-action 'none'"
    )
