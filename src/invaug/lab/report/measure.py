"""What the accuracies of some runs were measured on, and over what they were repeated, in words."""

from collections.abc import Sequence
from typing import NamedTuple

from invaug.lab.report.runs import Run


class Measure(NamedTuple):
    """The words for the accuracy of some runs."""

    split: str = "test"
    """What goes before accuracy, error and images."""
    repeat: str = "seed"

    @property
    def accuracy(self) -> str:
        """The name of the accuracy."""
        return f"{self.split} accuracy"

    @property
    def error(self) -> str:
        """The name of the share that is wrong."""
        return f"{self.split} error"

    @property
    def key(self) -> str:
        """The setting in which repeats differ."""
        return "val_fold" if self.repeat == "fold" else "seed"

    def repeats(self, n: int) -> str:
        """Return how many repeats there are."""
        return f"one {self.repeat}" if n == 1 else f"{n} {self.repeat}s"


def measure_of(runs: Sequence[Run]) -> Measure:
    """Return the words for some runs: held-out where none of them read a test image, folds where these differ."""
    trained = [run for run in runs if run.epochs]
    is_held_out = bool(trained) and all(run.is_held_out for run in trained)
    has_folds = is_held_out and len({run.text("val_fold") for run in trained}) > 1
    return Measure("held-out" if is_held_out else "test", "fold" if has_folds else "seed")
