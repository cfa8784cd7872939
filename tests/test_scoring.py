import copy
import math
import operator
import time
import warnings
from collections import OrderedDict
from dataclasses import dataclass
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from invaug import Constraint, InvarianceConstrained, Op, TransformSet, metropolis_hastings, sets, views
from invaug.scoring import cross_entropy, modules_of, per_sample, score
from tests.support.problems import (
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
    two_view_problem,
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
    return two_view_problem(Constraint(transforms or sets.wide(), 0.1), n_steps=n_steps, gamma_init=0.5, **others)


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
    losses, guess = score(model, make_images(N).float(), make_targets(N), cross_entropy, mode="frozen", chunk=3)
    assert guess == pytest.approx(math.log(3))
    assert not losses.requires_grad
    assert same_bits(model.state_dict(), before)
    assert [m.training for m in model.modules()] == flags
    assert torch.equal(torch.get_rng_state(), rng)


def test_frozen_scoring_sees_what_evaluation_sees():
    model, images, targets = network(), make_images(N).float(), make_targets(N)
    losses, _ = score(model, images, targets, cross_entropy)
    with torch.no_grad():
        assert torch.equal(losses, F.cross_entropy(model.eval()(images), targets, reduction="none"))


def test_modes_come_back_when_the_model_fails():
    model = Broken()
    model.norm.eval()
    with pytest.raises(RuntimeError, match="broken"):
        score(model, make_images(2).float(), make_targets(2), cross_entropy)
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


@pytest.mark.parametrize("how", ["both", views.apart], ids=["both", "apart"])
@pytest.mark.parametrize("n_views", [1, 3])
def test_scored_tensor_is_the_trained_tensor(how, n_views):
    model, n = Recorder(batch_norm_network()), 64
    # a steep loss and many images, so that chains end on every proposal
    steep = {"loss_fn": lambda outputs, targets: cross_entropy(20 * outputs, targets)}
    step = evaluate(problem_of(3, n_views=n_views, finish=noisy, views=how, scoring_batch=None, **steep), model, n=n)
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


@pytest.mark.parametrize("n_views", [1, 3])
@pytest.mark.parametrize("scoring_batch", [1, 7, 12, 32, 1000, None])
def test_chunks_score_every_proposal_once_and_keep_what_was_scored(scoring_batch, n_views):
    model, targets = Recorder(batch_norm_network()), make_targets(N)
    before = copy.deepcopy(model.model)
    problem = problem_of(3, scoring_batch=scoring_batch, n_views=n_views)
    step = evaluate(problem, model)
    made, chain = step.proposals[0], step.chains[0]
    images = make_images(N).repeat(n_views, 1, 1, 1)
    proposals = problem.constraints[0].transforms.apply(images.repeat(4, 1, 1, 1), made.draw).float() / 255
    losses = score(before, proposals, targets.repeat(4 * n_views), cross_entropy)[0].view(4, n_views, N)
    kept = losses.gather(0, chain.state[None])[0]
    torch.testing.assert_close(made.losses, kept)
    torch.testing.assert_close(chain.loss, kept)
    replayed = problem.constraints[0].transforms.apply(images, step.kept[0]).float() / 255
    assert torch.equal(replayed, model.trained[0][N:])
    sizes = [len(inputs) for inputs in model.scored]
    assert sum(sizes) == 4 * n_views * N
    assert max(sizes) <= (scoring_batch or math.inf)


@pytest.mark.parametrize("epsilon", [0.1, "auto"])
@pytest.mark.parametrize(("how", "n_views"), [("one", 1), ("both", 1), ("both", 2), (views.apart, 2)])
def test_no_more_inputs_than_a_scoring_batch_are_finished_or_scored_at_once(how, epsilon, n_views):
    sizes = []

    def finish(images):
        sizes.append(len(images))
        return images.float() / 255

    model, constraint = Recorder(batch_norm_network()), Constraint(sets.wide(), epsilon)
    problem = InvarianceConstrained(
        constraint, n_steps=2, n_views=n_views, views=how, scoring_batch=9, gamma_init=2.0, finish=finish
    )
    step = evaluate(problem, model, n=32)
    clean, *proposed = sizes
    assert clean == (32 if how != "one" else 11)
    assert max(proposed) <= 9
    assert max(map(len, model.scored)) <= 9
    # what is trained on is what was scored, chunk after chunk
    kept = torch.cat(model.trained)[32:] if how != "one" else model.trained[0]
    scored = torch.cat(model.scored)
    among = (kept.flatten(1)[:, None] == scored.flatten(1)[None]).all(2).any(1)
    assert int(among.sum()) >= (len(kept) if how != "one" else 21)
    assert len(step.kept[0]) == (32 * n_views if how != "one" else 21)


def test_a_scoring_batch_smaller_than_the_proposals_of_an_image_still_bounds_the_model():
    model = Recorder(batch_norm_network())
    evaluate(problem_of(7, scoring_batch=3), model)
    assert max(map(len, model.scored)) <= 3


def test_the_law_of_chains_does_not_depend_on_the_chunk():
    """Which proposals are drawn and kept may; how often each operation is kept may not."""
    black = Op("Black", lambda images, _: torch.zeros_like(images))
    transforms = TransformSet((Op("Same", lambda images, _: images.clone()), black))

    def brightness(outputs, targets):
        return outputs.mean(1)

    shares = []
    for chunk in (None, 7):
        problem = problem_of(1, transforms, scoring_batch=chunk, loss_fn=brightness)
        images, n = torch.full((50, 1, 6, 6), 200, dtype=torch.uint8), 60
        ops = [problem(nn.Flatten(), images, make_targets(50)).kept[0].op.flatten() for _ in range(n)]
        shares.append(float(torch.cat(ops).double().mean()))
    # a black proposal scores zero, so that it is kept only where both are black
    assert shares == [pytest.approx(0.25, abs=5 * math.sqrt(0.25 * 0.75 / 3000))] * 2


def test_the_slack_comes_from_the_scores_whatever_the_sampler_reports():
    def tempered(losses, *, generator=None):
        return metropolis_hastings(losses**4, generator=generator)

    for how in ("one", "both"):
        constraint = Constraint(fixed(inverted), 0.1, tempered, share=1.0)
        problem = InvarianceConstrained(constraint, n_steps=2, views=how, gamma_init=0.5)
        model = nn.Sequential(nn.Flatten(), nn.Linear(36, 3))
        step = evaluate(problem, model)
        loss = F.cross_entropy(model(inverted(make_images(N)).float() / 255), make_targets(N))
        assert step.slack.item() == pytest.approx(loss.item() - 0.1, rel=1e-5)
        assert step.chains[0].loss.mean().item() != pytest.approx(loss.item(), rel=0.1)


def test_scoring_in_train_mode_moves_batch_norm_as_one_pass_of_training_would():
    model = batch_norm_network()
    twin, images, targets = copy.deepcopy(model), make_images(4 * N).float(), make_targets(4 * N)
    losses, _ = score(model, images, targets, cross_entropy, mode="train")
    with torch.no_grad():
        expected = F.cross_entropy(twin(images), targets, reduction="none")
    assert torch.equal(losses, expected)
    assert same_bits(model.state_dict(), twin.state_dict())
    assert model[1].num_batches_tracked == 1


def test_scoring_in_train_mode_keeps_the_modes_and_draws_dropout():
    model, rng = network(), torch.get_rng_state()
    score(model, make_images(N).float(), make_targets(N), cross_entropy, mode="train")
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


# --- any callable -----------------------------------------------------------------------------------------------------


class Holder:
    """An object that is no module, and calls one."""

    def __init__(self, network):
        self.parts = {"networks": [network]}

    def __call__(self, inputs):
        return self.parts["networks"][0](inputs)

    def answer(self, inputs):
        return self(inputs)


class Wrapper(nn.Module):
    """What DistributedDataParallel does to a model's name."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, inputs):
        return self.module(inputs)


class Slotted:
    __slots__ = ("call",)

    def __init__(self, call):
        self.call = call

    def __call__(self, inputs):
        return self.call(inputs)


GLOBAL = {}


def by_global_name(inputs):
    return torch.nn.functional.log_softmax(GLOBAL["network"](inputs), 1)


class ByGlobalName:
    def __call__(self, inputs):
        return GLOBAL["network"](inputs)


def through(network, inputs, scale=1.0):
    return scale * network(inputs)


def nested(network):
    def inner(inputs):
        return network(inputs)

    return lambda inputs: inner(inputs)


def global_network(network):
    GLOBAL["network"] = network
    return by_global_name


def global_network_of_an_object(network):
    GLOBAL["network"] = network
    return ByGlobalName()


CALLABLES = {
    "lambda": lambda network: lambda inputs: network(inputs),
    "function in a function": nested,
    "global name": global_network,
    "global name in an object": global_network_of_an_object,
    "default": lambda network: lambda inputs, network=network: network(inputs),
    "keyword default": lambda network: lambda inputs, *, network=network: network(inputs),
    "partial": lambda network: partial(through, network),
    "partial by keyword": lambda network: partial(through, network=network, scale=2.0),
    "bound forward": lambda network: network.forward,
    "bound call": lambda network: network.__call__,
    "bound method of an object": lambda network: Holder(network).answer,
    "object": Holder,
    "closure over an object": lambda network: (lambda holder: lambda inputs: holder.answer(inputs))(Holder(network)),
    "wrapper": Wrapper,
    "compiled": lambda network: torch.compile(network, backend="eager"),
    "compiled function": lambda network: torch.compile(lambda inputs: network(inputs), backend="eager"),
}


def by_keyword(kind, network):
    """Return the callable; a partial that holds the network by keyword takes its inputs by keyword."""
    made = CALLABLES[kind](network)
    return (lambda inputs: made(inputs=inputs)) if kind == "partial by keyword" else made


@pytest.mark.parametrize("how", ["one", "both"])
@pytest.mark.parametrize("kind", CALLABLES)
def test_scoring_leaves_no_trace_for_any_callable(kind, how):
    """BatchNorm, modes and dropout masks are those of a run that keeps the same views without scoring."""
    states = []
    for n_steps in (0, 3):
        inner = network()
        model = by_keyword(kind, inner)
        problem = problem_of(n_steps, fixed(inverted), views=how, finish=noisy_but_alike)
        if how == "one":
            problem.gamma.zero_()
        step = evaluate(problem, model)
        step.lagrangian.backward()
        gradients = {name: parameter.grad for name, parameter in inner.named_parameters()}
        states.append((copy_of(inner.state_dict()), gradients, torch.get_rng_state()))
        assert [module.training for module in inner.modules()].count(False) == 1
        assert inner[6].num_batches_tracked == 1
    without, scored = states
    assert same_bits(without[0], scored[0])
    assert same_bits(without[1], scored[1])
    assert torch.equal(without[2], scored[2])


@pytest.mark.parametrize("kind", CALLABLES)
def test_proposals_are_scored_in_eval_mode_for_any_callable(kind):
    inner, images, targets = network(), make_images(N).float(), make_targets(N)
    losses, _ = score(by_keyword(kind, inner), images, targets, cross_entropy)
    scale = 2.0 if kind == "partial by keyword" else 1.0
    with torch.no_grad():
        expected = F.cross_entropy(scale * inner.eval()(images), targets, reduction="none")
    torch.testing.assert_close(losses, expected)


def test_modules_are_found_without_walking_through_torch():
    """What a function names of torch and of this file is not what the whole of torch holds."""
    inner = network()

    def answer(inputs):
        return torch.relu(F.normalize(inner(inputs)))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert set(modules_of(answer)) == set(inner.modules())
        start = time.perf_counter()
        for _ in range(10):
            modules_of(answer)
    assert time.perf_counter() - start < 1.0


@pytest.mark.parametrize(
    "model", [lambda inputs: inputs.flatten(1), partial(torch.flatten, start_dim=1), Slotted(torch.flatten)]
)
def test_a_function_without_a_module_is_refused_with_the_way_out(model):
    with pytest.raises(TypeError, match=r"no torch\.nn\.Module was found in .* outputs= .* scoring=\"train\""):
        evaluate(problem_of(1), model)


def test_a_function_without_a_module_can_be_scored_as_it_is():
    step = evaluate(problem_of(1, scoring="train"), lambda inputs: inputs.flatten(1))
    assert step.slack.isfinite().all()


# --- what the model answers -------------------------------------------------------------------------------------------


@dataclass
class Answer:
    """As model libraries answer: fields, and a mapping too."""

    logits: torch.Tensor
    hidden: torch.Tensor


ANSWERS = {
    "fields": (lambda logits: Answer(logits, 2 * logits), operator.attrgetter("logits")),
    "tuple": (lambda logits: (logits, 2 * logits), operator.itemgetter(0)),
    "dict": (lambda logits: {"logits": logits, "hidden": 2 * logits}, operator.itemgetter("logits")),
    "ordered": (lambda logits: OrderedDict(logits=logits), operator.itemgetter("logits")),
}


class Answering(nn.Module):
    def __init__(self, wrap):
        super().__init__()
        self.network, self.wrap = batch_norm_network(), wrap

    def forward(self, inputs):
        return self.wrap(self.network(inputs))


@pytest.mark.parametrize("epsilon", [0.1, "auto"])
@pytest.mark.parametrize("how", ["one", "both", views.apart], ids=["one", "both", "apart"])
@pytest.mark.parametrize("kind", ANSWERS)
def test_outputs_takes_the_logits_out_of_any_answer(kind, how, epsilon):
    wrap, outputs = ANSWERS[kind]
    steps = []
    for model, settings in ((Answering(wrap), {"outputs": outputs}), (batch_norm_network(), {})):
        problem = InvarianceConstrained(Constraint(sets.wide(), epsilon), views=how, gamma_init=0.5, **settings)
        steps.append(evaluate(problem, model))
    wrapped, plain = steps
    assert torch.equal(wrapped.lagrangian, plain.lagrangian)
    assert torch.equal(wrapped.slack, plain.slack)
    assert torch.equal(wrapped.outputs, plain.outputs)
    assert wrapped.outputs.shape == (N, 3)


@pytest.mark.parametrize("n_steps", [0, 1])
@pytest.mark.parametrize("how", ["one", "both"])
@pytest.mark.parametrize("kind", ANSWERS)
def test_without_outputs_the_default_loss_names_the_way_out(kind, how, n_steps):
    problem = problem_of(n_steps, views=how)
    with pytest.raises(TypeError, match=r"the model must return a tensor, got \w+: .* outputs=operator\.attrgetter"):
        evaluate(problem, Answering(ANSWERS[kind][0]))


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
    ],
)
def test_losses_that_are_not_one_number_per_sample_are_refused(outputs, loss_fn, message):
    with pytest.raises(ValueError, match=message):
        per_sample(loss_fn, outputs, TARGETS)


def test_nan_and_infinite_losses_pass_the_door():
    losses = torch.tensor([math.nan, math.inf, 0.0, 1.0])
    assert per_sample(lambda o, y: losses, OUTPUTS, TARGETS) is losses


@pytest.mark.parametrize("how", ["one", "both"])
@pytest.mark.parametrize("bad", [-0.5, -math.inf])
def test_a_negative_loss_is_refused_wherever_it_comes_up(bad, how):
    """Uniform draws are not seen by a sampler, and the gradient pass not by scoring."""
    for where in (True, False):

        def loss_fn(outputs, targets, where=where):
            losses = cross_entropy(outputs, targets)
            wrong = torch.arange(len(losses)) == 0
            return torch.where(wrong, bad, losses) if torch.is_grad_enabled() is where else losses

        problem = problem_of(0, views=how, loss_fn=loss_fn)
        if how == "both" and not where:
            continue  # nothing is scored
        with pytest.raises(ValueError, match="loss_fn must not be negative, got losses below 0: add a constant"):
            evaluate(problem, batch_norm_network())


def test_pixels_are_averaged_by_the_default_loss():
    logits, masks = torch.randn(4, 3, 5, 6, generator=seeded(0)), torch.randint(3, (4, 5, 6), generator=seeded(1))
    expected = torch.stack([F.cross_entropy(logits[i : i + 1], masks[i : i + 1]) for i in range(4)])
    torch.testing.assert_close(cross_entropy(logits, masks), expected)
