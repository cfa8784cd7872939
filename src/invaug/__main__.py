"""`python -m invaug` is the `invaug` command."""

from invaug.cli import main

main()
