"""What the integrations share."""

import math
from importlib import metadata
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from invaug import Constraint, InvarianceConstrained, sets
from invaug.integrations.common import DualSteps, check_version, logits_of, to_bytes
from tests.support.images import real_images

EVERY_BYTE = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16)
MEAN, STD = (torch.tensor(three).view(1, 3, 1, 1) for three in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))
NO_BYTES = r"^images must be bytes .*, got floats from \S+ to \S+ that are not: move Normalize, .* into finish="


def installed(monkeypatch, version):
    monkeypatch.setattr(metadata, "version", lambda package: version)


@pytest.mark.parametrize("version", ["2.4", "2.4.0", "2.10.1", "2.9.0.post1", "2.9.0+cu126", "2.6.0.dev20250101"])
def test_a_version_in_the_range_passes(monkeypatch, version):
    installed(monkeypatch, version)
    check_version("lightning", "2.4", "3")


@pytest.mark.parametrize("version", ["2.3.9", "1.9.5", "3.0.0", "3.0.0rc1", "10.0", "unknown"])
def test_a_version_out_of_range_is_refused_with_the_way_out(monkeypatch, version):
    installed(monkeypatch, version)
    rule = rf"^lightning must be at least 2\.4 and below 3, got {version}: pip install 'invaug\[lightning\]'$"
    with pytest.raises(ImportError, match=rule.replace("+", r"\+")):
        check_version("lightning", "2.4", "3")


def test_a_missing_package_names_the_extra():
    with pytest.raises(ImportError, match=r"^no-such-package is not installed: pip install 'invaug\[huggingface\]'$"):
        check_version("no-such-package", "1", "2", extra="huggingface")


@pytest.mark.parametrize(
    "make",
    [
        lambda images: images,
        lambda images: images.float() / 255,
        lambda images: images.float().div(255),
        lambda images: images.float() * (1 / 255),
        lambda images: images.double() / 255,
        lambda images: images.float(),
        lambda images: (images.float() / 255).to(memory_format=torch.channels_last),
    ],
    ids=["uint8", "k / 255", "div", "times 1 / 255", "double", "whole floats", "channels last"],
)
def test_every_byte_returns(make):
    found = to_bytes(make(EVERY_BYTE))
    assert found.dtype == torch.uint8
    assert torch.equal(found, EVERY_BYTE)


def test_uint8_images_are_not_copied():
    assert to_bytes(EVERY_BYTE) is EVERY_BYTE


def test_images_that_need_a_gradient_lose_it():
    assert not to_bytes((EVERY_BYTE.float() / 255).requires_grad_()).requires_grad


@pytest.mark.parametrize(
    "make",
    [
        lambda images: (images / 255 - MEAN) / STD,  # ImageNet's
        lambda images: images / 255 - 0.5,
        lambda images: images / 255 * 0.999,  # in [0, 1], and yet no bytes
        lambda images: images + 0.5,
        lambda images: images.float() - 1,
        lambda images: images * 2.0,
        lambda images: images / 255 + math.nan,
    ],
    ids=["imagenet", "centred", "scaled", "half bytes", "negative", "too large", "nan"],
)
def test_floats_that_are_no_bytes_are_refused_with_the_way_out(make):
    with pytest.raises(ValueError, match=NO_BYTES):
        to_bytes(make(real_images(4, 32, 32, 3)))


@pytest.mark.parametrize("wrong", [torch.zeros(2, 3, 4, 4, dtype=torch.long), torch.zeros(2, 3, 4, 4) > 0])
def test_other_numbers_are_refused(wrong):
    with pytest.raises(TypeError, match=r"^images must be bytes .*, got torch\.\w+: convert them"):
        to_bytes(wrong)


def test_anything_but_a_tensor_is_no_images():
    with pytest.raises(TypeError, match=r"^images must be a torch\.Tensor, got list"):
        to_bytes([[0, 1]])


LOGITS = torch.zeros(2, 10)


@pytest.mark.parametrize("answer", [LOGITS, SimpleNamespace(logits=LOGITS), {"logits": LOGITS, "loss": None}])
def test_logits_are_found(answer):
    assert logits_of(answer) is LOGITS


@pytest.mark.parametrize("answer", [(LOGITS,), [LOGITS], {"scores": LOGITS}, SimpleNamespace(logits=None), None])
def test_an_answer_without_logits_is_refused_with_the_way_out(answer):
    kind = type(answer).__name__
    with pytest.raises(TypeError, match=rf"^found no logits in {kind}, the answer of the model: say with outputs="):
        logits_of(answer)


def make_problem(n=1, **settings):
    constraints = [Constraint(sets.wide(), 0.5)] * n
    return InvarianceConstrained(*constraints, dual_lr=0.5, gamma_init=1.0, **settings)


def make_optimizer(gradient=1.0, **settings):
    weight = nn.Parameter(torch.zeros(3))
    weight.grad = torch.full((3,), gradient)
    return torch.optim.SGD([weight], lr=0.1, **settings)


def test_slacks_are_averaged_until_the_optimiser_steps():
    problem, optimizer = make_problem(2), make_optimizer()
    duals = DualSteps(problem)
    duals.follow(optimizer)
    for slack in ([0.2, -0.4], [0.6, 0.0]):
        duals.add(torch.tensor(slack, dtype=torch.float64))
        assert problem.gamma.tolist() == [1.0, 1.0]
    optimizer.step()
    torch.testing.assert_close(problem.gamma.tolist(), [1 + 0.5 * 0.4, 1 - 0.5 * 0.2])


def test_each_step_has_its_own_average():
    problem, optimizer = make_problem(), make_optimizer()
    duals = DualSteps(problem)
    duals.follow(optimizer)
    for slack in (0.2, 0.6):
        duals.add(torch.tensor([slack], dtype=torch.float64))
        optimizer.step()
    torch.testing.assert_close(problem.gamma.item(), 1 + 0.5 * 0.8)


def test_a_step_without_a_record_leaves_gamma():
    problem, optimizer = make_problem(), make_optimizer()
    DualSteps(problem).follow(optimizer)
    optimizer.step()
    assert problem.gamma.item() == 1.0


def test_a_removed_handle_ends_the_dual_steps():
    problem, optimizer = make_problem(), make_optimizer()
    duals = DualSteps(problem)
    duals.follow(optimizer).remove()
    duals.add(torch.tensor([0.2]))
    optimizer.step()
    assert problem.gamma.item() == 1.0


@pytest.mark.parametrize("fused", [False, True])
def test_a_step_that_the_gradient_scaler_skips_has_no_dual_step(fused):
    """A real scaler: it does not call the optimiser, or tells a fused one that there is nothing to do."""
    problem, optimizer = make_problem(), make_optimizer(math.inf, fused=fused)
    duals, scaler = DualSteps(problem), torch.amp.GradScaler("cpu")
    duals.follow(optimizer)
    (weight,) = optimizer.param_groups[0]["params"]
    found = []
    for gradient in (math.inf, 1.0):
        duals.forget()  # as loops do where they set the gradients to zero
        duals.add(torch.tensor([0.2], dtype=torch.float64))
        scaler.scale(torch.zeros(()))  # starts the scaler
        weight.grad = torch.full((3,), gradient)
        scaler.step(optimizer)
        scaler.update()
        found.append((bool(weight.detach().any()), problem.gamma.item()))
    assert found == [(False, 1.0), (True, 1.1)]


@pytest.mark.parametrize("each_batch", [True, False])
def test_a_scheduler_that_steps_for_each_micro_batch_is_refused(each_batch):
    problem = InvarianceConstrained(Constraint(sets.wide(), epsilon=0.8))
    optimizer, duals = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0), DualSteps(problem)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, 100)
    duals.follow(optimizer)
    optimizer.step()

    def train() -> None:
        for i in range(6):
            duals.add(torch.tensor([0.1]))
            if i % 2:
                optimizer.step()
            if i % 2 or each_batch:
                schedule.step()

    if not each_batch:
        train()
        return
    with pytest.raises(RuntimeError, match=r"learning rate has moved .*: call scheduler.step\(\) after optimizer.step"):
        train()
