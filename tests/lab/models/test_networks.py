"""The networks: published sizes, torchvision's outputs, the layers of the paper."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from invaug.lab.models import build
from invaug.lab.models.build import MODELS, build_model
from invaug.lab.models.networks import PaddedShortcut
from tests.support.networks import n_parameters


def modules_of(model: nn.Module, kind: type[nn.Module]) -> list[nn.Module]:
    return [module for module in model.modules() if isinstance(module, kind)]


PUBLISHED = [
    ("wrn-40-2", 10, (3, 32, 32), 2.2e6, 0.025),
    ("wrn-28-10", 10, (3, 32, 32), 36.5e6, 0.001),
    ("wrn-16-8", 10, (3, 32, 32), 11.0e6, 0.005),
    ("resnet-18", 1000, (3, 224, 224), 11_689_512, 0),
    ("resnet-50", 1000, (3, 224, 224), 25_557_032, 0),
    ("resnet-20", 10, (3, 32, 32), 0.27e6, 0.02),
    ("resnet-32", 10, (3, 32, 32), 0.46e6, 0.02),
    ("resnet-56", 10, (3, 32, 32), 0.85e6, 0.02),
    ("resnet-110", 10, (3, 32, 32), 1.7e6, 0.02),
    ("mlp", 10, (1, 28, 28), 784 * 1000 + 1000 + 10 * 1000 + 10, 0),
]


@pytest.mark.parametrize(
    ("name", "n_classes", "shape", "published", "rounding"), PUBLISHED, ids=[p[0] for p in PUBLISHED]
)
def test_model_has_its_published_number_of_parameters(
    name: str, n_classes: int, shape: build.Shape, published: float, rounding: float
) -> None:
    assert n_parameters(build_model(name, n_classes, shape)) == pytest.approx(published, rel=rounding, abs=0)


def test_tanh_cnn_has_the_layers_of_the_synthetic_experiments() -> None:
    model = build_model("cnn", 10, (1, 28, 28))
    shapes = [tuple(parameter.shape) for parameter in model.parameters() if parameter.ndim > 1]
    assert shapes == [(6, 1, 5, 5), (16, 6, 3, 3), (120, 16, 5, 5), (84, 120), (10, 84)]
    assert len(modules_of(model, nn.Tanh)) == 4
    assert len(modules_of(model, nn.MaxPool2d)) == 2


def test_small_cnn_is_two_strided_convolutions_with_batchnorm() -> None:
    model = build_model("cnn-small", 10, (1, 28, 28))
    assert [(conv.out_channels, conv.stride) for conv in modules_of(model, nn.Conv2d)] == [(16, (2, 2)), (32, (2, 2))]
    assert len(modules_of(model, nn.BatchNorm2d)) == 2
    assert [linear.in_features for linear in modules_of(model, nn.Linear)] == [32 * 7 * 7]


def test_small_cnn_does_not_grow_with_large_images() -> None:
    assert n_parameters(build_model("cnn-small", 100, (3, 224, 224))) < 300_000


SHAPES = [(1, 28, 28), (3, 32, 32), (4, 40, 72)]


FAST = [name for name in MODELS if name not in ("wrn-28-10", "wrn-40-2")]


@pytest.mark.parametrize("name", [*FAST, "wrn-22-1", "resnet-14"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_model_scores_every_class_and_reaches_every_parameter(name: str, shape: build.Shape) -> None:
    torch.manual_seed(0)
    model = build_model(name, 7, shape)
    scores = model(torch.rand(4, *shape))
    assert scores.shape == (4, 7)
    scores.square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in model.parameters())


@pytest.mark.parametrize("name", FAST)
def test_one_seed_builds_one_model(name: str) -> None:
    states = []
    for _ in range(2):
        torch.manual_seed(3)
        states.append(build_model(name, 10, (3, 32, 32)).state_dict())
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(first, second) for first, second in zip(states[0].values(), states[1].values(), strict=True))


@pytest.mark.parametrize("side", [8, 9, 15, 28, 33, 64, 65, 100])
def test_small_cnn_takes_any_size_from_eight_pixels(side: int) -> None:
    assert build_model("cnn-small", 10, (1, side, side + 3))(torch.rand(2, 1, side, side + 3)).shape == (2, 10)


@pytest.mark.parametrize("side", [28, 29, 32, 47])
def test_tanh_cnn_takes_any_size_from_28_pixels(side: int) -> None:
    assert build_model("cnn", 10, (3, side, 28))(torch.rand(2, 3, side, 28)).shape == (2, 10)


def functional_wide_resnet(model: nn.Module, x: Tensor, n_blocks: int) -> Tensor:
    """Return the scores by plain functions, weights taken in the order they were made, BatchNorm by the batch."""
    weights = iter(model.parameters())

    def conv(x: Tensor, stride: int = 1, padding: int = 1) -> Tensor:
        return F.conv2d(x, next(weights), next(weights), stride, padding)

    def norm_relu(x: Tensor) -> Tensor:
        mean, var = x.mean((0, 2, 3), keepdim=True), x.var((0, 2, 3), correction=0, keepdim=True)
        scale, shift = next(weights).view(1, -1, 1, 1), next(weights).view(1, -1, 1, 1)
        return ((x - mean) / (var + 1e-5).sqrt() * scale + shift).clamp(min=0)

    x = conv(x)
    for stage in range(3):
        for block in range(n_blocks):
            stride = 2 if stage and not block else 1
            out = conv(norm_relu(x))
            out = conv(norm_relu(out), stride)
            x = out + (x if out.shape == x.shape else conv(x, stride, padding=0))
    return F.linear(norm_relu(x).mean((2, 3)), next(weights), next(weights))


@pytest.mark.parametrize(("name", "n_blocks"), [("wrn-10-1", 1), ("wrn-10-2", 1), ("wrn-16-2", 2), ("wrn-28-1", 4)])
def test_wide_resnet_is_bn_relu_conv_twice_plus_the_input(name: str, n_blocks: int) -> None:
    torch.manual_seed(0)
    model = build_model(name, 10, (3, 16, 16))
    images = torch.rand(4, 3, 16, 16)
    torch.testing.assert_close(model(images), functional_wide_resnet(model, images, n_blocks), rtol=1e-4, atol=1e-5)


def test_wide_resnet_has_biases_plain_batchnorm_and_no_dropout() -> None:
    model = build_model("wrn-40-2", 10, (3, 32, 32))
    convolutions = modules_of(model, nn.Conv2d)
    assert all(conv.bias is not None for conv in convolutions)
    assert {norm.momentum for norm in modules_of(model, nn.BatchNorm2d)} == {0.1}
    assert not modules_of(model, nn.Dropout)
    assert sum(conv.kernel_size == (1, 1) for conv in convolutions) == 3
    assert sum(conv.kernel_size == (3, 3) for conv in convolutions) == 40 - 3  # and three of the 40 are 1x1


def test_wide_resnet_of_width_one_needs_no_shortcut_in_its_first_stage() -> None:
    convolutions = modules_of(build_model("wrn-10-1", 10, (3, 32, 32)), nn.Conv2d)
    assert sum(conv.kernel_size == (1, 1) for conv in convolutions) == 2


def test_cifar_resnet_has_no_parameters_in_its_shortcuts() -> None:
    model = build_model("resnet-20", 10, (3, 32, 32))
    kernels = [conv.kernel_size for conv in modules_of(model, nn.Conv2d)]
    assert kernels == [(3, 3)] * 19
    assert n_parameters(model) == 269_722


def copy_by_order(source: nn.Module, target: nn.Module) -> None:
    """Fill a model with another's parameters and buffers, matched by order alone."""
    ours, theirs = target.state_dict(), source.state_dict()
    assert [value.shape for value in ours.values()] == [value.shape for value in theirs.values()]
    target.load_state_dict(dict(zip(ours, theirs.values(), strict=True)))


@pytest.mark.parametrize("depth", [18, 50])
def test_resnet_gives_torchvisions_outputs_with_torchvisions_weights(torchvision: ModuleType, depth: int) -> None:
    torch.manual_seed(0)
    theirs = getattr(torchvision.models, f"resnet{depth}")()
    ours = build_model(f"resnet-{depth}", 1000, (3, 96, 96))
    images = torch.rand(2, 3, 96, 96)
    theirs(images)  # so that the running statistics are not the initial ones
    copy_by_order(theirs, ours)
    torch.testing.assert_close(ours(images), theirs(images))
    torch.testing.assert_close(ours.eval()(images), theirs.eval()(images))


@pytest.mark.parametrize("depth", [18, 50])
def test_resnet_is_initialised_as_torchvisions(torchvision: ModuleType, depth: int) -> None:
    ours = build_model(f"resnet-{depth}", 1000, (3, 224, 224)).state_dict()
    theirs = getattr(torchvision.models, f"resnet{depth}")().state_dict()
    large = [(a.std(), b.std()) for a, b in zip(ours.values(), theirs.values(), strict=True) if a.numel() > 10_000]
    for our_spread, their_spread in large:
        assert float(our_spread) == pytest.approx(float(their_spread), rel=0.05)


@pytest.mark.parametrize(("side", "kernel", "n_pools"), [(32, 3, 0), (64, 3, 0), (65, 7, 1), (224, 7, 1)])
def test_resnet_keeps_small_images_whole_in_its_stem(side: int, kernel: int, n_pools: int) -> None:
    model = build_model("resnet-18", 10, (3, side, side))
    assert modules_of(model, nn.Conv2d)[0].kernel_size == (kernel, kernel)
    assert len(modules_of(model, nn.MaxPool2d)) == n_pools


@pytest.mark.parametrize("side", [8, 7])
def test_the_shortcut_without_parameters_is_every_second_pixel_and_keeps_channels_last(side: int) -> None:
    x = torch.randn(4, 16, side, side).to(memory_format=torch.channels_last).requires_grad_()
    found = PaddedShortcut(16, 32, 2)(x)
    expected = torch.cat([x[:, :, ::2, ::2], torch.zeros(4, 16, *found.shape[2:])], 1)
    assert torch.equal(found, expected)
    weights = torch.randn_like(found)
    (ours,), (theirs,) = (torch.autograd.grad((weights * made).sum(), x) for made in (found, expected))
    assert torch.equal(ours, theirs)
    assert ours.is_contiguous(memory_format=torch.channels_last)
