import datetime
import math
import traceback
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import distributed, multiprocessing
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from invaug import Constraint, InvarianceConstrained, Resilient, sets, views
from tests.support.problems import (
    batch_norm_network,
    fixed,
    inverted,
    make_images,
    make_targets,
    smooth_network,
    train_step,
    two_view_problem,
)

N_RANKS = 2
N = 12


def part(rank: int, sizes: tuple[int, ...]) -> slice:
    start = sum(sizes[:rank])
    return slice(start, start + sizes[rank])


def fixed_problem(**settings) -> InvarianceConstrained:
    """Return a problem whose kept views do not depend on draws, hence not on the rank."""
    constraints = [Constraint(fixed(inverted), 0.5), Constraint(fixed(lambda images: images.flip(3)), 2.0)]
    return two_view_problem(*constraints, n_steps=1, n_views=2, **settings)


def slack_of(rows: slice) -> np.ndarray:
    model = smooth_network().float()
    return fixed_problem()(model, make_images(N)[rows], make_targets(N)[rows]).slack.numpy()


def halves(rank: int) -> np.ndarray:
    return slack_of(part(rank, (6, 6)))


def uneven(rank: int) -> np.ndarray:
    return slack_of(part(rank, (11, 1)))


def gamma_over_fifty_steps(rank: int, how: str) -> np.ndarray:
    """Every rank has its own model, images and draws: only the slack is shared."""
    constraints = Constraint(sets.wide(), 0.9), Constraint(sets.rotations(3.0), "auto", share=0.5)
    problem = InvarianceConstrained(*constraints, n_steps=2, dual_lr=0.1, gamma_init=0.05, views=how)
    model = smooth_network(seed=rank).float()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gammas = []
    for i in range(50):
        train_step(problem, model, optimizer, make_images(6, 100 * rank + i), make_targets(6, 100 * rank + i))
        gammas.append(problem.gamma.clone())
    return torch.stack(gammas).numpy()


def gamma_after_a_bad_batch(rank: int, bad: float) -> np.ndarray:
    def loss_fn(outputs, targets):
        losses = F.cross_entropy(outputs, targets, reduction="none")
        return losses + bad if rank == 1 else losses

    problem = fixed_problem(gamma_init=0.75, dual_lr=0.5, loss_fn=loss_fn)
    step = problem(smooth_network().float(), make_images(6), make_targets(6))
    problem.dual_step(step.slack)
    return problem.gamma.numpy()


def first_draw(rank: int) -> np.ndarray:
    problem = InvarianceConstrained(Constraint(sets.rotations(3.0), 0.5), seed=4)
    return problem(smooth_network().float(), make_images(6), make_targets(6)).kept[0].magnitude.numpy()


def parallel_weights(rank: int, wrap=lambda model: model, **settings) -> np.ndarray:
    """Train under DistributedDataParallel, with batches and numbers of scored chunks that differ between ranks."""
    model = DistributedDataParallel(batch_norm_network(), broadcast_buffers="views" not in settings)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    problem = two_view_problem(Constraint(sets.wide(), 0.5), n_steps=3, scoring_batch=5, gamma_init=1.0, **settings)
    for i in range(5):
        n = 4 + 3 * rank
        train_step(problem, wrap(model), optimizer, make_images(n, 10 * rank + i), make_targets(n, 10 * rank + i))
    assert all(module.training for module in model.modules())
    assert model.require_forward_param_sync
    return torch.cat([parameter.detach().view(-1) for parameter in model.parameters()]).numpy()


def one_view(rank: int) -> np.ndarray:
    """One view per image under a rule that sets the level: every number that is not the rank's own."""
    problem = InvarianceConstrained(Constraint(fixed(inverted), "auto", share=1.0), gamma_init=0.5, n_steps=0)
    step = problem(smooth_network().float(), make_images(N)[part(rank, (9, 3))], make_targets(N)[part(rank, (9, 3))])
    return torch.cat([step.slack, step.epsilon]).numpy()


SCENARIOS = {
    "halves": halves,
    "uneven": uneven,
    "gamma": lambda rank: gamma_over_fifty_steps(rank, "both"),
    "gamma of one view": lambda rank: gamma_over_fifty_steps(rank, "one"),
    "nan": lambda rank: gamma_after_a_bad_batch(rank, math.nan),
    "inf": lambda rank: gamma_after_a_bad_batch(rank, math.inf),
    "good": lambda rank: gamma_after_a_bad_batch(rank, 0.0),
    "draw": first_draw,
    "joint": parallel_weights,
    "separate": lambda rank: parallel_weights(rank, views=views.apart),
    "closure": lambda rank: parallel_weights(rank, lambda model: lambda inputs: model(inputs)),
    "one view": one_view,
}


def run_rank(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo",
        init_method=f"file://{folder}/meeting",
        rank=rank,
        world_size=N_RANKS,
        timeout=datetime.timedelta(seconds=60),  # a rank that waits for one that failed says so
    )
    try:
        np.savez(Path(folder) / f"{rank}.npz", **{name: scenario(rank) for name, scenario in SCENARIOS.items()})
    except Exception:
        traceback.print_exc()
        raise
    finally:
        distributed.destroy_process_group()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory) -> list[dict[str, np.ndarray]]:
    """What each rank found in each scenario; starting processes is the cost, so all share two."""
    folder = tmp_path_factory.mktemp("ranks")
    multiprocessing.spawn(run_rank, args=(str(folder),), nprocs=N_RANKS)
    results = []
    for rank in range(N_RANKS):
        with np.load(folder / f"{rank}.npz", allow_pickle=False) as arrays:
            results.append(dict(arrays))
    return results


def same_on_both(ranks, name: str) -> bool:
    return ranks[0][name].tobytes() == ranks[1][name].tobytes()


@pytest.mark.parametrize("name", ["gamma", "gamma of one view"])
def test_gamma_is_bit_equal_on_both_ranks_for_fifty_steps(ranks, name):
    assert ranks[0][name].shape == (50, 2)
    assert same_on_both(ranks, name)
    assert len(np.unique(ranks[0][name])) > 50  # it moves


def test_a_rule_measures_base_and_slack_over_the_images_of_all_ranks(ranks):
    assert same_on_both(ranks, "one view")
    model = smooth_network().float()
    clean, kept = (
        F.cross_entropy(model(x.float() / 255), make_targets(N)).item()
        for x in (make_images(N), inverted(make_images(N)))
    )
    epsilon = clean + 0.5 * math.log(3) / Resilient().alpha
    np.testing.assert_allclose(ranks[0]["one view"], [kept - epsilon, epsilon], rtol=0, atol=1e-6)


def test_two_ranks_of_half_a_batch_have_the_slack_of_one_rank(ranks):
    assert same_on_both(ranks, "halves")
    np.testing.assert_allclose(ranks[0]["halves"], slack_of(slice(0, N)), rtol=0, atol=1e-6)


def test_an_uneven_last_batch_weighs_images_not_ranks(ranks):
    assert same_on_both(ranks, "uneven")
    np.testing.assert_allclose(ranks[0]["uneven"], slack_of(slice(0, N)), rtol=0, atol=1e-6)
    by_rank = (slack_of(part(0, (11, 1))) + slack_of(part(1, (11, 1)))) / 2
    assert np.abs(by_rank - ranks[0]["uneven"]).max() > 1e-4


@pytest.mark.parametrize("bad", ["nan", "inf"])
def test_a_bad_loss_on_one_rank_leaves_gamma_on_both(ranks, bad):
    assert ranks[0][bad].tolist() == ranks[1][bad].tolist() == [0.75, 0.75]
    assert ranks[0]["good"].tolist() != [0.75, 0.75]


def test_ranks_draw_different_transformations(ranks):
    assert not np.isin(ranks[0]["draw"], ranks[1]["draw"]).any()


def test_the_first_rank_draws_what_one_process_alone_draws(ranks):
    assert first_draw(0).tobytes() == ranks[0]["draw"].tobytes()


@pytest.mark.parametrize("passes", ["joint", "separate", "closure"])
def test_weights_stay_equal_under_distributed_data_parallel(ranks, passes):
    assert same_on_both(ranks, passes)
    assert np.isfinite(ranks[0][passes]).all()
