"""Fine-tuning: weights of an exported run or of torch, a new head for other classes, and files that are refused."""

from __future__ import annotations

import hashlib
import os
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

from invaug.lab.config.build import build
from invaug.lab.config.resolve import Facts, resolve
from invaug.lab.config.schema import Model
from invaug.lab.errors import UserError
from invaug.lab.export.command import export_run
from invaug.lab.models import weights
from invaug.lab.models.build import build_model
from invaug.lab.models.weights import new_model
from invaug.lab.run.checkpoint import load
from tests.support.runs import train, write_digits
from tests.support.untrained_runs import CLASSES, Made, make_run, settled

SHAPE = (3, 32, 32)
HEAD = {"2.2.weight", "2.2.bias"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A run of ten classes, whose BatchNorm has seen images."""
    digits = torch.randint(256, (64, 1, 28, 28), generator=torch.Generator().manual_seed(0))
    network = settled("resnet-8", SHAPE, digits)
    return Made(make_run(tmp_path_factory.mktemp("weights") / "run", network, "resnet-8", SHAPE), network, SHAPE)


@pytest.fixture(scope="module")
def exported(made: Made) -> Path:
    return export_run(made.folder, "safetensors", None)


def start(file: Path, classes: tuple[str, ...] = CLASSES, name: str = "resnet-8") -> tuple[dict[str, Tensor], str]:
    """The state of a model that starts from a file, its random numbers seeded, and what was said about it."""
    said: list[str] = []
    torch.manual_seed(5)
    model = new_model(Model(name=name, weights=file), classes, SHAPE, said.append)
    return model.state_dict(), "; ".join(said)


def differing(first: dict[str, Tensor], second: dict[str, Tensor]) -> set[str]:
    return {name for name in first if name not in second or not torch.equal(first[name], second[name])}


def test_the_same_classes_take_every_tensor(made: Made, exported: Path) -> None:
    state, said = start(exported)
    assert not differing(state, made.network.state_dict())
    assert said == f"weights {exported}: 51 of 51 tensors loaded".replace("51", str(len(state)))


@pytest.mark.parametrize("classes", [("cat", "dog", "fox"), tuple("abcdefghij")], ids=["fewer", "others"])
def test_other_classes_get_a_new_head_and_keep_the_rest(made: Made, exported: Path, classes: tuple[str, ...]) -> None:
    state, said = start(exported, classes)
    assert differing(state, made.network.state_dict()) == HEAD
    torch.manual_seed(5)
    untouched = build_model("resnet-8", len(classes), SHAPE).state_dict()
    assert not differing({name: state[name] for name in HEAD}, untouched)
    assert said.endswith("tensors loaded; a new head")


@pytest.mark.parametrize(
    "wrap",
    [
        lambda state: state,
        lambda state: {"epoch": 3, "state_dict": {f"module.{name}": tensor for name, tensor in state.items()}},
        lambda state: {"model": {f"_orig_mod.{name}": tensor for name, tensor in state.items()}},
    ],
    ids=["plain", "distributed", "compiled"],
)
def test_a_state_dict_of_torch_is_taken(made: Made, tmp_path: Path, wrap: Callable[..., object]) -> None:
    torch.save(wrap(made.network.state_dict()), tmp_path / "w.pt")
    assert not differing(start(tmp_path / "w.pt")[0], made.network.state_dict())


def test_names_that_do_not_match_are_listed_in_one_line(made: Made, tmp_path: Path) -> None:
    state = made.network.state_dict() | {"aux.weight": torch.zeros(2), "0.0.weight": torch.zeros(16, 1, 3, 3)}
    file = tmp_path / "w.pt"
    torch.save(state, file)
    filled, said = start(file)
    assert differing(filled, state) == {"0.0.weight"}
    assert said.endswith("; not in the file: 0.0.weight; in the file alone: 0.0.weight, aux.weight")


def test_weights_of_another_model_are_refused(exported: Path) -> None:
    message = (
        r"do not fit model wrn-10-1: \d+ of its \d+ tensors are there by name and shape; it has 0.weight, .* more$"
    )
    with pytest.raises(UserError, match=message):
        start(exported, name="wrn-10-1")


class Harmful:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.mark,)


def test_a_pickle_is_refused_and_not_run(tmp_path: Path) -> None:
    torch.save({"weight": Harmful(tmp_path / "mark")}, tmp_path / "w.pt")
    torch.save(nn.Linear(2, 2), tmp_path / "module.pt")
    for name in ("w.pt", "module.pt"):
        with pytest.raises(UserError, match=rf"cannot read weights .*{name}: not a state dict of tensors alone: write"):
            start(tmp_path / name)
    assert not (tmp_path / "mark").exists()


def test_files_that_cannot_be_weights_are_refused(
    made: Made, exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = made.network.state_dict()
    cut, nan, fifo = tmp_path / "cut.safetensors", tmp_path / "nan.safetensors", tmp_path / "fifo"
    cut.write_bytes(exported.read_bytes()[:999])
    safetensors.torch.save_file({name: tensor * float("nan") for name, tensor in state.items()}, nan)
    os.mkfifo(fifo)
    (tmp_path / "link.safetensors").symlink_to(exported)
    assert not differing(start(tmp_path / "link.safetensors")[0], state)
    for path, message in (
        (tmp_path / "gone.pt", "cannot read weights .*gone.pt: No such file"),
        (made.folder, f"is a folder: of a run, write the file with invaug export {made.folder}$"),
        (fifo, "not a regular file"),
        (cut, "cannot read weights .*cut.safetensors: "),
        (nan, r"weights .*nan.safetensors are not finite in "),
    ):
        with pytest.raises(UserError, match=message):
            start(path)
    torch.save({"weight": torch.zeros(9999)}, tmp_path / "large.pt")
    monkeypatch.setattr(weights, "MAX_BYTES", 9999)
    with pytest.raises(UserError, match=r"over the limit of 9,999"):
        start(tmp_path / "large.pt")


def test_an_archive_that_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import zipfile

    with zipfile.ZipFile(tmp_path / "bomb.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data/0", bytes(1 << 20))
    monkeypatch.setattr(weights, "MAX_BYTES", 1 << 19)
    with pytest.raises(UserError, match=r"unpacks to 1,048,576 bytes, over the limit"):
        start(tmp_path / "bomb.pt")


def test_a_run_starts_from_the_weights_and_notices_other_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a real run to a file to a second run, whose steps are too small to leave the file's weights."""
    monkeypatch.chdir(tmp_path)
    data = write_digits(tmp_path)
    train(data, tmp_path / "first", epochs=1)
    file = export_run(tmp_path / "first", "safetensors", tmp_path / "w.safetensors")
    trained = safetensors.torch.load_file(file)
    settings = {"weights": file, "lr": 1e-12, "momentum": 0.0, "epochs": 1}
    train(data, tmp_path / "second", **settings)
    saved = load(tmp_path / "second" / "checkpoints")
    assert saved
    torch.testing.assert_close(saved.state["model"]["0.weight"], trained["0.weight"], rtol=0, atol=1e-9)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    config = tomllib.loads((tmp_path / "second" / "config.toml").read_text(encoding="utf-8"))
    assert config["model"]["weights_sha256"] == digest == saved.meta["config"]["weights_sha256"]
    assert saved.meta["config"]["weights"] == "w.safetensors"
    assert str(file) not in (tmp_path / "second" / "report.html").read_text(encoding="utf-8")
    train(data, tmp_path / "second", resume=True, **settings)
    safetensors.torch.save_file({name: tensor + 1 for name, tensor in trained.items()}, file)
    with pytest.raises(
        UserError, match=r"weights .*w.safetensors is another file: its SHA-256 is .*, weights_sha256 is"
    ):
        train(data, tmp_path / "second", resume=True, **settings)
    with pytest.raises(UserError, match=r"cannot read weights gone.pt: No such file"):
        train(data, tmp_path / "third", weights=Path("gone.pt"))
    assert not (tmp_path / "third").exists()


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_given_weights_are_trained_with_a_lower_learning_rate(exported: Path, optimizer: str) -> None:
    facts = Facts(CLASSES, 1000)
    usual, lower = (resolve(build({"optimizer": optimizer, **given}), facts) for given in ({}, {"weights": exported}))
    assert float(lower.train.lr) == pytest.approx(0.3 * float(usual.train.lr), abs=1e-7)
    assert resolve(build({"weights": exported, "lr": 0.07}), facts).train.lr == 0.07
    assert resolve(lower, facts) == lower


@pytest.mark.parametrize("name", ["resnet18", "vit_tiny_patch16_224"])
def test_weights_of_timm_are_taken_with_a_new_head(torchvision: ModuleType, name: str, tmp_path: Path) -> None:
    timm = pytest.importorskip("timm")
    theirs = timm.create_model(name, num_classes=1000, **({"img_size": 32} if "vit" in name else {}))
    torch.save(theirs.state_dict(), tmp_path / "w.pth")
    torch.manual_seed(5)
    ours = new_model(Model(name=f"timm:{name}", weights=tmp_path / "w.pth"), ("cat", "dog"), SHAPE).eval()
    images = torch.rand(2, *SHAPE)
    assert ours(images).shape == (2, 2)
    torch.testing.assert_close(ours.forward_features(images), theirs.eval().forward_features(images))


def test_weights_of_a_users_own_model_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "from torch import nn\ndef make(n_classes, image_shape):\n    return nn.Sequential(nn.Conv2d(3, 4, 3), "
    text += "nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, n_classes))\n"
    (tmp_path / "own_for_weights.py").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = build_model("own_for_weights:make", 10, SHAPE).state_dict()
    safetensors.torch.save_file(before, tmp_path / "w.safetensors")
    after, said = start(tmp_path / "w.safetensors", ("cat", "dog"), "own_for_weights:make")
    assert differing(after, before) == {"3.weight", "3.bias"}
    assert said.endswith("2 of 4 tensors loaded; a new head")
