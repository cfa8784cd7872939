"""A training with the Hugging Face Trainer in a process of its own, which may kill itself."""

from __future__ import annotations

import argparse
import hashlib
import os
import signal
from pathlib import Path
from typing import Any

from tests.support.transformers_fits import InvarianceTrainer, TrainerCallback, constrained, digits, resnet


class Kill(TrainerCallback):
    """Ends the process in the middle of a step, as a machine that fails would."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        if state.global_step == self.step:
            os.kill(os.getpid(), signal.SIGKILL)


def make(folder: Path) -> InvarianceTrainer:
    saved = {"save_strategy": "steps", "save_steps": 4, "max_steps": 10}
    return constrained(folder, None, resnet, train=digits(112), **saved)


def digest_of(trainer: InvarianceTrainer) -> str:
    """Return the digest of weights, γ and batch number."""
    digest = hashlib.sha256()
    for tensor in (*trainer.model.state_dict().values(), *trainer.problem.state_dict().values()):
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kill-at", type=int, default=-1)
    parser.add_argument("--resume", action="store_true")
    chosen = parser.parse_args()
    trainer = make(chosen.folder)
    trainer.add_callback(Kill(chosen.kill_at))
    trainer.train(resume_from_checkpoint=chosen.resume)
    print(digest_of(trainer))


if __name__ == "__main__":
    main()
