"""Which images a run is measured on, and the measuring."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from invaug.lab.config.schema import Config
from invaug.lab.data.load import Dataset
from invaug.lab.data.splits import Split
from invaug.lab.evaluate.measure import clean
from invaug.lab.train import ranks
from invaug.lab.train.state import Training


@dataclass(frozen=True)
class Measured:
    """Which images a run is measured on, by the names its record gives them."""

    every_epoch: Mapping[str, Split]
    at_the_end: Mapping[str, Split]

    @classmethod
    def held_out(cls, dataset: Dataset) -> Measured:
        """Return the validation and test images that there are, measured after every epoch."""
        splits = {"val": dataset.val, "test": dataset.test}
        return cls({name: split for name, split in splits.items() if split is not None}, {})


def measure(
    config: Config, training: Training, splits: Mapping[str, Split], progress: Callable[..., None] | None = None
) -> dict[str, float]:
    """Return clean loss and accuracy on each of the splits; the first rank measures for all."""

    def found() -> dict[str, float]:
        return {
            f"{name}_{key}": value
            for name, split in splits.items()
            for key, value in clean(
                training.network, training.finish, split, workers=config.data.workers, progress=progress
            ).items()
        }

    return ranks.on_first_rank(training.fabric, found)
