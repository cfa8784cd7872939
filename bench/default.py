"""How the default was chosen: safe under wrong sets, useful under right ones, on held-out images of two datasets.

All arms share images, network, batches, epochs, crops and flips. The learning rate of an arm is the best of three by
the mean over both datasets (one seed, the mild set). No test image is read. Each run is a row of
`results/default/rows.jsonl`; runs that are already there are skipped.

    python bench/default.py choose              # values of the rule, one or two seeds
    python bench/default.py rates               # the learning rate of each arm, one seed
    python bench/default.py final               # the chosen values under the mild and the wrong sets, five seeds
    python bench/default.py others              # the same under the standard and the wide set
    python bench/default.py uniform             # uniform draws instead of chains
    python bench/default.py readable            # rotated MNIST, three constraints in one run, five seeds
    python bench/default.py table               # the results, with paired intervals over seeds
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import stats
from torch import Tensor, nn
from torch.nn import functional as F

from invaug import Constraint, InvarianceConstrained, Resilient, TransformSet, sets
from invaug.lab.data.load import load_dataset
from invaug.lab.models.build import build_model
from invaug.lab.train.finish import Finish, Randomness
from invaug.rng import mix, seed_own

ROOT = Path(__file__).parent.parent
ROWS = ROOT / "results" / "default" / "rows.jsonl"
HELD_OUT = 5000  # training images held out, different ones for each seed
CPU = torch.device("cpu")
Arm = dict[str, Any]


class Task(NamedTuple):
    """The settings shared by all arms on a dataset."""

    n_images: int
    model: str
    randomness: Randomness
    epochs: int
    batch: int = 64


NOTHING = Randomness()
TASKS = {
    "cifar10": Task(2000, "conv-24", Randomness(4, True, 0, False), 60),
    "fashion-mnist": Task(1000, "cnn-small", NOTHING, 60),
    "mnist+r180": Task(10000, "mlp", NOTHING, 20, 100),
}
CHOSEN_ON = ("cifar10", "fashion-mnist")
STRONG = {
    "Rotate": (90, 180),
    "ShearX": (0.6, 1.2),
    "ShearY": (0.6, 1.2),
    "TranslateX": (12, 24),
    "TranslateY": (12, 24),
}
SETS: dict[str, tuple[TransformSet, ...]] = {
    "mild": (sets.mild(),),
    "standard": (sets.standard(),),
    "wide": (sets.wide(),),
    "flips": (sets.of({"FlipX": True, "FlipY": True}),),
    "extreme": (sets.of(STRONG),),
    "inversion": (sets.of({"Invert": True, "Solarize": (128, 0)}),),
    "three": (sets.rotations(math.pi), sets.scalings(1.5), sets.translations(7.0)),
}
USEFUL, WRONG = ("mild", "standard", "wide"), ("flips", "extreme", "inversion")
NONE, PLAIN = {"method": "none"}, {"method": "plain"}


def resilient(alpha: float, cap: float, dual_lr: float = 0.02, **others: Any) -> Arm:
    """Return an arm with the resilient rule; `others` may set base or n_steps."""
    return {"method": "resilient", "alpha": alpha, "cap": cap, "dual_lr": dual_lr, **others}


CHOSEN = resilient(5.0, 2.0)
UNIFORM = {**CHOSEN, "n_steps": 0}
RATES = (0.05, 0.1, 0.2)


def problem_of(arm: Arm, transforms: tuple[TransformSet, ...], finish: Finish, seed: int) -> InvarianceConstrained:
    """Return the problem of an arm; the arms "plain" and "none" have no constraint."""
    if arm["method"] == "none":
        return InvarianceConstrained(finish=finish, seed=seed)
    if arm["method"] == "plain":
        (only,) = transforms
        return InvarianceConstrained(finish=lambda x: finish(only.apply(x, only.draw(len(x)))), seed=seed)
    level = Resilient(arm["alpha"], arm.get("base", "clean"), arm["cap"])
    constraints = [Constraint(each, level) for each in transforms]
    return InvarianceConstrained(
        *constraints, n_steps=arm.get("n_steps", 1), dual_lr=arm["dual_lr"], finish=finish, seed=seed
    )


def run(data: str, set_name: str, arm: Arm, lr: float, seed: int) -> dict[str, Any]:
    """Train once and return the results."""
    task, loaded = TASKS[data], load_dataset(data, with_test=False)
    rows = np.random.default_rng(seed).permutation(len(loaded.train))
    train, held = rows[: task.n_images], rows[-HELD_OUT:]
    torch.manual_seed(seed)
    model = build_model(task.model, len(loaded.classes), loaded.image_shape).to(memory_format=torch.channels_last)
    finish = Finish(loaded.mean, loaded.std, task.randomness)
    problem = problem_of(arm, SETS[set_name], finish, seed)
    started = time.process_time()
    trace = fit(problem, model, loaded.train.images, loaded.train.targets, train, task, lr, seed)
    return {
        "seconds": round(time.process_time() - started, 1),
        **trace,
        **measure(model, finish, loaded.train.images[held], loaded.train.targets[held], "held_out"),
        **measure(model, finish, loaded.train.images[train], loaded.train.targets[train], "train"),
    }


def fit(
    problem: InvarianceConstrained,
    model: nn.Module,
    images: Tensor,
    targets: Tensor,
    train: Any,
    task: Task,
    lr: float,
    seed: int,
) -> dict[str, Any]:
    """Train with SGD and a cosine schedule; return gamma by epoch and the mean acceptance."""
    optimizer = torch.optim.SGD(model.parameters(), lr, momentum=0.9, nesterov=True, weight_decay=5e-4)
    n_batches = task.n_images // task.batch
    gammas: list[list[float]] = []
    accepted: list[list[float]] = []
    for epoch in range(task.epochs):
        order = torch.from_numpy(np.random.default_rng([seed, epoch]).permutation(train))
        for i, batch in enumerate(order[: n_batches * task.batch].split(task.batch)):
            at = (epoch + i / n_batches) / task.epochs
            optimizer.param_groups[0]["lr"] = lr * (1 + math.cos(math.pi * at)) / 2
            seed_own(mix(seed, epoch, i), CPU)
            step = problem(model, images[batch], targets[batch])
            optimizer.zero_grad()
            step.lagrangian.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            problem.dual_step(step.slack)
            accepted.append(step.acceptance.tolist())
        gammas.append([round(gamma, 4) for gamma in problem.gamma.tolist()])
    chains = np.nanmean(accepted, axis=0).round(3).tolist() if problem.constraints and problem.n_steps else []
    return {"gamma": gammas[-1], "gamma_by_epoch": gammas, "acceptance": chains}


@torch.no_grad()
def measure(model: nn.Module, finish: Finish, images: Tensor, targets: Tensor, name: str) -> dict[str, float]:
    """Return clean loss and accuracy."""
    model.eval()
    logits = torch.cat([model(finish.plain(part)) for part in images.split(500)])
    accuracy = 100 * (logits.argmax(1) == targets).float().mean()
    return {f"{name}_loss": float(F.cross_entropy(logits, targets)), f"{name}_accuracy": round(float(accuracy), 3)}


def key(row: dict[str, Any]) -> str:
    """Return what identifies a run."""
    return json.dumps([row[name] for name in ("data", "set", "arm", "lr", "seed")], sort_keys=True)


def read() -> list[dict[str, Any]]:
    """Return the rows of the runs that are done."""
    return [json.loads(line) for line in ROWS.read_text().splitlines()] if ROWS.exists() else []


def run_all(wanted: Iterable[tuple[str, str, Arm, float, int]]) -> None:
    """Run what has not been run yet, one after the other."""
    ROWS.parent.mkdir(parents=True, exist_ok=True)
    command = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(command, capture_output=True, text=True).stdout.strip()  # noqa: S603
    for data, set_name, arm, lr, seed in wanted:
        asked = {"data": data, "set": set_name, "arm": arm, "lr": lr, "seed": seed}
        if key(asked) in map(key, read()):
            continue
        row = {**asked, "commit": commit, **TASKS[data]._asdict(), **run(data, set_name, arm, lr, seed)}
        row["randomness"] = vars(row["randomness"])
        with ROWS.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(f"{data} {set_name} {arm} lr {lr} seed {seed}: {row['held_out_accuracy']:.2f} gamma {row['gamma']}")


def best_rates(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Return the learning rate of each arm: the best by the mean over both datasets with the mild set, seed 0."""
    found = {}
    for arm in (NONE, PLAIN, CHOSEN):
        means = {rate: mean_of(rows, arm, rate) for rate in RATES}
        found[arm["method"]] = max(means, key=lambda rate: means[rate])
    return found


def mean_of(rows: list[dict[str, Any]], arm: Arm, rate: float) -> float:
    """Return the held-out accuracy of an arm at a rate over both datasets; -inf if a run is missing."""
    seen = [r for r in rows if (r["arm"], r["lr"], r["seed"], r["set"]) == (arm, rate, 0, "mild")]
    mine = {r["data"]: r["held_out_accuracy"] for r in seen}
    return float(np.mean([mine.get(data, -math.inf) for data in CHOSEN_ON]))


def plans(name: str, data: list[str], n_seeds: int) -> list[tuple[str, str, Arm, float, int]]:
    """Return the runs of one part."""
    if name == "rates":
        arms = (NONE, PLAIN, CHOSEN)
        return [(d, "mild", arm, rate, 0) for rate in RATES for arm in arms for d in data]
    if name == "readable":
        return [("mnist+r180", "three", CHOSEN, 0.1, seed) for seed in range(n_seeds)]
    if name == "choose":
        grid = [NONE, PLAIN, *CANDIDATES]
        return [(d, s, arm, 0.1, seed) for seed in range(n_seeds) for arm in grid for d in data for s in sets_of(arm)]
    rates = best_rates(read())
    arms = [UNIFORM] if name == "uniform" else [NONE, PLAIN, CHOSEN]
    order = (*USEFUL[1:],) if name == "others" else sets_of(CHOSEN)[:4]
    return [
        (d, s, arm, rates[arm["method"]], seed)
        for seed in range(n_seeds)
        for arm in arms
        for d in data
        for s in (("mild",) if arm == NONE else order)
    ]


def sets_of(arm: Arm) -> tuple[str, ...]:
    """Return the sets of an arm; without augmentation the set makes no difference."""
    return ("mild",) if arm == NONE else ("mild", *WRONG, *USEFUL[1:])


CANDIDATES = [
    resilient(2.3, 1e9),
    resilient(4.6, 2.0),
    resilient(7.0, 1e9),
    resilient(7.0, 1.0),
    resilient(7.0, 2.0),
    resilient(7.0, 2.0, 0.05),
    resilient(7.0, 2.0, n_steps=0),
    resilient(14.0, 1e9),
    resilient(14.0, 1.0),
    resilient(14.0, 2.0),
]


def interval(differences: list[float]) -> str:
    """Return the mean with the half-width of Student's 95 % interval."""
    if len(differences) < 2:
        return f"{np.mean(differences):+.1f}" if differences else ""
    half = stats.t.ppf(0.975, len(differences) - 1) * stats.sem(differences)
    return f"{np.mean(differences):+.1f} ± {half:.1f}"


def label(arm: Arm) -> str:
    """Return the label of an arm."""
    if arm["method"] != "resilient":
        return str(arm["method"])
    extra = f", {arm['n_steps']} transitions" if "n_steps" in arm else ""
    return f"α {arm['alpha']:g}, cap {arm['cap']:g}, η {arm['dual_lr']:g}{extra}"


def print_table() -> None:
    """Print accuracy by arm and set, and each arm's difference from none and from plain augmentation."""
    rows = [row for row in read() if row["data"] in CHOSEN_ON]
    by = {(r["data"], r["set"], label(r["arm"]), r["lr"], r["seed"]): r for r in rows}
    for data in CHOSEN_ON:
        print(f"\n{data}\n| arm | rate | seeds | {' | '.join(SETS)} |")
        for name, rate in dict.fromkeys((label(r["arm"]), r["lr"]) for r in rows):
            cells = [[r for k, r in by.items() if (k[0], k[1], k[2], k[3]) == (data, s, name, rate)] for s in SETS]
            shown = [
                f"{np.mean([r['held_out_accuracy'] for r in c]):.1f}"
                + (f" ({np.mean([r['gamma'][0] for r in c]):.2f})" if c[0]["gamma"] else "")
                if c
                else ""
                for c in cells
            ]
            print(f"| {name} | {rate:g} | {max(map(len, cells))} | {' | '.join(shown)} |")
    rates = best_rates(rows)
    print(f"\nlearning rates {rates}")
    for arm in (PLAIN, CHOSEN, UNIFORM):
        print_differences(by, arm, rates)


def print_differences(by: dict[tuple[Any, ...], dict[str, Any]], arm: Arm, rates: dict[str, float]) -> None:
    """Print an arm minus none over the wrong sets, and minus plain augmentation under each useful one, by seed."""
    mine, none, plain = (rates[method] for method in (arm["method"], "none", "plain"))

    def difference(data: str, set_name: str, other: Arm, rate: float, seed: int) -> float | None:
        theirs = by.get((data, "mild" if other == NONE else set_name, label(other), rate, seed))
        ours = by.get((data, set_name, label(arm), mine, seed))
        return ours["held_out_accuracy"] - theirs["held_out_accuracy"] if ours and theirs else None

    def over_seeds(pairs: list[tuple[str, str]], other: Arm, rate: float) -> str:
        every = [[difference(data, s, other, rate, seed) for data, s in pairs] for seed in range(10)]
        return interval([float(np.mean(each)) for each in every if None not in each])  # type: ignore[arg-type]

    print(f"\n{label(arm)}")
    print(f"  wrong sets, minus none: {over_seeds([(d, s) for d in CHOSEN_ON for s in WRONG], NONE, none)}")
    for d in CHOSEN_ON:
        for s in WRONG:
            print(f"    {d} {s}: {over_seeds([(d, s)], NONE, none)}")
    for s in USEFUL:
        parts = ", ".join(f"{d} {over_seeds([(d, s)], PLAIN, plain)}" for d in CHOSEN_ON)
        print(f"  {s}, minus plain: {over_seeds([(d, s) for d in CHOSEN_ON], PLAIN, plain)} ({parts})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("choose", "rates", "final", "others", "uniform", "readable", "table"))
    parser.add_argument("--data", nargs="+", choices=CHOSEN_ON, default=list(CHOSEN_ON))
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.part == "table":
        print_table()
    else:
        run_all(plans(options.part, options.data, options.seeds))


if __name__ == "__main__":
    main()
