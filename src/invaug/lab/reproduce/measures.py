"""How each number of a run is shown, by `measures.toml`."""

from collections.abc import Mapping
from typing import NamedTuple

from invaug.lab.reproduce.cells import Number, read_table


class Measure(NamedTuple):
    """How a number is shown."""

    title: str
    factor: float = 1.0
    form: str = ".2f"

    def printed(self, number: Number | None) -> str | None:
        """Return a number as the paper prints it."""
        if number is None:
            return None
        mean = format(number.mean, self.form if self.form != ".2f" else "g")
        return mean if number.spread is None else f"{mean} ± {number.spread:g}"

    def difference(self, value: float, sign: str = "") -> str:
        """Return a difference of two such numbers; of percentages in points.

        >>> Measure("test accuracy (%)", 100).difference(0.0123, "+")
        '+1.23 points'
        """
        return f"{self.factor * value:{sign}{self.form}}{' points' if self.factor == 100 else ''}"


MEASURES: Mapping[str, Measure] = {name: Measure(**entry) for name, entry in read_table("measures").items()}
