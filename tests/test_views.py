"""One view per image: gradient and slack of the two-view Lagrangian in the mean, at the cost of plain training."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from invaug import Constraint, InvarianceConstrained, sets, views, worst
from invaug.views import systematic_assignment
from tests.support.problems import (
    Recorder,
    fixed,
    inverted,
    make_images,
    make_targets,
    seeded,
    smooth_network,
    to_double,
)

N = 6
GAMMAS = (0.7, 1.6)


def flipped(images):
    return images.flip(-1)


def problem(how, *constraints, gammas, **settings):
    made = InvarianceConstrained(*constraints, views=how, finish=to_double, **settings)
    made.gamma.copy_(torch.tensor(gammas))
    return made


def gradient(made, model, images, targets, seed):
    model.zero_grad()
    step = made(model, images, targets, generator=seeded(seed))
    step.lagrangian.backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()]), step


def assert_mean_is(samples, expected):
    """Five standard errors of the mean, in every component."""
    samples = torch.stack(samples)
    error = samples.std(0) / math.sqrt(len(samples))
    assert ((samples.mean(0) - expected).abs() <= 5 * error + 1e-12).all()
    assert (error > 0).any()


def test_gradient_and_slack_have_the_mean_of_the_two_view_lagrangian():
    constraints = [Constraint(fixed(inverted), 0.5, share=0.3), Constraint(fixed(flipped), 0.3, share=0.3)]
    model, images, targets = smooth_network(), make_images(N), make_targets(N)
    whole = [replace(constraint, share=1.0) for constraint in constraints]
    both = problem("both", *whole, gammas=GAMMAS, n_steps=0)
    expected, step = gradient(both, model, images, targets, 0)
    mixed = problem("one", *constraints, gammas=GAMMAS, n_steps=0)
    found = [gradient(mixed, model, images, targets, seed) for seed in range(900)]
    total = 1 + sum(GAMMAS)
    assert_mean_is([each for each, _ in found], expected / total)
    assert_mean_is([s.slack for _, s in found], step.slack)
    assert_mean_is([s.lagrangian.detach()[None] for _, s in found], step.lagrangian.detach()[None] / total)


def test_with_chains_the_slack_has_the_same_mean():
    constraint = Constraint(sets.wide(), 0.5, share=1.0)
    model, images, targets = smooth_network(), make_images(N), make_targets(N)
    with torch.no_grad():
        both, mixed = (
            torch.stack([made(model, images, targets, generator=seeded(seed)).slack[0] for seed in range(500)])
            for made in (problem(how, constraint, gammas=(1.0,), n_steps=2) for how in ("both", "one"))
        )
    error = math.sqrt((both.var() + mixed.var()).item() / 500)
    assert abs(both.mean() - mixed.mean()) <= 5 * error


def test_with_chains_the_gradient_has_the_mean_of_the_two_view_lagrangian():
    constraint = Constraint(sets.wide().only("Rotate", "Solarize"), 0.5)
    model, images, targets = smooth_network(), make_images(N), make_targets(N)
    both, mixed = (
        torch.stack([gradient(made, model, images, targets, seed)[0] for seed in range(500)])
        for made in (problem(how, constraint, gammas=(2.0,), n_steps=1) for how in ("both", "one"))
    )
    both = both / (1 + 2.0)
    error = ((both.var(0) + mixed.var(0)) / 500).sqrt()
    assert ((both.mean(0) - mixed.mean(0)).abs() <= 5 * error + 1e-12).all()


def test_without_gamma_it_is_plain_training_and_still_watches():
    constraint = Constraint(fixed(inverted), 0.1, share=1.0)
    model, images, targets = smooth_network(), make_images(N), make_targets(N)
    made = problem("one", constraint, gammas=(0.0,), n_steps=0)
    found, step = gradient(made, model, images, targets, 3)
    model.zero_grad()
    F.cross_entropy(model(to_double(images)), targets).backward()
    plain = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
    assert torch.equal(found, plain)
    expected = F.cross_entropy(model(to_double(inverted(images))), targets).item() - 0.1
    assert step.slack.item() == pytest.approx(expected)
    made.dual_lr = 0.5
    made.dual_step(step.slack)
    assert made.gamma.item() == pytest.approx(0.5 * expected)


class Counter(nn.Module):
    """Counts the images a network sees, with gradient and without."""

    def __init__(self):
        super().__init__()
        self.network, self.counts = smooth_network(), {True: 0, False: 0}

    def forward(self, x):
        self.counts[torch.is_grad_enabled()] += len(x)
        return self.network(x)


@pytest.mark.parametrize(
    ("gamma", "n_steps", "share", "epsilon", "scored"),
    [
        (0.0, 1, 0.25, 0.5, 2 * 2),
        (0.0, 0, 0.25, 0.5, 2),
        (0.0, 1, None, 0.5, 2 * 1),
        (1.0, 1, 0.25, 0.5, 2 * 4),
        (1.0, 0, 0.25, 0.5, 2),
        (3.0, 2, 1.0, 0.5, 3 * 8),
        (0.0, 1, 0.25, "auto", 2 * 2 + 2),  # the clean views of those it is measured on
        (1.0, 1, None, "auto", 2 * 4 + 1),
        (1.0, 0, None, "auto", 1 + 1),
        (3.0, 2, 1.0, "auto", 3 * 8 + 8),
    ],
)
def test_it_costs_one_gradient_pass_and_what_it_looks_at(gamma, n_steps, share, epsilon, scored):
    model = Counter()
    made = problem("one", Constraint(sets.wide(), epsilon, share=share), gammas=(gamma,), n_steps=n_steps)
    made(model, make_images(8), make_targets(8), generator=seeded(0))
    assert model.counts == {True: 8, False: scored}


def test_outputs_are_in_the_order_of_the_batch():
    constraint = Constraint(fixed(lambda images: images), 0.5)
    model, images = smooth_network(), make_images(N)
    made = problem("one", constraint, gammas=(1.0,), n_steps=0)
    step = made(model, images, make_targets(N), generator=seeded(1))
    torch.testing.assert_close(step.outputs, model(to_double(images)).detach())


@pytest.mark.parametrize("weights", [(1.0,), (1.0, 0.0), (1.0, 1.0), (1.0, 0.3, 2.2)])
def test_rows_are_shared_out_by_weight_and_within_one_of_their_number(weights):
    n, times = 7, 4000
    total = sum(weights)
    counts = torch.zeros(n, len(weights))
    for seed in range(times):
        parts = systematic_assignment(n, weights, seeded(seed))
        assert sorted(torch.cat(parts).tolist()) == list(range(n))
        for k, part in enumerate(parts):
            assert abs(len(part) - n * weights[k] / total) < 1
            counts[part, k] += 1
    share = torch.tensor(weights) / total
    error = (share * (1 - share) / times).sqrt()
    assert ((counts / times - share).abs() <= 5 * error + 1e-9).all()


def test_the_worst_is_kept_as_it_was_scored():
    made = problem("one", Constraint(sets.wide(), 0.5, worst, share=1.0), gammas=(1.0,), n_steps=3)
    step = made(smooth_network(), make_images(N), make_targets(N), generator=seeded(0))
    assert step.slack.item() == pytest.approx(step.chains[0].loss.mean().item() - 0.5)


def test_rows_that_kept_a_transformation_are_trained_on_as_they_were_scored():
    """Each input is either the clean image of its row or the transformation that its row's chain kept."""
    constraints = [Constraint(sets.wide(), 0.5, share=1.0), Constraint(sets.rotations(1.0), 0.5)]
    images, model = make_images(24), Recorder(smooth_network())
    step = problem("one", *constraints, gammas=(1.0, 0.5), n_steps=2)(model, images, make_targets(24))
    (trained,), scored = model.trained, torch.cat(model.scored)
    clean = (trained == to_double(images)).flatten(1).all(1)
    among = (trained.flatten(1)[:, None] == scored.flatten(1)[None]).all(2).any(1)
    assert (clean | among).all()
    assert 8 <= int(clean.sum()) < 24  # of 24 images 9.6 on average, give or take less than one, and Identity
    assert step.loss.item() == pytest.approx(F.cross_entropy(model.model(trained), make_targets(24)).item())


def test_it_is_measured_on_at_least_its_share_and_on_all_that_it_trains_on():
    for gamma, n_steps, n in ((0.0, 1, 3), (0.0, 0, 3), (3.0, 1, 18), (3.0, 0, 18)):
        made = problem("one", Constraint(sets.wide(), 0.5), gammas=(gamma,), n_steps=n_steps)
        step = made(smooth_network(), make_images(24), make_targets(24))
        assert len(step.kept[0]) == n
        assert step.slack.isfinite().all()


def test_the_lagrangian_is_that_of_the_batch_divided_by_one_and_the_gammas():
    constraints = [Constraint(fixed(inverted), 0.5), Constraint(fixed(flipped), 0.3), Constraint(sets.wide(), math.inf)]
    model = smooth_network()
    recorder = Recorder(model)
    made = problem("one", *constraints, gammas=(0.7, 1.6, 9.0), n_steps=0)  # the last is switched off
    step = made(recorder, make_images(N), make_targets(N))
    loss = F.cross_entropy(model(recorder.trained[0]), make_targets(N))
    expected = loss - (0.7 * 0.5 + 1.6 * 0.3) / (1 + 0.7 + 1.6)
    torch.testing.assert_close(step.lagrangian, expected)
    assert step.slack[2] == -math.inf


def test_a_function_of_your_own_says_what_is_trained_on():
    """Clean images that count twice, and the kept ones once."""

    def twice(given):
        batch = views.both(given)
        (clean, _), *rest = batch.terms
        return replace(batch, terms=[(clean, 2.0), *rest])

    model, images, targets = smooth_network(), make_images(N), make_targets(N)
    made = problem(twice, Constraint(fixed(inverted), 0.5), gammas=(0.7,), n_steps=0)
    step = made(model, images, targets)
    loss, kept = (F.cross_entropy(model(to_double(x)), targets) for x in (images, inverted(images)))
    torch.testing.assert_close(step.lagrangian, 2 * loss + 0.7 * (kept - 0.5))


@pytest.mark.parametrize("how", ["one", "both", views.apart, views.kept_only])
def test_inputs_keep_the_memory_order_that_convolutions_like(how):
    def finish(images):
        return (images.float() / 255).contiguous(memory_format=torch.channels_last)

    made = InvarianceConstrained(Constraint(sets.wide(), 0.5), views=how, finish=finish, gamma_init=1.0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 36, 3))
    batch = made.prepare(model, make_images(8, channels=3), make_targets(8))
    assert batch.inputs.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("how", ["one", "both", views.apart])
@pytest.mark.parametrize("n_steps", [0, 1, 3])
@pytest.mark.parametrize("gamma", [0.0, 1.5])
def test_the_passes_of_a_step_are_those_the_network_makes(how, n_steps, gamma):
    counted = {True: 0, False: 0}

    class Counting(nn.Linear):
        def forward(self, inputs):
            counted[torch.is_grad_enabled()] += len(inputs)
            return super().forward(inputs)

    network = nn.Sequential(nn.Flatten(), Counting(64, 4))
    constraints = [Constraint(sets.mild(), "auto"), Constraint(sets.wide(), 0.5)]
    problem = InvarianceConstrained(*constraints, n_steps=n_steps, views=how, gamma_init=gamma, scoring_batch=7)
    step = problem(network, torch.zeros(24, 1, 8, 8, dtype=torch.uint8), torch.zeros(24, dtype=torch.long))
    assert step.n_passes == 3 * counted[True] + counted[False]
