"""Chains that go on from visit to visit: their law, what they cost, how old they get."""

import math

import pytest
import torch
from torch import nn

from invaug import Constraint, InvarianceConstrained, InvarianceMixture, sets
from invaug.memory import ChainMemory

SET = sets.wide(5).only("Brightness", "Solarize", "Identity")
N = 1500


class Looker(nn.Module):
    """Says the mean pixel of each image, whatever its mode, and counts what it was shown without gradient."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))
        self.scored = 0

    def forward(self, inputs):
        if not torch.is_grad_enabled():
            self.scored += len(inputs)
        return self.scale * inputs.flatten(1).mean(1)


def mean_pixel(outputs, targets):
    return outputs


def remembering(kind=InvarianceConstrained, n=N, **settings):
    return kind(Constraint(SET, 0.2), **{"loss_fn": mean_pixel, "remember": n, "age": 10**4, "seed": 3, **settings})


def grey(n=N):
    return torch.full((n, 3, 8, 8), 100, dtype=torch.uint8), torch.zeros(n, dtype=torch.long), torch.arange(n)


def test_where_the_loss_is_stable_long_visits_draw_from_lambda_c():
    images, targets, rows = grey()
    problem, model = remembering(), Looker()
    for _ in range(40):
        step = problem(model, images, targets, indices=rows)
    every = SET.every()
    losses = model(SET.apply(images[:1].repeat(len(every), 1, 1, 1), every).float() / 255).detach().double()
    # all draws of an operation at a level are equally likely; operations without levels have them all
    levels = torch.tensor([1 / 5 if SET.names[op] != "Identity" else 1.0 for op in every.op.tolist()])
    signs = torch.bincount(every.op * 5 + every.level)[every.op * 5 + every.level]  # two signs share a level
    uniform = levels / signs
    law = uniform * losses
    law, uniform = law / law.sum(), uniform / uniform.sum()
    for op, name in enumerate(SET.names):
        found = float((step.kept[0].op == op).double().mean())
        expected = float(law[every.op == op].sum())
        assert found == pytest.approx(expected, abs=4 * math.sqrt(expected * (1 - expected) / N)), name
    assert float(step.slack + 0.2) == pytest.approx(float((law * losses).sum()), rel=0.03)
    assert float((law * losses).sum()) > 1.1 * float((uniform * losses).sum())  # far from uniform draws


def test_one_proposal_a_visit_is_scored_and_old_losses_are_as_they_were():
    images, targets, rows = grey(64)
    problem, model = remembering(n=64), Looker()
    for _ in range(5):
        step = problem(model, images, targets, indices=rows)
    assert model.scored == 5 * 64
    assert float(step.staleness) == pytest.approx(0.0, abs=1e-6)
    with torch.no_grad():
        model.scale.mul_(0.5)
    step = problem(model, images, targets, indices=rows)
    stayed = step.chains[0].state.view(-1) == 0
    assert 0 < int(stayed.sum()) < 64
    assert float(step.staleness) == pytest.approx(float(problem.memories[0].loss[stayed].mean()), rel=1e-4)


@pytest.mark.parametrize("kind", [InvarianceConstrained, InvarianceMixture])
def test_what_is_kept_is_what_is_trained_on_and_remembered(kind):
    images, targets, rows = grey(48)
    images = images + torch.arange(48, dtype=torch.uint8).view(-1, 1, 1, 1)
    problem, model = remembering(kind, n=48, gamma_init=2.0), Looker()
    for _ in range(6):
        step = problem(model, images, targets, indices=rows)
        draw, loss = problem.memories[0].recall(rows)
        seen = ~loss.isnan()
        again = model(SET.apply(images, draw).float() / 255).detach()
        assert torch.allclose(again[seen], loss[seen], atol=1e-6)
    assert seen.sum() >= 40
    assert len(step.kept[0]) == (48 if kind is InvarianceConstrained else 32)


def test_a_chain_that_stays_too_long_starts_anew():
    memory = ChainMemory(3, age=2)
    draw, rows = SET.draw(2, generator=torch.Generator().manual_seed(0)), torch.tensor([2, 0])
    memory.keep(rows, draw, torch.tensor([0.5, 0.7]), torch.tensor([False, False]))
    for stays in range(3):
        found, loss = memory.recall(torch.tensor([0, 1, 2]))
        assert found.op[[2, 0]].tolist() == draw.op.tolist()
        assert loss.isnan().tolist() == [stays == 2, True, stays == 2]
        memory.keep(rows, draw, torch.tensor([0.5, 0.7]), torch.tensor([True, True]))


def test_a_resumed_problem_goes_on_with_the_same_chains():
    images, targets, rows = grey(40)
    problem, model = remembering(n=40), Looker()
    for _ in range(3):
        problem(model, images, targets, indices=rows)
    again = remembering(n=40)
    again.load_state_dict(problem.state_dict())
    one, other = (each(model, images, targets, indices=rows) for each in (problem, again))
    assert one.kept[0].magnitude.tolist() == other.kept[0].magnitude.tolist()
    assert one.slack.tolist() == other.slack.tolist()


def test_shifts_along_both_axes_are_remembered():
    images, targets = torch.randint(256, (16, 1, 12, 12), dtype=torch.uint8), torch.zeros(16, dtype=torch.long)
    problem = InvarianceConstrained(Constraint(sets.translations(3.0), 0.5), loss_fn=mean_pixel, remember=16)
    for _ in range(3):
        step = problem(Looker(), images, targets, indices=torch.arange(16))
    assert problem.memories[0].recall(torch.arange(16))[0].magnitude.tolist() == step.kept[0].magnitude.tolist()


def test_operations_in_a_row_are_remembered_together():
    images, targets = torch.randint(256, (16, 3, 12, 12), dtype=torch.uint8), torch.zeros(16, dtype=torch.long)
    problem = InvarianceConstrained(Constraint(sets.mild(), 0.5), loss_fn=mean_pixel, remember=16)
    for _ in range(3):
        step = problem(Looker(), images, targets, indices=torch.arange(16))
    recalled, _ = problem.memories[0].recall(torch.arange(16))
    assert sets.mild().describe(recalled) == sets.mild().describe(step.kept[0])
    again = InvarianceConstrained(Constraint(sets.mild(), 0.5), loss_fn=mean_pixel, remember=16)
    again.load_state_dict(problem.state_dict())
    one, other = (each(Looker(), images, targets, indices=torch.arange(16)) for each in (problem, again))
    assert sets.mild().describe(one.kept[0]) == sets.mild().describe(other.kept[0])
    assert one.slack.tolist() == other.slack.tolist()


@pytest.mark.parametrize("indices", [None, torch.arange(3)])
def test_a_batch_without_its_indices_is_refused(indices):
    images, targets, _ = grey(4)
    with pytest.raises(
        ValueError, match=r"^remembered chains need the index of each training image, shape \(4,\), got"
    ):
        remembering(n=4)(Looker(), images, targets, indices=indices)


@pytest.mark.parametrize("wrong", [{"n_steps": 0}, {"n_views": 2}])
def test_what_has_no_chain_to_remember_is_refused(wrong):
    with pytest.raises(ValueError, match="remember needs chains of one view an image"):
        remembering(**wrong)
    with pytest.raises(ValueError, match="a memory needs images and an age of at least 1"):
        ChainMemory(4, age=0)


@pytest.mark.parametrize("transforms", [sets.mild(), sets.translations(3.0)], ids=["in a row", "two axes"])
def test_what_is_known_of_some_images_can_be_put_back(transforms):
    images, targets = torch.randint(256, (16, 3, 12, 12), dtype=torch.uint8), torch.zeros(16, dtype=torch.long)
    problem = InvarianceConstrained(Constraint(transforms, 0.5), loss_fn=mean_pixel, remember=16)
    problem(Looker(), images, targets, indices=torch.arange(16))
    memory, rows = problem.memories[0], torch.tensor([3, 0, 7])
    before = {name: value.clone() for name, value in memory.state_dict().items()}
    copies = memory.copied(rows)
    problem(Looker(), images[rows], targets[rows], indices=rows)
    assert any(not torch.equal(value, before[name]) for name, value in memory.state_dict().items())
    memory.put_back(rows, copies)
    assert len(copies) == len(before)
    assert all(torch.equal(value, before[name]) for name, value in memory.state_dict().items())
