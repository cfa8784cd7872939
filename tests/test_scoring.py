import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from invaug import Constraint, InvarianceConstrained, sets
from invaug.constraint import cross_entropy
from invaug.scoring import per_sample, score
from problems import (
    Recorder,
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
    train_step,
)

N = 8


class Noise(nn.Module):
    """A layer that draws whatever its mode, as a forgotten `training=` in F.dropout does."""

    def forward(self, inputs):
        return inputs + 0.1 * torch.randn_like(inputs)


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(1)

    def forward(self, inputs):
        raise RuntimeError("broken")


def problem_of(n_steps: int = 3, transforms=None, **others) -> InvarianceConstrained:
    return InvarianceConstrained(Constraint(transforms or sets.wide(), 0.1), n_steps=n_steps, gamma_init=0.5, **others)


def evaluate(problem, model, *, n: int = N, global_seed: int = 0):
    torch.manual_seed(global_seed)
    return problem(model, make_images(n), make_targets(n), generator=seeded(5))


def network(dropout: float = 0.5) -> nn.Sequential:
    """Return a network whose first BatchNorm its owner has put in eval mode for good."""
    model = batch_norm_network(dropout=dropout)
    model[1].eval()
    return model


def trained_for(n_steps: int) -> dict[str, object]:
    """Train a few steps on kept views that do not depend on n_steps, and write down all that scoring could touch."""
    model, masks = network(), []
    model[3].register_forward_hook(lambda module, _, output: masks.append(output == 0) if module.training else None)
    problem = problem_of(n_steps, fixed(inverted), finish=noisy_but_alike)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(11)
    for batch in make_batches(4, N):
        train_step(problem, model, optimizer, *batch)
    return {
        "state": model.state_dict(),
        "masks": torch.stack(masks),
        "training": [module.training for module in model.modules()],
        "rng": torch.get_rng_state(),
        "gamma": problem.gamma,
    }


def noisy_but_alike(images):
    """Take numbers from torch's own generator, and give inputs that do not depend on them."""
    torch.rand(len(images))
    return images.float() / 255


@pytest.mark.parametrize("n_steps", [1, 7, 15])
def test_training_is_as_if_scoring_had_not_happened(n_steps):
    without, scored = trained_for(0), trained_for(n_steps)
    assert same_bits(scored["state"], without["state"])
    assert torch.equal(scored["masks"], without["masks"])
    assert torch.equal(scored["rng"], without["rng"])
    assert torch.equal(scored["gamma"], without["gamma"])
    assert scored["training"] == without["training"]
    assert scored["training"].count(False) == 1


def test_frozen_scoring_leaves_every_bit_of_the_model():
    model = network()
    before, flags, rng = copy_of(model.state_dict()), [m.training for m in model.modules()], torch.get_rng_state()
    losses = score(model, make_images(N).float(), make_targets(N), cross_entropy, "frozen", 3)
    assert not losses.requires_grad
    assert same_bits(model.state_dict(), before)
    assert [m.training for m in model.modules()] == flags
    assert torch.equal(torch.get_rng_state(), rng)


def test_frozen_scoring_sees_what_evaluation_sees():
    model, images, targets = network(), make_images(N).float(), make_targets(N)
    losses = score(model, images, targets, cross_entropy, "frozen", None)
    with torch.no_grad():
        assert torch.equal(losses, F.cross_entropy(model.eval()(images), targets, reduction="none"))


def test_modes_come_back_when_the_model_fails():
    model = Broken()
    model.norm.eval()
    with pytest.raises(RuntimeError, match="broken"):
        score(model, make_images(2).float(), make_targets(2), cross_entropy, "frozen", None)
    assert model.training
    assert not model.norm.training
    assert torch.is_grad_enabled()


def test_training_rng_is_untouched_by_a_model_that_draws_in_eval_mode():
    """Noise drawn in the training pass must not depend on whether proposals were scored."""
    states = []
    for n_steps in (0, 7):
        evaluate(problem_of(n_steps, fixed(inverted)), nn.Sequential(Noise(), batch_norm_network()))
        states.append(torch.get_rng_state())
    assert torch.equal(*states)


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("n_views", [1, 3])
def test_scored_tensor_is_the_trained_tensor(joint, n_views):
    model, n = Recorder(batch_norm_network()), 64
    # a steep loss and many images, so that chains end on every proposal
    steep = {"loss_fn": lambda outputs, targets: cross_entropy(20 * outputs, targets)}
    step = evaluate(problem_of(3, n_views=n_views, finish=noisy, joint=joint, **steep), model, n=n)
    scored = torch.cat(model.scored).view(4, n_views * n, *make_images(1).shape[1:])
    kept = torch.cat(model.trained)[n:]
    chosen = scored[step.chains[0].state.view(-1), torch.arange(n_views * n)]
    assert torch.equal(kept, chosen)
    assert step.chains[0].state.unique().tolist() == [0, 1, 2, 3]


def test_random_finish_of_proposals_comes_from_the_problem():
    """The clean view is finished with the user's randomness; proposals are finished with the problem's own."""
    records = []
    for global_seed in (0, 1):
        model = Recorder(batch_norm_network())
        evaluate(problem_of(3, finish=noisy), model, global_seed=global_seed)
        records.append(model)
    one, other = records
    assert torch.equal(torch.cat(one.scored), torch.cat(other.scored))
    assert not torch.equal(one.trained[0][:N], other.trained[0][:N])


def test_random_finish_of_proposals_leaves_the_training_rng():
    evaluate(problem_of(7, finish=noisy), batch_norm_network())
    after = torch.get_rng_state()
    torch.manual_seed(0)
    noisy(make_images(N))  # the clean view alone
    assert torch.equal(after, torch.get_rng_state())


def test_random_finish_differs_from_batch_to_batch():
    model, problem = Recorder(batch_norm_network()), problem_of(1, fixed(inverted), finish=noisy)
    for _ in range(2):
        problem(model, make_images(N), make_targets(N))
    first, second = model.scored
    assert not torch.equal(first, second)


@pytest.mark.parametrize("scoring_batch", [1, 7, 32, 1000])
def test_chunks_score_what_one_pass_scores(scoring_batch):
    steps, sizes = {}, {}
    for chunk in (None, scoring_batch):
        model = Recorder(batch_norm_network())
        steps[chunk] = evaluate(problem_of(3, scoring_batch=chunk), model)
        sizes[chunk] = [len(inputs) for inputs in model.scored]
    assert torch.equal(steps[None].chains[0].state, steps[scoring_batch].chains[0].state)
    torch.testing.assert_close(steps[None].chains[0].loss, steps[scoring_batch].chains[0].loss)
    assert torch.equal(steps[None].kept[0].magnitude, steps[scoring_batch].kept[0].magnitude)
    assert sizes[None] == [4 * N]
    assert max(sizes[scoring_batch]) <= scoring_batch
    assert sum(sizes[scoring_batch]) == 4 * N


def test_scoring_in_train_mode_moves_batch_norm_as_one_pass_of_training_would():
    model = batch_norm_network()
    twin, images, targets = copy.deepcopy(model), make_images(4 * N).float(), make_targets(4 * N)
    losses = score(model, images, targets, cross_entropy, "train", None)
    with torch.no_grad():
        expected = F.cross_entropy(twin(images), targets, reduction="none")
    assert torch.equal(losses, expected)
    assert same_bits(model.state_dict(), twin.state_dict())
    assert model[1].num_batches_tracked == 1


def test_scoring_in_train_mode_keeps_the_modes_and_draws_dropout():
    model, rng = network(), torch.get_rng_state()
    score(model, make_images(N).float(), make_targets(N), cross_entropy, "train", None)
    assert [module.training for module in model.modules()].count(False) == 1
    assert model[1].num_batches_tracked == 0
    assert not torch.equal(torch.get_rng_state(), rng)


@pytest.mark.parametrize("scoring", ["frozen", "train"])
def test_gradients_under_autocast_are_those_without_scoring(scoring):
    """Torch up to some version reuses weights autocast has cast without gradient, which cuts the training pass off."""
    model = Recorder(nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)))
    targets = make_targets(N)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        step = evaluate(problem_of(3, scoring=scoring), model)
    step.lagrangian.backward()
    assert len(model.scored) == 1
    twin = copy.deepcopy(model.model)
    twin.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        clean, kept = twin(model.trained[0]).split(N)
        loss = F.cross_entropy(clean, targets) + 0.5 * (F.cross_entropy(kept, targets) - 0.1)
    loss.backward()
    for mine, expected in zip(model.parameters(), twin.parameters(), strict=True):
        assert mine.grad.abs().sum() > 0
        assert torch.equal(mine.grad, expected.grad)


@pytest.mark.parametrize("scoring", ["frozen", "train"])
def test_autocast_forgets_its_weights_between_scoring_and_training(scoring, monkeypatch):
    """Torch 2.13 keeps gradients without this, so the test above cannot tell; the versions we allow are older too."""
    events = []
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 3))
    model.register_forward_hook(lambda *_: events.append("train" if torch.is_grad_enabled() else "score"))
    monkeypatch.setattr(torch, "clear_autocast_cache", lambda: events.append("forget"))
    evaluate(problem_of(1, scoring=scoring), model)
    assert events == ["forget", "score", "forget", "train"]


def test_proposals_are_scored_under_the_autocast_of_training():
    dtypes = []
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 3))
    model.register_forward_hook(lambda *call: dtypes.append(call[2].dtype))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        evaluate(problem_of(1), model)
    assert dtypes == [torch.bfloat16, torch.bfloat16]


@pytest.mark.parametrize("scoring", ["frozen", "train"])
def test_proposals_can_be_scored_in_lower_precision_than_training(scoring):
    dtypes = []
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 3))
    model.register_forward_hook(lambda *call: dtypes.append(call[2].dtype))
    step = evaluate(problem_of(1, scoring=scoring, scoring_dtype=torch.bfloat16), model)
    assert dtypes == [torch.bfloat16, torch.float32]
    assert step.chains[0].loss.dtype == torch.float32


def test_losses_of_a_lower_precision_are_those_of_training_but_for_the_last_digits():
    model, inputs, targets = nn.Sequential(nn.Flatten(), nn.Linear(36, 3)), torch.rand(64, 1, 6, 6), make_targets(64)
    full, low = (score(model, inputs, targets, cross_entropy, "frozen", 16, dtype) for dtype in (None, torch.bfloat16))
    assert low.dtype == torch.float32
    assert not torch.equal(full, low)
    torch.testing.assert_close(full, low, rtol=0.02, atol=0.01)


@pytest.mark.parametrize("dtype", [torch.float64, torch.int8, "bf16"])
def test_a_precision_nothing_is_scored_in_is_refused(dtype):
    with pytest.raises(ValueError, match=r"scoring_dtype must be torch\.bfloat16, torch\.float16 or None, got"):
        problem_of(1, scoring_dtype=dtype)


OUTPUTS, TARGETS = torch.zeros(4, 3), torch.zeros(4, dtype=torch.long)


@pytest.mark.parametrize(
    ("outputs", "loss_fn", "message"),
    [
        (OUTPUTS, F.cross_entropy, r'one loss per sample, shape \(4,\), got \(\): use reduction="none"'),
        (OUTPUTS, lambda o, y: 1.5, r"one loss per sample, shape \(4,\), got float"),
        (OUTPUTS, lambda o, y: o, r"one loss per sample, shape \(4,\), got \(4, 3\)"),
        (OUTPUTS, lambda o, y: o[:, :1], r"one loss per sample, shape \(4,\), got \(4, 1\)"),
        (OUTPUTS[:3], cross_entropy, r"the model must return one output per image \(4\), got shape \(3, 3\)"),
        (OUTPUTS.sum(), cross_entropy, r"the model must return one output per image \(4\), got shape \(\)"),
        (OUTPUTS, lambda o, y: torch.tensor([0.0, 1.0, -0.5, 2.0]), r"loss_fn must not be negative, got -0\.5"),
        (OUTPUTS, lambda o, y: torch.tensor([math.nan, 1.0, -0.5, 2.0]), r"loss_fn must not be negative, got -0\.5"),
    ],
)
def test_losses_that_are_not_one_number_per_sample_are_refused(outputs, loss_fn, message):
    with pytest.raises(ValueError, match=message):
        per_sample(loss_fn, outputs, TARGETS)


def test_nan_and_infinite_losses_pass_the_door():
    losses = torch.tensor([math.nan, math.inf, 0.0, 1.0])
    assert per_sample(lambda o, y: losses, OUTPUTS, TARGETS) is losses
