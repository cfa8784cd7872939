"""Models by name: ours, timm's, or a factory of the user's.

To add a model, add a function to `networks.py`, and a row to `FAMILIES` and, with its description, to `MODELS`.
"""

import re
import sys
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from torch import Tensor, nn

from invaug.lab.errors import UserError, nearest
from invaug.lab.models import networks
from invaug.lab.models.networks import Shape

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


class Family(NamedTuple):
    """A function that builds networks from (image_shape, n_classes, *the numbers in their name)."""

    build: Callable[..., nn.Module]
    min_side: int = 1
    """Pixels that an image must have at least in both directions."""


FAMILIES = {
    r"mlp": Family(networks.mlp),
    r"cnn": Family(networks.tanh_cnn, 28),
    r"cnn-small": Family(networks.small_cnn, 8),
    r"conv-([1-9]\d{0,2})": Family(networks.plain_cnn, 8),
    r"resnet-18": Family(networks.resnet_18),
    r"resnet-50": Family(networks.resnet_50),  # before the CIFAR depths, of which 50 is one
    r"resnet-(\d{1,4})": Family(networks.cifar_resnet),
    r"wrn-(\d{1,4})-([1-9]\d{0,2})": Family(networks.wide_resnet),
}


def build_model(name: str, n_classes: int, image_shape: Shape) -> nn.Module:
    """Return the model of that name for images of shape (channels, height, width).

    Args:
        name: One of ours (`wrn-40-2`, `resnet-18`, `cnn-small`, …), any timm name (`timm:vit_tiny_patch16_224`, or bare
            where it is not one of ours), or `module:factory`, called with n_classes= and image_shape=.
    """
    if is_custom(name):
        return _build_custom(name, n_classes, image_shape)
    _, _, timm_name = name.partition(":")
    if timm_name:
        return _build_timm(timm_name, n_classes, image_shape)
    for pattern, family in FAMILIES.items():
        if found := re.fullmatch(pattern, name.lower()):
            _, height, width = image_shape
            if min(height, width) < family.min_side:
                needed = f"model {name} needs images of at least {family.min_side} px, got {height} x {width}"
                raise UserError(f"{needed}: use mlp, or enlarge them with --image-size {family.min_side}")
            return family.build(image_shape, n_classes, *map(int, found.groups()))
    return _build_bare_timm(name, n_classes, image_shape)


def is_custom(name: str) -> bool:
    """Whether a name is a `module:factory`: code that is imported and called."""
    source, _, rest = name.partition(":")
    return bool(rest) and source != "timm"


def _build_bare_timm(name: str, n_classes: int, image_shape: Shape) -> nn.Module:
    """Return the timm model of a name that is not one of ours."""
    try:
        timm = _import_timm()
    except UserError as error:  # it may be a name of timm's, or a mistake
        raise UserError(f"unknown model {name} ({error}), {nearest(name, MODELS)}") from error
    if timm.is_model(name):
        return _build_timm(name, n_classes, image_shape)
    near = get_close_matches(name, timm.list_models(), 2, 0.8)
    raise UserError(f"unknown model {name}, {nearest(name, (*MODELS, *near))}")


def _build_timm(name: str, n_classes: int, image_shape: Shape) -> nn.Module:
    timm = _import_timm()
    if not timm.is_model(name):
        raise UserError(f"timm has no model {name}{_hint(name, timm.list_models())}")
    options = {"pretrained": False, "num_classes": n_classes, "in_chans": image_shape[0]}
    try:
        return _with_size(timm, name, image_shape[1:], options)
    except (AssertionError, RuntimeError, TypeError, ValueError) as error:
        shape = " x ".join(map(str, image_shape))
        raise UserError(f"timm cannot build {name} for {n_classes} classes of {shape} images: {error}") from error


def _with_size(timm: ModuleType, name: str, size: tuple[int, int], options: dict[str, Any]) -> nn.Module:
    """Return the model with its image size, which transformers must know and convolutional networks do not take."""
    try:
        model: nn.Module = timm.create_model(name, img_size=size, **options)
    except TypeError:
        model = timm.create_model(name, **options)
    return model


def _import_timm() -> ModuleType:
    if find_spec("timm") is None:
        raise UserError("timm models need timm, which is not installed: pip install 'invaug[timm]'")
    try:
        return import_module("timm")
    except (ImportError, RuntimeError, AttributeError) as error:  # its torchvision may not fit the installed torch
        raise UserError(f"timm is installed but cannot be imported: {error}") from error


def _build_custom(name: str, n_classes: int, image_shape: Shape) -> nn.Module:
    """Return what the user's `module:factory` makes."""
    factory, arguments = _find_factory(name), {"n_classes": n_classes, "image_shape": image_shape}
    _check_call(name, factory, arguments)
    try:
        model = factory(**arguments)
    except Exception as error:
        raise UserError(f"model {name} failed with {type(error).__name__}: {error}") from error
    if not isinstance(model, nn.Module):
        raise UserError(f"model {name} must return a torch.nn.Module, got {type(model).__name__}")
    for key, value in model.state_dict().items():
        if not isinstance(value, Tensor):
            raise UserError(
                f"model {name} must keep tensors alone in its state_dict(), got {key}: {type(value).__name__}"
            )
    return model


def _check_call(name: str, factory: Callable[..., Any], arguments: dict[str, Any]) -> None:
    try:
        signature(factory).bind(**arguments)
    except ValueError:
        return  # some builtins have no signature
    except TypeError as error:
        raise UserError(f"model {name} must take n_classes= and image_shape=: {error}") from error


def _find_factory(name: str) -> Callable[..., Any]:
    module_name, _, attribute = name.partition(":")
    module = _import_custom(name, module_name)
    if not hasattr(module, attribute):
        raise UserError(f"model {name}: module {module_name} has no {attribute}{_hint(attribute, vars(module))}")
    factory = getattr(module, attribute)
    if not callable(factory):
        raise UserError(f"model {name}: {attribute} must be callable, got {type(factory).__name__}")
    return factory  # type: ignore[no-any-return]


def _import_custom(name: str, module_name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:  # a console script does not search the current folder, but its user expects it to
        sys.path.append(here)
    try:
        return import_module(module_name)
    except Exception as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name == module_name.partition(".")[0]
        reason = "there is no such module here" if missing else f"{type(error).__name__}: {error}"
        raise UserError(f"model {name}: cannot import {module_name}: {reason}") from error


def _hint(name: str, names: Iterable[str]) -> str:
    """Return the nearest of many names, nothing if none is near."""
    near = get_close_matches(name, [known for known in names if not known.startswith("_")], 3, 0.5)
    return f", {nearest(name, near)}" if near else ""
