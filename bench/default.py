"""How the default was chosen: safe under wrong sets, useful under right ones, on held-out images of two datasets.

Every arm has the same images, network, batches, epochs, crops and flips, and a learning rate of its own: the best of
three on held-out images, one seed, one choice for both datasets. No test image is read. Each run is a row of
`results/default/rows.jsonl`; a run that is there is not run again.

    python bench/default.py run --seeds 5            # the arms of ARMS on the sets of SETS
    python bench/default.py table                    # regret by arm, with paired intervals over seeds
"""

from __future__ import annotations

import argparse
import json
import math
import time
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from invaug import Constraint, InvarianceConstrained, Resilient, TransformSet, sets
from invaug.lab import datasets, models
from invaug.lab.finish import Finish, Randomness
from invaug.rng import mix, seed_own

ROWS = Path(__file__).parent.parent / "results" / "default" / "rows.jsonl"
DATA = {
    "cifar10": (2000, "conv-24", Randomness(4, True, 0, False)),
    "fashion-mnist": (1000, "cnn-small", Randomness(0, False, 0, False)),
}
HELD_OUT = 5000
EPOCHS, BATCH = 60, 64
LRS = (0.05, 0.1, 0.2)
STRONG = {
    "Rotate": (90, 180),
    "ShearX": (0.6, 1.2),
    "ShearY": (0.6, 1.2),
    "TranslateX": (12, 24),
    "TranslateY": (12, 24),
}
SETS: dict[str, TransformSet] = {
    "mild": sets.mild(),
    "standard": sets.standard(),
    "wide": sets.wide(),
    "flips": sets.of({"FlipX": True, "FlipY": True}),
    "extreme": sets.of(STRONG),
    "inversion": sets.of({"Invert": True, "Solarize": (128, 0)}),
}
WRONG = ("flips", "extreme", "inversion")
CPU = torch.device("cpu")


def arm_problem(arm: dict[str, Any], transforms: TransformSet, finish: Finish, seed: int) -> InvarianceConstrained:
    """Return the problem of an arm; plain augmentation and none have no constraint."""
    if arm["method"] == "none":
        return InvarianceConstrained(finish=finish, seed=seed)
    if arm["method"] == "plain":

        def plain(images):
            return finish(transforms.apply(images, transforms.draw(len(images), generator=None)))

        return InvarianceConstrained(finish=plain, seed=seed)
    level = (
        arm["epsilon"] if "epsilon" in arm else Resilient(arm["alpha"], arm.get("base", "clean"), arm.get("cap", 1e9))
    )
    return InvarianceConstrained(
        Constraint(transforms, level), n_steps=arm.get("n_steps", 1), dual_lr=arm["dual_lr"], finish=finish, seed=seed
    )


def run(data: str, set_name: str, arm: dict[str, Any], lr: float, seed: int) -> dict[str, Any]:
    """Train once; return the row."""
    n, network, randomness = DATA[data]
    loaded = datasets.load(data, data_dir=None, seed=0, with_test=False)
    rows = np.random.default_rng(seed).permutation(len(loaded.train.targets))
    images, targets = (torch.as_tensor(t) for t in (loaded.train.images, loaded.train.targets))
    train, held = rows[:n], rows[-HELD_OUT:]
    torch.manual_seed(seed)
    model = models.build(network, 10, loaded.image_shape).to(memory_format=torch.channels_last)
    finish = Finish(loaded.mean, loaded.std, randomness)
    problem = arm_problem(arm, SETS[set_name], finish, seed)
    optimizer = torch.optim.SGD(model.parameters(), lr, momentum=0.9, nesterov=True, weight_decay=5e-4)
    started, gammas, accepted, step_number, total = time.process_time(), [], [], 0, EPOCHS * (n // BATCH)
    for epoch in range(EPOCHS):
        order = np.random.default_rng([seed, epoch]).permutation(train)
        for i in range(n // BATCH):
            batch = torch.from_numpy(order[i * BATCH : (i + 1) * BATCH])
            optimizer.param_groups[0]["lr"] = lr * (1 + math.cos(math.pi * step_number / total)) / 2
            seed_own(mix(seed, step_number), CPU)
            step = problem(model, images[batch], targets[batch])
            optimizer.zero_grad()
            step.lagrangian.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            problem.dual_step(step.slack)
            accepted += step.acceptance.tolist()
            step_number += 1
        gammas.append(problem.gamma.tolist())
    seconds = time.process_time() - started
    return {
        "data": data, "set": set_name, "arm": arm, "lr": lr, "seed": seed, "seconds": seconds,
        "gamma": gammas[-1], "gammas": gammas[4::5], "acceptance": float(np.mean(accepted)) if accepted else None,
        **measure(model, finish, images[held], targets[held], "held_out"),
        **measure(model, finish, images[train], targets[train], "train"),
    }  # fmt: skip


@torch.no_grad()
def measure(model, finish, images, targets, name: str) -> dict[str, float]:
    """Return clean loss and accuracy."""
    model.eval()
    logits = torch.cat([model(finish.plain(part)) for part in images.split(500)])
    model.train()
    accuracy = (logits.argmax(1) == targets).float().mean()
    return {f"{name}_loss": float(F.cross_entropy(logits, targets)), f"{name}_accuracy": 100 * float(accuracy)}


def key(row: dict[str, Any]) -> str:
    """Return what makes a run that run."""
    return json.dumps([row[name] for name in ("data", "set", "arm", "lr", "seed")], sort_keys=True)


def read(path: Path) -> dict[str, dict[str, Any]]:
    """Return the rows there are."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {key(row): row for row in map(json.loads, lines)}


def run_all(wanted: list[tuple], path: Path) -> None:
    """Run what is not there yet, one row after the other."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for data, set_name, arm, lr, seed in wanted:
        asked = {"data": data, "set": set_name, "arm": arm, "lr": lr, "seed": seed}
        if key(asked) in read(path):
            continue
        row = run(**{**asked, "set_name": asked.pop("set")}) if False else run(data, set_name, arm, lr, seed)
        with path.open("a") as file:
            file.write(json.dumps(row) + "\n")
