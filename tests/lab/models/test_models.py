"""The laboratory's models: published sizes, torchvision's outputs, and clear words for names that are wrong."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from invaug.lab.errors import UserError
from invaug.lab.models import build
from invaug.lab.models.build import MODELS, build_model


def n_parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


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


def test_names_may_be_written_in_capitals() -> None:
    assert n_parameters(build_model("WRN-10-1", 10, (3, 32, 32))) == n_parameters(
        build_model("wrn-10-1", 10, (3, 32, 32))
    )


# the wide ResNet of facts and paper


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


# ResNet-18 and 50 beside torchvision's


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


# names that are wrong

WRONG = [
    ("wrn-12-2", (3, 32, 32), r"^the depth of wrn-12-2 must be 6n \+ 4 \(10, 16, 22, 28, 34, 40\), got 12$"),
    ("wrn-4-2", (3, 32, 32), r"must be 6n \+ 4"),
    ("wrn-16-0", (3, 32, 32), r"^unknown model wrn-16-0, did you mean wrn-16-"),
    ("resnet-9", (3, 32, 32), r"^the depth of resnet-9 must be 6n \+ 2 .* got 9$"),
    (
        "cnn",
        (1, 27, 28),
        r"^model cnn needs .* at least 28 px, got 27 x 28: use mlp, .*--image-size 28$",
    ),
    ("conv-24", (3, 32, 7), r"^model conv-24 needs images of at least 8 px, got 32 x 7: use mlp, or enlarge"),
    ("conv-0", (3, 32, 32), r"^unknown model conv-0, did you mean"),
    ("cnn-small", (1, 28, 7), r"^model cnn-small needs images of at least 8 px, got 28 x 7: use mlp, or enlarge"),
    ("wrn40-2", (3, 32, 32), r"^unknown model wrn40-2, did you mean wrn-40-2"),
    ("zzzzzzz", (3, 32, 32), r"^unknown model zzzzzzz, choose one of cnn, cnn-small, conv-24, mlp, "),
    ("", (3, 32, 32), r"^unknown model , choose one of"),
]


@pytest.fixture
def no_timm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "find_spec", lambda name: None)


@pytest.mark.usefixtures("no_timm")
@pytest.mark.parametrize(("name", "shape", "message"), WRONG, ids=[case[0] for case in WRONG])
def test_wrong_name_is_answered_with_the_way_out(name: str, shape: build.Shape, message: str) -> None:
    with pytest.raises(UserError, match=message):
        build_model(name, 10, shape)


# timm


@pytest.fixture
def timm(torchvision: ModuleType) -> ModuleType:
    return pytest.importorskip("timm")


@pytest.mark.usefixtures("timm")
@pytest.mark.parametrize(
    ("name", "shape"),
    [("timm:resnet18", (1, 32, 32)), ("resnet18", (3, 32, 32)), ("vit_tiny_patch16_224", (3, 32, 48))],
)
def test_timm_models_take_our_classes_channels_and_size(name: str, shape: build.Shape) -> None:
    assert build_model(name, 7, shape)(torch.rand(2, *shape)).shape == (2, 7)


def test_timm_model_is_timms_own(timm: ModuleType) -> None:
    ours, theirs = build_model("timm:resnet18", 10, (3, 32, 32)), timm.create_model("resnet18", num_classes=10)
    assert type(ours) is type(theirs)
    assert n_parameters(ours) == n_parameters(theirs)


@pytest.mark.usefixtures("timm")
def test_unknown_timm_names_are_answered_with_the_nearest() -> None:
    with pytest.raises(UserError, match=r"^timm has no model resnet18x, did you mean resnet18"):
        build_model("timm:resnet18x", 10, (3, 32, 32))
    with pytest.raises(UserError, match=r"^timm has no model hf-hub:someone/something"):
        build_model("timm:hf-hub:someone/something", 10, (3, 32, 32))
    with pytest.raises(UserError, match=r"^unknown model mobilenetv3_smal_100, did you mean mobilenetv3_small_100"):
        build_model("mobilenetv3_smal_100", 10, (3, 32, 32))


@pytest.mark.usefixtures("no_timm")
def test_timm_that_is_not_installed_is_said_to_be_missing() -> None:
    with pytest.raises(UserError, match="which is not installed: pip install timm"):
        build_model("timm:resnet18", 10, (3, 32, 32))


def test_timm_that_does_not_import_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> ModuleType:
        raise RuntimeError("operator torchvision::nms does not exist")

    monkeypatch.setattr(build, "find_spec", lambda name: object())
    monkeypatch.setattr(build, "import_module", broken)
    with pytest.raises(UserError, match=r"^timm is installed but cannot be imported: operator torchvision::nms"):
        build_model("timm:resnet18", 10, (3, 32, 32))
    with pytest.raises(UserError, match=r"^unknown model resnet18, did you mean resnet-18"):
        build_model("resnet18", 10, (3, 32, 32))


# a factory of the user's

OWN = """
from torch import nn

SIZE = 3

def linear(n_classes, image_shape):
    channels, height, width = image_shape
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * height * width, n_classes))

def wrong_arguments(classes): ...
def not_a_module(n_classes, image_shape): return 3
def failing(n_classes, image_shape): raise KeyError("weights")
"""


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module in the working directory, where a console script does not look by itself."""
    (tmp_path / "own_models_of_mine.py").write_text(OWN, encoding="utf-8")
    (tmp_path / "own_models_broken.py").write_text("import there_is_no_such_library", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield "own_models_of_mine"
    sys.modules.pop("own_models_of_mine", None)


def test_a_factory_of_the_users_builds_the_model(own_module: str) -> None:
    model = build_model(f"{own_module}:linear", 10, (3, 8, 8))
    assert model(torch.rand(2, 3, 8, 8)).shape == (2, 10)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("there_is_no_such_module:f", "cannot import there_is_no_such_module: there is no such module here$"),
        ("own_models_broken:f", "cannot import own_models_broken: ModuleNotFoundError: .*there_is_no_such_library"),
        ("own_models_of_mine:liner", "module own_models_of_mine has no liner, did you mean linear"),
        ("own_models_of_mine:zzzzzz", "module own_models_of_mine has no zzzzzz$"),
        ("own_models_of_mine:SIZE", "SIZE must be callable, got int$"),
        ("own_models_of_mine:wrong_arguments", "must take n_classes= and image_shape=: missing a required argument"),
        ("own_models_of_mine:not_a_module", r"must return a torch.nn.Module, got int$"),
        ("own_models_of_mine:failing", "failed with KeyError: 'weights'$"),
    ],
)
@pytest.mark.usefixtures("own_module")
def test_a_factory_that_does_not_work_says_what_is_wrong_with_it(name: str, message: str) -> None:
    with pytest.raises(UserError, match=f"^model {name}.*{message}"):
        build_model(name, 10, (3, 8, 8))
