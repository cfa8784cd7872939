"""Numbers that go wrong: NaN and infinity, bounds nobody can keep, traces of scoring, the sampler's law, bytes."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from faults import small
from faults.harness import case
from invaug import (
    Constraint,
    InvarianceConstrained,
    Op,
    TransformSet,
    chain_probabilities,
    metropolis_hastings,
    sets,
    views,
)
from invaug.lab.run import checkpoint
from invaug.lab.run.record import read

ROOT = Path(__file__).parent.parent
Poison = Callable[[Any, Tensor, Tensor], Tensor]


def seeded(seed: int) -> torch.Generator:
    """Return a generator of that seed."""
    return torch.Generator().manual_seed(seed)


@contextmanager
def poisoned(steps: Sequence[int], poison: Poison) -> Iterator[list[Tensor]]:
    """Poison the training pass after that many steps; yield the list its images are put in."""
    forward, seen = InvarianceConstrained.forward, []

    def poisoned_forward(
        self: InvarianceConstrained, model: Any, images: Tensor, targets: Tensor, **options: Any
    ) -> Any:
        if int(self.n_batches) not in steps:
            return forward(self, model, images, targets, **options)
        seen.append(images)
        clean_loss = self.loss_fn

        def loss_fn(outputs: Any, labels: Tensor) -> Tensor:
            losses = clean_loss(outputs, labels)
            return poison(losses, outputs, labels) if torch.is_grad_enabled() else losses

        with patch.object(self, "loss_fn", loss_fn):
            return forward(self, model, images, targets, **options)

    with patch.object(InvarianceConstrained, "forward", poisoned_forward):
        yield seen


def bad_loss(value: float, sample: int) -> Poison:
    """Make the loss of one sample NaN or infinite."""

    def poison(losses: Tensor, outputs: Any, labels: Tensor) -> Tensor:
        return losses.index_fill(0, torch.tensor([sample]), value)

    return poison


def bad_gradient(value: float, sample: int) -> Poison:
    """Leave the loss as it is, and make the gradient of one sample NaN or infinite."""

    def poison(losses: Tensor, outputs: Tensor, labels: Tensor) -> Tensor:
        hooked = losses.clone()
        hooked.register_hook(lambda gradient: gradient.index_fill(0, torch.tensor([sample]), value))
        return hooked

    return poison


def undisturbed(folder: Path) -> tuple[Path, dict[int, Any]]:
    """Train; return the data and what the run was after each of its steps, the record among it."""
    data, run, states = small.write_data(folder), folder / "undisturbed", {}
    save = checkpoint.save

    def watched(where: Path, state: Any, *, step: int, epoch: int, meta: Any) -> Path:
        states[step] = {"step": step, "epoch": epoch, "state": small.copied(state), "record": read(run)}
        return save(where, state, step=step, epoch=epoch, meta=meta)

    with patch.object(checkpoint, "save", watched):
        code, stderr = small.invaug(*small.arguments(data, run, checkpoint_steps=1))
    if code:
        raise RuntimeError(f"the undisturbed run ended with {code}: {stderr}")
    return data, states


def ids_of(images: Tensor, data: Path) -> list[int]:
    """Return which training images of the file these are."""
    with np.load(data, allow_pickle=False) as arrays:
        all_images = arrays["x_train"].reshape(small.N_IMAGES, -1)
    return [int((all_images == image).all(1).nonzero()[0][0]) for image in images.flatten(1).numpy()]


def stopped_as_promised(data: Path, run: Path, states: dict[int, Any], step: int, poison: Poison) -> str:
    """Return what was wrong with a run poisoned after that many steps, and with resuming it; empty if nothing."""
    with poisoned([step], poison) as seen:
        code, stderr = small.invaug(*small.arguments(data, run))
    named = re.search(r"images ([\d, ]+)", stderr)
    if code != 1 or stderr.count("\n") != 1 or not seen:
        return f"exit {code}: {stderr}"
    if named is None or [int(number) for number in named[1].split(",")] != ids_of(seen[0], data):
        return f"not the images of the batch, {ids_of(seen[0], data)}: {stderr}"
    wrong = small.summarize(small.differences(small.result(run), states[step], "saved"))
    if wrong:
        return wrong
    code, stderr = small.invaug(*small.resumed(run))
    return stderr if code else small.summarize(small.differences(small.result(run), states[small.N_STEPS], "resumed"))


def poisoned_runs(tries: int, folder: Path, make: Callable[[float, int], Poison]) -> Iterator[str]:
    """Poison as many runs, each after another number of steps."""
    small.one_thread()
    data, states = undisturbed(folder)
    random = np.random.default_rng(0)
    for i in range(tries):
        step, sample, value = int(random.integers(1, small.N_STEPS)), int(random.integers(small.BATCH)), random.random()
        poison = make(math.nan if value < 0.5 else math.inf, sample)
        wrong = stopped_as_promised(data, folder / f"run-{i}", states, step, poison)
        if wrong:
            yield f"try {i}, {'NaN' if value < 0.5 else 'inf'} after step {step}: {wrong}"


@case(
    "NaN or infinite loss at a random step: exit 1 naming the batch's images, the state before the step is saved bit "
    "for bit, --resume ends as the undisturbed run",
    full=100,
    fast=6,
)
def nan_loss(tries: int, folder: Path) -> Iterable[str]:
    """Poison the loss of one image of one batch."""
    return poisoned_runs(tries, folder, bad_loss)


@case(
    "NaN or infinite gradient under a finite loss at a random step: exit 1 naming the batch's images, the state "
    "before the step is saved bit for bit, --resume ends as the undisturbed run",
    full=100,
    fast=6,
)
def nan_gradient(tries: int, folder: Path) -> Iterable[str]:
    """Poison the gradient of one image of one batch."""
    return poisoned_runs(tries, folder, bad_gradient)


@case(
    "--on-nan skip: one bad batch is left out, the run ends with finite weights; a second in an epoch stops it",
    full=20,
    fast=2,
)
def skipped_nan(tries: int, folder: Path) -> Iterable[str]:
    """Poison one batch, then two of one epoch."""
    small.one_thread()
    data, per_epoch = small.write_data(folder), small.N_IMAGES // small.BATCH
    random = np.random.default_rng(0)
    for i in range(tries):
        epoch, steps = int(random.integers(small.EPOCHS)), random.permutation(per_epoch)[:2]
        first, second = sorted(int(step) + epoch * per_epoch for step in steps)
        with poisoned([first], bad_loss(math.nan, 0)):
            code, stderr = small.invaug(*small.arguments(data, folder / f"one-{i}", on_nan="skip"))
        rows = [row["skipped_batches"] for row in read(folder / f"one-{i}")]
        if (
            code
            or rows != [int(e == epoch) for e in range(small.EPOCHS)]
            or not finite(small.last(folder / f"one-{i}"))
        ):
            yield f"try {i}, one after step {first}: exit {code}, skipped {rows}: {stderr}"
            continue
        with poisoned([first, second], bad_loss(math.nan, 0)):
            code, stderr = small.invaug(*small.arguments(data, folder / f"two-{i}", on_nan="skip"))
        if code != 1 or "quota" not in stderr or not finite(small.last(folder / f"two-{i}")):
            yield f"try {i}, two after steps {first} and {second}: exit {code}: {stderr}"


def finite(found: checkpoint.Checkpoint) -> bool:
    """Whether weights, buffers, averages and gamma are."""
    tensors = [*found.state["model"].values(), *found.state["ema"].values(), *found.state["problem"].values()]
    return all(bool(tensor.isfinite().all()) for tensor in tensors)


NEVER, ALWAYS = 0.0, 1.0
LOSSES = ("zero", "tiny", "one", "inf", "nan")
# what Algorithm 1 does with a chain at the loss of the row when the loss of the column is proposed; 0/0 and inf/inf
# reject, NaN is left for anything and never entered; None is the ratio tiny / 1
OUTCOMES = {
    "zero": (NEVER, ALWAYS, ALWAYS, ALWAYS, NEVER),
    "tiny": (NEVER, ALWAYS, ALWAYS, ALWAYS, NEVER),
    "one": (NEVER, None, ALWAYS, ALWAYS, NEVER),
    "inf": (NEVER, NEVER, NEVER, NEVER, NEVER),
    "nan": (ALWAYS, ALWAYS, ALWAYS, ALWAYS, NEVER),
}
DTYPES = (torch.float16, torch.float32, torch.float64)


@case(
    "a loss of {0, tiny, 1, inf, NaN} proposed to a chain at each of them, in three float types: 10,000 chains of "
    "each do what is written",
    full=75,
    fast=75,
)
def acceptance(tries: int, folder: Path) -> Iterable[str]:
    """Propose each to each."""
    for current, (column, proposed), dtype in list(product(LOSSES, enumerate(LOSSES), DTYPES))[:tries]:
        tiny = torch.finfo(dtype).tiny
        values = {"zero": 0.0, "tiny": tiny, "one": 1.0, "inf": math.inf, "nan": math.nan}
        pair = torch.tensor([values[current], values[proposed]], dtype=dtype)
        written = OUTCOMES[current][column]
        chain = metropolis_hastings(pair.view(2, 1).expand(2, 10_000), generator=seeded(column))
        share = float(chain.accepted.double().mean())
        # at most one in 16,000 (float16) is accepted by the ratio
        allowed = (written, written) if written is not None else (0.0, 20 * tiny + 1e-3)
        probability = float(chain_probabilities(pair)[1])
        if not allowed[0] <= share <= allowed[1] or probability != (tiny if written is None else written):
            yield f"{current} -> {proposed} in {dtype}: {share} accepted, reported as {probability}"


@case(
    "an epsilon out of reach for 10,000 steps: at each, gamma is finite and [gamma + dual_lr * slack]_+, weights are "
    "finite; the record says out of reach",
    full=10_000,
    fast=300,
)
def infeasible(tries: int, folder: Path) -> Iterable[str]:
    """Ask for a loss of 0.001 on images each of which is of all three classes."""
    small.one_thread()
    per_epoch, wrong = 50, []
    dual_step = InvarianceConstrained.dual_step

    def watched(self: InvarianceConstrained, slacks: list[Tensor]) -> None:
        before, (slack,) = self.gamma.clone(), slacks
        dual_step(self, slacks)
        expected = max(0.0, float(before) + self.dual_lr * float(slack))
        if not math.isfinite(expected) or not math.isclose(float(self.gamma), expected, rel_tol=1e-6):
            wrong.append(f"gamma {float(before)} with slack {float(slack)} became {float(self.gamma)}")

    data = small.write_data(folder, per_epoch * small.BATCH, n_alike=3)
    settings = {"epsilon": 0.001, "dual_lr": 0.01, "epochs": tries // per_epoch, "schedule": "constant"}
    with patch.object(InvarianceConstrained, "dual_step", watched):
        code, stderr = small.invaug(*small.arguments(data, folder / "run", **settings))
    yield from wrong
    rows = read(folder / "run")
    if code or len(rows) != tries // per_epoch:
        yield f"exit {code} after {len(rows)} epochs: {stderr}"
    elif not finite(small.last(folder / "run")) or rows[-1]["out_of_reach"] != [True]:
        yield f"the record ends with {rows[-1]}"


def with_dropout(seed: int) -> nn.Sequential:
    """Return a network whose BatchNorms and dropout would show that it was scored."""
    torch.manual_seed(seed)
    body = [nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5), nn.Flatten()]
    return nn.Sequential(*body, nn.Linear(64, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))


def batches(seed: int) -> list[tuple[Tensor, Tensor]]:
    """Return six batches of random images and classes."""
    generator = seeded(seed)
    return [
        (
            torch.randint(256, (8, 1, 6, 6), dtype=torch.uint8, generator=generator),
            torch.randint(3, (8,), generator=generator),
        )
        for _ in range(6)
    ]


def trained(seed: int, optimizer: str, step: Callable[[nn.Module, Tensor, Tensor], Tensor]) -> dict[str, Any]:
    """Train on what `step` returns; return all that scoring could have left a trace in."""
    model, masks = with_dropout(seed), []
    model[3].register_forward_hook(lambda module, _, out: masks.append(out.detach() == 0) if module.training else None)
    kinds = {"sgd": {"lr": 0.1, "momentum": 0.9}, "adam": {"lr": 0.01}}
    chosen = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[optimizer](model.parameters(), **kinds[optimizer])
    torch.manual_seed(seed + 1)
    for images, targets in batches(seed):
        chosen.zero_grad()
        step(model, images, targets).backward()
        chosen.step()
    rng = torch.get_rng_state()
    return {"model": model.state_dict(), "optimizer": chosen.state_dict(), "masks": masks, "rng": rng}


def problem_step(problem: InvarianceConstrained) -> Callable[[nn.Module, Tensor, Tensor], Tensor]:
    """Return the Lagrangian as what is trained on."""
    return lambda model, images, targets: problem(model, images, targets).lagrangian


def by_hand(model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
    """Return the Lagrangian in plain torch, for gamma 0.5, epsilon 0.1 and a set of one transformation."""
    inputs = torch.cat([images, 255 - images]).float().div_(255)
    clean, changed = F.cross_entropy(model(inputs), targets.repeat(2), reduction="none").split(len(images))
    return clean.mean() + torch.tensor(0.5) * (changed.mean() - 0.1)


@case(
    "scoring 0, 1, 7 or 15 further proposals: weights, BatchNorm buffers, dropout masks and torch's generator as in "
    "plain torch without scoring, bit for bit",
    full=40,
    fast=8,
)
def no_trace(tries: int, folder: Path) -> Iterable[str]:
    """Compare with the same steps written by hand, on kept views that do not depend on the chain."""
    small.one_thread()
    inverted = TransformSet((Op("Fixed", lambda images, _: 255 - images),))
    for i, (seed, n_steps) in enumerate(product(range(tries), (0, 1, 7, 15))):
        if i == tries:
            return
        problem = InvarianceConstrained(
            Constraint(inverted, 0.1), n_steps=n_steps, views="both", gamma_init=0.5, seed=seed
        )
        kind = ("sgd", "adam")[seed % 2]
        wrong = small.summarize(
            small.differences(trained(seed, kind, problem_step(problem)), trained(seed, kind, by_hand))
        )
        if wrong:
            yield f"n_steps {n_steps}, seed {seed}: {wrong}"


def exact_law(losses: Sequence[float]) -> list[float]:
    """Return P(chain ends on each proposal) as the exact sum over all accept/reject paths of Algorithm 1."""
    law = [Fraction(0)] * len(losses)
    for path in product((False, True), repeat=len(losses) - 1):
        state, probability = 0, Fraction(1)
        for t, accepted in enumerate(path, start=1):
            p = exact_acceptance(losses[state], losses[t])
            probability *= p if accepted else 1 - p
            state = t if accepted else state
        law[state] += probability
    return [float(p) for p in law]


def exact_acceptance(current: float, proposed: float) -> Fraction:
    """Return min(1, proposed / current), with the conventions for numbers that have no ratio."""
    if math.isnan(current) or math.isnan(proposed):
        return Fraction(int(math.isnan(current) and not math.isnan(proposed)))
    if proposed == 0 or math.isinf(current):
        return Fraction(0)
    if current == 0 or math.isinf(proposed):
        return Fraction(1)
    return min(Fraction(1), Fraction(proposed) / Fraction(current))


def random_losses(random: np.random.Generator, dtype: torch.dtype) -> Tensor:
    """Return two to eight losses; some are zero, NaN or infinite."""
    losses = torch.from_numpy(random.exponential(size=random.integers(2, 9)))
    strange = torch.tensor([0.0, math.nan, math.inf], dtype=torch.float64)[torch.from_numpy(random.integers(3, size=8))]
    rare = torch.from_numpy(random.random(len(losses)) < 0.15)
    return torch.where(rare, strange[: len(losses)], losses).to(dtype)


@case(
    "1,000,000 chains through random losses, some 0, NaN or infinite: ends as often as the exact sum over all paths "
    "says (chi-square, one in a million)",
    full=40,
    fast=4,
)
def sampler_law(tries: int, folder: Path) -> Iterable[str]:
    """Compare counts with probabilities from plain Python, and those with the library's recursion."""
    from scipy.stats import chi2

    random = np.random.default_rng(0)
    for i in range(tries):
        losses = random_losses(random, (*DTYPES, torch.bfloat16)[i % 4])
        law = torch.tensor(exact_law(losses.tolist()), dtype=torch.float64)
        states = metropolis_hastings(losses.view(-1, 1).expand(-1, 1_000_000), generator=seeded(i)).state
        counts = torch.bincount(states, minlength=len(losses)).double()
        possible = law > 0
        expected = law[possible] * 1e6
        distance = float(((counts[possible] - expected) ** 2 / expected).sum())
        limit = float(chi2.ppf(1 - 1e-6, max(int(possible.sum()) - 1, 1)))
        recursion = bool(torch.allclose(chain_probabilities(losses), law, rtol=1e-9, atol=1e-12))
        if distance > limit or counts[~possible].sum() or not recursion:
            yield f"try {i}, {losses.tolist()}: {counts.tolist()} against {law.tolist()}, recursion {recursion}"


def plain(model: nn.Module, images: Tensor, targets: Tensor) -> Tensor:
    """Return the loss of ordinary training."""
    return F.cross_entropy(model(images.float().div_(255)), targets)


@case("epsilon = inf: weights, optimiser and generator as in plain torch training, bit for bit", full=20, fast=4)
def infinite_epsilon(tries: int, folder: Path) -> Iterable[str]:
    """Compare the problem without a bound with F.cross_entropy alone."""
    small.one_thread()
    for seed in range(tries):
        ways: tuple[Any, ...] = ("one", "both", views.apart)
        options: dict[str, Any] = {"n_steps": seed % 4, "views": ways[seed % 3], "seed": seed}
        options["n_views"] = 1 + seed % 2 if seed % 3 else 1
        problem = InvarianceConstrained(Constraint(sets.wide(), math.inf), gamma_init=float(seed % 2), **options)
        kind = ("sgd", "adam")[seed // 2 % 2]
        wrong = small.summarize(
            small.differences(trained(seed, kind, problem_step(problem)), trained(seed, kind, plain))
        )
        if wrong:
            yield f"seed {seed}, {options}: {wrong}"


@case("invaug train with epsilon = inf: weights, optimiser and EMA of --method none, bit for bit", full=10, fast=2)
def infinite_epsilon_run(tries: int, folder: Path) -> Iterable[str]:
    """Compare two runs of the command."""
    small.one_thread()
    data = small.write_data(folder)
    for seed in range(tries):
        states = []
        for name, settings in (("inf", {"epsilon": math.inf}), ("none", {"method": "none"})):
            code, stderr = small.invaug(*small.arguments(data, folder / f"{name}-{seed}", seed=seed, **settings))
            states.append({k: small.last(folder / f"{name}-{seed}").state[k] for k in ("model", "optimizer", "ema")})
            if code:
                yield f"seed {seed}: exit {code}: {stderr}"
        wrong = small.summarize(small.differences(*states))
        if wrong:
            yield f"seed {seed}: {wrong}"


@case(
    "operations x image sizes x {L, RGB}, each with every level and sign on 200 images: no byte differs from Pillow",
    full=532,
    fast=0,
)
def exactness(tries: int, folder: Path) -> Iterable[str]:
    """Run the exhaustive comparison."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-m",
        "slow",
        "-n",
        "2",
        "--dist",
        "worksteal",
        "-p",
        "no:cacheprovider",
        "tests/kernels/test_exact.py",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    yield from (line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR")))
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|errors?)", done.stdout)}
    if sum(counts.values()) != tries or done.returncode not in (0, 1):
        said = " ".join(done.stderr.split()[-20:])
        raise RuntimeError(f"{counts} instead of {tries}, exit {done.returncode}: {said}")
