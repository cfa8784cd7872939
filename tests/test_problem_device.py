"""On a device without values: what moves, what stays, and how often a step reads from it."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from invaug import Constraint, InvarianceConstrained, Op, TransformSet, sets, views
from invaug.rng import own_randomness
from tests.support.problems import make_images, make_targets, seeded


class Normalize(nn.Module):
    """A finish with buffers, as on a device: bytes in, normalised floats out."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.tensor(0.5))

    def forward(self, images):
        return images.float() / 255 - self.mean


def test_gamma_stays_on_the_cpu_in_double_and_a_finish_moves():
    problem = InvarianceConstrained(
        Constraint(sets.wide(), 0.5), finish=Normalize(), loss_fn=nn.CrossEntropyLoss(torch.ones(3), reduction="none")
    )
    gamma, n_batches = problem.gamma, problem.n_batches
    for move in (lambda: problem.to("meta"), lambda: problem.half(), lambda: problem.to("meta", torch.bfloat16)):
        assert move() is problem
        assert problem.gamma is gamma
        assert problem.n_batches is n_batches
        assert (gamma.device.type, gamma.dtype, n_batches.device.type) == ("cpu", torch.float64, "cpu")
        assert problem.finish.mean.device.type == problem.loss_fn.weight.device.type == "meta"
    assert problem.finish.mean.dtype == torch.bfloat16
    assert set(problem.state_dict()) >= {"gamma", "n_batches"}


def test_gamma_moves_to_no_device_with_a_module_that_holds_the_problem():
    whole = nn.ModuleDict({"problem": InvarianceConstrained(Constraint(sets.wide(), 0.5)), "model": nn.Linear(2, 3)})
    whole.to("meta")
    assert whole["problem"].gamma.device.type == "cpu"
    assert whole["model"].weight.device.type == "meta"


@pytest.mark.parametrize("device", ["cpu", "cuda", "meta"])
def test_torch_generators_are_lent_whether_or_not_the_device_has_one(device):
    before = torch.get_rng_state()
    drawn = []
    for _ in range(2):
        with own_randomness(seeded(3), torch.device(device)):
            drawn.append(torch.rand(5))
        assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(*drawn)


@pytest.fixture
def reads(monkeypatch):
    """Meta tensors have no values, so that every read but the one that is counted here is an error.

    Fake CUDA tensors would do the same, but a torch without CUDA cannot differentiate through them.
    """
    found = []

    def read(numbers):
        assert numbers.device.type == "meta"
        found.append(tuple(numbers.shape))
        n = numbers.shape[1] - 1
        return [[0.0, *[8.0] * n], [1.0, *[4.0] * n]]

    monkeypatch.setattr("invaug.step.read_from_device", read)
    return found


def network():
    body = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.2), nn.Flatten(), nn.Linear(64, 3)]
    return nn.Sequential(*body).to("meta")


def dim(images, magnitudes):
    return (images * magnitudes.view(-1, 1, 1, 1)).to(images.dtype)


def own_set():
    return TransformSet((Op("Dim", dim, 0.2, 0.8), Op("Mirror", lambda images, _: images.flip(3))))


def check_step(reads, transforms, how, epsilon, n_steps):
    constraints = [Constraint(transforms, epsilon, share=0.5), Constraint(own_set(), 0.7)]
    problem = InvarianceConstrained(
        *constraints, views=how, n_steps=n_steps, gamma_init=1.5, finish=Normalize(), scoring_batch=7
    ).to("meta")
    assert problem.finish.mean.device.type == "meta"
    images = torch.empty(8, 3, 6, 6, dtype=torch.uint8, device="meta")
    targets = torch.zeros(8, dtype=torch.long, device="meta")
    model = network()
    step = problem(model, images, targets)
    problem.dual_step(step.slack)
    assert len(reads) == 1
    step.lagrangian.backward()
    assert all(parameter.grad.device.type == "meta" for parameter in model.parameters())
    assert step.outputs.shape == (8, 3)
    assert (problem.gamma != 1.5).all()
    assert problem.gamma.device.type == step.slack.device.type == step.epsilon.device.type == "cpu"


@pytest.mark.parametrize("n_steps", [0, 2])
@pytest.mark.parametrize("epsilon", [0.5, "auto"])
@pytest.mark.parametrize("how", ["one", "both", views.apart], ids=["one", "both", "apart"])
def test_a_step_reads_once_from_the_device(reads, how, epsilon, n_steps):
    check_step(reads, own_set(), how, epsilon, n_steps)


@pytest.mark.parametrize("how", ["one", "both"])
@pytest.mark.parametrize("make", [sets.wide, sets.standard, sets.mild, lambda: sets.rotations(1.0)])
def test_a_step_with_a_named_set_reads_once_from_the_device(reads, make, how):
    check_step(reads, make(), how, "auto", 1)


def test_a_plain_step_reads_once_to_check_its_losses(reads):
    problem = InvarianceConstrained(finish=Normalize()).to("meta")
    images = torch.empty(8, 3, 6, 6, dtype=torch.uint8, device="meta")
    step = problem(network(), images, torch.zeros(8, dtype=torch.long, device="meta"))
    problem.dual_step(step.slack)
    assert len(reads) <= 1


def test_a_device_without_values_refuses_any_other_read():
    """The tests above would notice one."""
    outputs = network()(torch.empty(2, 3, 6, 6, device="meta"))
    reads = (lambda: outputs.sum().item(), lambda: outputs.tolist(), lambda: bool((outputs > 0).any()), outputs.cpu)
    for read in reads:
        with pytest.raises((RuntimeError, NotImplementedError)):
            read()


def test_the_one_read_is_what_the_cpu_computes(monkeypatch):
    """Sums and sizes of what each constraint kept, of those beside clean views, and of these."""
    found = []

    def read(numbers):
        found.append(numbers.tolist())
        return found[-1]

    monkeypatch.setattr("invaug.step.read_from_device", read)
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 3))
    problem = InvarianceConstrained(Constraint(own_set(), "auto", share=0.5), views="one", n_steps=1)
    images, targets = make_images(8), make_targets(8)
    step = problem(model, images, targets)
    ((sums, sizes),) = found
    assert sizes == [1.0, 4.0, 4.0, 4.0]
    assert sums[0] == 0.0
    rows = F.cross_entropy(model(images.float() / 255), targets, reduction="none")
    assert sums[3] <= rows.sum().item()
    assert step.slack.item() == pytest.approx((sums[2] - sums[3]) / 4)
