"""The paper's propositions on small finite sets, against general-purpose solvers that know nothing of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import LinearConstraint, linprog, minimize

from invaug import Constraint, chain_probabilities, worst
from tests.support.problems import (
    fixed,
    inverted,
    make_images,
    make_targets,
    seeded,
    smooth_network,
    to_double,
    two_view_problem,
)

LOSSES = ([0.3, 2.0, 0.1, 1.1], [1.0, 1.0, 1.0], [0.0, 4.0, 0.5, 0.0, 2.5], [0.7])


def smoothed(losses: np.ndarray, c: float) -> np.ndarray:
    """Solve max Σ λℓ − c Σ λ² over distributions numerically (the paper prints a plus, its derivation a minus)."""
    n = len(losses)
    found = minimize(
        lambda p: c * p @ p - p @ losses,
        np.full(n, 1 / n),
        jac=lambda p: 2 * c * p - losses,
        method="SLSQP",
        bounds=[(0, None)] * n,
        constraints=[LinearConstraint(np.ones((1, n)), 1, 1)],
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    return np.asarray(found.x)


@pytest.mark.parametrize("losses", LOSSES)
def test_the_smoothed_distribution_is_the_loss_over_its_sum_where_c_is_half_the_sum(losses):
    given_losses = np.array(losses)
    total = given_losses.sum()
    np.testing.assert_allclose(smoothed(given_losses, total / 2), given_losses / total, atol=1e-6)


def test_another_c_gives_another_distribution():
    losses = np.array(LOSSES[0])
    closed = losses / losses.sum()
    assert np.abs(smoothed(losses, losses.sum()) - closed).max() > 0.05  # smoother
    assert np.abs(smoothed(losses, losses.sum() / 8) - closed).max() > 0.05  # nearer to the worst case


@pytest.mark.parametrize("losses", LOSSES)
def test_the_chain_goes_to_the_smoothed_distribution(losses):
    """The law of the chain's state, averaged over independent uniform proposals, tends to loss / Σ loss."""
    generator, total = seeded(0), np.zeros(len(losses))
    n, n_steps = 4000, 60
    proposals = torch.randint(len(losses), (n_steps + 1, n), generator=generator)
    weights = chain_probabilities(torch.tensor(losses, dtype=torch.float64)[proposals])
    for g in range(len(losses)):
        total[g] = float((weights * (proposals == g)).sum() / n)
    np.testing.assert_allclose(total, np.array(losses) / sum(losses), atol=0.02)


@pytest.mark.parametrize("losses", LOSSES)
def test_the_worst_case_is_an_expectation_under_a_distribution(losses):
    n = len(losses)
    best = linprog(-np.array(losses), A_eq=np.ones((1, n)), b_eq=[1], bounds=(0, None))
    assert -best.fun == pytest.approx(max(losses))
    column = torch.tensor(losses).unsqueeze(1)
    chosen = worst(column, generator=seeded(0)).state
    assert float(column[chosen, 0]) == pytest.approx(max(losses))


@settings(deadline=None)
@given(st.lists(st.floats(0, 1e3), min_size=1, max_size=30).filter(lambda losses: sum(losses) > 1e-3))
def test_the_smoothed_expectation_lies_between_the_mean_and_the_worst_case(losses):
    values = np.array(losses)
    expectation = values @ values / values.sum()
    assert values.mean() <= expectation * (1 + 1e-9)
    assert expectation <= values.max() * (1 + 1e-9)


@pytest.mark.parametrize("gamma", [0.0, 0.3, 2.5])
def test_the_lagrangian_is_the_risk_of_a_mixture_of_clean_and_transformed_images(gamma):
    """loss + γ (slack) = (1 + γ) E over a mixture, clean with weight 1/(1+γ), minus γ ε; values and gradients."""
    images, targets = make_images(6), make_targets(6)
    model, epsilon = smooth_network(), 0.7
    problem = two_view_problem(Constraint(fixed(inverted), epsilon), n_steps=0, gamma_init=gamma, finish=to_double)
    step = problem(model, images, targets)
    found = torch.autograd.grad(step.lagrangian, list(model.parameters()))
    both = torch.cat([to_double(images), to_double(inverted(images))])
    losses = torch.nn.functional.cross_entropy(model(both), targets.repeat(2), reduction="none")
    weights = torch.cat([torch.full((6,), 1 / (1 + gamma)), torch.full((6,), gamma / (1 + gamma))]).double() / 6
    mixture = (weights * losses).sum()
    expected = torch.autograd.grad(mixture, list(model.parameters()))
    torch.testing.assert_close(step.lagrangian, (1 + gamma) * mixture - gamma * epsilon, rtol=1e-6, atol=1e-6)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, (1 + gamma) * other, rtol=1e-6, atol=1e-8)
