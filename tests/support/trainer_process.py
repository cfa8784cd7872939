"""A training with the Hugging Face Trainer in a process of its own, which may kill itself: `python -m`, with a folder."""

from __future__ import annotations

import argparse
import hashlib
import os
import signal
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from tests.support.transformers_fits import constrained, digits, resnet


class Kill(TrainerCallback):
    """Ends the process in the middle of a step, as a machine that fails would."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        if state.global_step == self.step:
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kill-at", type=int, default=-1)
    parser.add_argument("--resume", action="store_true")
    chosen = parser.parse_args()
    saved = {"save_strategy": "steps", "save_steps": 4, "max_steps": 10}
    trainer = constrained(chosen.folder, None, resnet, train=digits(112), **saved)
    trainer.add_callback(Kill(chosen.kill_at))
    trainer.train(resume_from_checkpoint=chosen.resume)
    digest = hashlib.sha256(str(trainer.problem.state_dict()).encode())
    for tensor in trainer.model.state_dict().values():
        digest.update(tensor.numpy().tobytes())
    print(digest.hexdigest())


if __name__ == "__main__":
    main()
