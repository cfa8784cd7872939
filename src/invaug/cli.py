"""The `invaug` command: hands over to the laboratory, or says what to install."""

import sys
from importlib import import_module


def main() -> None:
    """Run the command line, which needs the `lab` extra; exit with code 2 and one line if it is not installed."""
    try:
        laboratory = import_module("invaug.lab.cli.main")
    except ModuleNotFoundError as missing:
        print(f'invaug: the command line needs {missing.name}: pip install "invaug[lab]"', file=sys.stderr)
        raise SystemExit(2) from None
    laboratory.main()
