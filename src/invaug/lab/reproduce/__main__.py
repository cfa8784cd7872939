"""`python -m invaug.lab.reproduce`: the page of all results, without torch and without a run."""

import argparse
import sys
from pathlib import Path

from invaug.lab.errors import UserError
from invaug.lab.reproduce.page import draw_figures, write_page
from invaug.lab.reproduce.request import RESULTS
from invaug.lab.run import atomic
from invaug.lab.terminal import say


def main() -> None:
    """Write the page and its figures, or print the page."""
    parser = argparse.ArgumentParser(
        prog="python -m invaug.lab.reproduce", description="Write the page of all results."
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the rows")
    parser.add_argument("-o", "--output", type=Path, help="page to write")
    given = parser.parse_args()
    try:
        text, figures = write_page(given.results), draw_figures(given.results)
    except UserError as error:
        say(str(error))
        raise SystemExit(2) from None
    if given.output:
        atomic.write_text(given.output, text)
        _replace_figures(given.output.with_suffix(""), figures)
    else:
        sys.stdout.write(text)


def _replace_figures(folder: Path, figures: dict[str, str]) -> None:
    if figures:
        folder.mkdir(exist_ok=True)
    for name, figure in figures.items():
        atomic.write_text(folder / name, figure)
    for old in folder.glob("*.svg"):
        if old.name not in figures:
            old.unlink()


if __name__ == "__main__":
    main()
