"""`invaug export`: every format gives the scores of the model itself."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors
import safetensors.torch
import torch
from torch import Tensor

from invaug.lab.errors import UserError
from invaug.lab.export import command as export
from invaug.lab.export.command import export_run
from invaug.lab.export.predict import predict_files
from invaug.lab.models.build import build_model
from invaug.lab.run import atomic
from invaug.lab.run import folder as run
from tests.support.untrained_runs import (
    CLASSES,
    MEANS,
    MODELS,
    STDS,
    Made,
    assert_same,
    by_hand,
    make_run,
    settled,
    some_images,
)

quiet_jit = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")


def test_safetensors_hold_the_weights_under_the_networks_own_names(made: Made, tmp_path: Path) -> None:
    path = export_run(made.folder, "safetensors", tmp_path / "w.safetensors")
    weights = safetensors.torch.load_file(path)
    expected = made.network.state_dict()
    assert weights.keys() == expected.keys()
    assert all(torch.equal(weights[name], expected[name]) for name in expected)


def test_safetensors_say_how_to_use_the_weights(made: Made, tmp_path: Path) -> None:
    path = export_run(made.folder, "safetensors", tmp_path / "w.safetensors")
    with safetensors.safe_open(path, "pt") as file:
        about = file.metadata()
    assert about.pop("format") == "pt"
    assert {key: json.loads(value) for key, value in about.items()} == {
        "model": made.folder.name,
        "classes": list(CLASSES),
        "mean": list(MEANS[made.shape[0]]),
        "std": list(STDS[made.shape[0]]),
        "image_shape": list(made.shape),
    }


def test_a_fresh_network_with_the_exported_weights_gives_the_predictors_scores(
    made: Made, tmp_path: Path, digits: Tensor
) -> None:
    path = export_run(made.folder, "safetensors", tmp_path / "w.safetensors")
    network = build_model(made.folder.name, len(CLASSES), made.shape).eval()
    network.load_state_dict(safetensors.torch.load_file(path))
    images = some_images(digits, 7, made.shape)
    with torch.no_grad():
        assert_same(run.load(made.folder)(images), by_hand(network, images))


def test_state_dict_is_read_without_unpickling_code(made: Made, tmp_path: Path) -> None:
    path = export_run(made.folder, "state-dict", tmp_path / "w.pt")
    weights = torch.load(path, weights_only=True)
    network = build_model(made.folder.name, len(CLASSES), made.shape)
    network.load_state_dict(weights, strict=True)
    expected = made.network.state_dict()
    assert all(torch.equal(weights[name], expected[name]) for name in expected)


@quiet_jit
def test_torchscript_takes_bytes_of_any_batch_size(made: Made, tmp_path: Path, digits: Tensor) -> None:
    path = export_run(made.folder, "torchscript", tmp_path / "model.torchscript")
    about = {"invaug.json": ""}
    loaded = torch.jit.load(path, _extra_files=about)
    for n in (1, 5):
        images = some_images(digits, n, made.shape)
        assert_same(loaded(images).detach(), by_hand(made.network, images))
    assert json.loads(about["invaug.json"])["classes"] == list(CLASSES)


@quiet_jit
def test_torchscript_does_not_tell_where_files_lie(grey: Made, tmp_path: Path) -> None:
    path = export_run(grey.folder, "torchscript", tmp_path / "model.torchscript")
    with zipfile.ZipFile(path) as archive:
        content = b"".join(archive.read(name) for name in archive.namelist())
    assert b"forward" in content
    assert b"site-packages" not in content
    assert str(Path(export.__file__).parent).encode() not in content


def test_onnx_takes_bytes_of_any_batch_size(made: Made, tmp_path: Path, digits: Tensor) -> None:
    onnx = pytest.importorskip("onnx")
    reference = pytest.importorskip("onnx.reference")
    path = export_run(made.folder, "onnx", tmp_path / "model.onnx")
    evaluator = reference.ReferenceEvaluator(str(path))
    for n in (1, 5):
        images = some_images(digits, n, made.shape)
        (scores,) = evaluator.run(["scores"], {"images": images.numpy()})
        assert_same(scores, by_hand(made.network, images))
    about = {entry.key: json.loads(entry.value) for entry in onnx.load(path).metadata_props}
    assert about["classes"] == list(CLASSES)
    assert about["image_shape"] == list(made.shape)


def test_onnx_runs_in_onnxruntime(made: Made, tmp_path: Path, digits: Tensor) -> None:
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    path = export_run(made.folder, "onnx", tmp_path / "model.onnx")
    images = some_images(digits, 6, made.shape)
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (scores,) = session.run(["scores"], {"images": images.numpy()})
    assert_same(scores, by_hand(made.network, images))


def test_averaged_weights_are_exported_where_the_run_kept_them(tmp_path: Path, digits: Tensor) -> None:
    shape = MODELS["cnn-small"]
    last, average = settled("cnn-small", shape, digits), settled("cnn-small", shape, digits)
    with torch.no_grad():
        for parameter in average.parameters():
            parameter.mul_(0.5)
    folder = make_run(tmp_path / "averaged", last, "cnn-small", shape, ema=average)
    weights = safetensors.torch.load_file(export_run(folder, "safetensors", None))
    assert all(torch.equal(weights[name], tensor) for name, tensor in average.state_dict().items())


@pytest.mark.parametrize(
    ("to", "name"),
    [
        ("safetensors", "model.safetensors"),
        ("torchscript", "model.torchscript"),
        ("onnx", "model.onnx"),
        ("state-dict", "model.pt"),
    ],
)
def test_without_an_output_the_file_lies_in_the_run(tmp_path: Path, digits: Tensor, to: str, name: str) -> None:
    if to == "onnx":
        pytest.importorskip("onnx")
    shape = MODELS["cnn-small"]
    folder = make_run(tmp_path / "run", settled("cnn-small", shape, digits), "cnn-small", shape)
    assert export_run(folder, to, None) == folder / name
    assert (folder / name).is_file()


def test_weights_that_share_memory_are_exported(
    tmp_path: Path, digits: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_model(tmp_path, "tied", "self.layer.weight = self.again.weight = nn.Parameter(torch.randn(10, 10))")
    monkeypatch.syspath_prepend(tmp_path)
    folder = own_run(tmp_path, "tied")
    weights = safetensors.torch.load_file(export_run(folder, "safetensors", None, trust_model=True))
    assert torch.equal(weights["layer.weight"], weights["again.weight"])


@pytest.mark.parametrize("to", ["torchscript", "onnx"])
def test_a_model_whose_trace_goes_wrong_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str
) -> None:
    if to == "onnx":
        pytest.importorskip("onnx")
    name = f"fickle_{to}"
    write_model(tmp_path, name, "pass", forward="return scores * float(len(images))")  # len becomes a constant
    monkeypatch.syspath_prepend(tmp_path)
    folder = own_run(tmp_path, name)
    message = f"model {name}:factory cannot be exported in this format: its trace does not reproduce"
    with pytest.raises(UserError, match=message):
        export_run(folder, to, None, trust_model=True)
    assert not list(folder.glob("model*"))


def write_model(folder: Path, name: str, init: str, forward: str = "return scores") -> None:
    (folder / f"{name}.py").write_text(
        "import torch\n"
        "from torch import nn\n"
        "class Own(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.first, self.layer, self.again = nn.LazyLinear(10), nn.Linear(10, 10), nn.Linear(10, 10)\n"
        f"        {init}\n"
        "    def forward(self, images):\n"
        "        scores = self.again(self.layer(self.first(images.flatten(1))))\n"
        f"        {forward}\n"
        "def factory(n_classes, image_shape):\n"
        "    torch.manual_seed(0)\n"
        "    model = Own()\n"
        "    model(torch.zeros(1, *image_shape))\n"
        "    return model\n"
    )


def own_run(folder: Path, name: str) -> Path:
    network = build_model(f"{name}:factory", len(CLASSES), (1, 8, 8))
    return make_run(folder / "run", network, f"{name}:factory", (1, 8, 8))


def test_an_unknown_format_answers_with_the_nearest(grey: Made) -> None:
    with pytest.raises(UserError, match=r"unknown format safetensor, did you mean safetensors\?"):
        export_run(grey.folder, "safetensor", None)


def test_an_existing_file_is_left_alone(grey: Made, tmp_path: Path) -> None:
    path = tmp_path / "precious.pt"
    path.write_bytes(b"mine")
    with pytest.raises(UserError, match=r"precious\.pt exists: remove it, or choose another file with --output"):
        export_run(grey.folder, "state-dict", path)
    assert path.read_bytes() == b"mine"


def test_a_missing_folder_is_not_made(grey: Made, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"folder .*nowhere does not exist: create it"):
        export_run(grey.folder, "safetensors", tmp_path / "nowhere" / "model.safetensors")
    assert not list(tmp_path.iterdir())


def test_a_full_disk_leaves_nothing_behind(grey: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic, "write_all", full)
    with pytest.raises(UserError, match=r"cannot write .*model\.safetensors: No space left on device"):
        export_run(grey.folder, "safetensors", tmp_path / "model.safetensors")
    assert not list(tmp_path.iterdir())


def test_onnx_that_is_not_installed_is_named_with_the_command(grey: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"needs onnx, which is not installed: pip install 'invaug\[onnx\]'$"):
        export_run(grey.folder, "onnx", None)


@pytest.mark.parametrize("action", [lambda f: export_run(f, "onnx", None), lambda f: predict_files(f, [], 1)])
def test_a_folder_that_is_no_run_is_refused(tmp_path: Path, action: Callable[[Path], Any]) -> None:
    with pytest.raises(UserError, match=r"is not a run: it has no config\.toml"):
        action(tmp_path)


def test_a_run_without_a_checkpoint_is_refused(tmp_path: Path, digits: Tensor) -> None:
    shape = MODELS["cnn-small"]
    folder = make_run(tmp_path / "run", settled("cnn-small", shape, digits), "cnn-small", shape)
    for file in (folder / "checkpoints").iterdir():
        file.unlink()
    with pytest.raises(UserError, match="has no checkpoint yet"):
        export_run(folder, "safetensors", None)
