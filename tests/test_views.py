"""One view an image: gradient and slack of the two-view Lagrangian in the mean, at the cost of plain training."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from invaug import Constraint, InvarianceConstrained, InvarianceMixture, metropolis_hastings, sets, worst
from invaug.mixture import shared_out
from problems import fixed, inverted, make_images, make_targets, seeded, smooth_network, to_double

N = 6
GAMMAS = (0.7, 1.6)


def flipped(images):
    return images.flip(-1)


def problem(kind, *constraints, gammas, **settings):
    made = kind(*constraints, finish=to_double, **settings).double()
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
    constraints = [Constraint(fixed(inverted), 0.5), Constraint(fixed(flipped), 0.3)]
    model, images, targets = smooth_network(), make_images(N), make_targets(N)
    both = problem(InvarianceConstrained, *constraints, gammas=GAMMAS, n_steps=0)
    expected, step = gradient(both, model, images, targets, 0)
    mixed = problem(InvarianceMixture, *constraints, gammas=GAMMAS, n_steps=0, watched=0.3)
    found = [gradient(mixed, model, images, targets, seed) for seed in range(900)]
    assert_mean_is([each for each, _ in found], expected)
    assert_mean_is([s.slack for _, s in found], step.slack)
    assert_mean_is([s.lagrangian.detach()[None] for _, s in found], step.lagrangian.detach()[None])


def test_with_chains_the_slack_has_the_same_mean_and_less_variance():
    constraint = Constraint(sets.wide(), 0.5)
    model, images, targets = smooth_network(), make_images(N), make_targets(N)
    settings = {"gammas": (1.0,), "n_steps": 2}
    with torch.no_grad():
        both, mixed = (
            torch.stack([made(model, images, targets, generator=seeded(seed)).slack[0] for seed in range(500)])
            for made in (
                problem(InvarianceConstrained, constraint, **settings),
                problem(InvarianceMixture, constraint, watched=1.0, **settings),
            )
        )
    error = math.sqrt((both.var() + mixed.var()).item() / 500)
    assert abs(both.mean() - mixed.mean()) <= 5 * error
    assert mixed.var() < both.var()


def test_with_chains_the_gradient_has_the_mean_of_the_two_view_lagrangian():
    constraint = Constraint(sets.wide().only("Rotate", "Solarize"), 0.5)
    model, images, targets = smooth_network(), make_images(N), make_targets(N)
    settings = {"gammas": (2.0,), "n_steps": 1}
    both, mixed = (
        torch.stack([gradient(made, model, images, targets, seed)[0] for seed in range(500)])
        for made in (problem(kind, constraint, **settings) for kind in (InvarianceConstrained, InvarianceMixture))
    )
    error = ((both.var(0) + mixed.var(0)) / 500).sqrt()
    assert ((both.mean(0) - mixed.mean(0)).abs() <= 5 * error + 1e-12).all()


def test_without_gamma_it_is_plain_training_and_still_watches():
    constraint = Constraint(fixed(inverted), 0.1)
    model, images, targets = smooth_network(), make_images(N), make_targets(N)
    made = problem(InvarianceMixture, constraint, gammas=(0.0,), n_steps=0, watched=1.0)
    found, step = gradient(made, model, images, targets, 3)
    model.zero_grad()
    F.cross_entropy(model(to_double(images)), targets).backward()
    plain = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
    torch.testing.assert_close(found, plain)
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
    ("gamma", "n_steps", "watched", "scored"),
    [(0.0, 1, 0.25, 2 * 2), (0.0, 0, 0.25, 2), (1.0, 1, 0.25, 2 * 4), (1.0, 0, 0.25, 0), (3.0, 2, 1.0, 3 * 8)],
)
def test_it_costs_one_gradient_pass_and_what_it_looks_at(gamma, n_steps, watched, scored):
    model = Counter()
    made = problem(InvarianceMixture, Constraint(sets.wide(), 0.5), gammas=(gamma,), n_steps=n_steps, watched=watched)
    made(model, make_images(8), make_targets(8), generator=seeded(0))
    assert model.counts == {True: 8, False: scored}


def test_outputs_are_in_the_order_of_the_batch():
    constraint = Constraint(fixed(lambda images: images), 0.5)
    model, images = smooth_network(), make_images(N)
    made = problem(InvarianceMixture, constraint, gammas=(1.0,), n_steps=0)
    step = made(model, images, make_targets(N), generator=seeded(1))
    torch.testing.assert_close(step.outputs, model(to_double(images)).detach())


@pytest.mark.parametrize("weights", [(1.0,), (1.0, 0.0), (1.0, 1.0), (1.0, 0.3, 2.2)])
def test_rows_are_shared_out_by_weight_and_within_one_of_their_number(weights):
    n, times = 7, 4000
    total = sum(weights)
    counts = torch.zeros(n, len(weights))
    for seed in range(times):
        parts = shared_out(n, weights, seeded(seed))
        assert sorted(torch.cat(parts).tolist()) == list(range(n))
        for k, part in enumerate(parts):
            assert abs(len(part) - n * weights[k] / total) < 1
            counts[part, k] += 1
    share = torch.tensor(weights) / total
    error = (share * (1 - share) / times).sqrt()
    assert ((counts / times - share).abs() <= 5 * error + 1e-9).all()


def test_the_worst_is_kept_as_it_was_scored():
    made = problem(InvarianceMixture, Constraint(sets.wide(), 0.5, worst), gammas=(1.0,), n_steps=3, watched=1.0)
    step = made(smooth_network(), make_images(N), make_targets(N), generator=seeded(0))
    assert step.slack.item() == pytest.approx(step.chains[0].loss.mean().item() - 0.5)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"watched": 0.0}, "watched must be above 0 and at most 1, got 0"),
        ({"watched": 1.5}, "watched must be above 0 and at most 1, got 1.5"),
        ({"n_views": 2}, "one view an image: leave out n_views"),
        ({"clean": False}, "one view an image"),
    ],
)
def test_settings_that_make_no_mixture_are_refused(settings, said):
    with pytest.raises(ValueError, match=said):
        InvarianceMixture(Constraint(sets.wide(), 0.5, metropolis_hastings), **settings)
