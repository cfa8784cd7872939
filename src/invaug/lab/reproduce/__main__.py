"""`python -m invaug.lab.reproduce`: the page of all results, without torch and without a run."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from invaug.lab.errors import UserError
from invaug.lab.reproduce.page import page, pictures
from invaug.lab.reproduce.request import RESULTS
from invaug.lab.run import atomic
from invaug.lab.terminal import say


def main() -> None:
    """Write the page and its pictures, or print it."""
    parser = argparse.ArgumentParser(prog="python -m invaug.lab.reproduce", description="the page of all results")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the rows")
    parser.add_argument("-o", "--output", type=Path, help="page to write")
    given = parser.parse_args()
    try:
        text, drawn = page(given.results), pictures(given.results)
    except UserError as error:
        say(str(error))
        raise SystemExit(2) from None
    if given.output:
        atomic.write_text(given.output, text)
        folder = given.output.with_suffix("")
        if drawn:
            folder.mkdir(exist_ok=True)
        for name, picture in drawn.items():
            atomic.write_text(folder / name, picture)
        for old in folder.glob("*.svg"):
            if old.name not in drawn:
                old.unlink()
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
