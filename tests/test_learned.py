"""A law that learns: what it learns, how it draws, and that chains correct for it."""

import math
from dataclasses import replace

import pytest
import torch

from invaug import Constraint, InvarianceConstrained, InvarianceMixture, sets, worst
from invaug.learned import BOUNDS, N_BINS, LossTable
from problems import make_images, make_targets, seeded, smooth_network, to_double
from test_memory import SET, Looker, grey, mean_pixel

MILD = sets.mild()


def shares(draw, transforms):
    """How often each operation and bin was drawn, over all layers."""
    cells = torch.cat([layer.op * N_BINS + layer.level.clamp(min=0) * N_BINS // 31 for layer in draw.layers])
    return torch.bincount(cells, minlength=len(transforms.ops) * N_BINS).double() / len(cells)


def filled(transforms, power=1.0, seed=0):
    table = LossTable(transforms, power)
    table.ratio.copy_(0.3 + 2 * torch.rand(table.ratio.shape, generator=seeded(seed)))
    return table


@pytest.mark.parametrize("power", [0.0, 1.0, 2.0])
def test_draws_follow_the_uniform_law_times_the_hardness_to_a_power(power):
    table, n = filled(MILD, power), 60_000
    found = shares(MILD.draw(n, generator=seeded(1), law=table.law()), MILD)
    counts = torch.bincount(torch.arange(31) * N_BINS // 31).double()
    expected = (counts / 31 / len(MILD.ops) * table.ratio.double() ** power).flatten()
    expected /= expected.sum()
    error = (expected * (1 - expected) / (2 * n)).sqrt()
    assert ((found - expected).abs() <= 5 * error).all()


def test_an_untaught_law_is_the_uniform_one():
    found = shares(MILD.draw(60_000, generator=seeded(1), law=LossTable(MILD, 3.0).law()), MILD)
    uniform = shares(MILD.draw(60_000, generator=seeded(2)), MILD)
    assert (found - uniform).abs().max() < 5 * math.sqrt(2 / len(found) / 120_000)


def test_levels_and_weights_that_are_left_out_are_never_drawn():
    transforms = replace(sets.wide(5, min_level=1), weights=(0.0, *[1.0] * 13))
    draw = transforms.draw(5000, generator=seeded(0), law=filled(transforms).law())
    assert set(draw.level.tolist()) == {1, 2, 3, 4}
    assert int(draw.op.min()) == 1


def test_continuous_sets_learn_by_operation():
    transforms = sets.rotations(1.0)
    table = filled(transforms)
    draw = transforms.draw(200, generator=seeded(0), law=table.law())
    assert (draw.level == -1).all()
    table.learn(draw, torch.ones(200))
    assert float(draw.magnitude.min()) < -0.8
    assert float(draw.magnitude.max()) > 0.8


def test_it_learns_the_ratio_of_losses():
    table, truth = LossTable(MILD, 1.0), 0.5 + torch.rand(14, N_BINS, generator=seeded(3))
    for step in range(1500):
        draw = MILD.draw(32, generator=seeded(step), law=table.law())
        hardness = math.prod(truth[layer.op, layer.level * N_BINS // 31] for layer in draw.layers)
        table.learn(draw, 2 * hardness)
    product = (table.ratio.double() / table.ratio.mean()) / (truth / truth.mean())
    assert float(product.std()) < 0.1
    assert torch.corrcoef(torch.stack([table.ratio.flatten(), truth.flatten()]))[0, 1] > 0.97


@pytest.mark.parametrize("n", [1, 4096])
def test_any_batch_size_and_any_loss_leave_it_finite(n):
    table = LossTable(MILD, 2.0)
    for value in (1.0, 0.0, 1e30, math.inf, math.nan, 1e-30):
        draw = MILD.draw(n, generator=seeded(0), law=table.law())
        table.learn(draw, torch.full((n,), value))
        assert torch.isfinite(table.ratio).all()
        assert BOUNDS[0] <= float(table.ratio.min()) <= float(table.ratio.max()) <= BOUNDS[1] + 1e-6


@pytest.mark.parametrize("remember", [False, True])
def test_chains_end_on_lambda_c_whatever_was_learned(remember):
    images, targets, rows = grey()
    settings = {"n_steps": 1, "remember": len(rows), "age": 10**4} if remember else {"n_steps": 40}
    problem = InvarianceConstrained(Constraint(SET, 0.2), loss_fn=mean_pixel, learn=2.0, seed=3, **settings)
    problem.tables[0].ratio.copy_(filled(SET).ratio)
    model = Looker()
    for _ in range(40 if remember else 1):
        step = problem(model, images, targets, indices=rows)
    every = SET.every()
    losses = model(SET.apply(images[:1].repeat(len(every), 1, 1, 1), every).float() / 255).detach().double()
    cells = every.op * 5 + every.level
    uniform = torch.tensor([0.2 if SET.names[op] != "Identity" else 1.0 for op in every.op.tolist()])
    law = uniform / torch.bincount(cells)[cells] * losses
    law /= law.sum()
    for op, name in enumerate(SET.names):
        found, expected = float((step.kept[0].op == op).double().mean()), float(law[every.op == op].sum())
        assert found == pytest.approx(expected, abs=4.5 * math.sqrt(expected * (1 - expected) / len(rows))), name
    kept = model(SET.apply(images, step.kept[0]).float() / 255).detach()
    torch.testing.assert_close(step.chains[0].loss.flatten().float(), kept, rtol=1e-4, atol=1e-4)


def test_the_mixture_counts_chains_by_the_corrected_law():
    """Its slack is the exact mean over accept/reject draws: that of many two-view steps, whose table stands still."""
    model, images, targets = smooth_network(), make_images(6), make_targets(6)
    slacks = []
    for kind, more in ((InvarianceConstrained, {}), (InvarianceMixture, {"watched": 1.0})):
        problem = kind(Constraint(sets.wide(), 0.5), finish=to_double, n_steps=2, learn=2.0, **more).double()
        problem.gamma.fill_(1.0)
        found = []
        for seed in range(500):
            problem.tables[0].ratio.copy_(filled(sets.wide(), 2.0, 5).ratio)
            with torch.no_grad():
                found.append(problem(model, images, targets, generator=seeded(seed)).slack[0])
        slacks.append(torch.stack(found))
    both, mixed = slacks
    assert abs(both.mean() - mixed.mean()) <= 5 * math.sqrt((both.var() + mixed.var()).item() / 500)
    assert mixed.var() < both.var()


def test_other_samplers_see_the_losses_as_they_are():
    problem = InvarianceConstrained(
        Constraint(sets.wide(), 0.5, worst), finish=to_double, n_steps=3, learn=2.0
    ).double()
    problem.tables[0].ratio.copy_(filled(sets.wide()).ratio)
    plain = InvarianceConstrained(Constraint(sets.wide(), 0.5, worst), finish=to_double, n_steps=3).double()
    model, images, targets = smooth_network(), make_images(6), make_targets(6)
    step = problem(model, images, targets, generator=seeded(0))
    assert step.slack.item() == pytest.approx(step.chains[0].loss.mean().item() - 0.5)
    assert plain(model, images, targets, generator=seeded(0)).slack.item() != step.slack.item()


@pytest.mark.parametrize("kind", [InvarianceConstrained, InvarianceMixture])
def test_without_chains_it_learns_from_what_was_trained_on_and_is_saved(kind):
    def made():
        return kind(Constraint(sets.mild(), "auto"), finish=to_double, n_steps=0, learn=2.0, gamma_init=1.0).double()

    problem, model = made(), smooth_network()
    for seed in range(20):
        problem(model, make_images(6, seed, channels=1), make_targets(6, seed))
    assert float(problem.tables[0].ratio.std()) > 0.001
    again = made()
    again.load_state_dict(problem.state_dict())
    one, two = (each(model, make_images(6), make_targets(6)) for each in (problem, again))
    assert torch.equal(one.kept[0].op, two.kept[0].op)
    assert torch.equal(problem.tables[0].ratio, again.tables[0].ratio)


def test_bad_powers_are_refused():
    for power in (-1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="learn must not be negative or infinite"):
            InvarianceConstrained(Constraint(sets.wide(), 1.0), learn=power)


def test_the_law_is_that_of_the_table_as_it_is_now():
    table, uniforms = LossTable(MILD, 1.0), torch.rand(2, 5000, generator=seeded(0)).double().numpy()
    before = table.law()(uniforms)[0]
    table.ratio.copy_(filled(MILD).ratio)
    after = table.law()(uniforms)[0]
    assert (before != after).any()
    table.load_state_dict(LossTable(MILD, 1.0).state_dict())
    assert (table.law()(uniforms)[0] == before).all()
    table.double().ratio.copy_(filled(MILD).ratio)
    assert (table.law()(uniforms)[0] == after).all()
