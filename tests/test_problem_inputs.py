"""Inputs that are no images: signals, volumes and tables, under operations of one's own."""

import pytest
import torch
from torch import nn

from invaug import Constraint, InvarianceConstrained, Op, TransformSet, views
from tests.support.problems import seeded, train_step


def spread(magnitudes, like):
    """Return one magnitude per row, ready to multiply with it."""
    return magnitudes.reshape(len(like), -1)[:, :1].reshape(-1, *[1] * (like.ndim - 1)).to(like.dtype)


def scaled(inputs, magnitudes):
    return inputs * spread(magnitudes, inputs)


def negated(inputs, _):
    return -inputs


def rolled(inputs, magnitudes):
    shifts = spread(magnitudes, inputs).flatten().long().tolist()
    return torch.stack([row.roll(shift, -1) for row, shift in zip(inputs, shifts, strict=True)])


OWN = TransformSet((Op("Scale", scaled, 0.5, 2.0), Op("Negate", negated), Op("Roll", rolled, 0, 5, signed=True)))

SHAPES = {
    "signals": (2, 50),
    "long signals": (1, 10_000),
    "tables": (7,),
    "volumes": (1, 4, 5, 6),
    "not in [0, 1]": (1, 6, 6),
}


def batch(shape, n=8):
    targets = torch.arange(n) % 2
    inputs = 5 * torch.randn(n, *shape, generator=seeded(0)) + 10 * targets.view(-1, *[1] * len(shape))
    return inputs, targets


class Linear(nn.Module):
    def __init__(self, n_features):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(n_features, 2)

    def forward(self, inputs):
        return self.linear(inputs.flatten(1))


@pytest.mark.parametrize("how", ["one", "both", views.apart], ids=["one", "both", "apart"])
@pytest.mark.parametrize("kind", SHAPES)
def test_own_operations_take_any_input_through_the_whole_problem(kind, how):
    inputs, targets = batch(SHAPES[kind])
    model = Linear(inputs[0].numel())
    problem = InvarianceConstrained(Constraint(OWN), n_steps=2, views=how, gamma_init=1.0, scoring_batch=7)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    for _ in range(3):
        step = train_step(problem, model, optimizer, inputs, targets)
        assert step.slack.isfinite().all()
        assert step.lagrangian.isfinite()
        assert step.outputs.shape == (8, 2)
    if how == "both":
        kept = OWN.apply(inputs, step.kept[0])
        loss = nn.functional.cross_entropy(model(kept), targets).item()
        assert step.slack.item() + step.epsilon.item() == pytest.approx(loss, rel=0.05)


def test_a_table_is_trained_on_as_it_was_scored():
    inputs, targets = batch((7,))
    problem = InvarianceConstrained(Constraint(OWN, 0.5), n_steps=2, views="both")
    prepared = problem.prepare(Linear(7), inputs, targets)
    kept = OWN.apply(inputs, prepared.proposals[0].kept)
    assert torch.equal(prepared.inputs, torch.cat([inputs, kept]))


def test_whole_numbers_and_doubles_keep_their_type():
    for dtype in (torch.int64, torch.float64):
        inputs, targets = batch((7,))
        seen = []

        def finish(rows, seen=seen):
            seen.append(rows.dtype)
            return rows.float()

        transforms = TransformSet((Op("Negate", negated), Op("Same", lambda rows, _: rows.clone())))
        problem = InvarianceConstrained(Constraint(transforms, 0.5), finish=finish, views="both")
        step = problem(Linear(7), inputs.to(dtype), targets)
        assert set(seen) == {dtype}
        assert step.slack.isfinite().all()


def test_scoring_is_bounded_for_signals_too():
    inputs, targets = batch((2, 50), n=32)
    sizes = []

    def finish(signals):
        sizes.append(len(signals))
        return signals

    problem = InvarianceConstrained(Constraint(OWN, 0.5), n_steps=3, views="both", finish=finish, scoring_batch=9)
    problem(Linear(100), inputs, targets)
    assert sizes[0] == 32
    assert max(sizes[1:]) <= 9
    assert sum(sizes[1:]) == 4 * 32
