import copy
import math

import cooper
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from invaug import Constraint, Draw, InvarianceConstrained, Op, TransformSet, metropolis_hastings, sets, views, worst
from tests.support.problems import (
    Diary,
    Recorder,
    Weights,
    algorithm_1,
    argmax,
    batch_norm_network,
    copy_of,
    fixed,
    inverted,
    make_batches,
    make_images,
    make_targets,
    noisy,
    same_bits,
    seeded,
    smooth_network,
    squared_error,
    to_double,
    towards,
    train_step,
    two_view_problem,
)

EXACT = {"rtol": 1e-11, "atol": 1e-13}


def doubled(*constraints, **settings):
    """Return a problem in float64, for comparisons to the last digits."""
    return two_view_problem(*constraints, finish=to_double, **settings)


def one_loss(model, image, target):
    return F.cross_entropy(model(to_double(image)), target)


def algorithm_2(model, images, targets, gammas, constraints, pages, n_views):
    """Return the Lagrangian, slacks and kept rows of one batch as printed, one image and one view at a time."""
    draws, _, uniforms = pages
    n = len(images)
    slacks, kept_rows = [], []
    for c, (constraint, choose) in enumerate(constraints):
        total, rows = 0.0, []
        for j in range(n_views):
            for i in range(n):
                x, y = images[i : i + 1], targets[i : i + 1]
                mine = range(j * n + i, len(draws[c]), n_views * n)
                proposals = [constraint.transforms.apply(x, draws[c][row]) for row in mine]
                with torch.no_grad():
                    losses = [float(one_loss(model, proposal, y)) for proposal in proposals]
                chance = uniforms[c][:, j, i].tolist() if uniforms else []
                state = choose(losses, chance)
                total = total + one_loss(model, proposals[state], y) / n_views
                rows.append(mine[state])
        slacks.append(total / n - constraint.epsilon)
        kept_rows.append(rows)
    loss = sum(one_loss(model, images[i : i + 1], targets[i : i + 1]) for i in range(n)) / n
    lagrangian = loss + sum(gamma * slack for gamma, slack in zip(gammas, slacks, strict=True))
    return lagrangian, [slack.item() for slack in slacks], kept_rows


PASSES = pytest.mark.parametrize("passes", ["both", views.apart], ids=["both", "apart"])


@PASSES
@pytest.mark.parametrize(("n_steps", "n_views"), [(0, 1), (0, 2), (1, 1), (2, 3), (5, 1)])
def test_steps_are_algorithm_2_one_image_at_a_time(monkeypatch, n_steps, n_views, passes):
    diary = Diary(monkeypatch)
    constraints = [
        (Constraint(sets.wide(), 1.0, diary.watch(metropolis_hastings)), algorithm_1),
        (Constraint(sets.rotations(math.pi), 0.6, diary.watch(worst)), argmax),
        (Constraint(sets.standard(min_level=1), 1.2, diary.watch(metropolis_hastings)), algorithm_1),
    ]
    model, dual_lr, learning_rate = smooth_network(), 0.5, 0.2
    theta = copy.deepcopy(model)
    problem = doubled(*(c for c, _ in constraints), n_steps=n_steps, n_views=n_views, dual_lr=dual_lr, views=passes)
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate)
    gammas = [0.0, 0.0, 0.0]
    for images, targets in make_batches(4, n=5):
        step = train_step(problem, model, optimizer, images, targets)
        pages = diary.tear_off()
        lagrangian, slacks, rows = algorithm_2(theta, images, targets, gammas, constraints, pages, n_views)
        gradients = torch.autograd.grad(lagrangian, list(theta.parameters()))
        assert [draw.magnitude.tolist() for draw in step.kept] == [
            draws[kept].magnitude.tolist() for draws, kept in zip(pages[0], rows, strict=True)
        ]
        torch.testing.assert_close(step.lagrangian.detach(), lagrangian.detach(), **EXACT)
        torch.testing.assert_close(step.slack, torch.tensor(slacks, dtype=torch.float64), **EXACT)
        for mine, printed in zip(model.parameters(), gradients, strict=True):
            torch.testing.assert_close(mine.grad, printed, **EXACT)
        with torch.no_grad():
            for parameter, gradient in zip(theta.parameters(), gradients, strict=True):
                parameter -= learning_rate * gradient
        gammas = [max(0.0, gamma + dual_lr * slack) for gamma, slack in zip(gammas, slacks, strict=True)]
        torch.testing.assert_close(problem.gamma, torch.tensor(gammas, dtype=torch.float64), **EXACT)
    assert max(gammas) > 0


def test_each_constraint_has_its_own_set_epsilon_and_sampler():
    calls = []

    def last(losses, *, generator=None):
        calls.append(losses.shape)
        return metropolis_hastings(torch.arange(1.0, 5.0).view(-1, 1, 1).expand(losses.shape), generator=generator)

    problem = two_view_problem(
        Constraint(sets.wide(), 0.25), Constraint(fixed(inverted), 2.0, last), n_steps=3, n_views=2
    )
    model = smooth_network().float()
    step = problem(model, make_images(5), make_targets(5))
    assert calls == [(4, 2, 5)]
    assert (step.chains[1].state == 3).all()
    plain = F.cross_entropy(model(inverted(make_images(5)).float() / 255), make_targets(5))
    torch.testing.assert_close(step.slack[1], plain.detach().double() - 2.0, rtol=1e-6, atol=1e-6)
    assert set(step.kept[1].op.flatten().tolist()) == {0}
    assert len(step.kept[0]) == 10


def test_primal_dual_reaches_the_saddle_point_of_a_convex_problem():
    """Minimise ((θ₁ - 1)² + (θ₂ - 1)²) / 2 subject to (2 θ₁ - 1)² ≤ 1/4, (3 θ₂ - 1)² ≤ 1/4, (θ₁ - 1)² ≤ 9.

    The first two constraints bind at θ = (3/4, 1/2). There (θ₁ - 1) + 4 γ₁ (2 θ₁ - 1) = 0 gives γ₁ = 1/8, and
    (θ₂ - 1) + 6 γ₂ (3 θ₂ - 1) = 0 gives γ₂ = 1/6. The third is slack, so γ₃ = 0.
    """
    images = torch.eye(2, dtype=torch.float64).view(2, 1, 1, 2)
    constraints = [Constraint(towards(2, 0), 0.25), Constraint(towards(0, 3), 0.25), Constraint(towards(1, 0), 9)]
    problem = two_view_problem(
        *constraints, n_steps=1, dual_lr=0.3, gamma_init=0.01, finish=lambda x: x, loss_fn=squared_error
    )
    model = Weights()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    for _ in range(250):
        step = train_step(problem, model, optimizer, images, torch.ones(2, dtype=torch.float64))
    torch.testing.assert_close(model.theta.tolist(), [3 / 4, 1 / 2], rtol=0, atol=1e-6)
    torch.testing.assert_close(problem.gamma.tolist(), [1 / 8, 1 / 6, 0.0], rtol=0, atol=1e-6)
    torch.testing.assert_close(step.slack.tolist(), [0.0, 0.0, 0.25**2 - 9], rtol=0, atol=1e-6)
    assert step.lagrangian.item() == pytest.approx((0.25**2 + 0.5**2) / 2, abs=1e-6)


class CooperProblem(cooper.ConstrainedMinimizationProblem):
    """The same losses as ours, handed to Cooper: its own network, the views we kept."""

    def __init__(self, model, epsilons):
        super().__init__()
        self.model, self.epsilons = model, epsilons
        multiplier = cooper.multipliers.DenseMultiplier(num_constraints=len(epsilons), dtype=torch.float64)
        self.constraint = cooper.Constraint(cooper.ConstraintType.INEQUALITY, multiplier=multiplier)

    def compute_cmp_state(self, clean, kept, targets):
        loss = F.cross_entropy(self.model(clean), targets)
        values = torch.stack([F.cross_entropy(self.model(view), targets) for view in kept])
        state = cooper.ConstraintState(violation=values - self.epsilons)
        return cooper.CMPState(loss=loss, observed_constraints={self.constraint: state})


def cooper_run(kind, model, epsilons, learning_rate, dual_lr):
    problem = CooperProblem(model, torch.tensor(epsilons, dtype=torch.float64))
    dual = torch.optim.SGD(problem.dual_parameters(), lr=dual_lr, maximize=True)
    return problem, kind(problem, torch.optim.SGD(model.parameters(), lr=learning_rate), dual)


def assert_same_iterates(model, problem, twin, cooper_problem):
    torch.testing.assert_close(list(model.parameters()), list(twin.parameters()), **EXACT)
    torch.testing.assert_close(problem.gamma, cooper_problem.constraint.multiplier().detach(), **EXACT)


def test_iterates_are_those_of_cooper_with_simultaneous_updates():
    model, epsilons = smooth_network(), [1.0, 0.4]
    twin = copy.deepcopy(model)
    problem = doubled(Constraint(sets.wide(), 1.0), Constraint(sets.translations(2), 0.4), n_steps=2, dual_lr=0.3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    theirs, rolls = cooper_run(cooper.optim.SimultaneousOptimizer, twin, epsilons, 0.2, 0.3)
    for images, targets in make_batches(30):
        step = train_step(problem, model, optimizer, images, targets)
        kept = [
            to_double(constraint.transforms.apply(images, draw))
            for constraint, draw in zip(problem.constraints, step.kept, strict=True)
        ]
        out = rolls.roll({"clean": to_double(images), "kept": kept, "targets": targets})
        torch.testing.assert_close(step.lagrangian.detach(), out.primal_lagrangian_store.lagrangian.detach(), **EXACT)
        assert_same_iterates(model, problem, twin, theirs)
    assert (problem.gamma > 0).all()


def test_slack_taken_after_the_primal_step_gives_the_iterates_of_cooper_alternating():
    model = smooth_network()
    twin = copy.deepcopy(model)
    problem = doubled(Constraint(fixed(inverted), 0.7), n_steps=0, dual_lr=0.3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    theirs, rolls = cooper_run(cooper.optim.AlternatingPrimalDualOptimizer, twin, [0.7], 0.2, 0.3)
    for images, targets in make_batches(30):
        optimizer.zero_grad()
        problem(model, images, targets).lagrangian.backward()
        optimizer.step()
        problem.dual_step(problem(model, images, targets).slack)
        views = {"clean": to_double(images), "kept": [to_double(inverted(images))]}
        rolls.roll({**views, "targets": targets})
        assert_same_iterates(model, problem, twin, theirs)
    assert problem.gamma > 0


def plain_training(model, optimizer, batches):
    for images, targets in batches:
        loss = F.cross_entropy(model(noisy(images)), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.detach()


def constrained_training(problem, model, optimizer, batches):
    for images, targets in batches:
        yield train_step(problem, model, optimizer, images, targets).loss


def trace_of(train):
    """Train a network with BatchNorm, dropout and a random finish; return all that training leaves behind."""
    model = batch_norm_network(dropout=0.4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
    torch.manual_seed(5)
    losses = torch.stack(list(train(model, optimizer, make_batches(40, n=7))))
    return losses, {**copy_of(model.state_dict()), "rng": torch.get_rng_state()}


@pytest.mark.parametrize(
    ("epsilons", "settings"),
    [
        ([], {}),
        ([math.inf], {}),
        ([math.inf], {"n_steps": 7, "n_views": 3, "gamma_init": 2.0}),
        ([math.inf], {"views": views.apart, "scoring": "train"}),
        ([math.inf, math.inf], {"n_steps": 0}),
        ([], {"views": "one"}),
        ([math.inf, math.inf], {"views": "one", "gamma_init": 2.0}),
    ],
)
def test_without_a_finite_epsilon_it_is_plain_training_bit_for_bit(epsilons, settings):
    constraints = [Constraint(sets.wide(), epsilon) for epsilon in epsilons]
    problem = two_view_problem(*constraints, finish=noisy, **settings)
    our_losses, ours = trace_of(lambda *args: constrained_training(problem, *args))
    plain_losses, plain = trace_of(plain_training)
    assert same_bits(ours, plain)
    # torch adds the losses up in another order under reduction="mean"; the gradients do not know
    torch.testing.assert_close(our_losses, plain_losses)
    assert problem.gamma.tolist() == [0.0] * len(epsilons)


def test_infinite_epsilon_beside_a_finite_one_costs_and_changes_nothing():
    def run(*constraints):
        model = Recorder(smooth_network().float())
        step = two_view_problem(*constraints, n_steps=1, gamma_init=1.0)(model, make_images(4), make_targets(4))
        return model, step

    alone, step_alone = run(Constraint(sets.wide(), 0.5))
    beside, step = run(Constraint(sets.rotations(1.0), math.inf), Constraint(sets.wide(), 0.5))
    assert torch.equal(alone.trained[0], beside.trained[0])
    assert torch.equal(step.lagrangian, step_alone.lagrangian)
    assert step.slack[0] == -math.inf
    assert torch.equal(step.slack[1:], step_alone.slack)
    assert step.kept[0] is None
    assert step.chains[0] is None
    assert step.acceptance[0].isnan()
    assert not step.acceptance[1].isnan()


def test_joint_and_separate_passes_agree_without_batch_norm():
    gradients = []
    for passes in ("both", views.apart):
        model = smooth_network()
        problem = doubled(
            Constraint(sets.wide(), 0.5), Constraint(sets.scalings(0.5), 0.1), n_views=2, gamma_init=1.0, views=passes
        )
        problem(model, make_images(6), make_targets(6), generator=seeded(1)).lagrangian.backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    torch.testing.assert_close(*gradients, **EXACT)


@PASSES
def test_joint_makes_one_pass_and_separate_one_each(passes):
    model = Recorder(batch_norm_network())
    constraints = [Constraint(sets.wide(), 0.5), Constraint(sets.rotations(1.0), 0.5)]
    two_view_problem(*constraints, n_views=2, views=passes)(model, make_images(4), make_targets(4))
    assert [len(inputs) for inputs in model.trained] == ([20] if passes == "both" else [4, 8, 8])


@pytest.mark.parametrize("n_steps", [0, 1, 4])
@PASSES
def test_a_last_batch_of_one_image_works(n_steps, passes):
    network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(64, 3))
    problem = two_view_problem(Constraint(sets.wide(), 0.5), n_steps=n_steps, n_views=2, views=passes)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    step = train_step(problem, network, optimizer, make_images(1), make_targets(1))
    assert step.slack.isfinite().all()
    assert len(step.kept[0]) == 2
    assert step.outputs.shape == (1, 3)


def test_no_steps_sample_uniformly_without_scoring():
    model = Recorder(smooth_network().float())
    problem = two_view_problem(Constraint(sets.wide(), 0.5), n_steps=0)
    step = problem(model, make_images(400), make_targets(400))
    assert model.scored == []
    assert step.chains[0].accepted.shape == (0, 1, 400)
    assert step.acceptance.isnan().all()
    assert torch.bincount(step.kept[0].op.flatten(), minlength=14).min() > 10  # 28.6 expected of each


def mixed_up(targets):
    """Return soft labels: a little of the next class."""
    return 0.8 * F.one_hot(targets, 3) + 0.2 * F.one_hot((targets + 1) % 3, 3)


LOSSES = {
    "classes": (lambda o, y: F.cross_entropy(o, y, reduction="none"), lambda y: y, F.cross_entropy),
    "soft labels": (lambda o, y: F.cross_entropy(o, y, reduction="none"), mixed_up, F.cross_entropy),
    "label smoothing": (
        nn.CrossEntropyLoss(reduction="none", label_smoothing=0.1),
        lambda y: y,
        nn.CrossEntropyLoss(label_smoothing=0.1),
    ),
    "regression": (
        lambda o, y: F.mse_loss(o, y, reduction="none").mean(1),
        lambda y: torch.stack([y, -y, 0 * y], 1).float(),
        F.mse_loss,
    ),
    "scalar regression": (lambda o, y: (o[:, 0] - y).abs(), lambda y: y.float(), lambda o, y: F.l1_loss(o[:, 0], y)),
}


@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize("n_views", [1, 2])
def test_any_non_negative_loss_per_sample_will_do(kind, n_views):
    loss_fn, label, mean_loss = LOSSES[kind]
    model, images, targets = smooth_network().float(), make_images(6), label(make_targets(6))
    problem = two_view_problem(Constraint(sets.wide(), 0.5), n_views=n_views, gamma_init=0.7, loss_fn=loss_fn)
    step = problem(model, images, targets)
    kept = problem.constraints[0].transforms.apply(images.repeat(n_views, 1, 1, 1), step.kept[0])
    loss = mean_loss(model(images.float() / 255), targets)
    slack = mean_loss(model(kept.float() / 255), torch.cat([targets] * n_views)) - 0.5
    torch.testing.assert_close(step.loss, loss.detach())
    torch.testing.assert_close(step.slack, slack.detach().view(1).double(), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(step.lagrangian, loss + 0.7 * slack)


def test_loss_defaults_to_cross_entropy():
    problems = [two_view_problem(Constraint(sets.wide(), 0.5), loss_fn=LOSSES["classes"][0])]
    problems.append(two_view_problem(Constraint(sets.wide(), 0.5)))
    steps = [problem(smooth_network().float(), make_images(4), make_targets(4)) for problem in problems]
    assert torch.equal(steps[0].lagrangian, steps[1].lagrangian)


def test_model_may_be_any_function():
    weights = torch.randn(36, 3, generator=seeded(0), requires_grad=True)
    problem = two_view_problem(Constraint(sets.wide(), 0.5), gamma_init=1.0, scoring="train")
    step = problem(lambda inputs: inputs.flatten(1) @ weights, make_images(4), make_targets(4))
    step.lagrangian.backward()
    assert weights.grad.abs().sum() > 0


class Dictionary(nn.Module):
    def __init__(self):
        super().__init__()
        self.network = smooth_network().float()

    def forward(self, inputs):
        return {"logits": self.network(inputs)}


def from_dictionary(outputs, targets):
    return F.cross_entropy(outputs["logits"], targets, reduction="none")


def dictionary_problem(**settings):
    return two_view_problem(Constraint(sets.wide(), 0.5), gamma_init=1.0, loss_fn=from_dictionary, **settings)


@pytest.mark.parametrize("how", ["one", "both", views.apart], ids=["one", "both", "apart"])
def test_model_may_return_a_dictionary_to_a_loss_that_knows_it(how):
    model, batch = Dictionary(), (make_images(4), make_targets(4))
    step = dictionary_problem(views=how)(model, *batch)
    plain = two_view_problem(Constraint(sets.wide(), 0.5), gamma_init=1.0, views=how)(model.network, *batch)
    assert torch.equal(step.lagrangian, plain.lagrangian)
    torch.testing.assert_close(step.outputs["logits"][:4].detach(), plain.outputs)


def test_outputs_come_without_gradient():
    plain = two_view_problem(Constraint(sets.wide(), 0.5))(smooth_network().float(), make_images(4), make_targets(4))
    assert not plain.outputs.requires_grad


def test_float_images_are_accepted():
    images = make_images(4).float() / 255
    problem = two_view_problem(Constraint(sets.wide(), 0.5))
    model = Recorder(smooth_network().float())
    step = problem(model, images, make_targets(4))
    assert torch.equal(model.trained[0][:4], images)
    assert step.slack.isfinite().all()


def test_step_says_what_the_batch_said():
    model = batch_norm_network()
    problem = two_view_problem(Constraint(sets.wide(), 0.5), n_steps=3, n_views=2, gamma_init=0.3)
    step = problem(model, make_images(6), make_targets(6))
    assert step.lagrangian.requires_grad
    assert step.lagrangian.shape == step.loss.shape == ()
    assert step.slack.shape == (1,)
    assert not any(tensor.requires_grad for tensor in (step.loss, step.slack, step.outputs))
    assert step.outputs.shape == (6, 3)
    assert isinstance(step.kept[0], Draw)
    assert len(step.kept[0]) == 12
    assert step.chains[0].state.shape == step.chains[0].loss.shape == (2, 6)
    assert step.chains[0].accepted.shape == (3, 2, 6)
    torch.testing.assert_close(step.loss, F.cross_entropy(step.outputs, make_targets(6)))
    torch.testing.assert_close(step.lagrangian.item(), step.loss.item() + 0.3 * step.slack.item(), rtol=1e-6, atol=0)


def test_acceptance_is_the_share_of_accepted_transitions():
    rising = torch.tensor([1.0, 2.0, 0.0, 3.0]).view(-1, 1, 1)  # accepted, rejected, accepted

    def told(losses, *, generator=None):
        return metropolis_hastings(rising.expand(losses.shape), generator=generator)

    problem = two_view_problem(Constraint(sets.wide(), 1.0, told), n_steps=3)
    step = problem(smooth_network().float(), make_images(5), make_targets(5))
    torch.testing.assert_close(step.acceptance, torch.tensor([2 / 3]))


@pytest.mark.parametrize("make_set", [sets.wide, lambda: sets.rotations(3.0), lambda: sets.translations(2.0)])
def test_kept_draws_replay_to_the_images_trained_on(make_set):
    model, images = Recorder(batch_norm_network()), make_images(6)
    problem = two_view_problem(Constraint(make_set(), 0.5), n_steps=3, n_views=2)
    step = problem(model, images, make_targets(6))
    replayed = problem.constraints[0].transforms.apply(images.repeat(2, 1, 1, 1), step.kept[0])
    assert torch.equal(replayed.float() / 255, model.trained[0][6:])


def kept_magnitudes(problem, n_batches=3):
    model = smooth_network().float()
    return [problem(model, make_images(8), make_targets(8)).kept[0].magnitude.tolist() for _ in range(n_batches)]


def test_randomness_comes_from_the_seed_and_the_batch_number():
    make = lambda seed: two_view_problem(Constraint(sets.wide(), 0.5), seed=seed)  # noqa: E731
    torch.manual_seed(0)
    first = kept_magnitudes(make(3))
    torch.manual_seed(1)
    assert kept_magnitudes(make(3)) == first
    assert kept_magnitudes(make(4)) != first
    assert first[0] != first[1] != first[2]


def test_a_generator_given_is_the_one_used():
    problem = two_view_problem(Constraint(sets.wide(), 0.5), n_steps=0)
    step = problem(smooth_network().float(), make_images(8), make_targets(8), generator=seeded(3))
    expected = sets.wide().draw(8, generator=seeded(3))
    assert torch.equal(step.kept[0].magnitude, expected.magnitude)
    assert torch.equal(step.kept[0].op, expected.op)


def two_constraints(**settings):
    return two_view_problem(Constraint(sets.wide(), 0.5), Constraint(sets.rotations(1.0), 0.2), **settings)


@pytest.mark.parametrize(
    ("slack", "expected"),
    [
        (1.0, 1.1),
        (-2.0, 0.8),
        (-20.0, 0.0),
        (0.0, 1.0),
        (math.nan, 1.0),
        (math.inf, 1.0),
        (-math.inf, 0.0),
        (1e307, 1e306),
        (3e307, 3e306),
    ],
)
def test_dual_step_is_gamma_plus_slack_cut_at_zero(slack, expected):
    problem = two_constraints(dual_lr=0.1, gamma_init=1.0)
    problem.dual_step(torch.tensor([slack, 0.0], dtype=torch.float64))
    torch.testing.assert_close(problem.gamma.tolist(), [expected, 1.0])


@pytest.mark.parametrize("slack", [1.0, -1.0, math.nan, math.inf, -math.inf])
def test_dual_lr_of_zero_keeps_gamma(slack):
    problem = two_constraints(dual_lr=0.0, gamma_init=0.7)
    problem.dual_step(torch.full((2,), slack))
    assert problem.gamma.tolist() == [0.7, 0.7]


def test_gamma_that_would_overflow_stays_where_it_is():
    problem = two_constraints(dual_lr=10.0)
    problem.dual_step(torch.tensor([3e307, 1.0], dtype=torch.float64) * 2)
    assert problem.gamma.tolist() == [0.0, 20.0]


def test_dual_step_is_in_place_and_keeps_backward_working():
    model, problem = smooth_network().float(), two_constraints(gamma_init=0.5, dual_lr=1.0)
    gamma = problem.gamma
    step = problem(model, make_images(4), make_targets(4))
    expected = torch.autograd.grad(step.lagrangian, list(model.parameters()), retain_graph=True)
    problem.dual_step(step.slack)
    assert problem.gamma is gamma
    assert not torch.equal(gamma, torch.tensor([0.5, 0.5]))
    step.lagrangian.backward()
    assert all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), expected, strict=True))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_nan_and_infinite_losses_never_reach_gamma(bad):
    def loss_fn(outputs, targets):
        losses = F.cross_entropy(outputs, targets, reduction="none")
        return torch.where(torch.arange(len(losses)) % 3 == 0, bad, losses)

    problem = two_constraints(gamma_init=0.5, loss_fn=loss_fn)
    step = problem(smooth_network().float(), make_images(6), make_targets(6))
    assert not step.slack.isfinite().any()
    problem.dual_step(step.slack)
    assert problem.gamma.tolist() == [0.5, 0.5]


def test_a_chain_does_not_end_on_nan_when_a_proposal_has_a_loss():
    """Black images score NaN; only chains all of whose proposals are black may keep one."""
    black = lambda images: torch.zeros_like(images)  # noqa: E731
    transforms = fixed(lambda images: torch.where(seen(images), images, black(images)))

    def seen(images):
        return (torch.arange(len(images)) % 2 == 0).view(-1, 1, 1, 1)

    def loss_fn(outputs, targets):
        return torch.where(outputs.sum(1) == 0, math.nan, outputs.sum(1))

    problem = two_view_problem(Constraint(transforms, 0.5), n_steps=3, loss_fn=loss_fn)
    step = problem(nn.Flatten(), make_images(5), make_targets(5))  # odd: chains see both kinds
    assert step.slack.isfinite().all()


def test_gamma_is_a_buffer_in_double_that_is_saved():
    problem = two_constraints(gamma_init=0.25)
    assert dict(problem.named_parameters()) == {}
    assert set(problem.state_dict()) == {"gamma", "n_batches"}
    assert problem.gamma.tolist() == [0.25, 0.25]
    assert problem.half().gamma.dtype == torch.float64
    assert InvarianceConstrained().gamma.shape == (0,)


def resumable(seed):
    model = batch_norm_network(seed)
    problem = two_constraints(n_steps=2, dual_lr=0.2, finish=noisy)
    return problem, model, torch.optim.SGD(model.parameters(), lr=0.1)


def test_resumed_run_equals_the_uninterrupted_one_bit_for_bit():
    batches = make_batches(12)
    torch.manual_seed(0)
    run = resumable(0)
    for batch in batches[:5]:
        train_step(*run, *batch)
    saved = [copy_of(part.state_dict()) for part in run[:2]]
    rng = torch.get_rng_state()
    for batch in batches[5:]:
        train_step(*run, *batch)

    resumed = resumable(1)
    for part, state in zip(resumed, saved, strict=False):
        part.load_state_dict(state)
    torch.set_rng_state(rng)
    for batch in batches[5:]:
        train_step(*resumed, *batch)
    assert int(resumed[0].n_batches) == 12
    assert same_bits(resumed[0].state_dict(), run[0].state_dict())
    assert same_bits(resumed[1].state_dict(), run[1].state_dict())
    assert (run[0].gamma > 0).any()


def test_problem_says_what_it_is():
    text = repr(two_view_problem(Constraint(sets.wide(), 0.8), n_steps=2, dual_lr=0.01))
    assert "14 operations, epsilon=0.8" in text
    assert "n_steps=2, views=both, dual_lr=0.01" in text
    assert "views=apart" in repr(InvarianceConstrained(views=views.apart))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((sets.wide(), -0.2), ValueError, r"epsilon must be positive, got -0\.2"),
        ((sets.wide(), math.nan), ValueError, "epsilon must be positive, got nan"),
        ((sets.wide(), "0.8"), TypeError, "epsilon must be a number, \"auto\" or a Resilient, got '0.8'"),
        ((sets.wide(), None), TypeError, 'epsilon must be a number, "auto" or a Resilient, got None'),
        ((sets.wide(), True), TypeError, 'epsilon must be a number, "auto" or a Resilient, got True'),
        ((sets.wide(), "automatic"), TypeError, "epsilon must be a number, \"auto\" or a Resilient, got 'automatic'"),
        ((sets.wide, 0.8), TypeError, "transforms must be a TransformSet, got function"),
        (("wide", 0.8), TypeError, "transforms must be a TransformSet, got str"),
    ],
)
def test_constraints_that_are_none_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        Constraint(*arguments)


def test_epsilon_of_zero_is_a_pure_penalty():
    problem = two_view_problem(Constraint(fixed(inverted), 0), n_steps=0, gamma_init=2.0, dual_lr=0.0)
    step = problem(smooth_network().float(), make_images(4), make_targets(4))
    torch.testing.assert_close(step.lagrangian.item(), step.loss.item() + 2 * step.slack.item(), rtol=1e-6, atol=0)
    assert step.slack > 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_steps": -1}, r"n_steps must not be negative, got -1 \(0 samples uniformly\)"),
        ({"n_views": 0}, "n_views must be at least 1, got 0"),
        ({"dual_lr": -1.0}, r"dual_lr must not be negative or infinite, got -1\.0 \(0 keeps gamma fixed\)"),
        ({"dual_lr": math.nan}, "dual_lr must not be negative or infinite, got nan"),
        ({"dual_lr": math.inf}, "dual_lr must not be negative or infinite, got inf"),
        ({"gamma_init": -0.5}, r"gamma_init must not be negative or infinite, got -0\.5"),
        ({"gamma_init": math.nan}, "gamma_init must not be negative or infinite, got nan"),
        ({"views": "two"}, 'views must be "one", "both" or a function, got \'two\''),
        ({"views": "one", "n_views": 2}, 'n_views must be 1 with views="one", got 2: several views need views="both"'),
        ({"views": views.one, "n_views": 2}, 'n_views must be 1 with views="one", got 2'),
        ({"scoring": "eval"}, 'scoring must be "frozen" or "train", got \'eval\''),
        ({"scoring_batch": 0}, "scoring_batch must be at least 1, or None for all at once, got 0"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        two_view_problem(Constraint(sets.wide(), 0.5), **settings)


def test_a_set_in_place_of_a_constraint_is_refused():
    with pytest.raises(TypeError, match=r"constraints must be invaug\.Constraint, got TransformSet"):
        two_view_problem(sets.wide())


IMAGES, TARGETS = make_images(4), make_targets(4)


@pytest.mark.parametrize(
    ("images", "targets", "error", "message"),
    [
        (IMAGES, TARGETS[:3], ValueError, r"targets must have one row per image \(4\), got shape \(3,\)"),
        (IMAGES, TARGETS[0], ValueError, r"targets must have one row per image \(4\), got shape \(\)"),
        (IMAGES, [0, 1, 2, 0], TypeError, r"targets must be a torch\.Tensor, got list"),
        (IMAGES[:0], TARGETS[:0], ValueError, r"images must hold at least one image, got shape \(0, 1, 6, 6\)"),
        (IMAGES[0], TARGETS[:1], ValueError, r"images must have shape \(batch, channels, height, width\), got \(\d, 6"),
        (IMAGES.long(), TARGETS, TypeError, r"images must be uint8, or float in \[0, 1\], got torch\.int64"),
        (IMAGES.numpy(), TARGETS, TypeError, r"images must be a torch\.Tensor, got ndarray"),
        (IMAGES.float(), TARGETS, ValueError, r"float images must lie in \[0, 1\], got values from .* divide bytes"),
    ],
)
def test_batches_that_are_none_are_refused(images, targets, error, message):
    with pytest.raises(error, match=message):
        two_view_problem(Constraint(sets.wide(), 0.5))(smooth_network().float(), images, targets)


class Cut(nn.Module):
    def forward(self, inputs):
        return inputs.flatten(1)[:-1]


class Mean(nn.Module):
    def forward(self, inputs):
        return inputs.mean()


def negative(outputs, targets):
    return -F.cross_entropy(outputs, targets, reduction="none")


@pytest.mark.parametrize("how", ["one", "both"])
@pytest.mark.parametrize("epsilon", [0.5, math.inf])
@pytest.mark.parametrize("n_steps", [0, 1])
@pytest.mark.parametrize(
    ("model", "loss_fn", "message"),
    [
        (nn.Flatten(), F.cross_entropy, 'loss_fn must return one loss per sample, .* use reduction="none"'),
        (
            nn.Flatten(),
            negative,
            "(loss_fn must not be negative, got losses below 0|losses must not be negative, got -)",
        ),
        (Cut(), None, "the model must return one output per image"),
        (Mean(), None, r"the model must return one output per image \(\d+\), got shape \(\)"),
    ],
)
def test_models_and_losses_of_the_wrong_shape_are_refused(model, loss_fn, message, n_steps, epsilon, how):
    settings = {"n_steps": n_steps} | ({"loss_fn": loss_fn} if loss_fn else {})
    problem = two_view_problem(Constraint(sets.wide(), epsilon), views=how, **settings)
    with pytest.raises(ValueError, match=message):
        problem(model, IMAGES, TARGETS)


@pytest.mark.parametrize("n_steps", [0, 1])
def test_a_dictionary_is_refused_by_the_default_loss_with_the_way_out(n_steps):
    problem = two_view_problem(Constraint(sets.wide(), 0.5), n_steps=n_steps)
    with pytest.raises(TypeError, match=r"must return a tensor, got dict: take the logits out with outputs=operator"):
        problem(Dictionary(), IMAGES, TARGETS)


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 1)])
def test_slack_of_the_wrong_shape_is_refused(shape):
    with pytest.raises(ValueError, match=r"slack must have shape \(2,\), got \("):
        two_constraints().dual_step(torch.zeros(shape))


def test_a_share_of_the_batch_gives_the_slack_and_the_gradient_of_the_whole_on_average():
    images, targets = make_images(8), make_targets(8)
    model = smooth_network()

    def average(share, n):
        problem = two_view_problem(
            Constraint(fixed(inverted), 0.5, share=share), n_steps=0, gamma_init=2.0, finish=to_double
        )
        gradient, slack, sizes = torch.zeros(8, 36, dtype=torch.float64), 0.0, set()
        for _ in range(n):
            step = problem(model, images, targets)
            gradient += torch.autograd.grad(step.lagrangian, model[1].weight)[0] / n
            slack += float(step.slack) / n
            sizes.add(len(step.kept[0]))
        return gradient, slack, sizes

    whole, part = average(1.0, 1), average(0.25, 3000)
    assert (whole[2], part[2]) == ({8}, {2})
    assert abs(whole[1] - part[1]) < 0.02
    assert (whole[0] - part[0]).norm() < 0.05 * whole[0].norm()


def test_shares_of_several_constraints_are_drawn_apart_and_counted_apart():
    images, targets = make_images(16), make_targets(16)
    shares = (0.5, 0.25, 1.0)
    problem = two_view_problem(*(Constraint(fixed(inverted), 0.0, share=s) for s in shares), finish=to_double)
    recorder = Recorder(smooth_network())
    step = problem(recorder, images, targets)
    assert [len(draw) for draw in step.kept] == [8, 4, 16]
    _, *views = recorder.trained[0].split([16, 8, 4, 16])
    whole = to_double(inverted(images))
    picked = [[int((whole == row).flatten(1).all(1).nonzero()[0]) for row in view] for view in views]
    assert picked[0][:4] != picked[1]
    assert picked[2] == list(range(16))
    losses = torch.nn.functional.cross_entropy(recorder.model(whole), targets, reduction="none")
    expected = torch.stack([losses[rows].mean() for rows in picked])
    torch.testing.assert_close(step.slack.double(), expected.detach(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("share", [0, -0.5, 1.5, math.nan])
def test_a_share_that_is_none_is_refused(share):
    with pytest.raises(ValueError, match="share must be above 0 and at most 1"):
        Constraint(fixed(inverted), 0.5, share=share)


def test_without_the_clean_view_the_gradient_is_that_of_the_kept_images_alone():
    problem = doubled(Constraint(sets.wide(), 0.5), dual_lr=0.0, gamma_init=1.0, views=views.kept_only)
    model, images, targets = smooth_network(), make_images(6), make_targets(6)
    step = problem(model, images, targets)
    model.zero_grad()
    step.lagrangian.backward()
    found = [parameter.grad.clone() for parameter in model.parameters()]
    kept = problem.finish(problem.constraints[0].transforms.apply(images, step.kept[0]))
    model.zero_grad()
    loss = F.cross_entropy(model(kept), targets)
    loss.backward()
    for mine, theirs in zip(found, model.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs.grad)
    assert step.loss == pytest.approx(loss.item(), rel=1e-5)
    assert step.slack.item() == pytest.approx(loss.item() - 0.5, rel=1e-5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_views": 2}, "views.kept_only needs one view of whole batches: leave out n_views and share"),
        ({"share": 0.5}, "views.kept_only needs one view of whole batches: leave out n_views and share"),
        ({"epsilon": math.inf}, "views.kept_only needs one constraint with a finite epsilon, got 0"),
        ({"epsilon": "auto"}, 'views.kept_only has no clean loss to go by: give epsilon as a number, not "auto"'),
        ({"twice": True}, "views.kept_only needs one constraint with a finite epsilon, got 2"),
    ],
)
def test_leaving_the_clean_view_out_needs_one_constraint_on_whole_batches(settings, message):
    constraint = Constraint(sets.wide(), settings.get("epsilon", 0.5), share=settings.get("share"))
    constraints = [constraint] * (2 if settings.get("twice") else 1)
    problem = two_view_problem(*constraints, n_views=settings.get("n_views", 1), views=views.kept_only)
    with pytest.raises(ValueError, match=message):
        problem(smooth_network().float(), make_images(4), make_targets(4))


class Pixels(nn.Module):
    """Gives every pixel three classes."""

    def __init__(self):
        super().__init__()
        self.network = nn.Conv2d(1, 3, 1)

    def forward(self, inputs):
        return self.network(inputs)


MASKS = torch.randint(3, (4, 6, 6), generator=seeded(0))
TURN = Op("Turn", lambda images, _: images.flip(2), geometric=True)
DIM = Op("Dim", lambda images, _: images // 2)


def test_masks_that_stay_while_images_move_are_warned_of_once():
    problem = two_view_problem(Constraint(TransformSet((DIM, TURN)), 0.5))
    with pytest.warns(UserWarning, match=r"targets of shape \(4, 6, 6\) look like masks, .* without\(Turn\)") as found:
        problem(Pixels(), IMAGES, MASKS)
    assert len(found) == 1
    step = problem(Pixels(), IMAGES, MASKS)  # where warnings are errors
    assert step.slack.isfinite().all()


@pytest.mark.parametrize(
    ("ops", "epsilon", "targets"),
    [
        ((DIM,), 0.5, MASKS),
        ((DIM, TURN), math.inf, MASKS),
        ((DIM, TURN), 0.5, MASKS[:, :, :5]),  # of another size
    ],
)
def test_what_does_not_move_masks_is_not_warned_of(ops, epsilon, targets):
    class Cropped(Pixels):
        def forward(self, inputs):
            return super().forward(inputs)[..., : targets.shape[2]]

    problem = two_view_problem(Constraint(TransformSet(ops), epsilon))
    problem(Cropped(), IMAGES, targets)  # warnings are errors


def test_classes_of_whole_images_are_no_masks():
    problem = two_view_problem(Constraint(TransformSet((TURN,)), 0.5))
    problem(smooth_network().float(), IMAGES, TARGETS)
