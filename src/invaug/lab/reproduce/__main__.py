"""`python -m invaug.lab.reproduce -o PAGE`: the page of all results, without torch and without a run."""

import argparse
from pathlib import Path

from invaug.lab.errors import UserError
from invaug.lab.reproduce import page as paper_page
from invaug.lab.reproduce import proof_page
from invaug.lab.reproduce.request import RESULTS
from invaug.lab.run import atomic
from invaug.lab.terminal import plain


def main() -> None:
    """Write the page, and its figures into a folder of its name."""
    parser = argparse.ArgumentParser(
        prog="python -m invaug.lab.reproduce", description="Write the page of all results."
    )
    parser.add_argument("-o", "--output", type=Path, required=True, help="page to write")
    parser.add_argument("--proof", action="store_true", help="the experiments of the protocol, not those of the paper")
    given = parser.parse_args()
    page, source = given.output, proof_page if given.proof else paper_page
    try:
        text, figures = source.write_page(RESULTS), source.draw_figures(RESULTS)
    except UserError as error:
        parser.exit(2, f"{plain(str(error))}\n")
    folder = page.with_suffix("")
    folder.mkdir(exist_ok=True)
    for old in set(folder.glob("*.svg")) - {folder / name for name in figures}:
        old.unlink()
    for path, content in {page: text, **{folder / name: figure for name, figure in figures.items()}}.items():
        atomic.write_text(path, content)


if __name__ == "__main__":
    main()
