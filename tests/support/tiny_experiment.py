"""An experiment small enough for a test: two cells on real digits."""

from __future__ import annotations

from pathlib import Path

from invaug.lab.reproduce.cells import Cell, Claim, Experiment, ScalePlan

BASE = {"batch_size": 64, "lr": 0.05, "workers": 0, "threads": 1}
EPOCHS = 6  # enough to be killed and stopped on the way


def tiny(data: Path, *, seeds: int = 3, epochs: int = 2, **none: float) -> Experiment:
    """Return two cells of the data in an .npz, of which `none` may have settings of its own, and a sentence on them."""
    base = {**BASE, "data": str(data), "model": "cnn-small", "epochs": epochs, "n_steps": 1, "dual_lr": 0.01}
    ours = {**base, "method": "constrained", "epsilon": 1.0}
    cells = (Cell("none", {**base, "method": "none", "lr": 0.05, **none}), Cell("ours", ours))
    claim = Claim("a sentence", "rising", (("none", "test_accuracy"), ("ours", "test_accuracy")))
    measures = ("test_accuracy", "gamma", "extreme")
    plan = ScalePlan(cells, seeds)
    return Experiment("tiny", "two cells", "nothing", measures, {"small": plan}, (claim,), keeps=("kept",))
