"""Models by name: ours, timm's, a factory of the user's, and clear words for names that are wrong."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

from invaug.lab.errors import UserError
from invaug.lab.models import build
from invaug.lab.models.build import build_model
from tests.support.networks import n_parameters


def test_names_may_be_written_in_capitals() -> None:
    assert n_parameters(build_model("WRN-10-1", 10, (3, 32, 32))) == n_parameters(
        build_model("wrn-10-1", 10, (3, 32, 32))
    )


WRONG = [
    ("wrn-12-2", (3, 32, 32), r"^the depth of wrn-12-2 must be 6n \+ 4 \(10, 16, 22, 28, 34, 40\), got 12$"),
    ("wrn-4-2", (3, 32, 32), r"must be 6n \+ 4"),
    ("wrn-16-0", (3, 32, 32), r"^unknown model wrn-16-0 \(timm .*\), did you mean wrn-16-"),
    ("resnet-9", (3, 32, 32), r"^the depth of resnet-9 must be 6n \+ 2 .* got 9$"),
    (
        "cnn",
        (1, 27, 28),
        r"^model cnn needs .* at least 28 px, got 27 x 28: use mlp, .*--image-size 28$",
    ),
    ("conv-24", (3, 32, 7), r"^model conv-24 needs images of at least 8 px, got 32 x 7: use mlp, or enlarge"),
    ("conv-0", (3, 32, 32), r"^unknown model conv-0 \(timm .*\), did you mean"),
    ("cnn-small", (1, 28, 7), r"^model cnn-small needs images of at least 8 px, got 28 x 7: use mlp, or enlarge"),
    ("wrn40-2", (3, 32, 32), r"^unknown model wrn40-2 \(timm .*\), did you mean wrn-40-2"),
    ("zzzzzzz", (3, 32, 32), r"^unknown model zzzzzzz \(timm .*\), choose one of cnn, cnn-small, conv-24, mlp, "),
    ("", (3, 32, 32), r"^unknown model  \(timm .*\), choose one of"),
]


@pytest.fixture
def no_timm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "find_spec", lambda name: None)


@pytest.mark.usefixtures("no_timm")
@pytest.mark.parametrize(("name", "shape", "message"), WRONG, ids=[case[0] for case in WRONG])
def test_wrong_name_is_answered_with_the_way_out(name: str, shape: build.Shape, message: str) -> None:
    with pytest.raises(UserError, match=message):
        build_model(name, 10, shape)


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
    way_out = r"timm models need timm, which is not installed: pip install 'invaug\[timm\]'"
    with pytest.raises(UserError, match=f"^{way_out}$"):
        build_model("timm:resnet18", 10, (3, 32, 32))
    with pytest.raises(UserError, match=rf"^unknown model resnet18 \({way_out}\), did you mean resnet-18"):
        build_model("resnet18", 10, (3, 32, 32))


def test_timm_that_does_not_import_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> ModuleType:
        raise RuntimeError("operator torchvision::nms does not exist")

    monkeypatch.setattr(build, "find_spec", lambda name: object())
    monkeypatch.setattr(build, "import_module", broken)
    with pytest.raises(UserError, match=r"^timm is installed but cannot be imported: operator torchvision::nms"):
        build_model("timm:resnet18", 10, (3, 32, 32))
    with pytest.raises(
        UserError, match=r"^unknown model resnet18 \(timm is installed but .*\), did you mean resnet-18"
    ):
        build_model("resnet18", 10, (3, 32, 32))


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
