"""A model of the user's own is tried before a run begins; what is wrong with it is one line."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from invaug.lab.errors import UserError
from invaug.lab.models.check import check_model
from invaug.lab.run.folder import load
from tests.support.runs import train, write_digits

OWN = """
import torch
from torch import nn

class Wrong(nn.Module):
    def __init__(self, wrong, n_outputs=10):
        super().__init__()
        self.layer, self.wrong = nn.Linear(784, n_outputs), wrong

    def forward(self, x):
        return self.wrong(self.layer(x.flatten(1)), self.training)

def fail(scores, training):
    raise KeyError("a\\nb")

def good(n_classes, image_shape): return Wrong(lambda scores, _: scores)
def thousand(n_classes, image_shape): return Wrong(lambda scores, _: scores, 1000)
def failing(n_classes, image_shape): return Wrong(fail)
def squeezed(n_classes, image_shape): return Wrong(lambda scores, _: scores.squeeze())
def two_heads(n_classes, image_shape): return Wrong(lambda scores, training: (scores, scores) if training else scores)
def labels(n_classes, image_shape): return Wrong(lambda scores, _: scores.long())
def mean(n_classes, image_shape): return Wrong(lambda scores, _: scores.mean())
def double(n_classes, image_shape): return Wrong(lambda scores, _: scores).double()
def empty(n_classes, image_shape): return nn.Sequential(nn.Flatten(), nn.AdaptiveAvgPool1d(10))
"""
RULE = "must return a float tensor of 2 x 10, images x classes, got"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own")
    (folder / "tried_models.py").write_text(OWN, encoding="utf-8")
    write_digits(folder)
    return folder


@pytest.fixture(autouse=True)
def own(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(place)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    sys.modules.pop("tried_models", None)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("thousand", f"{RULE} 2 x 1000: its last layer must have n_classes outputs$"),
        ("failing", r"fails on float images of 2 x 1 x 28 x 28: KeyError: 'a\\nb'$"),
        ("squeezed", "must return a float tensor of 1 x 10, images x classes, got 10: its last"),
        ("two_heads", f"{RULE} tuple$"),
        ("labels", f"{RULE} torch.int64$"),
        ("mean", f"{RULE} a single number"),
        ("double", "fails on float images of .* RuntimeError: .*dtype"),
        ("empty", "has no parameters to train"),
    ],
)
def test_a_model_that_cannot_be_trained_is_refused_and_leaves_nothing(name: str, message: str, place: Path) -> None:
    with pytest.raises(UserError, match=f"model tried_models:{name} .*{message}") as refused:
        train(place / "some-digits.npz", place / "run", model=f"tried_models:{name}")
    assert "\n" not in str(refused.value)
    assert not (place / "run").exists()


def test_a_good_model_trains_and_one_that_was_changed_since_is_refused(place: Path) -> None:
    train(place / "some-digits.npz", place / "good", model="tried_models:good", epochs=1)
    assert load(place / "good", trust_model=True)(torch.zeros(3, 1, 28, 28, dtype=torch.uint8)).shape == (3, 10)
    text = (place / "good" / "config.toml").read_text(encoding="utf-8")
    (place / "good" / "config.toml").write_text(text.replace("tried_models:good", "tried_models:squeezed"))
    with pytest.raises(UserError, match="model tried_models:squeezed must return a float tensor of 1 x 10"):
        load(place / "good", trust_model=True)


def test_images_come_in_the_memory_layout_of_training() -> None:
    class Viewing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3 * 8 * 8, 5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x.view(len(x), -1))

    images = torch.rand(2, 3, 8, 8)
    check_model("viewing", Viewing(), images, 5)
    with pytest.raises(UserError, match=r"view size is not compatible .* Use .reshape"):
        check_model("viewing", Viewing(), images.contiguous(memory_format=torch.channels_last), 5)
