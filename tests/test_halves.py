"""The two halves of a step, for loops that have a forward pass and a loss of their own."""

import math
from functools import partial

import pytest
import torch
from torch.nn import functional as F

from invaug import Constraint, InvarianceConstrained, sets, views
from tests.support.problems import (
    batch_norm_network,
    copy_of,
    fixed,
    inverted,
    make_images,
    make_targets,
    noisy,
    same_bits,
    smooth_network,
    to_double,
    two_view_problem,
)

N = 12
VIEWS = pytest.mark.parametrize("how", ["one", "both", views.apart], ids=["one", "both", "apart"])
cross_entropy = partial(F.cross_entropy, reduction="none")


def two_constraints(how, epsilon, **settings):
    constraints = [Constraint(sets.wide(), epsilon, share=0.5), Constraint(sets.rotations(1.0), 0.4)]
    return InvarianceConstrained(*constraints, views=how, gamma_init=0.8, dual_lr=0.1, finish=noisy, **settings)


def in_one(problem, model, images, targets):
    return problem(model, images, targets)


def in_halves(problem, model, images, targets):
    """Do what a loop of one's own does: prepare, forward, loss, evaluate."""
    batch = problem.prepare(model, images, targets)
    parts = batch.inputs.split(list(batch.passes) or [len(batch.inputs)])
    outputs = [model(part) for part in parts]
    losses = cross_entropy(torch.cat(outputs), batch.targets)
    return problem.evaluate(batch, losses, outputs[0])


def traced(step_of, how, epsilon):
    """Take four steps; return all they leave behind."""
    torch.manual_seed(3)
    model, problem = batch_norm_network(dropout=0.4), two_constraints(how, epsilon, n_steps=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(4)
    trace = {}
    for i in range(4):
        step = step_of(problem, model, make_images(N, i), make_targets(N, i))
        optimizer.zero_grad()
        step.lagrangian.backward()
        trace |= {f"{i} gradient of {name}": p.grad.clone() for name, p in model.named_parameters()}
        optimizer.step()
        problem.dual_step(step.slack)
        trace |= {f"{i} {name}": getattr(step, name).detach() for name in ("lagrangian", "loss", "slack", "epsilon")}
        trace |= {f"{i} outputs": step.outputs, f"{i} gamma": problem.gamma.clone()}
        trace |= {f"{i} kept {k}": draw.magnitude for k, draw in enumerate(step.kept)}
    return {**trace, **copy_of(model.state_dict()), **problem.state_dict(), "rng": torch.get_rng_state()}


@VIEWS
@pytest.mark.parametrize("epsilon", [0.5, "auto"])
def test_a_step_is_its_two_halves_in_a_row_bit_for_bit(how, epsilon):
    assert same_bits(traced(in_one, how, epsilon), traced(in_halves, how, epsilon))


@pytest.mark.parametrize("n_steps", [0, 1])
@pytest.mark.parametrize("epsilon", [0.5, "auto"])
def test_with_one_view_slack_and_epsilon_need_no_losses(epsilon, n_steps):
    """For loops that keep their losses to themselves: the scores say it all."""
    model, steps = smooth_network().float(), []
    for with_losses in (True, False):
        problem = two_constraints("one", epsilon, n_steps=n_steps)
        batch = problem.prepare(model, make_images(N), make_targets(N))
        losses = cross_entropy(model(batch.inputs), batch.targets) if with_losses else None
        steps.append(problem.evaluate(batch, losses))
        problem.dual_step(steps[-1].slack)
        assert (problem.gamma != 0.8).all()
    known, unknown = steps
    assert torch.equal(known.slack, unknown.slack)
    assert torch.equal(known.epsilon, unknown.epsilon)
    assert unknown.lagrangian.isnan()
    assert unknown.loss.isnan()
    assert unknown.outputs is None
    assert torch.equal(known.kept[0].magnitude, unknown.kept[0].magnitude)


@pytest.mark.parametrize("how", ["both", views.apart, views.kept_only], ids=["both", "apart", "kept only"])
def test_without_losses_other_views_are_refused_with_the_way_out(how):
    problem = InvarianceConstrained(Constraint(sets.wide(), 0.5), views=how)
    batch = problem.prepare(smooth_network().float(), make_images(N), make_targets(N))
    with pytest.raises(ValueError, match=r'^without losses only views="one" can be evaluated'):
        problem.evaluate(batch)


@VIEWS
@pytest.mark.parametrize("wrong", [torch.mean, lambda losses: losses[:-1], lambda losses: losses[:, None]])
def test_losses_that_are_not_one_per_input_are_refused(how, wrong):
    problem, model = two_constraints(how, 0.5), smooth_network().float()
    batch = problem.prepare(model, make_images(N), make_targets(N))
    losses = cross_entropy(model(batch.inputs), batch.targets)
    with pytest.raises(ValueError, match=r'^losses must have shape \(\d+,\), one per input, got .* reduction="none"'):
        problem.evaluate(batch, wrong(losses))


def test_a_rule_knows_the_classes_from_the_scores_or_asks_for_the_outputs():
    model, targets = smooth_network().float(), make_targets(N)
    for n_steps in (0, 1):
        problem = two_view_problem(Constraint(sets.wide(), "auto"), n_steps=n_steps, gamma_init=1.0)
        batch = problem.prepare(model, make_images(N), targets)
        outputs = model(batch.inputs)
        losses = cross_entropy(outputs, batch.targets)
        known = problem.evaluate(batch, losses, outputs)
        # an answer that tells nothing, as of a model library, does not hide what scoring has seen
        for answer in (None, {"logits": outputs}):
            if n_steps == 0:
                with pytest.raises(ValueError, match=r"no outputs tell the number of classes: give Resilient\(guess="):
                    problem.evaluate(batch, losses, answer)
            else:
                assert torch.equal(problem.evaluate(batch, losses, answer).epsilon, known.epsilon)


def test_the_loss_of_the_loop_is_the_one_that_counts():
    """A loop may add what it likes to its losses: the Lagrangian and, with two views, the slack follow."""
    problem, model = two_view_problem(Constraint(fixed(inverted), 0.5), gamma_init=2.0), smooth_network()
    problem.finish = to_double
    batch = problem.prepare(model, make_images(N), make_targets(N))
    losses = torch.arange(2.0 * N, dtype=torch.float64)
    step = problem.evaluate(batch, losses)
    clean, kept = losses.chunk(2)
    assert step.loss == clean.mean()
    assert step.slack.item() == kept.mean().item() - 0.5
    assert step.lagrangian == clean.mean() + 2 * (kept.mean() - 0.5)


@VIEWS
def test_slacks_of_accumulated_batches_are_averaged(how):
    model = smooth_network()
    problem, by_hand = (
        InvarianceConstrained(Constraint(sets.wide(), 0.5), Constraint(sets.rotations(1.0), "auto"), views=how, **each)
        for each in [{"finish": to_double, "dual_lr": 0.7, "gamma_init": 1.0}] * 2
    )
    slacks = []
    for i in range(4):
        batch = make_images(N, i), make_targets(N, i)
        slacks.append(problem(model, *batch).slack)
    problem.dual_step(slacks)
    mean = [sum(slack[k].item() for slack in slacks) / 4 for k in range(2)]
    by_hand.dual_step(torch.tensor(mean, dtype=torch.float64))
    torch.testing.assert_close(problem.gamma, by_hand.gamma, rtol=1e-14, atol=0)
    torch.testing.assert_close(problem.gamma.tolist(), [max(0.0, 1.0 + 0.7 * slack) for slack in mean])
    assert (problem.gamma != 1.0).all()


def test_four_micro_batches_take_the_step_of_the_batch_they_make():
    """Gradients accumulated as everyone does, slacks as a list: weights and γ are those of the whole batch."""
    images, targets = make_images(4 * N), make_targets(4 * N)
    found = []
    for n_parts in (1, 4):
        model = smooth_network()
        problem = two_view_problem(
            Constraint(fixed(inverted), 0.5), gamma_init=1.5, dual_lr=0.3, finish=to_double, n_steps=0
        )
        slacks = []
        for x, y in zip(images.chunk(n_parts), targets.chunk(n_parts), strict=True):
            step = problem(model, x, y)
            (step.lagrangian / n_parts).backward()
            slacks.append(step.slack)
        problem.dual_step(slacks)
        found.append([*(p.grad for p in model.parameters()), problem.gamma.clone()])
    torch.testing.assert_close(*found, rtol=1e-11, atol=1e-13)


def test_a_bad_micro_batch_leaves_gamma_where_it_is():
    problem = two_view_problem(Constraint(sets.wide(), 0.5), gamma_init=0.5)
    problem.dual_step([torch.tensor([1.0]), torch.tensor([math.nan])])
    assert problem.gamma.item() == 0.5


@pytest.mark.parametrize("slack", [torch.zeros(3), [torch.zeros(3)] * 2, [torch.tensor(0.0)] * 2])
def test_slacks_of_the_wrong_shape_are_refused(slack):
    problem = two_view_problem(Constraint(sets.wide(), 0.5), Constraint(sets.wide(), 0.5))
    with pytest.raises(ValueError, match=r"slack must have shape \(2,\), got \("):
        problem.dual_step(slack)


def test_prepare_counts_batches_and_a_generator_makes_it_repeatable():
    problem, model = two_constraints("both", 0.5), smooth_network().float()
    batches = []
    for seed in (5, 5, 6):
        torch.manual_seed(0)
        generator = torch.Generator().manual_seed(seed)
        batches.append(problem.prepare(model, make_images(N), make_targets(N), generator=generator))
    assert torch.equal(batches[0].inputs, batches[1].inputs)
    assert not torch.equal(batches[0].inputs, batches[2].inputs)
    assert int(problem.n_batches) == 3
