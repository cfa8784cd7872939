"""The resilient level: closed forms, the published update with a relaxation of its own, and what it is safe against."""

import math

import pytest
import torch
from scipy.optimize import minimize
from torch import nn
from torch.nn import functional as F

from invaug import Constraint, InvarianceConstrained, Op, Resilient, TransformSet, sets, views
from tests.support.images import load_sorted_digits
from tests.support.problems import (
    Weights,
    fixed,
    inverted,
    make_images,
    make_targets,
    seeded,
    smooth_network,
    squared_error,
    to_double,
    towards,
    train_step,
    two_view_problem,
)


@pytest.mark.parametrize(
    ("rule", "gamma", "expected"),
    [
        (Resilient(2.0, 0.5, guess=1.0), 0.0, 0.5),
        (Resilient(2.0, 0.5, guess=1.0), 3.0, 0.5 + 1.5),
        (Resilient(2.0, 0.5, guess=4.0), 3.0, 0.5 + 6.0),
        (Resilient(2.0, "clean", guess=1.0), 3.0, 0.2 + 1.5),
        (Resilient(2.0, "clean"), 3.0, 0.2 + 1.5 * 2.5),  # the guess of the outputs
        (Resilient(math.inf, 0.5), 3.0, 0.5),
        (Resilient(math.inf, "clean"), 3.0, 0.2),
    ],
)
def test_the_level_is_the_base_and_the_relaxation_that_gamma_pays_for(rule, gamma, expected):
    assert rule.epsilon(gamma, clean=0.2, guess=2.5) == pytest.approx(expected)


def test_the_relaxation_minimises_its_cost_minus_what_gamma_pays():
    rule = Resilient(alpha=3.0, base=0.0, guess=1.7)
    for gamma in (0.1, 1.0, 2.9):
        best = minimize(lambda u, gamma=gamma: 3.0 * u[0] ** 2 / (2 * 1.7) - gamma * u[0], [1.0], bounds=[(0, None)])
        assert rule.epsilon(gamma) == pytest.approx(best.x[0], abs=1e-5)


def test_auto_is_the_rule_with_its_defaults_and_a_number_never_gives_way():
    assert Constraint(sets.wide()).level == Constraint(sets.wide(), "auto").level == Resilient()
    assert Constraint(sets.wide()).level.adapts
    stays = Constraint(sets.wide(), 0.7).level
    assert (stays.epsilon(5.0), stays.cap, stays.adapts) == (0.7, math.inf, False)
    assert Constraint(sets.wide(), Resilient(base=0.3)).level.adapts
    assert not Constraint(sets.wide(), Resilient(base=math.inf)).active


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"alpha": 0.0}, r"^alpha must be above 0, got 0\.0"),
        ({"alpha": math.nan}, "^alpha must be above 0, got nan"),
        ({"cap": -1.0}, r"^cap must be above 0, got -1\.0"),
        ({"guess": 0.0}, r"^guess must be above 0 and not infinite, got 0\.0"),
        ({"guess": math.inf}, "^guess must be above 0 and not infinite, got inf"),
        ({"base": -0.1}, r'^base must be "clean" or a number, at least 0, got -0\.1'),
        ({"base": math.nan}, '^base must be "clean" or a number, at least 0, got nan'),
        ({"base": "dirty"}, "^base must be \"clean\" or a number, at least 0, got 'dirty'"),
    ],
)
def test_rules_that_are_none_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Resilient(**settings)


def convex(*constraints, **settings):
    settings = {"dual_lr": 0.3, "gamma_init": 0.01, "views": "both", **settings}
    return InvarianceConstrained(*constraints, finish=lambda x: x, loss_fn=squared_error, **settings)


EYE, ONES = torch.eye(2, dtype=torch.float64).view(2, 1, 1, 2), torch.ones(2, dtype=torch.float64)


def solve(problem, n=300, lr=0.3, images=EYE):
    model = Weights()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for _ in range(n):
        step = train_step(problem, model, optimizer, images, torch.ones(len(images), dtype=torch.float64))
    return model.theta.tolist(), step


def test_gamma_and_relaxation_of_a_convex_problem_are_those_in_closed_form():
    """Minimise ((θ₁ - 1)² + (θ₂ - 1)²) / 2 + h₁(u₁) + h₂(u₂), (2 θ₁ - 1)² ≤ 1/5 + u₁, (3 θ₂ - 1)² ≤ u₂, (θ₁ - 1)² ≤ 9.

    At θ = (3/4, 1/2) stationarity in θ gives γ = (1/8, 1/6) as without relaxations, and both losses are 1/4, so that
    u = (1/20, 1/4). γ = h'(u) = α u / guess asks for α / guess = 5/2 and 2/3. The third is slack: γ₃ = u₃ = 0.
    """
    constraints = [
        Constraint(towards(2, 0), Resilient(alpha=5.0, base=0.2, guess=2.0)),
        Constraint(towards(0, 3), Resilient(alpha=2.0, base=0.0, guess=3.0)),
        Constraint(towards(1, 0), Resilient(alpha=1.0, base=9.0, guess=1.0)),
    ]
    problem = convex(*constraints)
    theta, step = solve(problem)
    torch.testing.assert_close(theta, [3 / 4, 1 / 2], rtol=0, atol=1e-6)
    torch.testing.assert_close(problem.gamma.tolist(), [1 / 8, 1 / 6, 0.0], rtol=0, atol=1e-6)
    torch.testing.assert_close(step.epsilon.tolist(), [1 / 4, 1 / 4, 9.0], rtol=0, atol=1e-6)
    torch.testing.assert_close(step.slack.tolist(), [0.0, 0.0, 0.25**2 - 9], rtol=0, atol=1e-6)


def huber(u, alpha, cap, guess):
    """Return h(u): quadratic up to where its slope is the cap, and linear from there."""
    knee = cap * guess / alpha
    return alpha * u**2 / (2 * guess) if u <= knee else alpha * knee**2 / (2 * guess) + cap * (u - knee)


@pytest.mark.parametrize(
    ("alpha", "cap", "base"),
    [(0.5, 3.0, 0.0), (5.0, 3.0, 0.1), (5.0, 1 / 10, 0.0), (0.5, 1 / 16, 0.1), (5.0, 1 / 16, 0.5)],
)
def test_primal_and_dual_are_those_of_a_general_solver_given_the_cost_of_relaxing(alpha, cap, base):
    guess = 2.0
    found = minimize(
        lambda z: ((z[0] - 1) ** 2 + (z[1] - 1) ** 2) / 2 + huber(z[2], alpha, cap, guess),
        [0.5, 0.5, 0.1],
        bounds=[(None, None), (None, None), (0, None)],
        constraints=[{"type": "ineq", "fun": lambda z: base + z[2] - (2 * z[0] - 1) ** 2}],
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    problem = convex(Constraint(towards(2, 0), Resilient(alpha, base, cap, guess)), dual_lr=0.1)
    theta, _ = solve(problem)
    torch.testing.assert_close(theta, found.x[:2].tolist(), rtol=0, atol=1e-4)
    # stationarity of the solver's θ: (θ₁ - 1) + 4 γ (2 θ₁ - 1) = 0
    gamma = (1 - found.x[0]) / (4 * (2 * found.x[0] - 1))
    assert problem.gamma.item() == pytest.approx(gamma, abs=1e-3)
    assert problem.gamma.item() <= cap


def test_a_cap_that_is_reached_is_kept_and_the_rest_of_the_loss_is_left():
    """With γ held at 1/16, (θ₁ - 1) + (2 θ₁ - 1) / 4 = 0: θ₁ = 5/6; without a cap it would be 1/8."""
    problem = convex(Constraint(towards(2, 0), Resilient(5.0, 0.2, 1 / 16, 2.0)), gamma_init=0.0)
    theta, step = solve(problem)
    assert problem.gamma.item() == 1 / 16
    torch.testing.assert_close(theta, [5 / 6, 1.0], rtol=0, atol=1e-6)
    assert step.slack.item() == pytest.approx((2 / 3) ** 2 - 0.2 - 2 / 5 / 16)


@pytest.mark.parametrize("how", ["one", "both"])
def test_a_level_out_of_reach_is_relaxed_where_a_number_diverges(how):
    """Images that are all zero have the loss 1 whatever θ is, and may have 1/2."""
    rule = Resilient(alpha=3.0, base=0.5, cap=100.0, guess=2.0)
    problem = convex(Constraint(towards(0, 0), rule, share=1.0), dual_lr=0.05, gamma_init=0.0, views=how)
    plain = convex(Constraint(towards(0, 0), 0.5, share=1.0), dual_lr=0.05, gamma_init=0.0, views=how)
    limit, rate, n = 3.0 * 0.5 / 2.0, 0.05 * 2.0 / 3.0, 300
    solve(problem, n=n, lr=0.01)
    solve(plain, n=n, lr=0.01)
    assert problem.gamma.item() == pytest.approx(limit * (1 - (1 - rate) ** n), rel=1e-9)
    assert plain.gamma.item() == pytest.approx(0.05 * 0.5 * n, rel=1e-9)


@pytest.mark.parametrize("how", ["one", "both", views.apart], ids=["one", "both", "apart"])
def test_with_the_clean_loss_as_base_gamma_is_alpha_times_the_gap_that_is_left(how):
    """Minimise (θ₁ - 1)² with (2 θ₁ - 1)² held at it: θ₁ = 3/4 where 2 (θ₁ - 1) + 4 γ (2 θ₁ - 1) = 0, so γ = 1/4.

    The gap there is 1/4 - 1/16 = 3/16, so α / guess = 4/3. The base is a number to the gradient.
    """
    rule, n = Resilient(alpha=4.0, guess=3.0), 512 if how == "one" else 1  # clean parts are within one of n / (1 + γ)
    problem = convex(Constraint(towards(2, 0), rule), dual_lr=0.1, views=how)
    images = EYE[:1].repeat(n, 1, 1, 1)
    theta, step = solve(problem, lr=0.1, images=images)
    atol = 5e-3 if how == "one" else 1e-6
    assert theta[0] == pytest.approx(3 / 4, abs=atol)
    assert problem.gamma.item() == pytest.approx(1 / 4, abs=atol)
    assert step.epsilon.item() == pytest.approx(1 / 16 + 3 / 16, abs=atol)
    # and exactly so at the θ it has
    gap = (2 * theta[0] - 1) ** 2 - (theta[0] - 1) ** 2
    assert problem.gamma.item() == pytest.approx(4 / 3 * gap, abs=atol)


@pytest.mark.parametrize("share", [None, 0.25, 1.0])
@pytest.mark.parametrize("n_steps", [0, 1])
def test_with_one_view_base_and_slack_come_from_the_scores_of_the_same_images(n_steps, share):
    model, n = smooth_network(), 16
    constraint = Constraint(fixed(inverted), "auto", share=share)
    problem = InvarianceConstrained(constraint, n_steps=n_steps, gamma_init=1.0, finish=to_double)
    seen = []

    def loss_fn(outputs, targets):
        losses = F.cross_entropy(outputs, targets, reduction="none")
        if not torch.is_grad_enabled():
            seen.append(losses)
        return losses

    problem.loss_fn = loss_fn
    step = problem(model, make_images(n), make_targets(n))
    n_clean = math.ceil((share or 1 / 8) * n)
    (scores,) = seen
    clean, kept = scores[-n_clean:], scores[:n_clean]
    gap = (kept - clean).mean().item()
    assert step.slack.item() == pytest.approx(gap - math.log(3) / Resilient().alpha, rel=1e-9)


def published(n, eta, eta_u, alpha, base, guess, lr):
    """Return θ₁ and γ of each step: θ by its gradient, u ← [u - η_u (h'(u) - γ)]₊ first, then γ with that u."""
    theta, gamma, u, path = 0.0, 0.01, 0.0, []
    for _ in range(n):
        loss = (2 * theta - 1) ** 2
        gradient = (theta - 1) + gamma * 4 * (2 * theta - 1)
        u = max(0.0, u - eta_u * (alpha * u / guess - gamma))
        theta, gamma = theta - lr * gradient, max(0.0, gamma + eta * (loss - base - u))
        path.append((theta, gamma))
    return path


def test_steps_are_the_published_ones_when_the_relaxation_moves_first_by_guess_over_alpha():
    alpha, base, guess = 5.0, 0.2, 2.0
    problem, model = convex(Constraint(towards(2, 0), Resilient(alpha, base, 100.0, guess))), Weights()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    for theta, gamma in published(300, 0.3, guess / alpha, alpha, base, guess, 0.3):
        train_step(problem, model, optimizer, EYE, ONES)
        assert model.theta[0].item() == pytest.approx(theta, rel=1e-10, abs=1e-12)
        assert problem.gamma.item() == pytest.approx(gamma, rel=1e-10, abs=1e-12)


@pytest.mark.parametrize("slower", [0.5, 0.1])
def test_the_published_update_with_smaller_steps_ends_where_ours_does(slower):
    alpha, base, guess = 5.0, 0.2, 2.0
    problem = convex(Constraint(towards(2, 0), Resilient(alpha, base, 100.0, guess)))
    theta, _ = solve(problem)
    path = published(3000, 0.1, slower * guess / alpha, alpha, base, guess, 0.1)
    torch.testing.assert_close(path[-1], (theta[0], problem.gamma.item()), rtol=0, atol=1e-6)
    assert path[5] != pytest.approx(published(6, 0.1, guess / alpha, alpha, base, guess, 0.1)[5], abs=1e-6)


class Confident(nn.Module):
    """Gives dark and bright images the cross-entropies 0.1 log C and 0.5 log C, for the class 0 of C."""

    def __init__(self, n_classes):
        super().__init__()
        self.n_classes, self.unused = n_classes, nn.Parameter(torch.zeros((), dtype=torch.float64))

    def forward(self, inputs):
        share = 0.1 + 0.4 * inputs.flatten(1).mean(1)
        p = self.n_classes**-share
        first = torch.log(p * (self.n_classes - 1) / (1 - p))
        return F.pad(first[:, None], (0, self.n_classes - 1)) + self.unused


def gammas_of(n_classes, how, dual_lr, n):
    model, images = Confident(n_classes), torch.zeros(4, 1, 2, 2, dtype=torch.uint8)
    problem = InvarianceConstrained(Constraint(fixed(inverted)), views=how, dual_lr=dual_lr, finish=to_double)
    path = []
    for _ in range(n):
        step = problem(model, images, torch.zeros(4, dtype=torch.long))
        problem.dual_step(step.slack)
        path.append(problem.gamma.item())
    return path


@pytest.mark.parametrize("how", ["one", "both"])
@pytest.mark.parametrize("n_classes", [2, 10, 100, 1000])
def test_alpha_means_the_same_for_any_number_of_classes(n_classes, how):
    """γ ends at α times the gap as a share of log C; step sizes in units of log C lead there by the same path."""
    alpha, n = Resilient().alpha, 60
    path = gammas_of(n_classes, how, 0.3 / math.log(n_classes), n)
    expected = [0.4 * alpha * (1 - (1 - 0.3 / alpha) ** t) for t in range(1, n + 1)]
    assert path == pytest.approx([min(gamma, Resilient().cap) for gamma in expected], rel=1e-6)
    # a dual step of 1 would overshoot for 1,000 classes: the rule is stable below 2 alpha / log C, which is 0.7 there
    assert gammas_of(n_classes, how, 0.3, 120)[-1] == pytest.approx(0.4 * alpha, rel=1e-3)


def test_the_loss_of_a_guess_is_that_of_the_outputs_or_what_is_given():
    model, images, targets = smooth_network(), make_images(6), make_targets(6)
    for rule, guess in ((Resilient(base=0.5), math.log(3)), (Resilient(base=0.5, guess=2.5), 2.5)):
        for how in ("one", "both"):
            constraint = Constraint(fixed(inverted), rule)
            problem = InvarianceConstrained(constraint, views=how, gamma_init=2.0, finish=to_double)
            step = problem(model, images, targets)
            assert step.epsilon.item() == pytest.approx(0.5 + 2.0 * guess / rule.alpha)


def test_one_output_with_two_sides_counts_as_two_classes():
    def binary(outputs, targets):
        return F.binary_cross_entropy_with_logits(outputs[:, 0], targets, reduction="none")

    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 1))
    problem = InvarianceConstrained(Constraint(fixed(inverted), Resilient(base=0.5)), loss_fn=binary, gamma_init=2.0)
    step = problem(model, make_images(6), make_targets(6, n_classes=2).float())
    assert step.epsilon.item() == pytest.approx(0.5 + 2.0 * math.log(2) / Resilient().alpha)


class Flat(nn.Module):
    def __init__(self):
        super().__init__()
        self.network = nn.Sequential(nn.Flatten(), nn.Linear(36, 1))

    def forward(self, inputs):
        return self.network(inputs).squeeze(1)


@pytest.mark.parametrize("how", ["one", "both"])
@pytest.mark.parametrize("n_steps", [0, 1])
def test_outputs_without_classes_need_a_guess_that_is_given(how, n_steps):
    images, targets = make_images(6), make_targets(6).double()
    settings = {"views": how, "n_steps": n_steps, "loss_fn": squared_error}
    problem = InvarianceConstrained(Constraint(fixed(inverted)), **settings)
    with pytest.raises(ValueError, match=r"no outputs tell the number of classes: give Resilient\(guess=\.\.\.\)"):
        problem(Flat(), images, targets)
    problem = InvarianceConstrained(Constraint(fixed(inverted), Resilient(guess=targets.var().item())), **settings)
    step = problem(Flat(), images, targets)
    problem.dual_step(step.slack)
    assert step.slack.isfinite().all()
    number = InvarianceConstrained(Constraint(fixed(inverted), 0.5), **settings)  # a number needs none
    assert number(Flat(), images, targets).slack.isfinite().all()


@pytest.fixture(scope="module")
def digits():
    """Images of 14 × 14, uint8, and classes: 1,000 to train on and 1,000 to test on."""
    pixels, labels = load_sorted_digits()
    order = torch.randperm(len(labels), generator=seeded(0))[:2000]
    images = torch.tensor(pixels).float().view(-1, 1, 28, 28)[order]
    small = F.avg_pool2d(images, 2).round().to(torch.uint8)
    return small, torch.tensor(labels)[order]


def network(kind="plain", n_hidden=32):
    torch.manual_seed(0)
    body = {"plain": [], "batch norm": [nn.BatchNorm1d(n_hidden)], "dropout": [nn.Dropout(0.5)]}[kind]
    return nn.Sequential(nn.Flatten(), nn.Linear(196, n_hidden), *body, nn.ReLU(), nn.Linear(n_hidden, 10))


def trained(problem, model, images, targets, n_steps, *, batch=32, lr=0.1):
    """Train, and return gamma after each step."""
    optimizer, generator = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9), seeded(1)
    torch.manual_seed(1)
    gammas = []
    for _ in range(n_steps):
        rows = torch.randint(len(images), (batch,), generator=generator)
        train_step(problem, model, optimizer, images[rows], targets[rows])
        gammas.append(problem.gamma.tolist())
    return torch.tensor(gammas)


@pytest.mark.parametrize("how", ["one", "both", views.apart], ids=["one", "both", "apart"])
@pytest.mark.parametrize("kind", ["plain", "batch norm", "dropout"])
def test_a_set_that_does_nothing_leaves_gamma_at_nothing(digits, kind, how):
    images, targets = digits
    problem = InvarianceConstrained(Constraint(sets.wide().only("Identity")), views=how)
    gammas = trained(problem, network(kind), images[:1000], targets[:1000], 150)
    assert gammas.max() < 0.05
    if how == "one" or kind == "plain":
        assert gammas.max() < 1e-4  # the same images in the same mode


def smoothed(outputs, targets):
    return F.cross_entropy(outputs, targets, label_smoothing=0.1, reduction="none")


def soft(outputs, targets):
    return F.cross_entropy(outputs, 0.9 * F.one_hot(targets, 10) + 0.01, reduction="none")


TARGETS = {
    "label smoothing": ({"loss_fn": smoothed}, lambda y: y),
    "soft targets": ({}, lambda y: 0.9 * F.one_hot(y, 10) + 0.01),
    "imbalanced": ({}, lambda y: torch.where(torch.arange(len(y)) % 10 > 0, 0, y)),
}


@pytest.mark.parametrize("how", ["one", "both"])
@pytest.mark.parametrize("kind", TARGETS)
def test_auto_works_with_any_kind_of_targets(digits, kind, how):
    """Under a wrong set γ leaves zero and stays below its cap; under one that does nothing it stays at zero."""
    images, labels = digits
    settings, label = TARGETS[kind]
    images, targets = images[:1000], label(labels[:1000])
    if kind == "imbalanced":  # nine of ten images are of one class
        images = images[torch.where(torch.arange(1000) % 10 > 0, (labels[:1000] == 0).nonzero()[0], torch.arange(1000))]
    wrong = InvarianceConstrained(Constraint(fixed(inverted)), views=how, **settings)
    gammas = trained(wrong, network(), images, targets, 150)
    assert gammas.isfinite().all()
    assert 0.02 < gammas.max() <= Resilient().cap
    nothing = InvarianceConstrained(Constraint(sets.wide().only("Identity")), views=how, **settings)
    assert trained(nothing, network(), images, targets, 50).max() < 1e-4


def test_soft_targets_are_the_loss_they_say(digits):
    images, labels = digits
    paths = []
    for loss_fn, targets in ((soft, labels), (None, 0.9 * F.one_hot(labels, 10) + 0.01)):
        settings = {"loss_fn": loss_fn} if loss_fn else {}
        problem = two_view_problem(Constraint(sets.wide()), **settings)
        paths.append(trained(problem, network(), images[:500], targets[:500], 20))
    torch.testing.assert_close(*paths)


def accuracy(model, images, targets):
    with torch.no_grad():
        return (model.eval()(images.float() / 255).argmax(1) == targets).double().mean().item()


def trained_on_tiny_digits(digits, constraints, n_steps, **settings):
    """Return the test accuracy of a linear classifier of 7 × 7 digits, and gamma after each step."""
    images, targets = F.avg_pool2d(digits[0].float(), 2).round().to(torch.uint8), digits[1]
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(49, 10))
    problem = InvarianceConstrained(*constraints, **settings)
    gammas = trained(problem, model, images[:1000], targets[:1000], n_steps, batch=16)
    return accuracy(model, images[1000:], targets[1000:]), gammas


@pytest.fixture(scope="module")
def accuracy_without_constraint(digits):
    return trained_on_tiny_digits(digits, [], 1000)[0]


@pytest.mark.parametrize("n_steps", [1000, pytest.param(10_000, marks=pytest.mark.long)])
@pytest.mark.parametrize("how", ["one", "both"])
def test_a_set_that_blackens_every_image_does_no_harm_however_long_it_trains(
    digits, accuracy_without_constraint, how, n_steps
):
    blackened = TransformSet((Op("Black", lambda images, _: torch.zeros_like(images)),))
    black, gammas = trained_on_tiny_digits(digits, [Constraint(blackened)], n_steps, views=how)
    assert accuracy_without_constraint > 0.8
    assert black >= accuracy_without_constraint - 0.05
    assert 0.5 < gammas.max() <= Resilient().cap


def test_gamma_goes_on_after_a_resume_and_ignores_losses_that_are_no_numbers():
    problem = two_view_problem(Constraint(fixed(inverted)), dual_lr=0.1, gamma_init=0.5)
    model, batch = smooth_network().float(), (make_images(6), make_targets(6))
    for _ in range(3):
        problem.dual_step(problem(model, *batch).slack)
    again = two_view_problem(Constraint(fixed(inverted)), dual_lr=0.1, gamma_init=0.5)
    again.load_state_dict(problem.state_dict())
    one, other = problem(model, *batch), again(model, *batch)
    assert torch.equal(one.epsilon, other.epsilon)
    assert torch.equal(one.slack, other.slack)
    before = problem.gamma.item()
    problem.dual_step(torch.tensor([math.nan]))
    problem.dual_step(torch.tensor([math.inf]))
    assert problem.gamma.item() == before > 0
