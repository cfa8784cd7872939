"""Models by name: ours, timm's, or a factory of the user's."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from invaug.lab.errors import UserError, nearest
from invaug.lab.models import networks

Shape = tuple[int, int, int]

MODELS = {
    "cnn": "the tanh CNN of the synthetic experiments",
    "cnn-small": "two strided convolutions, for CPUs",
    "conv-24": "three strided convolutions and a mean, for CPUs; any width",
    "mlp": "the tanh MLP of the synthetic experiments",
    "resnet-8": "CIFAR ResNet, and any depth 6n + 2",
    "resnet-18": "ImageNet's, with a small stem for images up to 64 px",
    "resnet-20": "CIFAR ResNet, and any depth 6n + 2",
    "resnet-50": "ImageNet's, with a small stem for images up to 64 px",
    "wrn-10-1": "Wide ResNet, for CPUs",
    "wrn-16-1": "Wide ResNet, for CPUs",
    "wrn-16-2": "Wide ResNet, for CPUs",
    "wrn-28-10": "Wide ResNet of the paper, and any wrn-DEPTH-WIDTH",
    "wrn-40-2": "Wide ResNet of the paper, and any wrn-DEPTH-WIDTH",
}
"""Models to offer, with a description; every conv-WIDTH, wrn-DEPTH-WIDTH and CIFAR resnet-DEPTH is built too."""

SMALL_IMAGE = 64  # up to this many pixels ResNet-18 and 50 keep the size in their stem


def build_model(name: str, n_classes: int, image_shape: Shape) -> nn.Module:
    """Return the model of that name for images of shape (channels, height, width).

    Args:
        name: One of ours (`wrn-40-2`, `resnet-18`, `cnn-small`, …), any timm name (`timm:vit_tiny_patch16_224`, or bare
            where it is not one of ours), or `module:factory`, called with n_classes= and image_shape=.
    """
    _check(n_classes, image_shape)
    if is_custom(name):
        return _own(name, n_classes, image_shape)
    _, _, timm_name = name.partition(":")
    if timm_name:
        return _from_timm(timm_name, n_classes, image_shape)
    for pattern, family in FAMILIES.items():
        found = re.fullmatch(pattern, name.lower())
        if found:
            return family(*map(int, found.groups()), n_classes=n_classes, image_shape=image_shape)
    names = _timm_names()
    if name in names:
        return _from_timm(name, n_classes, image_shape)
    raise UserError(f"unknown model {name}, {nearest(name, (*MODELS, *get_close_matches(name, names, 2, 0.8)))}")


def is_custom(name: str) -> bool:
    """Whether a name is a `module:factory`: code that is imported and called."""
    source, _, rest = name.partition(":")
    return bool(rest) and source != "timm"


def _check(n_classes: int, image_shape: Shape) -> None:
    if n_classes < 1:
        raise UserError(f"a model needs at least one class, got {n_classes}")
    if len(image_shape) != 3 or min(image_shape) < 1:
        raise UserError(f"image_shape must be (channels, height, width), got {tuple(image_shape)}")


def _wide_resnet(depth: int, width: int, *, n_classes: int, image_shape: Shape) -> nn.Module:
    n_blocks = _blocks(f"wrn-{depth}-{width}", depth, 4, "10, 16, 22, 28, 34, 40")
    if width < 1:
        raise UserError(f"the width of wrn-{depth}-{width} must be at least 1, got {width}")
    return networks.wide_resnet(image_shape[0], n_classes, n_blocks=n_blocks, width=width)


def _cifar_resnet(depth: int, *, n_classes: int, image_shape: Shape) -> nn.Module:
    n_blocks = _blocks(f"resnet-{depth}", depth, 2, "8, 14, 20, 26, 32, 44, 56, 110, or the ImageNet depths 18 and 50")
    return networks.cifar_resnet(image_shape[0], n_classes, n_blocks=n_blocks)


def _blocks(name: str, depth: int, extra: int, examples: str) -> int:
    n_blocks, rest = divmod(depth - extra, 6)
    if rest or n_blocks < 1:
        raise UserError(f"the depth of {name} must be 6n + {extra} ({examples}), got {depth}")
    return n_blocks


def _resnet_18(*, n_classes: int, image_shape: Shape) -> nn.Module:
    small = max(image_shape[1:]) <= SMALL_IMAGE
    options: dict[str, Any] = {"block": networks.basic, "growth": 1, "n_blocks": [2, 2, 2, 2]}
    return networks.resnet(image_shape[0], n_classes, small=small, **options)


def _resnet_50(*, n_classes: int, image_shape: Shape) -> nn.Module:
    small = max(image_shape[1:]) <= SMALL_IMAGE
    options: dict[str, Any] = {"block": networks.bottleneck, "growth": 4, "n_blocks": [3, 4, 6, 3]}
    return networks.resnet(image_shape[0], n_classes, small=small, **options)


def _mlp(*, n_classes: int, image_shape: Shape) -> nn.Module:
    channels, height, width = image_shape
    return networks.mlp(channels * height * width, n_classes)


def _cnn(*, n_classes: int, image_shape: Shape) -> nn.Module:
    _at_least(28, "cnn", image_shape, "use cnn-small or mlp")
    return networks.tanh_cnn(*image_shape, n_classes)


def _cnn_small(*, n_classes: int, image_shape: Shape) -> nn.Module:
    _at_least(8, "cnn-small", image_shape, "use mlp")
    return networks.small_cnn(*image_shape, n_classes)


def _plain_cnn(width: int, *, n_classes: int, image_shape: Shape) -> nn.Module:
    if width < 1:
        raise UserError(f"the width of conv-{width} must be at least 1, got {width}")
    _at_least(8, f"conv-{width}", image_shape, "use mlp")
    return networks.plain_cnn(image_shape[0], n_classes, width)


def _at_least(side: int, name: str, image_shape: Shape, instead: str) -> None:
    _, height, width = image_shape
    if min(height, width) < side:
        raise UserError(f"model {name} needs images of at least {side} px, got {height} x {width}: {instead}")


FAMILIES: dict[str, Callable[..., nn.Module]] = {
    r"mlp": _mlp,
    r"cnn": _cnn,
    r"cnn-small": _cnn_small,
    r"conv-(\d{1,3})": _plain_cnn,
    r"resnet-18": _resnet_18,
    r"resnet-50": _resnet_50,  # before the CIFAR depths, of which 50 is one
    r"resnet-(\d{1,4})": _cifar_resnet,
    r"wrn-(\d{1,4})-(\d{1,3})": _wide_resnet,
}


def _from_timm(name: str, n_classes: int, image_shape: Shape) -> nn.Module:
    timm = _timm()
    if not timm.is_model(name):
        raise UserError(f"timm has no model {name}{_hint(name, timm.list_models())}")
    options = {"pretrained": False, "num_classes": n_classes, "in_chans": image_shape[0]}
    try:
        model = _with_size(timm, name, image_shape[1:], options)
    except (AssertionError, RuntimeError, TypeError, ValueError) as error:
        shape = " x ".join(map(str, image_shape))
        raise UserError(f"timm cannot build {name} for {n_classes} classes of {shape} images: {error}") from error
    return model


def _with_size(timm: ModuleType, name: str, size: tuple[int, int], options: dict[str, Any]) -> nn.Module:
    """Return the model told its image size, which transformers must know and convolutional networks do not take."""
    try:
        model: nn.Module = timm.create_model(name, img_size=size, **options)
    except TypeError:
        model = timm.create_model(name, **options)
    return model


def _timm() -> ModuleType:
    if find_spec("timm") is None:
        raise UserError("timm models need timm, which is not installed: pip install timm")
    try:
        return import_module("timm")
    except (ImportError, RuntimeError, AttributeError) as error:  # its torchvision may not fit the torch that is here
        raise UserError(f"timm is installed but cannot be imported: {error}") from error


def _timm_names() -> list[str]:
    """Return the names timm knows, none where it is not usable."""
    try:
        return [str(name) for name in _timm().list_models()]
    except UserError:
        return []


def _own(name: str, n_classes: int, image_shape: Shape) -> nn.Module:
    """Return what the user's `module:factory` makes."""
    factory, arguments = _factory(name), {"n_classes": n_classes, "image_shape": image_shape}
    _check_call(name, factory, arguments)
    try:
        model = factory(**arguments)
    except Exception as error:
        raise UserError(f"model {name} failed with {type(error).__name__}: {error}") from error
    if not isinstance(model, nn.Module):
        raise UserError(f"model {name} must return a torch.nn.Module, got {type(model).__name__}")
    return model


def _check_call(name: str, factory: Callable[..., Any], arguments: dict[str, Any]) -> None:
    try:
        signature(factory).bind(**arguments)
    except ValueError:
        return  # some builtins have no signature
    except TypeError as error:
        raise UserError(f"model {name} must take n_classes= and image_shape=: {error}") from error


def _factory(name: str) -> Callable[..., Any]:
    module_name, _, attribute = name.partition(":")
    module = _imported(name, module_name)
    if not hasattr(module, attribute):
        raise UserError(f"model {name}: module {module_name} has no {attribute}{_hint(attribute, vars(module))}")
    factory = getattr(module, attribute)
    if not callable(factory):
        raise UserError(f"model {name}: {attribute} must be callable, got {type(factory).__name__}")
    return factory  # type: ignore[no-any-return]


def _imported(name: str, module_name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:  # a console script does not look beside the user, who expects it to
        sys.path.append(here)
    try:
        return import_module(module_name)
    except Exception as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name == module_name.partition(".")[0]
        reason = "there is no such module here" if missing else f"{type(error).__name__}: {error}"
        raise UserError(f"model {name}: cannot import {module_name}: {reason}") from error


def _hint(name: str, names: Iterable[str]) -> str:
    """Return the nearest of many names, nothing where none is near."""
    near = get_close_matches(name, [known for known in names if not known.startswith("_")], 3, 0.5)
    return f", {nearest(name, near)}" if near else ""
