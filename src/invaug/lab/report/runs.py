"""Runs as the report sees them: settings, epochs, and what is wrong with their files."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from invaug.lab.config import methods
from invaug.lab.report.values import Counts, Numbers, short
from invaug.levels import Resilient


@dataclass(frozen=True)
class Epoch:
    """One line of the record: numbers are finite or None, whatever the file says.

    `kept`, by far most of a record, is read for the first and the last epoch alone: no figure shows another.
    """

    number: int
    measured: Mapping[str, float | None]
    """Losses, accuracies and seconds."""
    by_constraint: Mapping[str, Numbers]
    """Slack, loss, gamma, acceptance and entropy of each constraint."""
    entropy_uniform: tuple[tuple[float, float] | None, ...]
    """The 95 % range of the entropy of as many uniform draws."""
    kept: tuple[Counts, ...]
    out_of_reach: tuple[bool, ...]
    skipped: int

    def at(self, key: str, k: int) -> float | None:
        """Return a number of the k-th constraint."""
        values = self.by_constraint[key]
        return values[k] if k < len(values) else None


@dataclass(frozen=True)
class Run:
    """A run: what it was asked to do, what it did, what is wrong with its files."""

    name: str
    settings: Mapping[str, Any]
    dataset: str
    images: Mapping[str, int]
    versions: Mapping[str, str]
    epochs: tuple[Epoch, ...] = ()
    evaluation: Mapping[str, Any] | None = None
    notes: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    rule: Resilient | None = None
    """What set epsilon while training, if a rule did."""
    bounded: tuple[str, ...] = ()
    """Families with an epsilon of their own, which no rule sets."""
    certificate: Mapping[str, Any] | None = None
    place: str = ""
    """Its folder as a command names it; the last part alone where the whole would be a path of the machine."""

    @property
    def last(self) -> Epoch:
        """The last epoch; only for runs that have one."""
        return self.epochs[-1]

    @property
    def n_constraints(self) -> int:
        """How many constraints the run was trained under."""
        return max((len(epoch.by_constraint["gamma"]) for epoch in self.epochs), default=0)

    @property
    def method(self) -> str:
        """The name of what decided the augmentation, as the config has it."""
        return self.text("method")

    @property
    def label(self) -> str:
        """What the method is called on a page."""
        return methods.title(self.method)

    @property
    def holds_epsilon(self) -> bool:
        """Whether the method holds a loss below epsilon; otherwise its gamma, if any, is fixed."""
        return methods.holds_epsilon(self.method)

    def text(self, key: str) -> str:
        """Return a setting as text that a page can show."""
        return short(self.settings.get(key, "?"))

    @property
    def is_held_out(self) -> bool:
        """Whether the run was measured on held-out training images, and read no test image."""
        last = self.last.measured if self.epochs else {}
        return last.get("test_accuracy") is None and last.get("val_accuracy") is not None

    @property
    def test_accuracy(self) -> float | None:
        """The accuracy on test images after the last epoch, never the best one; on held-out images without these."""
        split = "val" if self.is_held_out else "test"
        return self.last.measured[f"{split}_accuracy"] if self.epochs else None

    @property
    def n_measured(self) -> int:
        """How many images that accuracy is measured on, 0 if unknown."""
        return self.images.get("val" if self.is_held_out else "test", 0)

    @property
    def has_chains(self) -> bool:
        """Whether proposals are chosen by their loss; otherwise every draw is kept."""
        return methods.is_used(self.method, "n_steps") and self.settings.get("n_steps") != 0

    @property
    def seconds(self) -> list[float]:
        """The time of each epoch, where it is recorded."""
        return [time for epoch in self.epochs if (time := epoch.measured["seconds"]) is not None]
