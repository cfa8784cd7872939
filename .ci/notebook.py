"""Execute notebooks in place: `python .ci/notebook.py examples/which_symmetries.ipynb`.

Any error in a cell ends the program and leaves the file as it was. Times and versions are not kept, so that the file
changes only if what it prints or draws does.
"""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

KEPT = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
MOST_BYTES = 300_000  # small enough to be read on the web


def main() -> None:
    """Execute every notebook that is named."""
    for name in sys.argv[1:]:
        execute(Path(name))


def execute(path: Path) -> None:
    """Run all cells in the folder of the notebook, and write their outputs into it."""
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(path.parent)}}
    NotebookClient(notebook, timeout=None, coalesce_streams=True, resources=resources).execute()
    notebook.metadata = nbformat.from_dict({**KEPT, "language_info": {"name": "python"}})
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict({})
    text = nbformat.writes(notebook, indent=1) + "\n"
    if len(text.encode()) > MOST_BYTES:
        raise SystemExit(f"{path} would have {len(text.encode()):,} bytes, more than {MOST_BYTES:,}: draw less")
    path.write_text(text, encoding="utf-8")
    print(f"{path}: {len(notebook.cells)} cells, {len(text.encode()):,} bytes")


if __name__ == "__main__":
    main()
