"""Trainings with the Hugging Face Trainer on several ranks, for torchrun: writes what each rank has learned."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path

import torch

from tests.support.transformers_fits import Trainer, constrained, make_problem, plain, vit

SETTINGS = {
    "max_steps": 4,
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 2,
    "max_grad_norm": 0.0,
    "ddp_backend": "gloo",
}


def weights_of(trainer: Trainer) -> torch.Tensor:
    trainer.train()
    return torch.cat([parameter.detach().flatten() for parameter in trainer.model.parameters()])


def still_vit() -> torch.nn.Module:
    return vit(0.0)


def main() -> None:
    folder = Path(sys.argv[1])
    problem = make_problem()
    found = {
        "plain": weights_of(plain(folder, still_vit, **SETTINGS)),
        "inactive": weights_of(constrained(folder, make_problem(math.inf), still_vit, **SETTINGS)),
        "active": weights_of(constrained(folder, problem, still_vit, **SETTINGS)),
        "gamma": problem.gamma,
    }
    torch.save(found, folder / f"{os.environ['RANK']}.pt")


if __name__ == "__main__":
    main()
