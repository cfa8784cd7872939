"""When a run saves its state, so that a kill at any moment costs only time."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from invaug.lab.config.schema import Run
from invaug.lab.run import checkpoint
from invaug.lab.train import ranks
from invaug.lab.train.signals import Signals, Stopped
from invaug.lab.train.state import Training


@dataclass
class Saving:
    """When and where a run saves its state; every rank calls it, the first one writes."""

    settings: Run
    folder: Path
    training: Training
    signals: Signals
    meta: Mapping[str, Any]

    def __post_init__(self) -> None:
        self.saved_at = time.monotonic()
        self.steps = 0

    def now(self) -> None:
        """Write a checkpoint."""
        training, state = self.training, self.training.state()
        step = int(training.problem.n_batches)
        ranks.on_first_rank(
            training.fabric,
            lambda: str(checkpoint.save(self.folder, state, step=step, epoch=training.epoch, meta=self.meta)),
        )
        self.saved_at, self.steps = time.monotonic(), 0

    def after_step(self, last: bool) -> None:
        """Stop if a signal asks for it; save if it is time to, except after the last step, which is saved anyway."""
        self.steps += 1
        minutes = (time.monotonic() - self.saved_at) / 60
        settings = self.settings
        due = 0 < settings.checkpoint_steps <= self.steps or 0 < settings.checkpoint_minutes <= minutes
        # one rank's signal or clock must move all of them
        signum, anyone_due = ranks.max_over_ranks(self.training.fabric, self.signals.caught, float(due))
        if signum:
            raise Stopped(int(signum))
        if anyone_due and not last:
            self.now()

    def check(self, *_: Any) -> None:
        """Stop if a signal asked for it; for work between steps, whose state can be saved as it is."""
        if self.signals.caught:
            raise Stopped(self.signals.caught)
