import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from invaug import chain_probabilities, metropolis_hastings, worst
from tests.support.problems import algorithm_1, law_by_enumeration, seeded

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
SAMPLERS = [metropolis_hastings, worst]
NEVER, ALWAYS, RATIO = 0.0, 1.0, None

# what happens to a chain whose state has the loss of the row when the loss of the column is proposed
OUTCOMES = {
    "zero": {"zero": NEVER, "tiny": ALWAYS, "one": ALWAYS, "inf": ALWAYS, "nan": NEVER},
    "tiny": {"zero": NEVER, "tiny": ALWAYS, "one": ALWAYS, "inf": ALWAYS, "nan": NEVER},
    "one": {"zero": NEVER, "tiny": RATIO, "one": ALWAYS, "inf": ALWAYS, "nan": NEVER},
    "inf": {"zero": NEVER, "tiny": NEVER, "one": NEVER, "inf": NEVER, "nan": NEVER},
    "nan": {"zero": ALWAYS, "tiny": ALWAYS, "one": ALWAYS, "inf": ALWAYS, "nan": NEVER},
}
CASES = [(current, proposed, p) for current, row in OUTCOMES.items() for proposed, p in row.items()]


def value(name: str, dtype: torch.dtype) -> float:
    return {"zero": 0.0, "tiny": torch.finfo(dtype).tiny, "one": 1.0, "inf": math.inf, "nan": math.nan}[name]


def random_losses(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.rand(shape, dtype=dtype, generator=seeded(seed)) * 3 + 1e-3


def chi_square(counts: torch.Tensor, law: torch.Tensor) -> float:
    possible = law > 0
    expected = law[possible] * counts.sum()
    assert counts[~possible].sum() == 0, "a state of probability zero was reached"
    return float(((counts[possible] - expected) ** 2 / expected).sum())


@pytest.mark.parametrize("n_steps", [1, 2, 7, 30])
def test_chain_is_algorithm_1_one_image_at_a_time(n_steps):
    losses = random_losses(n_steps + 1, 500, seed=n_steps)
    uniforms = torch.rand((n_steps, 500), dtype=torch.float64, generator=seeded(9))
    chain = metropolis_hastings(losses, generator=seeded(9))
    printed = [algorithm_1(losses[:, i].tolist(), uniforms[:, i].tolist()) for i in range(500)]
    assert chain.state.tolist() == printed


@pytest.mark.parametrize("dtype", DTYPES)
def test_chain_follows_algorithm_1_in_every_float_type(dtype):
    losses = random_losses(6, 300, dtype=torch.float32).to(dtype)
    number = torch.float64 if dtype == torch.float64 else torch.float32
    uniforms = torch.rand((5, 300), dtype=number, generator=seeded(4))
    chain = metropolis_hastings(losses, generator=seeded(4))
    printed = [algorithm_1(losses[:, i].tolist(), uniforms[:, i].tolist()) for i in range(300)]
    assert chain.state.tolist() == printed


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "losses",
    [
        (0.5, 2.0, 1.0),
        (2.0, 0.5, 0.25, 1.0, 0.125),
        (0.0, 0.0, 3.0, 1.0, 0.0),
        (math.nan, 1.0, math.nan, 0.5, 0.25),
        (1.0, 0.25, math.inf, 5.0),
    ],
)
def test_a_million_chains_follow_the_exact_law(losses, dtype):
    column = torch.tensor(losses, dtype=dtype)
    states = metropolis_hastings(column.view(-1, 1).expand(-1, 1_000_000), generator=seeded(1)).state
    counts = torch.bincount(states, minlength=len(losses)).double()
    law = chain_probabilities(column)
    assert 0.5 * float((counts / counts.sum() - law).abs().sum()) < 2e-3
    # the 99.9 % quantile of chi-square with four degrees of freedom, more than any row here has
    assert chi_square(counts, law) < 18.47


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.lists(st.integers(1, 1000), min_size=1, max_size=8))
def test_exact_law_is_the_sum_over_all_accept_reject_paths(numbers):
    losses = [Fraction(number, 64) for number in numbers]
    law = chain_probabilities(torch.tensor([float(loss) for loss in losses]))
    expected = torch.tensor([float(p) for p in law_by_enumeration(losses)], dtype=torch.float64)
    torch.testing.assert_close(law, expected, rtol=1e-12, atol=1e-15)


@settings(derandomize=True, deadline=None, max_examples=100)
@given(
    st.lists(st.sampled_from([0.0, 1e-38, 0.5, 1.0, 7.0, math.inf, math.nan]), min_size=1, max_size=12),
    st.sampled_from(DTYPES),
)
def test_exact_law_sums_to_one_whatever_the_losses(losses, dtype):
    law = chain_probabilities(torch.tensor(losses, dtype=dtype))
    assert law.dtype == torch.float64
    assert law.min() >= 0
    assert float(law.sum()) == pytest.approx(1.0, abs=1e-12)


def test_exact_law_of_many_chains_is_the_law_of_each():
    losses = random_losses(5, 3, 4)
    law = chain_probabilities(losses)
    assert law.shape == losses.shape
    for view in range(3):
        for image in range(4):
            assert torch.equal(law[:, view, image], chain_probabilities(losses[:, view, image]))


def finite_set(n_steps: int, n_chains: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the losses of a finite set, and chains of proposals drawn uniformly from it with their losses."""
    losses = torch.tensor([0.0, 0.1, 0.5, 1.0, 1.5, 2.0], dtype=torch.float64)
    proposals = torch.randint(len(losses), (n_steps + 1, n_chains), generator=seeded(3))
    return losses, proposals, losses[proposals]


def test_long_chains_draw_from_lambda_c():
    losses, proposals, proposed = finite_set(n_steps=40, n_chains=200_000)
    chain = metropolis_hastings(proposed, generator=seeded(5))
    ends = proposals.gather(0, chain.state.unsqueeze(0)).squeeze(0)
    counts = torch.bincount(ends, minlength=len(losses)).double()
    lambda_c = losses / losses.sum()
    assert chi_square(counts, lambda_c) < 18.47


def test_exact_law_of_long_chains_is_lambda_c():
    losses, proposals, proposed = finite_set(n_steps=40, n_chains=20_000)
    law = chain_probabilities(proposed)
    mass = torch.zeros(len(losses), dtype=torch.float64).index_add_(0, proposals.view(-1), law.view(-1))
    torch.testing.assert_close(mass / 20_000, losses / losses.sum(), rtol=0, atol=5e-3)


def test_chain_of_no_steps_keeps_the_uniform_law():
    _, proposals, proposed = finite_set(n_steps=0, n_chains=60_000)
    chain = metropolis_hastings(proposed, generator=seeded(5))
    assert (chain.state == 0).all()
    assert chi_square(torch.bincount(proposals[0]).double(), torch.full((6,), 1 / 6, dtype=torch.float64)) < 20.5


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("current", "proposed", "p"), CASES)
def test_acceptance_has_the_written_outcome(current, proposed, p, dtype):
    pair = torch.tensor([value(current, dtype), value(proposed, dtype)], dtype=dtype)
    accepted = metropolis_hastings(pair.view(2, 1).expand(2, 2000), generator=seeded(0)).accepted[0]
    law = chain_probabilities(pair)
    if p is RATIO:
        number = torch.float64 if dtype == torch.float64 else torch.float32
        uniforms = torch.rand((1, 2000), dtype=number, generator=seeded(0))[0]
        p = torch.finfo(dtype).tiny
        assert torch.equal(accepted, uniforms < p)
    else:
        assert (accepted == bool(p)).all()
    assert law.tolist() == [1 - p, p]


@pytest.mark.parametrize("dtype", DTYPES)
def test_equal_losses_are_always_accepted_however_small(dtype):
    pair = torch.full((2, 2000), torch.finfo(dtype).smallest_normal, dtype=dtype)
    smallest = pair * torch.finfo(dtype).eps  # the smallest number above zero
    assert (smallest > 0).all()
    assert (chain_probabilities(smallest)[1] == 1).all()
    assert metropolis_hastings(smallest, generator=seeded(0)).accepted.all()


def test_chain_leaves_a_state_of_zero_loss():
    losses = torch.tensor([[0.0], [0.0], [1e-30], [0.0]])
    chain = metropolis_hastings(losses, generator=seeded(0))
    assert chain.state.tolist() == [2]
    assert chain.accepted.flatten().tolist() == [False, True, False]


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_nan_is_never_accepted(sampler):
    losses = random_losses(8, 2000)
    losses[torch.rand(losses.shape, generator=seeded(2)) < 0.5] = math.nan
    chain = sampler(losses, generator=seeded(0))
    assert not (chain.accepted & losses[1:].isnan()).any()
    assert torch.equal(chain.loss.isnan(), losses.isnan().all(dim=0))


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_chain_of_nan_alone_stays_where_it_started(sampler):
    chain = sampler(torch.full((5, 3), math.nan), generator=seeded(0))
    assert chain.state.tolist() == [0, 0, 0]
    assert not chain.accepted.any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_worst_is_the_argmax_that_ignores_nan(dtype):
    losses = torch.randint(4, (7, 3000), generator=seeded(0)).to(dtype)  # few values, so many are equal
    losses[torch.rand(losses.shape, generator=seeded(1)) < 0.3] = math.nan
    losses[torch.rand(losses.shape, generator=seeded(2)) < 0.1] = math.inf
    losses[:, 0] = math.nan
    # numpy's argmax returns the first of equals
    expected = np.where(losses.isnan(), -1.0, losses.double()).argmax(axis=0)
    assert worst(losses).state.tolist() == expected.tolist()


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_chain_says_where_it_ended_and_how_it_got_there(sampler):
    losses = random_losses(6, 2, 50)
    chain = sampler(losses, generator=seeded(0))
    steps = torch.arange(1, 6).view(-1, 1, 1)
    assert chain.state.dtype == torch.long
    assert chain.accepted.dtype == torch.bool
    assert chain.accepted.shape == (5, 2, 50)
    assert torch.equal(chain.state, (chain.accepted * steps).amax(dim=0))
    assert torch.equal(chain.loss, losses.gather(0, chain.state.unsqueeze(0)).squeeze(0))


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("shape", [(), (5,), (3, 5), (2, 3, 4), (0,)])
def test_trailing_dimensions_are_chains_side_by_side(sampler, shape):
    losses = random_losses(4, *shape)
    chain = sampler(losses, generator=seeded(0))
    flat = sampler(losses.reshape(4, -1), generator=seeded(0))
    assert chain.state.shape == chain.loss.shape == shape
    assert chain.accepted.shape == (3, *shape)
    assert torch.equal(chain.state.view(-1), flat.state)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_one_proposal_is_kept_without_a_transition(sampler):
    chain = sampler(random_losses(1, 5))
    assert chain.state.tolist() == [0] * 5
    assert chain.accepted.shape == (0, 5)
    assert chain_probabilities(random_losses(1, 5)).tolist() == [[1.0] * 5]


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_sampler_is_a_pure_function_of_losses_and_generator(sampler):
    losses = random_losses(4, 100).requires_grad_()
    before, global_state = losses.detach().clone(), torch.get_rng_state()
    first, again = (sampler(losses, generator=seeded(7)) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not first.loss.requires_grad
    assert torch.equal(losses, before)
    assert torch.equal(torch.get_rng_state(), global_state)


def test_without_a_generator_torch_decides():
    losses = random_losses(2, 1000)
    torch.manual_seed(3)
    chain = metropolis_hastings(losses)
    assert torch.equal(chain.state, metropolis_hastings(losses, generator=seeded(3)).state)


@pytest.mark.parametrize("function", [metropolis_hastings, worst, chain_probabilities])
@pytest.mark.parametrize(
    ("losses", "error", "message"),
    [
        (torch.tensor([[1.0], [-0.25]]), ValueError, "losses must not be negative, got -0.25"),
        (torch.tensor([[math.nan], [-0.25]]), ValueError, "losses must not be negative, got -0.25"),
        (torch.tensor([[1.0], [-math.inf]]), ValueError, "losses must not be negative, got -inf"),
        (torch.tensor([[1], [2]]), TypeError, "losses must be a float tensor, got torch.int64"),
        ([[1.0], [2.0]], TypeError, "losses must be a float tensor, got list"),
        (torch.empty(0, 5), ValueError, r"losses must have shape \(n_steps \+ 1, batch\), got \(0, 5\)"),
        (torch.tensor(1.0), ValueError, r"losses must have shape \(n_steps \+ 1, batch\), got \(\)"),
    ],
)
def test_losses_that_are_none_are_refused(function, losses, error, message):
    with pytest.raises(error, match=message):
        function(losses)
