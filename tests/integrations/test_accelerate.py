"""Loops of Hugging Face accelerate: checkpoints, accumulation, mixed precision, on real digits."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

if find_spec("accelerate") is None:
    reason = "NOT TRAINED WITH ACCELERATE: it is not installed; `make integrations` installs it"
    pytest.skip(reason, allow_module_level=True)

import math
from collections.abc import Iterator
from functools import partial

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from invaug import Constraint, InvarianceConstrained, sets
from invaug.integrations.common import DualSteps
from tests.support.images import load_labelled_digits
from tests.support.problems import copy_of, same_bits

pytestmark = pytest.mark.integrations
N_BATCHES = 8


@pytest.fixture(autouse=True)
def _one_accelerator_per_test() -> Iterator[None]:
    yield
    AcceleratorState._reset_state(True)
    GradientState._reset_state()


def network(dropout=0.3):
    torch.manual_seed(0)
    body = [nn.Conv2d(1, 8, 5, stride=3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Dropout(dropout)]
    return nn.Sequential(*body, nn.Linear(512, 10))


def digits(batch_size=16):
    images, labels = (torch.from_numpy(array[: 16 * N_BATCHES]) for array in load_labelled_digits())
    return DataLoader(TensorDataset(images[:, None], labels), batch_size)


def make_problem(epsilon="auto", **settings):
    return InvarianceConstrained(Constraint(sets.wide(), epsilon), **{"dual_lr": 0.5, "gamma_init": 0.5, **settings})


class Loop:
    """What the page of the docs shows, and everything it needs."""

    def __init__(self, problem, batch_size=16, dropout=0.3, **settings):
        self.accelerator = Accelerator(cpu=True, **settings)
        model, self.problem = network(dropout), problem
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        self.duals = DualSteps(problem)
        self.model, self.optimizer, self.loader = self.accelerator.prepare(model, optimizer, digits(batch_size))
        self.duals.follow(self.optimizer)
        self.accelerator.register_for_checkpointing(problem)
        torch.manual_seed(1)

    def train(self, start=0, stop=None):
        loader = self.accelerator.skip_first_batches(self.loader, start) if start else self.loader
        for i, (images, targets) in enumerate(loader, start):
            if i == stop:
                return self
            with self.accelerator.accumulate(self.model):
                step = self.problem(self.model, images, targets)
                self.accelerator.backward(step.lagrangian)
                self.duals.add(step.slack)
                self.optimizer.step()
                self.optimizer.zero_grad()
        return self

    def trace(self):
        moments = self.optimizer.state_dict()["state"]
        of_optimiser = {f"{i} {name}": value for i, each in moments.items() for name, value in each.items()}
        ours = self.problem.state_dict()
        return copy_of({**self.model.state_dict(), **of_optimiser, **ours, "rng": torch.get_rng_state()})


@pytest.mark.parametrize("n_steps", [1, 2])
def test_a_loop_that_is_resumed_after_an_epoch_ends_at_the_same_bits(tmp_path, n_steps):
    whole, saved, resumed = (
        partial(Loop, make_problem(gamma_init=gamma), gradient_accumulation_steps=n_steps) for gamma in (0.5, 0.5, 0.1)
    )
    wanted = whole().train().train().trace()
    done = saved().train()
    done.accelerator.save_state(tmp_path)
    loop = resumed()
    loop.accelerator.load_state(tmp_path)
    assert torch.equal(loop.problem.gamma, done.problem.gamma)
    assert int(loop.problem.n_batches) == N_BATCHES
    assert same_bits(loop.train().trace(), wanted)
    assert wanted["gamma"].item() not in (0.0, 0.5)


def test_a_loop_that_is_resumed_within_an_epoch_ends_at_the_same_bits(tmp_path):
    """Without dropout: a DataLoader that starts again takes one number more from torch's generator."""
    wanted = Loop(make_problem(), dropout=0.0).train().trace()
    Loop(make_problem(), dropout=0.0).train(stop=5).accelerator.save_state(tmp_path)
    loop = Loop(make_problem(gamma_init=0.1), dropout=0.0)
    loop.accelerator.load_state(tmp_path)
    found = loop.train(start=5).trace()
    assert same_bits({**found, "rng": wanted["rng"]}, wanted)


def test_with_an_infinite_epsilon_the_weights_are_those_of_the_plain_loop():
    found = Loop(make_problem(math.inf)).train().trace()
    accelerator, model = Accelerator(cpu=True), network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer, loader = accelerator.prepare(model, optimizer, digits())
    torch.manual_seed(1)
    for images, targets in loader:
        accelerator.backward(F.cross_entropy(model(images / 255), targets))
        optimizer.step()
        optimizer.zero_grad()
    assert same_bits(copy_of(model.state_dict()), {name: found[name] for name in model.state_dict()})


@pytest.mark.parametrize("n_steps", [2, 4])
def test_accumulated_batches_take_the_steps_of_our_own_loop(n_steps):
    """One dual step, with the mean slack, per step of the optimiser; the gradient is the mean of the micro-batches'."""
    loop = Loop(make_problem(), dropout=0.0, gradient_accumulation_steps=n_steps).train()
    model, problem = network(0.0), make_problem()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    batches = list(digits())
    for i in range(0, N_BATCHES, n_steps):
        steps = [problem(model, *batch) for batch in batches[i : i + n_steps]]
        optimizer.zero_grad()
        (sum(step.lagrangian for step in steps) / n_steps).backward()
        optimizer.step()
        problem.dual_step([step.slack for step in steps])
    torch.testing.assert_close(loop.problem.gamma, problem.gamma, rtol=1e-5, atol=0)
    torch.testing.assert_close(loop.model.state_dict(), model.state_dict(), rtol=1e-4, atol=1e-5)


def test_bfloat16_scores_and_trains():
    loop = Loop(make_problem(), mixed_precision="bf16").train()
    assert loop.problem.gamma.dtype == torch.float64
    assert loop.problem.gamma.item() not in (0.0, 0.5)
    assert all(parameter.isfinite().all() for parameter in loop.model.parameters())


def test_dual_steps_per_micro_batch_are_refused_with_the_way_out():
    loop = Loop(make_problem(), gradient_accumulation_steps=2)
    add = loop.duals.add

    def add_and_step(slack):
        add(slack)
        loop.problem.dual_step(slack)

    loop.duals.add = add_and_step
    with pytest.raises(RuntimeError, match=r"^gamma has moved between two steps of the optimiser: do not call dual_"):
        loop.train()
